"""B37: shares of processors, memory, network and disks over the steps, from samples of the machine.

Source: Zhu et al., "Benchmarking and Analyzing Deep Neural Network Training", IISWC 2018: CPU utilisation is the
time of all cores in which they were active over the time elapsed times their number; GPU utilisation stands beside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.core import Column, Role, analysis
from xsp_analyze.frames import device_time
from xsp_analyze.frames.samples import QUANTITIES, system_series

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.trace.step_view import StepView

__all__ = ["system_shares"]

_COLUMNS = (
    Column("run_id", pl.Int64(), "The run beside which was sampled.", role=Role.KEY),
    Column("resource", pl.String(), "What the row is of.", role=Role.KEY),
    Column("utilisation_share", pl.Float64(), "Mean part of it in use; null: how much it can do is not known."),
    Column("min_share", pl.Float64(), "In the sample in which least was."),
    Column("max_share", pl.Float64(), "In the sample in which most was."),
    Column("mean_byte_per_s", pl.Float64(), "Bytes moved a second.", "byte/s"),
    Column("max_byte_per_s", pl.Float64(), "In the sample in which most was.", "byte/s"),
    Column("mean_bytes", pl.Float64(), "Memory in use.", "byte"),
    Column("max_bytes", pl.Float64(), "In the sample in which most was.", "byte"),
    Column("covered_share", pl.Float64(), "Part of the time, first step's start to last one's end, that was sampled."),
    Column("basis", pl.String(), "samples of the machine, or kernels recorded.", role=Role.LABEL),
)
_MEASURES = {
    "share": ("utilisation_share", "min_share", "max_share"),
    "byte/s": ("mean_byte_per_s", None, "max_byte_per_s"),
    "byte": ("mean_bytes", None, "max_bytes"),
}


@analysis(
    "B37",
    "system shares",
    needs=("system",),
    columns=_COLUMNS,
    read="Where the processors or a disk are busy and the GPU is not, the input pipeline is what steps wait for.",
    by_step=False,
)
def system_shares(frames: StepView) -> pl.LazyFrame:
    """One row a run and resource: processors, memory, network, disks, and last the GPU by the kernels recorded.

    Of the time from the first step's start to the last one's end; without steps, of the whole run.
    """
    rows = list(_sampled(frames))
    sampled = {row["run_id"] for row in rows}
    works = not frames.of_trace.all_activities.is_empty() and list(sampled) == frames.of_trace.kernel_runs.ids
    share = device_time.utilisation(frames).share if works else None
    if share is not None:
        kernels = {"resource": "gpu", "utilisation_share": share, "basis": "kernels recorded"}
        rows.append({"run_id": rows[0]["run_id"], **kernels})
    schema = {c.name: c.type_of(averaged=False) for c in _COLUMNS}
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema, orient="row").lazy()


def _sampled(frames: StepView) -> Iterator[dict[str, Any]]:
    of_runs = _windows(frames)
    series = system_series(frames.of_trace.own_runs.frame("counters"))
    for run in sorted({run for run, _ in series}):
        for counter, quantity in QUANTITIES.items():
            if (run, counter) not in series or run not in of_runs:
                continue
            start, end = of_runs[run]
            over = series[run, counter].over(start, end)
            if over is None:
                continue
            mean, low, high, covered = over
            names = _MEASURES[quantity.unit]
            measured = {name: value for name, value in zip(names, (mean, low, high), strict=True) if name}
            yield {
                "run_id": run,
                "resource": quantity.name,
                **measured,
                "covered_share": covered / (end - start) if end > start else None,
                "basis": "samples of the machine",
            }


def _windows(frames: StepView) -> dict[int, tuple[int, int]]:
    """From the first step's start to the last one's end, by run; of runs without steps their extent in time."""
    end = (pl.col("start_ns") + pl.col("duration_ns").fill_null(0)).max().alias("end_ns")
    extents = frames.of_trace.own_runs.scan("spans").group_by("run_id").agg(pl.col("start_ns").min(), end).collect()
    sampled = (
        frames.of_trace.own_runs.frame("counters")
        .group_by("run_id")
        .agg(pl.col("time_ns").min().alias("start_ns"), pl.col("time_ns").max().alias("end_ns"))
    )
    windows = {run: (start, stop) for run, start, stop in sampled.iter_rows()}
    windows |= {run: (start, stop) for run, start, stop in extents.iter_rows()}
    steps = frames.every_step.drop_nulls(["begin_ns", "end_ns"])
    marked = steps.group_by("run_id").agg(pl.col("begin_ns").min(), pl.col("end_ns").max())
    windows |= {run: (start, stop) for run, start, stop in marked.iter_rows()}
    return windows
