"""Every analysis, listed once, its module imported when it is asked for; and what each answers of a view of a trace."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from xsp_analyze.core import Analysis, run
from xsp_analyze.faults import FaultError, fault_of, note_fault
from xsp_model import XspError
from xsp_model.errors import closest

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from xsp_analyze.core import Result
    from xsp_analyze.trace.step_view import StepView

__all__ = ["all_analyses", "analyses_in", "find", "outcome", "result", "table"]

_MODULES: Mapping[str, str] = {
    "A01": "model",
    "A02": "layers",
    "A03": "layers",
    "A04": "layers",
    "A05": "layers",
    "A06": "layers",
    "A07": "layers",
    "A08": "kernels",
    "A09": "rooflines",
    "A10": "kernels",
    "A11": "kernels",
    "A12": "layers",
    "A13": "layers",
    "A14": "rooflines",
    "A15": "model",
    "B01": "recording",
    "B02": "recording",
    "B03": "timeline",
    "B04": "launches",
    "B05": "operators",
    "B06": "operators",
    "B07": "memory",
    "B08": "ranks",
    "B09": "memory",
    "B10": "timeline",
    "B11": "rooflines",
    "B14": "samples",
    "B16": "launches",
    "B17": "kernels",
    "B18": "launches",
    "B19": "launches",
    "B20": "serving",
    "B21": "model_parts",
    "B22": "model_parts",
    "B23": "operators",
    "B24": "rooflines",
    "B25": "serving",
    "B26": "kernels",
    "B27": "rooflines",
    "B28": "model_parts",
    "B29": "ranks",
    "B30": "ranks",
    "B31": "ranks",
    "B32": "memory",
    "B33": "memory",
    "B34": "memory",
    "B35": "model_parts",
    "B36": "outputs",
    "B37": "samples",
    "B38": "model",
    "B39": "launches",
    "B40": "launches",
    "B41": "launches",
    "B42": "timeline",
    "B43": "layers",
    "B44": "samples",
    "B45": "layers",
    "B46": "ranks",
    "B47": "model_parts",
    "B48": "serving",
    "B49": "timeline",
    "cuda_gpu_kern_sum": "nsys.cuda",
    "cuda_gpu_kern_gb_sum": "nsys.cuda",
    "cuda_api_sum": "nsys.cuda",
    "cuda_gpu_mem_time_sum": "nsys.cuda",
    "cuda_gpu_mem_size_sum": "nsys.cuda",
    "cuda_gpu_trace": "nsys.cuda",
    "cuda_kern_exec_sum": "nsys.cuda",
    "nvtx_sum": "nsys.ranges",
    "nvtx_gpu_proj_sum": "nsys.projection",
    "nvtx_gpu_proj_trace": "nsys.projection",
    "nvtx_kern_sum": "nsys.ranges",
    "cuda_gpu_sum": "nsys.cuda",
    "cuda_api_gpu_sum": "nsys.cuda",
    "cuda_kern_exec_trace": "nsys.cuda",
    "nvtx_pushpop_sum": "nsys.ranges",
    "nvtx_startend_sum": "nsys.ranges",
    "nvtx_pushpop_trace": "nsys.ranges",
    "osrt_sum": "nsys.libraries",
    "openmp_sum": "nsys.libraries",
    "openacc_sum": "nsys.libraries",
    "mpi_event_trace": "nsys.libraries",
    "um_sum": "nsys.unified_memory",
    "um_total_sum": "nsys.unified_memory",
    "um_cpu_page_faults_sum": "nsys.unified_memory",
    "gpu_gaps": "recipes.gpu_use",
    "gpu_time_util": "recipes.gpu_use",
    "cuda_gpu_time_util_map": "recipes.gpu_use",
    "cuda_memcpy_async": "recipes.sums_and_paces",
    "cuda_memcpy_sync": "recipes.sums_and_paces",
    "cuda_memset_sync": "recipes.sums_and_paces",
    "cuda_api_sync": "recipes.sums_and_paces",
    "cuda_gpu_kern_pace": "recipes.sums_and_paces",
    "nvtx_pace": "recipes.sums_and_paces",
    "nvtx_gpu_proj_pace": "recipes.sums_and_paces",
    "nccl_sum": "recipes.sums_and_paces",
    "nccl_gpu_proj_sum": "recipes.sums_and_paces",
    "nccl_gpu_time_util_map": "recipes.gpu_use",
    "mpi_sum": "recipes.sums_and_paces",
    "mpi_gpu_time_util_map": "recipes.gpu_use",
    "ucx_gpu_time_util_map": "recipes.gpu_use",
    "gpu_metric_util_map": "recipes.gpu_use",
}
"""By id the module of `xsp_analyze.analyses` that declares it, in the order in which `xsp analyses` lists them."""


@cache
def all_analyses() -> tuple[Analysis, ...]:
    """All of them, in order. Imports every module of analyses: `find` imports one."""
    return tuple(map(_load, _MODULES))


def analyses_in(folder: str) -> tuple[Analysis, ...]:
    """The analyses of a folder of `xsp_analyze.analyses`: `nsys`, the reports of `nsys stats`, or `recipes`."""
    return tuple(_load(identity) for identity, module in _MODULES.items() if module.startswith(f"{folder}."))


def find(identifier: str) -> Analysis:
    """The analysis with that id, however it is capitalised; XspError naming those near to it by id or title."""
    for identity in _MODULES:
        if identity.lower() == identifier.lower():
            return _load(identity)
    titles = {a.title: a.id for a in all_analyses()}
    near = [titles.get(name, name) for name in closest(identifier, [*_MODULES, *titles])]
    named = [f"{a.id} ({a.title})" for identity in dict.fromkeys(near) for a in all_analyses() if a.id == identity]
    hint = f"Did you mean {' or '.join(named)}? " if named else ""
    raise XspError(f"there is no analysis {identifier!r}", advice=f"{hint}`xsp analyses` lists them")


def _load(identity: str) -> Analysis:
    declared = vars(import_module(f"xsp_analyze.analyses.{_MODULES[identity]}")).values()
    return next(one for one in declared if isinstance(one, Analysis) and one.id == identity)


def outcome(view: StepView, identifier: str) -> Result | XspError:
    """What the analysis of that id answers, or why the trace cannot tell it; worked out once for the view.

    A fault is noted each time: whatever is made without the answer says so (`noting_faults`).
    """
    answer = view.once(_outcome, find(identifier).id)
    if isinstance(answer, FaultError):
        note_fault(answer)
    return answer


def result(view: StepView, identifier: str) -> Result:
    """The same; XspError is raised."""
    answer = outcome(view, identifier)
    if isinstance(answer, XspError):
        raise answer
    return answer


def table(view: StepView, identifier: str) -> pl.DataFrame | None:
    """The table of the same; None where the trace cannot tell it."""
    answer = outcome(view, identifier)
    return None if isinstance(answer, XspError) else answer.table


def _outcome(view: StepView, identifier: str) -> Result | XspError:
    one = find(identifier)
    try:
        with fault_of(f"{one.id} ({one.title})"):
            return run(one, view)
    except XspError as error:
        return error.with_traceback(None)  # which holds the tables that it came by
