"""Eleven reports of `nsys stats`, computed from the trace: the semantics and headings of nsys 2023.4.4.

Where nsys leaves the order of rows open (equal totals in cuda_api_sum: its own numbers of names), ours is by name. Not
in our model, so not in the reports: green contexts (the column GreenCtx stays empty), and NVTX marks, by which
nvtx_sum of nsys would close a range that never ended if a mark came after every other range.
"""

from xsp_analyze.analyses.nsys.cuda_api_sum import cuda_api_sum
from xsp_analyze.analyses.nsys.cuda_gpu_kern_gb_sum import cuda_gpu_kern_gb_sum
from xsp_analyze.analyses.nsys.cuda_gpu_kern_sum import cuda_gpu_kern_sum
from xsp_analyze.analyses.nsys.cuda_gpu_mem_size_sum import cuda_gpu_mem_size_sum
from xsp_analyze.analyses.nsys.cuda_gpu_mem_time_sum import cuda_gpu_mem_time_sum
from xsp_analyze.analyses.nsys.cuda_gpu_trace import cuda_gpu_trace
from xsp_analyze.analyses.nsys.cuda_kern_exec_sum import cuda_kern_exec_sum
from xsp_analyze.analyses.nsys.nvtx_gpu_proj_sum import nvtx_gpu_proj_sum
from xsp_analyze.analyses.nsys.nvtx_gpu_proj_trace import nvtx_gpu_proj_trace
from xsp_analyze.analyses.nsys.nvtx_kern_sum import nvtx_kern_sum
from xsp_analyze.analyses.nsys.nvtx_sum import nvtx_sum
from xsp_analyze.core import Analysis

__all__ = [
    "NSYS_REPORTS",
    "cuda_api_sum",
    "cuda_gpu_kern_gb_sum",
    "cuda_gpu_kern_sum",
    "cuda_gpu_mem_size_sum",
    "cuda_gpu_mem_time_sum",
    "cuda_gpu_trace",
    "cuda_kern_exec_sum",
    "nvtx_gpu_proj_sum",
    "nvtx_gpu_proj_trace",
    "nvtx_kern_sum",
    "nvtx_sum",
]

NSYS_REPORTS: tuple[Analysis, ...] = (
    cuda_gpu_kern_sum,
    cuda_gpu_kern_gb_sum,
    cuda_api_sum,
    cuda_gpu_mem_time_sum,
    cuda_gpu_mem_size_sum,
    cuda_gpu_trace,
    cuda_kern_exec_sum,
    nvtx_sum,
    nvtx_gpu_proj_sum,
    nvtx_gpu_proj_trace,
    nvtx_kern_sum,
)
"""All of them, in the order of `xsp analyses`."""
