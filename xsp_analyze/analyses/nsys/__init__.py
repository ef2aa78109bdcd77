"""Twenty-four reports of `nsys stats`, computed from the trace: the semantics and headings of nsys 2023.4.4.

Where nsys leaves the order of rows open (equal totals in cuda_api_sum: its own numbers of names), ours is by name. Not
in our model, so not in the reports: green contexts (the column GreenCtx stays empty), and NVTX marks, by which
nvtx_sum of nsys would close a range that never ended if a mark came after every other range.
"""

from xsp_analyze.analyses.nsys.cuda_api_gpu_sum import cuda_api_gpu_sum
from xsp_analyze.analyses.nsys.cuda_api_sum import cuda_api_sum
from xsp_analyze.analyses.nsys.cuda_gpu_kern_gb_sum import cuda_gpu_kern_gb_sum
from xsp_analyze.analyses.nsys.cuda_gpu_kern_sum import cuda_gpu_kern_sum
from xsp_analyze.analyses.nsys.cuda_gpu_mem_size_sum import cuda_gpu_mem_size_sum
from xsp_analyze.analyses.nsys.cuda_gpu_mem_time_sum import cuda_gpu_mem_time_sum
from xsp_analyze.analyses.nsys.cuda_gpu_sum import cuda_gpu_sum
from xsp_analyze.analyses.nsys.cuda_gpu_trace import cuda_gpu_trace
from xsp_analyze.analyses.nsys.cuda_kern_exec_sum import cuda_kern_exec_sum
from xsp_analyze.analyses.nsys.cuda_kern_exec_trace import cuda_kern_exec_trace
from xsp_analyze.analyses.nsys.mpi_event_trace import mpi_event_trace
from xsp_analyze.analyses.nsys.nvtx_gpu_proj_sum import nvtx_gpu_proj_sum
from xsp_analyze.analyses.nsys.nvtx_gpu_proj_trace import nvtx_gpu_proj_trace
from xsp_analyze.analyses.nsys.nvtx_kern_sum import nvtx_kern_sum
from xsp_analyze.analyses.nsys.nvtx_pushpop_sum import nvtx_pushpop_sum
from xsp_analyze.analyses.nsys.nvtx_pushpop_trace import nvtx_pushpop_trace
from xsp_analyze.analyses.nsys.nvtx_startend_sum import nvtx_startend_sum
from xsp_analyze.analyses.nsys.nvtx_sum import nvtx_sum
from xsp_analyze.analyses.nsys.openacc_sum import openacc_sum
from xsp_analyze.analyses.nsys.openmp_sum import openmp_sum
from xsp_analyze.analyses.nsys.osrt_sum import osrt_sum
from xsp_analyze.analyses.nsys.um_cpu_page_faults_sum import um_cpu_page_faults_sum
from xsp_analyze.analyses.nsys.um_sum import um_sum
from xsp_analyze.analyses.nsys.um_total_sum import um_total_sum
from xsp_analyze.core import Analysis

__all__ = [
    "NSYS_REPORTS",
    "cuda_api_gpu_sum",
    "cuda_api_sum",
    "cuda_gpu_kern_gb_sum",
    "cuda_gpu_kern_sum",
    "cuda_gpu_mem_size_sum",
    "cuda_gpu_mem_time_sum",
    "cuda_gpu_sum",
    "cuda_gpu_trace",
    "cuda_kern_exec_sum",
    "cuda_kern_exec_trace",
    "mpi_event_trace",
    "nvtx_gpu_proj_sum",
    "nvtx_gpu_proj_trace",
    "nvtx_kern_sum",
    "nvtx_pushpop_sum",
    "nvtx_pushpop_trace",
    "nvtx_startend_sum",
    "nvtx_sum",
    "openacc_sum",
    "openmp_sum",
    "osrt_sum",
    "um_cpu_page_faults_sum",
    "um_sum",
    "um_total_sum",
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
    cuda_gpu_sum,
    cuda_api_gpu_sum,
    cuda_kern_exec_trace,
    nvtx_pushpop_sum,
    nvtx_startend_sum,
    nvtx_pushpop_trace,
    osrt_sum,
    openmp_sum,
    openacc_sum,
    mpi_event_trace,
    um_sum,
    um_total_sum,
    um_cpu_page_faults_sum,
)
"""All of them, in the order of `xsp analyses`."""
