"""`nsys analyze` rule and `nsys recipe` cuda_memcpy_async: asynchronous copies that pageable memory makes wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.sources import copies
from xsp_analyze.analyses.recipes.sync_calls import asked_for, copy_columns
from xsp_analyze.core import analysis
from xsp_model import Kind

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["cuda_memcpy_async"]

_CALLS = r"(?i)^cudaMemcpy.*Async"
_PAGEABLE = "Pageable"


def table(view: TraceView) -> pl.LazyFrame:
    """The rule's rows."""
    pageable = pl.any_horizontal(pl.col("source_kind", "destination_kind") == _PAGEABLE)
    moved = copies(view).filter(pl.col("kind") == Kind.MEMCPY, pageable)
    return asked_for(view, moved, pl.col("call_name").str.contains(_CALLS))


@analysis(
    "cuda_memcpy_async",
    "Asynchronous copies with pageable memory",
    needs=("runtime", "copies"),
    key=(),  # a row is a call or an activity; coarse clocks, or ranks alike, put several at one start
    columns=copy_columns(),
    by_step=False,
)
def cuda_memcpy_async(frames: StepView) -> pl.LazyFrame:
    """One row a copy that was asked for asynchronously and reads or writes pageable host memory, longest first."""
    return table(frames.of_trace)
