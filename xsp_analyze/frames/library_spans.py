"""Calls on the host told by whose they are: of MPI, UCX, OpenMP, OpenACC and the operating system's runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_model import Kind, Level

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["LIBRARIES", "has_library", "library_calls", "library_spans"]

LIBRARIES: Mapping[str, str] = {
    "MPI": r"^P?MPI_",
    "UCX": r"^uc[pst]_",
    "OpenMP": r"^OpenMP:",
    "OpenACC": r"^OpenACC:",
}
"""By whose call it is: how names of spans at the level of libraries begin."""

_OF_OTHERS = "|".join((*LIBRARIES.values(), r"^(cudnn|cublas|\[unnamed (call|MPI|UCP))"))
_OS_RUNTIME = "OS runtime"
_NSYS = "nsys"


def library_spans(view: TraceView, whose: str) -> pl.LazyFrame:
    """The rows of `spans` that are calls of one of LIBRARIES, or of the "OS runtime", which Nsight alone records.

    Of a profile, whose runs are of the same work, those of the runs that kernels are taken from.
    """
    rows = _rows(view, whose)
    names = rows.select(pl.col("name").unique()).collect().to_series()  # few, and texts are looked at one by one
    texts = names.cast(pl.String)
    fits = ~texts.str.contains(_OF_OTHERS) if whose == _OS_RUNTIME else texts.str.contains(LIBRARIES[whose])
    return rows.filter(pl.col("name").is_in(names.filter(fits).implode()))


def _rows(view: TraceView, whose: str) -> pl.LazyFrame:
    """Those among which they are."""
    rows = view.kernel_runs.scan("spans").filter(pl.col("level") == str(Level.LIBRARY))
    if whose != _OS_RUNTIME:
        return rows
    of_nsys = pl.col("format").str.starts_with(_NSYS).fill_null(value=False)
    runs = view.kernel_runs.table.filter(of_nsys)["run_id"].to_list()
    return rows.filter(pl.col("run_id").is_in(runs), pl.col("kind") == str(Kind.CALL))


def library_calls(view: TraceView, whose: str) -> pl.LazyFrame:
    """Those with a duration that count once: ranges named as calls (MPI's in nsys 2022) where a run has no calls."""
    rows = library_spans(view, whose).filter(pl.col("duration_ns") > 0)
    is_call = pl.col("kind") == str(Kind.CALL)
    return rows.filter(is_call | ~is_call.any().over("run_id"))


def has_library(view: TraceView, whose: str) -> bool:
    """Whether there is any."""
    return not library_spans(view, whose).select("span_id").head(1).collect().is_empty()
