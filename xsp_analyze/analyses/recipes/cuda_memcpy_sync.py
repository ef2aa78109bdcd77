"""`nsys analyze` rule and `nsys recipe` cuda_memcpy_sync: copies that hold up the host."""

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

__all__ = ["cuda_memcpy_sync"]

_CALLS = r"(?i)^cudaMemcpy"
_ASYNCHRONOUS = r"(?i)Async"
_TO_DEVICE = "Host-to-Device"
_SMALL_BYTES = 64_000  # the rule says 64 KB


def table(view: TraceView) -> pl.LazyFrame:
    """The rule's rows."""
    small = (pl.col("bytes") <= _SMALL_BYTES) & (pl.col("copy_kind") == _TO_DEVICE)
    moved = copies(view).filter(pl.col("kind") == Kind.MEMCPY, ~small)
    waited = pl.col("call_name").str.contains(_CALLS) & ~pl.col("call_name").str.contains(_ASYNCHRONOUS)
    return asked_for(view, moved, waited)


@analysis(
    "cuda_memcpy_sync",
    "Synchronous copies",
    needs=("runtime", "copies"),
    key=(),  # a row is a call or an activity; coarse clocks, or ranks alike, put several at one start
    columns=copy_columns(),
    by_step=False,
)
def cuda_memcpy_sync(frames: StepView) -> pl.LazyFrame:
    """One row a copy for which the host waited, copies of at most 64,000 bytes to a device left out; longest first.

    nsys also leaves out peer copies within one device, which our model does not tell from others.
    """
    return table(frames.of_trace)
