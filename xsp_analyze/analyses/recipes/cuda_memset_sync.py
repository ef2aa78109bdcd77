"""`nsys analyze` rule and `nsys recipe` cuda_memset_sync: fills of host or managed memory that hold up the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.sources import copies
from xsp_analyze.analyses.nsys.statistics import name_column
from xsp_analyze.analyses.recipes.sync_calls import LOCATION, asked_for, timing
from xsp_analyze.core import Role, analysis
from xsp_model import Kind

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["cuda_memset_sync"]

_CALLS = r"(?i)^cudaMemset"
_ASYNCHRONOUS = r"(?i)async"
_MEMORY = ("Pinned", "Managed")


def table(view: TraceView) -> pl.LazyFrame:
    """The rule's rows."""
    filled = copies(view).filter(pl.col("kind") == Kind.MEMSET, pl.col("destination_kind").is_in(_MEMORY))
    waited = pl.col("call_name").str.contains(_CALLS) & ~pl.col("call_name").str.contains(_ASYNCHRONOUS)
    return asked_for(view, filled, waited)


@analysis(
    "cuda_memset_sync",
    "Synchronous memsets",
    needs=("runtime", "copies"),
    key=(),  # a row is a call or an activity; coarse clocks, or ranks alike, put several at one start
    columns=(
        *timing("fill"),
        name_column("destination_kind", "Memory filled: Pinned or Managed.", "Memory Kind", role=Role.LABEL),
        *LOCATION,
    ),
    by_step=False,
)
def cuda_memset_sync(frames: StepView) -> pl.LazyFrame:
    """One row a fill of pinned or managed memory for which the host waited, longest first."""
    return table(frames.of_trace)
