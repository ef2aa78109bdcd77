"""`nsys recipe` cuda_gpu_time_util_map: how much of the time kernels ran, over the capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.statistics import integer, with_runs
from xsp_analyze.analyses.recipes.common import FILE, with_file
from xsp_analyze.analyses.recipes.heatmap import BINS, bins, sessions, stamped_kernels
from xsp_analyze.analyses.recipes.operations import GPU
from xsp_analyze.columns import RUN
from xsp_analyze.core import Column, FigureSpec, Role, analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["cuda_gpu_time_util_map"]


def table(view: TraceView) -> pl.LazyFrame:
    """The recipe's rows."""
    captures = sessions(view)
    parts = [
        pl.DataFrame({"bin_start_ns": [captures[run].bin_ns * i for i in range(BINS)]}).with_columns(
            pl.Series("kernel_share", bins(rows, captures[run])).fill_nan(None),
            *(pl.lit(rows[name][0], pl.Int64).alias(name) for name in GPU),
        )
        for rows in stamped_kernels(view)
        for run in [rows["run_id"][0]]
    ]
    return with_file(view, pl.concat(parts).lazy()).sort(*GPU, "bin_start_ns")


@analysis(
    "cuda_gpu_time_util_map",
    "Use of each GPU over the capture",
    needs=("kernels",),
    columns=(
        RUN,
        integer("bin_start_ns", "Start of the thirtieth of the capture.", "Duration", role=Role.KEY, unit="ns"),
        Column(
            "kernel_share",
            pl.Float64(),
            "Part of it in which kernels ran, those at once counted once; null: outside the run's capture.",
            "share",
            header="Kernel",
            decimals=1,
        ),
        integer("process_id", "The process.", "PID", role=Role.KEY),
        integer("device_id", "The device.", "Device ID", role=Role.KEY),
        FILE,
    ),
    figure=FigureSpec("bars", x="bin_start_ns", y=("kernel_share",), title="Use of the GPU by kernels"),
    by_step=False,
)
def cuda_gpu_time_util_map(frames: StepView) -> pl.LazyFrame:
    """One row a run, process, device and thirtieth of the longest capture, in that order."""
    return with_runs(frames.of_trace, table(frames.of_trace))
