"""Recipes that sum the calls of MPI and NCCL by name, and that tell how regularly kernels and ranges come again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.sources import WORK_KINDS, kernels, on_source_clock
from xsp_analyze.analyses.nsys.statistics import integer, name_column
from xsp_analyze.analyses.recipes.common import (
    FILE,
    closed_ranges,
    collective_range,
    project,
    statistics_by_name,
    statistics_columns,
    with_file,
)
from xsp_analyze.core import Column, Role, analysis
from xsp_analyze.frames.host_ranges import library_calls

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = [
    "base_name",
    "cuda_gpu_kern_pace",
    "mpi_sum",
    "nccl_gpu_proj_sum",
    "nccl_sum",
    "nvtx_gpu_proj_pace",
    "nvtx_pace",
    "pace",
    "pace_columns",
    "short_name",
]

# How regularly something comes again: each occurrence with the time since the one before.

_GROUP = ("run_id", "name")


def pace(view: TraceView, rows: pl.LazyFrame) -> pl.LazyFrame:
    """One row an occurrence (run_id, name, start_ns, end_ns), in the order given, by name and run."""
    stamped = on_source_clock(view, rows, ("start_ns", "end_ns"))
    previous = pl.col("end_ns").shift(1, fill_value=0).over(_GROUP)
    paced = stamped.with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).over(_GROUP).alias("iteration"),
        (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"),
        # The first one's is from the start of the capture, as in nsys.
        (pl.col("start_ns") - previous).alias("delta_ns"),
    )
    paced = paced.with_columns(
        pl.col("delta_ns").cum_sum().over(_GROUP).alias("delta_sum_ns"),
        pl.col("duration_ns").cum_sum().over(_GROUP).alias("duration_sum_ns"),
    )
    return with_file(view, paced).sort("name", "run_id", "iteration")


def pace_columns(what: str, *, device: bool = False) -> tuple[Column, ...]:
    """Columns for `pace`; the headings are the names of the recipe's `pace_*.parquet`."""
    where = "on the device" if device else "on the host"
    return (
        name_column("name", f"Name of the {what}.", "Name"),
        integer("run_id", "The run: the recipe's rank.", "Rank", role=Role.KEY),
        FILE,
        integer("iteration", "Index among the ranges of its name in the run, from 0.", "Iteration", role=Role.KEY),
        integer("start_ns", f"Its start {where}, on the profiler's own clock.", "start", unit="ns"),
        integer("end_ns", f"Its end {where}.", "end", unit="ns"),
        integer("duration_ns", "Its duration.", "duration", unit="ns"),
        integer(
            "delta_ns", "From the end of the one before to its start; the first: from the start of the capture.",
            "delta", unit="ns",
        ),
        integer("duration_sum_ns", "Sum of the durations so far.", "duration_accum", unit="ns"),
        integer("delta_sum_ns", "Sum of the deltas so far.", "delta_accum", unit="ns"),
    )  # fmt: skip


# The base name of a kernel: its function without type, namespaces, template arguments and parameters.

_OPEN, _CLOSE = "<([{", ">)]}"


def short_name(column: str) -> pl.Expr:
    """The base names of a column of names."""
    return pl.col(column).map_batches(_base_names, return_dtype=pl.String).alias("name")


def _base_names(names: pl.Series) -> pl.Series:
    kinds = names.unique()
    return names.replace_strict(kinds, [base_name(name) if name else name for name in kinds], return_dtype=pl.String)


def base_name(name: str) -> str:
    """The base name as nsys shortens it: `void at::f<(int)4>(int)` is `f`."""
    plain = _outside_brackets(name)
    return plain.rpartition("::")[2].split(" ")[-1].strip("*&") or name


def _outside_brackets(name: str) -> str:
    """What stands in no bracket, up to the parameters."""
    kept: list[str] = []
    depth = 0
    for position, character in enumerate(name):
        if character in _OPEN:
            if character == "(" and depth == 0 and kept and not name.startswith("(anonymous", position):
                break
            depth += 1
        elif character in _CLOSE and depth:
            depth -= 1
        elif depth == 0:
            kept.append(character)
    return "".join(kept).strip()


@analysis(
    "cuda_gpu_kern_pace",
    "Pace of kernels",
    needs=("kernels",),
    columns=pace_columns("kernel, without namespaces, template arguments and parameters", device=True),
    by_step=False,
)
def cuda_gpu_kern_pace(frames: StepView) -> pl.LazyFrame:
    """One row a kernel, by name and run in order of start; the recipe gives those of one name."""
    view = frames.of_trace
    rows = kernels(view).sort("run_id", "start_ns", "span_id").select(
        "run_id", short_name("name"), "start_ns", (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    )  # fmt: skip
    return pace(view, rows)


@analysis(
    "nvtx_pace",
    "Pace of named ranges",
    needs=("ranges",),
    columns=pace_columns("range, whatever its domain"),
    by_step=False,
)
def nvtx_pace(frames: StepView) -> pl.LazyFrame:
    """One row a range that ended, by name and run in the file's order; the recipe gives those of one name."""
    view = frames.of_trace
    return pace(view, closed_ranges(view).select("run_id", pl.col("text").alias("name"), "start_ns", "end_ns"))


@analysis(
    "nvtx_gpu_proj_pace",
    "Pace of named ranges on the device",
    needs=("ranges", "runtime", "kernel"),
    columns=pace_columns("range, whatever its domain", device=True),
    by_step=False,
)
def nvtx_gpu_proj_pace(frames: StepView) -> pl.LazyFrame:
    """One row a range that launched work, by name and run in order of launch; the recipe gives those of one name."""
    view = frames.of_trace
    return pace(view, project(view, closed_ranges(view), WORK_KINDS).rename({"text": "name"}))


@analysis(
    "mpi_sum",
    "MPI calls",
    needs=("MPI",),
    columns=statistics_columns(name_column("text", "Name of the call.", "Text"), "the durations of the calls"),
    by_step=False,
)
def mpi_sum(frames: StepView) -> pl.LazyFrame:
    """One row a function of MPI, by name; calls without duration are left out."""
    calls = library_calls(frames.of_trace, "MPI")
    return statistics_by_name(calls.select("run_id", "duration_ns", text=pl.col("name").cast(pl.String)), "text")


@analysis(
    "nccl_sum",
    "NCCL calls",
    needs=("ranges",),
    columns=statistics_columns(name_column("text", "Name of the call.", "Text"), "the durations of the calls"),
    by_step=False,
)
def nccl_sum(frames: StepView) -> pl.LazyFrame:
    """One row a name of NCCL's ranges, by name; ranges without duration are left out."""
    calls = closed_ranges(frames.of_trace).filter(collective_range())
    timed = calls.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"))
    return statistics_by_name(timed.filter(pl.col("duration_ns") > 0), "text")


@analysis(
    "nccl_gpu_proj_sum",
    "NCCL calls on the device",
    needs=("ranges", "runtime", "kernel"),
    columns=statistics_columns(
        name_column("text", "Name of the call.", "Text"),
        "the times from the first start to the last end of the work launched in a call",
    ),
    by_step=False,
)
def nccl_gpu_proj_sum(frames: StepView) -> pl.LazyFrame:
    """One row a name of NCCL's ranges that launched work, by name."""
    view = frames.of_trace
    rows = project(view, closed_ranges(view).filter(collective_range()), WORK_KINDS)
    timed = rows.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"))
    return statistics_by_name(timed.filter(pl.col("duration_ns") > 0), "text")
