"""`nsys stats`' trace of MPI events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.statistics import integer, name_column, with_runs
from xsp_analyze.columns import RUN
from xsp_analyze.core import Column, Role, analysis
from xsp_analyze.frames.host_ranges import library_spans

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["mpi_event_trace"]

_SIZES = (
    ("bytes", "Size of a message between two.", "Size (MB)"),
    ("sent_bytes", "What this rank sends in a collective.", "CollSendSize (MB)"),
    ("received_bytes", "What this rank receives in a collective.", "CollRecvSize (MB)"),
)


def table(view: TraceView) -> pl.LazyFrame:
    """The report's rows, with times on the source's own clock; of ranges named as calls nothing more is known."""
    origins = view.timed_runs.scan("runs").select("run_id", "clock_origin_ns")
    start = pl.col("start_ns") + pl.col("clock_origin_ns")
    return (
        library_spans(view, "MPI")
        .join(view.trace.scan("messages"), on="span_id", how="left")
        .join(origins, on="run_id", how="left")
        .with_columns(start, (start + pl.col("duration_ns")).alias("end_ns"), pl.col("name").cast(pl.String))
        .sort("start_ns", "span_id")
    )


@analysis(
    "mpi_event_trace",
    "MPI event trace",
    needs=("MPI",),
    key=(),  # threads call at the same time
    columns=(
        RUN,
        integer("start_ns", "Start on the profiler's own clock.", "Start (ns)", unit="ns"),
        integer("end_ns", "End; null: it never ended.", "End (ns)", unit="ns"),
        integer("duration_ns", "Duration.", "Duration (ns)", unit="ns"),
        name_column("name", "The function.", "Event", role=Role.LABEL),
        integer("process_id", "The process.", "Pid", role=Role.LABEL),
        integer("thread_id", "The thread.", "Tid", role=Role.LABEL),
        integer("tag", "Tag of the message.", "Tag", role=Role.LABEL),
        integer("rank", "Rank of the thread.", "Rank", role=Role.LABEL),
        integer("peer_rank", "Rank sent to or received from.", "PeerRank", role=Role.LABEL),
        integer("root_rank", "Rank of a collective's root.", "RootRank", role=Role.LABEL),
        *(Column(name, pl.Int64(), doc, "byte", header=header, decimals=3) for name, doc, header in _SIZES),
    ),
    by_step=False,
)
def mpi_event_trace(frames: StepView) -> pl.LazyFrame:
    """One row a call of MPI, by start."""
    return with_runs(frames.of_trace, table(frames.of_trace))
