"""When a GPU had nothing to do for long or was used little: rules of `nsys analyze`, and maps over the capture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.analyses.nsys.sources import WORK_KINDS, integer, kernels, on_source_clock, with_runs
from xsp_analyze.analyses.recipes.sums_and_paces import FILE, closed_ranges, collective_range, project, with_file
from xsp_analyze.columns import RUN
from xsp_analyze.core import Analysis, Column, FigureSpec, Role, analysis
from xsp_analyze.frames.host_ranges import library_calls
from xsp_model import Kind
from xsp_model.columns.intervals import FARTHEST_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.columns.arrays import Floats, Ints

__all__ = [
    "GPU",
    "cuda_gpu_time_util_map",
    "gaps_longer_than",
    "gpu_gaps",
    "gpu_metric_util_map",
    "gpu_time_util",
    "merged_stretches",
    "mpi_gpu_time_util_map",
    "nccl_gpu_time_util_map",
    "time_inside",
    "ucx_gpu_time_util_map",
]


# How much of a window stretches take up, in closed form over many windows at once.
def time_inside(start: Ints, end: Ints, edges: Ints) -> Ints:
    """For each window between neighbouring edges the sum of what each stretch has inside it; overlaps count again."""
    before = _sum_before(np.sort(start), edges) - _sum_before(np.sort(end), edges)
    return np.diff(before)


def _sum_before(moments: Ints, edges: Ints) -> Ints:
    """For each edge the sum of its distances from the moments before it."""
    sums = np.concatenate(([0], np.cumsum(moments - moments[0] if len(moments) else moments)))
    count = np.searchsorted(moments, edges, side="left")
    first = moments[0] if len(moments) else 0
    return count * (edges - first) - sums[count]


def merged_stretches(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The stretches with those that overlap or touch made one, in order of start."""
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    begun, reach = start[order], np.maximum.accumulate(end[order])
    new = np.concatenate(([True], begun[1:] > reach[:-1]))
    last = np.concatenate((np.flatnonzero(new)[1:] - 1, [len(begun) - 1]))
    return begun[new], reach[last]


# What keeps a GPU busy in the sense of nsys' rules: kernels, copies, memsets, and profiling overhead between them.
GPU = ("run_id", "process_id", "device_id")
"""What one row of the rules is about: a device in a process of a run."""
_OVERHEAD = "cuda_profiling_overhead_ns"


def _operations(view: TraceView) -> pl.LazyFrame:
    """One row an operation: GPU, context_id, start_ns and end_ns as the profiler stamped them.

    Overhead that lies wholly between the first and the last operation of a device counts as one.
    """
    spans = view.kernel_runs.scan("spans").filter(pl.col("kind").cast(pl.String).is_in(WORK_KINDS))
    stamped = on_source_clock(view, spans.select(*GPU, "context_id", "start_ns", "duration_ns"), ("start_ns",))
    work = stamped.filter(pl.col("start_ns") > 0, pl.col("duration_ns").is_not_null()).with_columns(
        (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    )
    work = work.drop("duration_ns")
    return pl.concat([work, _overhead(view, work)])


def _overhead(view: TraceView, work: pl.LazyFrame) -> pl.LazyFrame:
    is_duration = (pl.col("counter").cast(pl.String) == _OVERHEAD) & (pl.col("value") < FARTHEST_NS)
    counters = view.kernel_runs.scan("counters").filter(is_duration)
    stamped = on_source_clock(view, counters, ("time_ns",)).select(
        "run_id",
        "device_id",
        pl.col("time_ns").alias("start_ns"),
        (pl.col("time_ns") + pl.col("value").cast(pl.Int64)).alias("end_ns"),
    )
    windows = work.group_by(GPU).agg(
        pl.col("start_ns").min().alias("first_ns"),
        pl.col("end_ns").max().alias("last_ns"),
        pl.col("context_id").sort_by("end_ns").last(),
    )
    inside = stamped.join(windows, on=["run_id", "device_id"]).filter(
        pl.col("start_ns") > pl.col("first_ns"), pl.col("end_ns") < pl.col("last_ns")
    )
    return inside.select(*GPU, "context_id", "start_ns", "end_ns")


_LONGEST_NS = 500_000_000  # the rule's default for `gap`


def gaps_longer_than(view: TraceView, length_ns: int) -> pl.LazyFrame:
    """The rows of the rule `gpu_gaps` with this `gap`."""
    work = _operations(view)
    # The n-th end and the start after n starts: where the one comes first, nothing ran in between.
    number = pl.int_range(pl.len(), dtype=pl.Int64).over(GPU).alias("number")
    starts = work.sort(*GPU, "start_ns").select(*GPU, pl.col("start_ns").alias("next_ns"), number - 1)
    ends = work.sort(*GPU, "end_ns").select(*GPU, "context_id", pl.col("end_ns").alias("start_ns"), number)
    gaps = ends.join(starts, on=[*GPU, "number"], nulls_equal=True).with_columns(
        (pl.col("next_ns") - pl.col("start_ns")).alias("duration_ns")
    )
    long_gaps = gaps.filter(pl.col("duration_ns") > length_ns)
    return long_gaps.sort(-pl.col("duration_ns"), "start_ns", *GPU).with_row_index("row_number", offset=1)


@analysis(
    "gpu_gaps",
    "GPU gaps of more than 500 ms",
    needs=("kernel",),
    columns=(
        integer("row_number", "Number of the gap.", "Row#", role=Role.KEY),
        integer(
            "duration_ns", "Time without kernel, copy, memset or profiling overhead; over 500 ms.", "Duration (ns)",
            unit="ns",
        ),
        integer("start_ns", "When it began, on the profiler's own clock.", "Start (ns)", unit="ns"),
        integer("process_id", "The process.", "PID", role=Role.LABEL),
        integer("device_id", "The device.", "Device ID", role=Role.LABEL),
        integer("context_id", "The context that had worked last.", "Context ID", role=Role.LABEL),
    ),
    by_step=False,
)  # fmt: skip
def gpu_gaps(frames: StepView) -> pl.LazyFrame:
    """One row a gap between the first and the last operation of a device in a process, longest first."""
    return gaps_longer_than(frames.of_trace, _LONGEST_NS).with_columns(pl.col("row_number").cast(pl.Int64))


_CHUNKS = 30  # the rule's defaults
_LOW = 0.5
_DECIMALS = 3  # of a share: one of a percentage, by which the rule sorts
_SCHEMA = {
    **dict.fromkeys((*GPU, "context_id"), pl.Int64),
    "share": pl.Float64,
    "duration_ns": pl.Int64,
    "start_ns": pl.Int64,
}


def _stretches_of_low_use(group: pl.DataFrame) -> Iterator[tuple[object, ...]]:
    """Runs of neighbouring chunks of a device's time that are each used less than half."""
    start, end = group["start_ns"].to_numpy(), group["end_ns"].to_numpy()
    first, last = int(start.min()), int(end.max())
    size = math.ceil((last - first) / _CHUNKS)
    edges = np.minimum(first + size * np.arange(_CHUNKS + 1, dtype=np.int64), last)
    lengths = np.diff(edges)
    used = time_inside(start, end, edges)
    low = np.flatnonzero((lengths > 0) & (used < _LOW * lengths))
    keys = [group[name][0] for name in GPU]
    for run in np.split(low, np.flatnonzero(np.diff(low) != 1) + 1):
        if len(run):
            begin, over = int(edges[run[0]]), int(edges[run[-1] + 1])
            context = group["context_id"][int(np.argmax(end))]
            yield (*keys, context, float(used[run].sum() / lengths[run].sum()), over - begin, begin)


@analysis(
    "gpu_time_util",
    "Stretches of low GPU use",
    needs=("kernel",),
    columns=(
        integer("row_number", "Number of the stretch.", "Row#", role=Role.KEY),
        Column(
            "share",
            pl.Float64(),
            "Part of the stretch in which operations ran, those at once added up; under 0.5 in each thirtieth of the "
            "device's time that it is made of.",
            "share",
            header="In-Use (%)",
            decimals=1,
        ),
        integer("duration_ns", "How long it was.", "Duration (ns)", unit="ns"),
        integer("start_ns", "When it began, on the profiler's own clock.", "Start (ns)", unit="ns"),
        integer("process_id", "The process.", "PID", role=Role.LABEL),
        integer("device_id", "The device.", "Device ID", role=Role.LABEL),
        integer("context_id", "A context of the device.", "Context ID", role=Role.LABEL),
    ),
    by_step=False,
)
def gpu_time_util(frames: StepView) -> pl.LazyFrame:
    """One row a stretch between the first and the last operation of a device in a process, least used first."""
    groups = _operations(frames.of_trace).sort(*GPU, "start_ns").collect().partition_by(GPU, maintain_order=True)
    rows = [row for group in groups for row in _stretches_of_low_use(group)]
    frame = pl.DataFrame(rows, schema=_SCHEMA, orient="row").lazy()
    ordered = frame.sort(pl.col("share").round(_DECIMALS), "duration_ns", "start_ns", *GPU)
    return ordered.with_row_index("row_number", offset=1).with_columns(pl.col("row_number").cast(pl.Int64))


# Recipes that draw the use of devices over the capture, in thirty equal bins: kernels, NCCL, MPI, UCX, metrics.

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
_MAP_SCHEMA: Mapping[str, pl.DataType] = {
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
    empty = pl.DataFrame(schema=_MAP_SCHEMA)
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
