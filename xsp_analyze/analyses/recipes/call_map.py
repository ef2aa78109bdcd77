"""How much of the time a process spent in calls of a library, how much its kernels ran, and how much both at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.analyses.nsys.sources import kernels
from xsp_analyze.analyses.nsys.statistics import integer
from xsp_analyze.analyses.recipes.common import FILE, with_file
from xsp_analyze.analyses.recipes.heatmap import BINS, bins, sessions
from xsp_analyze.columns import RUN
from xsp_analyze.core import Column, Role
from xsp_analyze.frames.host_ranges import library_calls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.analyses.recipes.heatmap import Session
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["call_map", "call_map_columns"]

_PROCESS = ("run_id", "process_id")
_SCHEMA: Mapping[str, pl.DataType] = {
    **dict.fromkeys(("run_id", "bin_start_ns"), pl.Int64()),
    **dict.fromkeys(("kernel_share", "call_share", "overlap_share"), pl.Float64()),
    "process_id": pl.Int64(),
}


def call_map(view: TraceView, whose: str) -> pl.LazyFrame:
    """One row a process and thirtieth of the longest capture, of each run that has both kernels and such calls."""
    called, worked = (_times(rows) for rows in (library_calls(view, whose), kernels(view)))
    captures = sessions(view)
    both = set(called["run_id"]) & set(worked["run_id"])
    processes = pl.concat([called, worked]).filter(pl.col("run_id").is_in(list(both))).select(_PROCESS).unique()
    parts = []
    for run, process in processes.sort(_PROCESS).iter_rows():
        own = {"run_id": run, "process_id": process}
        part = _of_process(called.filter(**own), worked.filter(**own), captures[run])
        parts.append(part.with_columns(pl.lit(value, pl.Int64).alias(name) for name, value in own.items()))
    empty = pl.DataFrame(schema=_SCHEMA)
    return with_file(view, pl.concat([empty, *(part.select(empty.columns) for part in parts)]).lazy())


def _times(rows: pl.LazyFrame) -> pl.DataFrame:
    end = (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    return rows.drop_nulls("process_id").select(*_PROCESS, "start_ns", end).collect()


def _of_process(called: pl.DataFrame, worked: pl.DataFrame, session: Session) -> pl.DataFrame:
    in_calls, in_kernels, in_either = (bins(rows, session) for rows in (called, worked, pl.concat([called, worked])))
    in_both = np.maximum(in_calls + in_kernels - in_either, 0.0)  # a difference of sums may miss 0 by the last digit
    shares = {"kernel_share": in_kernels, "call_share": in_calls, "overlap_share": in_both}
    named = (pl.Series(name, values).fill_nan(None) for name, values in shares.items())
    return pl.DataFrame({"bin_start_ns": [session.bin_ns * i for i in range(BINS)]}).with_columns(named)


def call_map_columns(whose: str) -> Sequence[Column]:
    """Its columns."""
    shares = (
        ("kernel_share", "Kernel", "kernels of the process ran, those at once counted once"),
        ("call_share", whose, f"it was in a call of {whose}, those of several threads counted once"),
        ("overlap_share", "Overlap", "both was so"),
    )
    return (
        RUN,
        integer("bin_start_ns", "Start of the thirtieth of the capture.", "Duration", role=Role.KEY, unit="ns"),
        *(
            Column(
                name,
                pl.Float64(),
                f"Part of it in which {what}; null: outside the run's capture.",
                "share",
                header=header,
                decimals=1,
            )
            for name, header, what in shares
        ),
        integer("process_id", "The process.", "PID", role=Role.KEY),
        FILE,
    )
