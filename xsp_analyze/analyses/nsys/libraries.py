"""Calls of the OS runtime, OpenMP, OpenACC and MPI in `nsys stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.sources import (
    SUMMED,
    bytes_column,
    integer,
    name_column,
    on_source_clock,
    summary,
    time_columns,
    with_runs,
)
from xsp_analyze.columns import RUN
from xsp_analyze.core import Analysis, Role, analysis
from xsp_analyze.frames.host_ranges import library_spans

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["mpi_event_trace", "openacc_sum", "openmp_sum", "osrt_sum"]


def _library_sum(identity: str, whose: str, title: str, *, what: str, count: str, name: str) -> Analysis:
    """The summary by name of the calls or events of one library; `count` heads the column of how many there were."""

    @analysis(
        identity,
        title,
        needs=(whose,),
        additive=SUMMED,
        columns=(*time_columns(f"the durations of the {what}", count), name_column("name", name, "Name")),
        by_step=False,
    )
    def library_sum(frames: StepView) -> pl.LazyFrame:
        """One row a name, most total time first, then by name."""
        plain = pl.col("name").cast(pl.String).str.strip_prefix(f"{whose}:")  # the language that spans are told by
        rows = summary(library_spans(frames.of_trace, whose).select(plain, "duration_ns"), ["name"])
        return rows.sort(-pl.col("total_ns"), maintain_order=True)

    return library_sum


osrt_sum = _library_sum(
    "osrt_sum", "OS runtime", "OS runtime summary", what="calls", count="Num Calls", name="Name of the function."
)
openmp_sum = _library_sum("openmp_sum", "OpenMP", "OpenMP summary", what="events", count="Count", name="Kind of event.")
openacc_sum = _library_sum(
    "openacc_sum",
    "OpenACC",
    "OpenACC summary",
    what="events",
    count="Num Calls",
    name="Kind of event, at the file and line of its directive.",
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
        bytes_column("bytes", "Size of a message between two.", "Size (MB)"),
        bytes_column("sent_bytes", "What this rank sends in a collective.", "CollSendSize (MB)"),
        bytes_column("received_bytes", "What this rank receives in a collective.", "CollRecvSize (MB)"),
    ),
    by_step=False,
)
def mpi_event_trace(frames: StepView) -> pl.LazyFrame:
    """One row a call of MPI, by start."""
    view = frames.of_trace
    # Of ranges that are named as calls of MPI nothing is known of messages.
    calls = library_spans(view, "MPI").join(view.trace.scan("messages"), on="span_id", how="left")
    rows = on_source_clock(view, calls, ("start_ns",)).with_columns(
        (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"), pl.col("name").cast(pl.String)
    )
    return with_runs(view, rows.sort("start_ns", "span_id"))
