"""`nsys recipe` nccl_gpu_time_util_map: how much of the time NCCL's and other kernels ran, over the capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.statistics import integer, with_runs
from xsp_analyze.analyses.recipes.collectives import collective_range
from xsp_analyze.analyses.recipes.common import FILE, closed_ranges, with_file
from xsp_analyze.analyses.recipes.heatmap import BINS, Session, bins, sessions, stamped_kernels
from xsp_analyze.analyses.recipes.operations import GPU
from xsp_analyze.analyses.recipes.projected import project
from xsp_analyze.columns import RUN
from xsp_analyze.core import Column, FigureSpec, Role, analysis
from xsp_model import Kind

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["nccl_gpu_time_util_map"]

_NAMES = r"^(void )?(nccl|rccl)"
_SHARES = {"all_share": "All", "nccl_share": "NCCL", "compute_share": "Compute"}


def table(view: TraceView) -> pl.LazyFrame:
    """The recipe's rows; a kernel is NCCL's where it alone is what a range of NCCL's is projected to.

    A run without such ranges tells by the kernels' names.
    """
    projected = project(view, closed_ranges(view).filter(collective_range()), (Kind.KERNEL,)).collect()
    marked = projected.select("run_id", "start_ns", "end_ns", pl.lit(value=True).alias("projected")).unique()
    captures = sessions(view)
    parts = [_of_device(rows, marked, captures[rows["run_id"][0]]) for rows in stamped_kernels(view)]
    return with_file(view, pl.concat(parts).lazy()).sort(*GPU, "bin_start_ns")


def _of_device(rows: pl.DataFrame, marked: pl.DataFrame, session: Session) -> pl.DataFrame:
    if (marked["run_id"] == rows["run_id"][0]).any():
        held = rows.join(marked, on=["run_id", "start_ns", "end_ns"], how="left", maintain_order="left")
        collective = held["projected"].fill_null(value=False)
    else:
        collective = rows["name"].str.contains(_NAMES)
    chosen = (rows, rows.filter(collective), rows.filter(~collective))
    return pl.DataFrame({"bin_start_ns": [session.bin_ns * i for i in range(BINS)]}).with_columns(
        *(pl.Series(name, bins(part, session)).fill_nan(None) for name, part in zip(_SHARES, chosen, strict=True)),
        *(pl.lit(rows[name][0], pl.Int64).alias(name) for name in GPU),
    )


@analysis(
    "nccl_gpu_time_util_map",
    "Use of each GPU by NCCL and by computing over the capture",
    needs=("kernels",),
    columns=(
        RUN,
        integer("bin_start_ns", "Start of the thirtieth of the capture.", "Duration", role=Role.KEY, unit="ns"),
        *(
            Column(
                ours,
                pl.Float64(),
                f"Part of it in which {what} ran, those at once counted once; null: outside the run's capture.",
                "share",
                header=_SHARES[ours],
                decimals=1,
            )
            for ours, what in zip(_SHARES, ("kernels", "NCCL's kernels", "other kernels"), strict=True)
        ),
        integer("process_id", "The process.", "PID", role=Role.KEY),
        integer("device_id", "The device.", "Device ID", role=Role.KEY),
        FILE,
    ),
    figure=FigureSpec("bars", x="bin_start_ns", y=("nccl_share", "compute_share"), title="Use of the GPU"),
    by_step=False,
)
def nccl_gpu_time_util_map(frames: StepView) -> pl.LazyFrame:
    """One row a run, process, device and thirtieth of the longest capture, in that order."""
    return with_runs(frames.of_trace, table(frames.of_trace))
