"""Recipes that draw the use of devices over the capture, in thirty equal bins: kernels, NCCL, MPI, UCX, metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.analyses.nsys.sources import kernels
from xsp_analyze.analyses.nsys.statistics import integer, with_runs
from xsp_analyze.analyses.recipes.common import FILE, closed_ranges, collective_range, project, with_file
from xsp_analyze.analyses.recipes.gpu_use import GPU, merged_stretches, time_inside
from xsp_analyze.columns import RUN
from xsp_analyze.core import Analysis, Column, FigureSpec, Role, analysis
from xsp_analyze.frames.host_ranges import library_calls
from xsp_model import Kind
from xsp_model.columns.intervals import FARTHEST_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.columns.arrays import Floats

__all__ = [
    "cuda_gpu_time_util_map",
    "gpu_metric_util_map",
    "mpi_gpu_time_util_map",
    "nccl_gpu_time_util_map",
    "ucx_gpu_time_util_map",
]

_BINS = 30  # the recipes' default
_BIN = integer("bin_start_ns", "Start of the thirtieth of the capture.", "Duration", role=Role.KEY, unit="ns")
_DEVICE = (
    integer("process_id", "The process.", "PID", role=Role.KEY),
    integer("device_id", "The device.", "Device ID", role=Role.KEY),
)


def _share(name: str, what: str, header: str) -> Column:
    doc = f"Part of it in which {what}; null: outside the run's capture."
    return Column(name, pl.Float64(), doc, "share", header=header, decimals=1)


@dataclass(frozen=True, slots=True)
class _Session:
    """One run's capture on the clock of the earliest one: from `start_ns` to `end_ns`; the bins are of all runs."""

    origin_ns: int  # added to the trace's times gives that clock
    start_ns: int
    end_ns: int
    bin_ns: int


def _sessions(view: TraceView) -> Mapping[int, _Session]:
    """The capture of each run; where the file does not say how long it was, up to the last end of a span."""
    runs = view.timed_runs.table.select("run_id", "clock_origin_ns", "epoch_ns")
    durations = view.timed_runs.scan("counters").filter(pl.col("counter").cast(pl.String) == "capture_duration_ns")
    durations = durations.filter(pl.col("value") < FARTHEST_NS)
    recorded = dict(durations.select("run_id", pl.col("value").cast(pl.Int64)).collect().iter_rows())
    ends = view.timed_runs.scan("spans").group_by("run_id").agg(
        (pl.col("start_ns") + pl.col("duration_ns").fill_null(0)).max()
    )  # fmt: skip
    last = dict(ends.collect().iter_rows())
    # Unix time at the clock's own 0; where it is not known, the runs are taken to have begun together.
    began = {run: 0 if epoch is None else epoch - origin for run, origin, epoch in runs.iter_rows()}
    first = min(began.values(), default=0)
    extents = {}
    for run, origin, _ in runs.iter_rows():
        start = began[run] - first
        length = recorded.get(run, (last.get(run) or 0) + origin)
        extents[run] = (origin + start, start, start + length)
    size = math.ceil(max((end for _, _, end in extents.values()), default=0) / _BINS) or 1
    return {run: _Session(origin, start, end, size) for run, (origin, start, end) in extents.items()}


def _kernels_by_device(view: TraceView) -> list[pl.DataFrame]:
    """The kernels of each device in a process: GPU, start_ns and end_ns on the trace's own clock, and name."""
    end = (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    stamped = kernels(view).select(*GPU, "name", "start_ns", end).sort(*GPU, "start_ns")
    return stamped.collect().partition_by(GPU, maintain_order=True)


def _shares_of_bins(rows: pl.DataFrame, session: _Session) -> Floats:
    """The part of each bin in which at least one row ran, 0..1; NaN outside the run's capture."""
    start, end = merged_stretches(
        rows["start_ns"].to_numpy() + session.origin_ns, rows["end_ns"].to_numpy() + session.origin_ns
    )
    edges = session.bin_ns * np.arange(_BINS + 1, dtype=np.int64)
    # Of the bins in which the capture began and ended only the part inside it counts.
    inside = np.diff(np.clip(edges, session.start_ns, session.end_ns))
    used = time_inside(start, end, edges)
    return np.where(inside > 0, used / np.maximum(inside, 1), np.nan)


@analysis(
    "cuda_gpu_time_util_map",
    "Use of each GPU over the capture",
    needs=("kernels",),
    columns=(
        RUN,
        _BIN,
        _share("kernel_share", "kernels ran, those at once counted once", "Kernel"),
        *_DEVICE,
        FILE,
    ),
    figure=FigureSpec("bars", x="bin_start_ns", y=("kernel_share",), title="Use of the GPU by kernels"),
    by_step=False,
)
def cuda_gpu_time_util_map(frames: StepView) -> pl.LazyFrame:
    """One row a run, process, device and thirtieth of the longest capture, in that order."""
    view = frames.of_trace
    return _map_of_devices(view, lambda rows: {"kernel_share": rows})


def _map_of_devices(view: TraceView, parts_of: Callable[[pl.DataFrame], Mapping[str, pl.DataFrame]]) -> pl.LazyFrame:
    """One row a device and bin, with the part of it in which each of the `parts_of` the device's kernels ran."""
    captures = _sessions(view)
    maps = []
    for rows in _kernels_by_device(view):
        session = captures[rows["run_id"][0]]
        shares = {name: _shares_of_bins(part, session) for name, part in parts_of(rows).items()}
        maps.append(_bins(session, shares).with_columns(pl.lit(rows[name][0], pl.Int64).alias(name) for name in GPU))
    return with_runs(view, with_file(view, pl.concat(maps).lazy()).sort(*GPU, "bin_start_ns"))


def _bins(session: _Session, shares: Mapping[str, Floats]) -> pl.DataFrame:
    """One row a bin: its start, and these shares; NaN is null."""
    starts = pl.DataFrame({"bin_start_ns": [session.bin_ns * i for i in range(_BINS)]})
    return starts.with_columns(pl.Series(name, values).fill_nan(None) for name, values in shares.items())


@analysis(
    "nccl_gpu_time_util_map",
    "Use of each GPU by NCCL and by computing over the capture",
    needs=("kernels",),
    columns=(
        RUN,
        _BIN,
        _share("all_share", "kernels ran, those at once counted once", "All"),
        _share("nccl_share", "NCCL's kernels ran, those at once counted once", "NCCL"),
        _share("compute_share", "other kernels ran, those at once counted once", "Compute"),
        *_DEVICE,
        FILE,
    ),
    figure=FigureSpec("bars", x="bin_start_ns", y=("nccl_share", "compute_share"), title="Use of the GPU"),
    by_step=False,
)
def nccl_gpu_time_util_map(frames: StepView) -> pl.LazyFrame:
    """One row a run, process, device and thirtieth of the longest capture, in that order."""
    view = frames.of_trace
    projected = project(view, closed_ranges(view).filter(collective_range()), (Kind.KERNEL,)).collect()
    marked = projected.select("run_id", "start_ns", "end_ns", pl.lit(value=True).alias("projected")).unique()

    def parts_of(rows: pl.DataFrame) -> Mapping[str, pl.DataFrame]:
        # A kernel is NCCL's where it alone is what a range of NCCL's is projected to; where the run has no such
        # ranges, names tell.
        if (marked["run_id"] == rows["run_id"][0]).any():
            held = rows.join(marked, on=["run_id", "start_ns", "end_ns"], how="left", maintain_order="left")
            collective = held["projected"].fill_null(value=False)
        else:
            collective = rows["name"].str.contains(r"^(void )?(nccl|rccl)")
        return {"all_share": rows, "nccl_share": rows.filter(collective), "compute_share": rows.filter(~collective)}

    return _map_of_devices(view, parts_of)


_METRICS = {  # as versions of nsys call them, the recipe's heading, and what is meant
    "sm_active_share": (r"^SMs? Active$", "SM Active", "multiprocessors had work"),
    "sm_issue_share": (r"^SM Issue$", "SM Issue", "multiprocessors issued instructions"),
    "tensor_active_share": (r"^Tensor Active$", "Tensor Active", "tensor cores were at work"),
}
_GPU = ("run_id", "device_id")


def _samples_with_bins(samples: pl.DataFrame, session: _Session) -> pl.DataFrame:
    at = samples["time_ns"].to_numpy() + session.origin_ns
    index = -(-at // session.bin_ns) - 1
    inside = (at >= session.start_ns) & (at <= session.end_ns) & (index >= 0) & (index < _BINS)
    starts = pl.Series("bin_start_ns", (index * session.bin_ns).astype(np.int64))
    return samples.with_columns(starts).filter(pl.Series(inside))


@analysis(
    "gpu_metric_util_map",
    "Use of multiprocessors and tensor cores over the capture",
    needs=("GPU metrics",),
    columns=(
        RUN,
        _BIN,
        *(
            Column(
                name,
                pl.Float64(),
                f"Mean of the samples of how much of their time {what}; null: not sampled.",
                "share",
                header=header,
                decimals=1,
            )
            for name, (_, header, what) in _METRICS.items()
        ),
        integer("device_id", "The device.", "GPU", role=Role.KEY),
        FILE,
    ),
    figure=FigureSpec("bars", x="bin_start_ns", y=("sm_active_share",), title="Multiprocessors with work"),
    by_step=False,
)
def gpu_metric_util_map(frames: StepView) -> pl.LazyFrame:
    """One row a run, device and thirtieth of the longest capture that has samples, in that order."""
    # A sample counts in the bin that it ends, as the recipe has it.
    view = frames.of_trace
    metric = pl.coalesce(
        pl.when(pl.col("name").str.contains(pattern)).then(pl.lit(ours)) for ours, (pattern, _, _) in _METRICS.items()
    )
    counters = view.timed_runs.scan("counters")
    names = counters.select(pl.col("counter").unique()).with_columns(name=pl.col("counter").cast(pl.String))
    sampled = names.select("counter", metric=metric).drop_nulls()
    samples = counters.join(sampled, on="counter", how="inner", maintain_order="left").collect()
    captures = _sessions(view)
    parts = [_samples_with_bins(rows, captures[rows["run_id"][0]]) for rows in samples.partition_by("run_id")]
    rows = pl.concat([samples.clear().with_columns(bin_start_ns=pl.lit(None, pl.Int64)), *parts])
    value = pl.col("value")
    means = rows.group_by(*_GPU, "bin_start_ns").agg(
        value.filter(pl.col("metric") == name).mean().alias(name) for name in _METRICS
    )
    return with_runs(view, with_file(view, means.lazy()).sort(*_GPU, "bin_start_ns"))


_PROCESS = ("run_id", "process_id")
_SCHEMA: Mapping[str, pl.DataType] = {
    **dict.fromkeys(("run_id", "bin_start_ns"), pl.Int64()),
    **dict.fromkeys(("kernel_share", "call_share", "overlap_share"), pl.Float64()),
    "process_id": pl.Int64(),
}


def _calls_beside_kernels(view: TraceView, whose: str) -> pl.LazyFrame:
    """One row a process and thirtieth of the longest capture, of each run with both kernels and such calls."""
    called, worked = (_times(rows) for rows in (library_calls(view, whose), kernels(view)))
    captures = _sessions(view)
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


def _of_process(called: pl.DataFrame, worked: pl.DataFrame, session: _Session) -> pl.DataFrame:
    in_calls, in_kernels, in_either = (
        _shares_of_bins(rows, session) for rows in (called, worked, pl.concat([called, worked]))
    )
    in_both = np.maximum(in_calls + in_kernels - in_either, 0.0)  # a difference of sums may miss 0 by the last digit
    return _bins(session, {"kernel_share": in_kernels, "call_share": in_calls, "overlap_share": in_both})


def _call_map(identity: str, whose: str) -> Analysis:
    """How much of the time each process spent in calls of a library, its kernels ran, and both at once."""

    @analysis(
        identity,
        f"Calls of {whose} beside kernels over the capture",
        needs=(whose, "kernels"),
        columns=(
            RUN,
            _BIN,
            _share("kernel_share", "kernels of the process ran, those at once counted once", "Kernel"),
            _share("call_share", f"it was in a call of {whose}, those of several threads counted once", whose),
            _share("overlap_share", "both was so", "Overlap"),
            integer("process_id", "The process.", "PID", role=Role.KEY),
            FILE,
        ),
        figure=FigureSpec("bars", x="bin_start_ns", y=("kernel_share", "call_share"), title=f"{whose} and kernels"),
        by_step=False,
    )
    def call_map(frames: StepView) -> pl.LazyFrame:
        """One row a run, process and thirtieth of the longest capture, in that order."""
        return with_runs(frames.of_trace, _calls_beside_kernels(frames.of_trace, whose))

    return call_map


mpi_gpu_time_util_map = _call_map("mpi_gpu_time_util_map", "MPI")
ucx_gpu_time_util_map = _call_map("ucx_gpu_time_util_map", "UCX")
