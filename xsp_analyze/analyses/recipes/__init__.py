"""Recipes of `nsys recipe` and rules of `nsys analyze` that speak of GPU work, in the semantics of nsys 2023.4.4.

Thresholds are the tool's defaults. Not in our model: green contexts (the column stays empty). nsys ties copies to
calls by correlation id alone, so that in a file of several processes it can name the wrong process's call; ours is
the call of the same process. Where nsys leaves the order of rows open, ours is by run and start; nvtx_gpu_proj_pace
takes ranges by the time of their first call, nsys by its place in the file, where a process follows another.
"""

from xsp_analyze.analyses.recipes.cuda_api_sync import cuda_api_sync
from xsp_analyze.analyses.recipes.cuda_gpu_kern_pace import cuda_gpu_kern_pace
from xsp_analyze.analyses.recipes.cuda_gpu_time_util_map import cuda_gpu_time_util_map
from xsp_analyze.analyses.recipes.cuda_memcpy_async import cuda_memcpy_async
from xsp_analyze.analyses.recipes.cuda_memcpy_sync import cuda_memcpy_sync
from xsp_analyze.analyses.recipes.cuda_memset_sync import cuda_memset_sync
from xsp_analyze.analyses.recipes.gpu_gaps import gpu_gaps
from xsp_analyze.analyses.recipes.gpu_metric_util_map import gpu_metric_util_map
from xsp_analyze.analyses.recipes.gpu_time_util import gpu_time_util
from xsp_analyze.analyses.recipes.mpi_gpu_time_util_map import mpi_gpu_time_util_map
from xsp_analyze.analyses.recipes.mpi_sum import mpi_sum
from xsp_analyze.analyses.recipes.nccl_gpu_proj_sum import nccl_gpu_proj_sum
from xsp_analyze.analyses.recipes.nccl_gpu_time_util_map import nccl_gpu_time_util_map
from xsp_analyze.analyses.recipes.nccl_sum import nccl_sum
from xsp_analyze.analyses.recipes.nvtx_gpu_proj_pace import nvtx_gpu_proj_pace
from xsp_analyze.analyses.recipes.nvtx_pace import nvtx_pace
from xsp_analyze.analyses.recipes.ucx_gpu_time_util_map import ucx_gpu_time_util_map
from xsp_analyze.core import Analysis

__all__ = [
    "NSYS_RECIPES",
    "cuda_api_sync",
    "cuda_gpu_kern_pace",
    "cuda_gpu_time_util_map",
    "cuda_memcpy_async",
    "cuda_memcpy_sync",
    "cuda_memset_sync",
    "gpu_gaps",
    "gpu_metric_util_map",
    "gpu_time_util",
    "mpi_gpu_time_util_map",
    "mpi_sum",
    "nccl_gpu_proj_sum",
    "nccl_gpu_time_util_map",
    "nccl_sum",
    "nvtx_gpu_proj_pace",
    "nvtx_pace",
    "ucx_gpu_time_util_map",
]

NSYS_RECIPES: tuple[Analysis, ...] = (
    gpu_gaps,
    gpu_time_util,
    cuda_gpu_time_util_map,
    cuda_memcpy_async,
    cuda_memcpy_sync,
    cuda_memset_sync,
    cuda_api_sync,
    cuda_gpu_kern_pace,
    nvtx_pace,
    nvtx_gpu_proj_pace,
    nccl_sum,
    nccl_gpu_proj_sum,
    nccl_gpu_time_util_map,
    mpi_sum,
    mpi_gpu_time_util_map,
    ucx_gpu_time_util_map,
    gpu_metric_util_map,
)
"""All of them, in the order of `xsp analyses`."""
