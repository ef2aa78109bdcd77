"""What each device did with its time, over the steps chosen, by class of work and by step of a serving engine."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from xsp_analyze.classification import KernelClass
from xsp_analyze.formulas import quotient, total_of
from xsp_analyze.frames.group_ids import group_ids, groups, numbers_by_appearance
from xsp_analyze.frames.idle import CAUSES, DEVICE, IdleTime, idle_by_device
from xsp_analyze.frames.kernels.activities import column_at
from xsp_analyze.frames.kernels.kernel_classes import IS_COMMUNICATION
from xsp_analyze.frames.serving_steps import with_state
from xsp_analyze.frames.steps import StepBasis, StepMode, kept_steps
from xsp_model import Kind
from xsp_model.columns.arrays import distinct_values
from xsp_model.columns.intervals import LATEST_NS, Lanes, intersection, merge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.columns.arrays import Bools, Floats, Ints

__all__ = [
    "COMMUNICATION",
    "COMPUTE",
    "IDLE_DETAILS",
    "MEASURES",
    "MEMORY",
    "NS_PER_S",
    "DeviceTime",
    "Utilisation",
    "busiest_device",
    "busy_without_start",
    "class_time",
    "device_time",
    "device_windows",
    "serving_time",
    "utilisation",
    "window_by_run",
    "window_parts",
    "with_start_up",
    "working_times",
]

# How a device's time divides into compute, communication, memory traffic and idle, in exact ns.

MEASURES = (
    "window_ns",
    "active_ns",
    "busy_ns",
    "earlier_ns",
    "compute_ns",
    "communication_ns",
    "memory_ns",
    "compute_communication_ns",
    "exposed_communication_ns",
    "exposed_memory_ns",
)
"""What `_measures_in` measures."""
_COPIES = [str(Kind.MEMCPY), str(Kind.MEMSET)]
_COMPUTE, _COMMUNICATION, _MEMORY = range(3)


def _measures_in(work: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """MEASURES in ns for each window (lane, begin_ns, end_ns, step) of a device from all its work.

    A lane is a device, counted from 0; work is in order of lane and start. Each measure is the length of a union of
    intervals within the window. `compute` is every kernel (or graph) that is not communication, `memory` other copies
    and memsets. What is exposed runs while nothing earlier in that order does, so that busy = compute + exposed
    communication + exposed memory. `active` is from the first start to the last end of work; `earlier` the part of busy
    in which no work of the window's own step ran; 0 where the window is of no step.
    """
    line, start, end, begin, until = _on_one_line(work, windows)
    unions = _unions(start, end, _categories(work))
    lengths = {
        name: line.coverage_before(union, until) - line.coverage_before(union, begin) for name, union in unions.items()
    }
    own = _own_busy(work, windows)
    busy = lengths["working"] + lengths["memory"] - lengths["hidden"]
    columns = {
        "window_ns": (windows["end_ns"] - windows["begin_ns"]).to_numpy(),
        "active_ns": _active(line, start, end, begin, until),
        "busy_ns": busy,
        "earlier_ns": np.where(own < 0, 0, busy - own),
        "compute_ns": lengths["compute"],
        "communication_ns": lengths["communication"],
        "memory_ns": lengths["memory"],
        "compute_communication_ns": lengths["both"],
        "exposed_communication_ns": lengths["communication"] - lengths["both"],
        "exposed_memory_ns": lengths["memory"] - lengths["hidden"],
    }
    return pl.DataFrame({name: columns[name] for name in MEASURES}, schema=dict.fromkeys(MEASURES, pl.Int64))


def _on_one_line(work: pl.DataFrame, windows: pl.DataFrame) -> tuple[Lanes, Ints, Ints, Ints, Ints]:
    """Where work starts and ends, and windows begin and end, all devices one behind the other."""
    start, end = work["start_ns"].to_numpy(), (work["start_ns"] + work["duration_ns"]).to_numpy()
    begin, until = windows["begin_ns"].to_numpy(), windows["end_ns"].to_numpy()
    line = Lanes.of(start, end, begin, until)
    of_work, of_windows = work["lane"].to_numpy(), windows["lane"].to_numpy()
    worked = line.at(of_work, start), line.at(of_work, end)
    return line, *worked, line.at(of_windows, begin), line.at(of_windows, until)


def _unions(start: Ints, end: Ints, category: Ints) -> dict[str, tuple[Ints, Ints]]:
    compute, communication, memory = (_union(start, end, category == c) for c in range(3))
    working = merge(np.concatenate((compute[0], communication[0])), np.concatenate((compute[1], communication[1])))
    return {
        "compute": compute,
        "communication": communication,
        "memory": memory,
        "working": working,
        "both": intersection(compute, communication),
        "hidden": intersection(working, memory),
    }


def _categories(activities: pl.DataFrame) -> Ints:
    """Which of the three each activity is."""
    is_copy = pl.col("kind").cast(pl.String).is_in(_COPIES)
    category = pl.when(IS_COMMUNICATION).then(_COMMUNICATION).when(is_copy).then(_MEMORY).otherwise(_COMPUTE)
    return activities.select(category.cast(pl.Int64)).to_series().to_numpy()


def _union(start: Ints, end: Ints, mask: Bools) -> tuple[Ints, Ints]:
    return merge(start[mask], end[mask])


def _active(line: Lanes, start: Ints, end: Ints, begin: Ints, until: Ints) -> Ints:
    """From the first start to the last end of work in each window; work of no length counts as a point."""
    reach = np.maximum.accumulate(end)
    first = np.minimum(np.searchsorted(reach, begin, side="right"), np.searchsorted(start, begin, side="left"))
    last = np.searchsorted(start, until, side="right")
    some = first < last
    active_from = np.maximum(start[np.minimum(first, len(start) - 1)], begin)
    active_to = np.minimum(reach[np.maximum(last - 1, 0)], until)
    return np.where(some & (active_from < active_to), line.time(active_to) - line.time(active_from), 0)


def _own_busy(work: pl.DataFrame, windows: pl.DataFrame) -> Ints:
    """Time of each window in which work of its own step ran; -1 where it is of no step."""
    end = (pl.col("start_ns") + pl.col("duration_ns")).alias("work_end_ns")
    numbered = windows.select("lane", "step", "begin_ns", "end_ns").with_row_index("window")
    inside = (
        work.lazy()
        .select("lane", "step", "start_ns", end)
        .join(numbered.lazy(), on=["lane", "step"])
        .select("window", pl.max_horizontal("start_ns", "begin_ns"), pl.min_horizontal("work_end_ns", "end_ns"))
        .collect()
    )
    window, start, until = (inside.to_series(at).cast(pl.Int64).to_numpy() for at in range(3))
    line = Lanes.of(start, until)
    first, last = merge(line.at(window, start), line.at(window, until))
    own = np.where(windows["step"].is_null().to_numpy(), -1, 0)
    np.add.at(own, line.lane(first), line.time(last) - line.time(first))
    return own


# What each device did with its time, over the steps chosen: one account for tables, pages, findings and cohorts.

IDLE_DETAILS = ("launching_ns", "behind_wait_ns")
"""Of idle_host_ns and idle_launch_ns, and of idle_sync_ns, what `IdleTime` has under these names."""
_IDLE = (*CAUSES, *IDLE_DETAILS)
_CALLS = {"cause": pl.Int64(), "call": pl.Int64(), "idle_ns": pl.Int64(), "gap_count": pl.Int64()}
_WORK = (
    "process_id",
    "step",
    "kind",
    "kernel_class",
    "start_ns",
    "duration_ns",
)


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """`parts`: run_id, device_id (and step, where each is answered), MEASURES, CAUSES and IDLE_DETAILS in ns, in order.

    `calls`: the same keys, cause (a name in CAUSES), call (name of what explains it, null: none does), idle_ns and
    gap_count (stretches). Of a mean step both are means over whole steps, those that the trimmed mean of latency keeps:
    so parts add up in it as they do in each step, and the window is the latency.
    """

    parts: pl.DataFrame
    calls: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Busy time over the windows of so many devices; `share` is null where nothing was timed."""

    busy_ns: float
    window_ns: float
    device_count: int

    @property
    def share(self) -> float | None:
        """Of the time of all devices, in 0..1."""
        return self.busy_ns / self.window_ns if self.window_ns > 0 else None


def utilisation(frames: StepView) -> Utilisation:
    """How much of the time of the devices that worked at all they were busy, over the steps chosen."""
    parts = frames.once(device_time).parts
    if frames.of_trace.is_one_by_one:
        return Utilisation(total_of(parts["busy_ns"]), 0.0, 0)
    devices = parts.select(DEVICE).n_unique() if parts.height else 0
    return Utilisation(total_of(parts["busy_ns"]), total_of(parts["window_ns"]), devices)


def device_time(frames: StepView) -> DeviceTime:
    """The account of every device that worked in the runs that kernels are taken from."""
    windows, devices = _with_lanes(device_windows(frames))
    keys = windows.select(*DEVICE, "step")
    work = _in_lanes(frames.of_trace.all_activities.select(*DEVICE, *_WORK), devices)
    idle = frames.of_trace.once(idle_by_device)
    extents = frames.of_trace.once(working_times) if frames.choice.mode is StepMode.ALL else {}
    by_device = [with_start_up(idle[key], extents.get(key[0])) for key in devices.select(DEVICE).iter_rows()]
    causes, calls = _idle(by_device, windows)
    parts = keys.hstack(_measures_in(work, windows)).hstack(causes)
    return _answer(frames, parts, _idle_by_name(frames, keys[calls["window"]].hstack(calls.drop("window"))))


def _with_lanes(windows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The windows by device, each with the number of its device, its lane; and the devices in that order."""
    lane, first = numbers_by_appearance(*group_ids(windows.select(DEVICE)))
    devices = windows.select(DEVICE)[first].with_row_index("lane").with_columns(pl.col("lane").cast(pl.Int64))
    return windows.with_columns(pl.Series("lane", lane)).sort("lane", maintain_order=True), devices


def _in_lanes(work: pl.DataFrame, devices: pl.DataFrame) -> pl.DataFrame:
    """Work of these devices by lane, and in each as it stood: in order of start."""
    return work.join(devices, on=DEVICE, nulls_equal=True, maintain_order="left").sort("lane", maintain_order=True)


def busiest_device(devices: pl.DataFrame) -> dict[str, Any] | None:
    """Of B03's rows that of the device with most work of its own; None where none worked.

    Communication that nothing hides is not counted: it is waiting too, so whoever others wait for has least of it.
    """
    if devices.is_empty():
        return None
    own = pl.col("busy_ns") - pl.col("exposed_communication_ns")
    rows = devices.filter(pl.col("busy_ns") > 0).sort(own, descending=True, maintain_order=True)
    return rows.row(0, named=True) if rows.height else None


def busy_without_start(devices: pl.DataFrame) -> float | None:
    """The share of time in which devices work, start-up and end left out; None where there is neither.

    `devices` is B03's rows with `start_up_ns`, in which start-up is in none of its other columns.
    """
    if "start_up_ns" not in devices.columns:
        return None
    busy, window, start = devices.select(pl.col("busy_ns", "window_ns", "start_up_ns").sum()).row(0)
    return busy / (window - start) if start else None


def window_by_run(devices: pl.DataFrame) -> list[int | float]:
    """Of B03's rows the longest window of each run, where it is known."""
    return devices.group_by("run_id").agg(pl.col("window_ns").max())["window_ns"].drop_nulls().to_list()


def working_times(view: TraceView) -> Mapping[object, tuple[int, int]]:
    """By run, from when to when its devices worked: what is before and after is start-up and end, whatever it was.

    From the first kernel on, where there is one: what is filled and copied before it, by whatever kernel, sets the
    program up. Where steps are marked, from the first work on without an end: what is in a step is the step's.
    """
    has_steps = not view.marked_steps.is_empty()
    computes = pl.col("kind").cast(pl.String).is_in([str(Kind.KERNEL), str(Kind.GRAPH)])
    sets_up = pl.col("kernel_class").cast(pl.String).is_in([str(KernelClass.MEMSET), str(KernelClass.COPY)])
    kernels = pl.col("start_ns").filter(computes & ~sets_up.fill_null(value=False)).min()
    first = pl.col("start_ns").min() if has_steps else pl.coalesce(kernels, pl.col("start_ns").min())
    last = pl.lit(LATEST_NS) if has_steps else (pl.col("start_ns") + pl.col("duration_ns")).max()
    extents = view.all_activities.group_by("run_id").agg(first.alias("first_ns"), last.alias("last_ns"))
    return {run: (int(first), int(last)) for run, first, last in extents.iter_rows()}


def _answer(frames: StepView, parts: pl.DataFrame, calls: pl.DataFrame) -> DeviceTime:
    """Every step as it is, the mean over whole steps, or the one window of the whole trace."""
    if frames.choice.mode is StepMode.EACH:
        order = ["step", *DEVICE]
        return DeviceTime(parts.sort(order, nulls_last=True), calls.sort(*order, "cause", "call", nulls_last=True))
    by, per_call, measures = list(DEVICE), [*DEVICE, "cause", "call"], [*MEASURES, *_IDLE]
    sums = parts.group_by(by, maintain_order=True).agg(pl.col(measures).sum(), pl.len().alias("windows"))
    calls = calls.group_by(per_call, maintain_order=True).agg(pl.col("idle_ns", "gap_count").sum())
    if frames.is_mean:
        number = calls.join(sums.select(*by, "windows"), on=by, how="left", maintain_order="left")["windows"]
        calls = calls.with_columns(pl.col("idle_ns", "gap_count") / number)
        sums = sums.with_columns(quotient(pl.col(each), pl.col("windows")) for each in measures)
    return DeviceTime(
        sums.drop("windows").sort(by, nulls_last=True),
        calls.sort(*by, "idle_ns", "cause", "call", descending=[False, False, True, False, False], nulls_last=True),
    )


def device_windows(frames: StepView) -> pl.DataFrame:
    """run_id, device_id, step, begin_ns, end_ns of the time chosen, for every device that worked.

    In steps those of the process that used the device (of the slowest, where several did), in a mean those that the
    trimmed mean of latency keeps; of whole traces the `extents_seen` of the run, its step null.
    """
    devices = (
        frames.of_trace.all_activities.group_by(DEVICE)
        .agg(pl.col("process_id").first(), pl.col("process_id").n_unique().alias("processes"))
        .sort(DEVICE, nulls_last=True)
    )
    if frames.choice.mode is StepMode.ALL:
        return devices.join(frames.of_trace.extents_seen, on="run_id").select(
            *DEVICE, pl.lit(None, pl.Int64).alias("step"), "begin_ns", "end_ns"
        )
    steps = frames.steps.filter(pl.col("basis") != str(StepBasis.TIMED))
    chosen = kept_steps(steps) if frames.is_mean else steps
    of_process = frames.of_trace.process_steps.select("run_id", "process_id", "step", "begin_ns", "end_ns")
    return (
        devices.join(chosen.select("run_id", "step", "begin_ns", "end_ns"), on="run_id")
        .join(of_process, on=["run_id", "process_id", "step"], how="left", suffix="_own")
        .with_columns(
            pl.when(pl.col("processes") == 1).then(f"{c}_own").fill_null(pl.col(c)).alias(c)
            for c in ("begin_ns", "end_ns")
        )
        .select(*DEVICE, "step", "begin_ns", "end_ns")
        .sort(*DEVICE, "begin_ns", nulls_last=True)
    )


def _idle(idle: Sequence[IdleTime], windows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """CAUSES and IDLE_DETAILS of each window; and by cause and call: window, cause, call, idle_ns, gap_count."""
    none = [np.empty(0, dtype=np.int64)]  # where no device worked
    start, end, cause, call, launching, behind = (
        np.concatenate([*none, *(getattr(one, field.name) for one in idle)]) for field in fields(IdleTime)
    )
    lane = np.repeat(np.arange(len(idle)), [len(one.start) for one in idle])
    of, begin, until = (windows[each].to_numpy() for each in ("lane", "begin_ns", "end_ns"))
    line = Lanes.of(start, end, begin, until)
    first = np.searchsorted(line.at(lane, end), line.at(of, begin), side="right")
    number = np.maximum(np.searchsorted(line.at(lane, start), line.at(of, until)) - first, 0)
    window = np.repeat(np.arange(len(number)), number)
    rows = np.arange(len(window)) - np.repeat(np.cumsum(number) - number - first, number)
    length = np.minimum(end[rows], until[window]) - np.maximum(start[rows], begin[window])
    sums = np.zeros((windows.height, len(_IDLE)), dtype=np.int64)
    np.add.at(sums, (window, cause[rows]), length)
    for at, some in enumerate((launching, behind), len(CAUSES)):
        np.add.at(sums[:, at], window, np.where(some[rows] > 0, length, 0))
    stretches = pl.DataFrame({"window": window, "cause": cause[rows], "call": call[rows], "idle_ns": length})
    calls = stretches.group_by("window", "cause", "call", maintain_order=True).agg(
        pl.col("idle_ns").sum(), pl.len().cast(pl.Int64).alias("gap_count")
    )
    return pl.DataFrame(sums, schema=dict.fromkeys(_IDLE, pl.Int64)), calls


def with_start_up(idle: IdleTime, working_ns: tuple[int, int] | None) -> IdleTime:
    """The idle time, what is outside of the time of work parted from the rest and start-up by its cause."""
    if working_ns is None:
        return idle
    for border_ns in working_ns:
        after = int(np.searchsorted(idle.start, border_ns))
        if after and idle.end[after - 1] > border_ns:  # parted there
            idle = idle.of(np.insert(np.arange(len(idle.start)), after, after - 1))
            idle.start[after], idle.end[after - 1] = border_ns, border_ns
    outside = (idle.end <= working_ns[0]) | (idle.start >= working_ns[1])
    cause = np.where(outside, CAUSES.index("idle_initialisation_ns"), idle.cause)
    return replace(idle, cause=cause, is_launching=idle.is_launching & ~outside)


def _idle_by_name(frames: StepView, calls: pl.DataFrame) -> pl.DataFrame:
    """The calls by the names of their spans: one row a window, cause and name."""
    span = calls.select(pl.when(pl.col("call") >= 0).then("call")).to_series()
    cause = pl.Series("cause", CAUSES, dtype=pl.String).gather(calls["cause"])
    name = column_at(frames.trace, "name", span).cast(pl.String).alias("call")
    lines = _callers_of_operators(frames, span.filter(cause == "idle_host_ns"))
    named = calls.with_columns(cause, name).with_columns(
        pl.coalesce(span.replace_strict(lines, default=None, return_dtype=pl.String), "call").alias("call")
    )
    keys = [*DEVICE, "step", "cause", "call"]
    return named.group_by(keys, maintain_order=True).agg(pl.col("idle_ns", "gap_count").sum())


def _callers_of_operators(frames: StepView, spans: pl.Series) -> Mapping[int, str]:
    """Of those spans that are operators the user's line of Python that called it, where it is known."""
    own = pl.col("span_id").is_in(spans.drop_nulls().unique().implode())
    rows = frames.trace.scan("operators").filter(own, pl.col("source_lines").is_not_null())
    lines = rows.select("span_id", pl.col("source_lines").cast(pl.String).str.split("; ").list.first()).collect()
    return dict(lines.iter_rows())


# How the time in which a device works is shared out to classes of work, in parts that add up to it exactly.

COMPUTE, COMMUNICATION, MEMORY = range(3)
"""What hides what, as B03 has it: compute hides communication, and both hide copies and memsets."""
_SCHEMA = {"part": pl.Int64(), "kernel_class": pl.String(), "time_ns": pl.Float64()}


class _Segment(NamedTuple):
    """A part and class, and when it ran as disjoint sorted intervals."""

    part: int
    kernel_class: str
    union: tuple[Ints, Ints]


def class_time(frames: StepView) -> pl.DataFrame:
    """run_id, device_id, step, part, kernel_class, time_ns: one row a window of a device and class that ran in it.

    A moment is of the first part (COMPUTE, COMMUNICATION, MEMORY) of which work runs then; where several classes of
    that part run side by side it is shared out evenly among them. So the times of a window add up to its busy time, and
    those of a part to what B03 has: compute, exposed communication, exposed copies and memsets.
    """
    windows, devices = _with_lanes(device_windows(frames))
    columns = (*DEVICE, "kind", "kernel_class", "start_ns", "duration_ns")
    work = _in_lanes(frames.of_trace.all_activities.select(columns), devices)
    line, start, end, begin, until = _on_one_line(work, windows)
    keys = windows.select("lane", *DEVICE, "step").with_row_index("window")
    pieces = [keys.head(0).with_columns(pl.lit(None, t).alias(n) for n, t in _SCHEMA.items())]
    for segment, time in _times_in_windows(_segments(work, start, end), line, begin, until):
        at = np.flatnonzero(time)
        pieces.append(
            keys[at].with_columns(
                pl.lit(segment.part, pl.Int64).alias("part"),
                pl.lit(segment.kernel_class).alias("kernel_class"),
                pl.Series("time_ns", time[at]),
            )
        )
    return pl.concat(pieces).sort("lane", "part", "kernel_class", "window").drop("lane", "window")


_PARTS = ("compute", "communication", "memory", "idle")


def window_parts(frames: StepView) -> pl.DataFrame:
    """run_id, device_id (and step), part, name, duration_ns, window_share: what the windows of B03 are made of.

    `part` is compute, communication, memory (of `class_time`) or idle, `name` the class of work or cause of idle time;
    of a device by part, longest first. Their times add up to the window; a mean step is the mean over windows.
    """
    keys = [*frames.by, *DEVICE]
    times = frames.once(device_time).parts
    idle = times.unpivot(CAUSES, index=keys, variable_name="name", value_name="duration_ns").with_columns(
        pl.lit(len(_PARTS) - 1, pl.Int64).alias("part"),
        pl.col("name").str.strip_prefix("idle_").str.strip_suffix("_ns"),
        pl.col("duration_ns").cast(pl.Float64),
    )
    work = _mean_classes(frames).rename({"kernel_class": "name", "time_ns": "duration_ns"})
    columns = [*keys, "part", "name", "duration_ns"]
    rows = pl.concat([work.select(columns), idle.filter(pl.col("duration_ns") > 0).select(columns)])
    window = pl.col("window_ns")
    return (
        rows.join(times.select(*keys, "window_ns"), on=keys, how="left", nulls_equal=True, maintain_order="left")
        .with_columns(pl.when(window > 0).then(quotient(pl.col("duration_ns"), window)).alias("window_share"))
        .sort(*keys, "part", -pl.col("duration_ns"), nulls_last=True, maintain_order=True)
        .with_columns(pl.lit(pl.Series(_PARTS)).gather(pl.col("part")).alias("part"))
        .drop("window_ns")
    )


def _mean_classes(frames: StepView) -> pl.DataFrame:
    """`class_time` in order of classes; of a mean step over the windows that B03 averages."""
    if not frames.is_mean:
        return frames.once(class_time).sort("kernel_class")
    windows = device_windows(frames)
    number = windows.group_by(DEVICE).agg(pl.len().alias("windows"))
    return (
        frames.of_each_step.once(class_time)
        .join(windows.select(*DEVICE, "step"), on=[*DEVICE, "step"], how="semi", nulls_equal=True)
        .group_by(*DEVICE, "part", "kernel_class")
        .agg(pl.col("time_ns").sum())
        .join(number, on=DEVICE, how="left", nulls_equal=True)
        .with_columns(quotient(pl.col("time_ns"), pl.col("windows")))
        .sort("kernel_class")
    )


def _segments(work: pl.DataFrame, start: Ints, end: Ints) -> list[_Segment]:
    """When work of each part and class ran."""
    kinds = work.select(pl.Series("part", _categories(work)), pl.col("kernel_class").cast(pl.String))
    distinct, order, bounds = groups(kinds, ("part", "kernel_class"))
    return [
        _Segment(part, name, merge(start[order[first:last]], end[order[first:last]]))
        for (part, name), (first, last) in zip(distinct.iter_rows(), pairwise(bounds.tolist()), strict=True)
    ]


def _times_in_windows(
    segments: list[_Segment], line: Lanes, begin: Ints, until: Ints
) -> Iterator[tuple[_Segment, Floats]]:
    """Each segment with its time in every window."""
    edges = distinct_values(np.concatenate([begin, until, *(edge for s in segments for edge in s.union)]))
    first, last = np.searchsorted(edges, begin), np.searchsorted(edges, until)
    lanes = line.lane(edges)
    lane = lanes[:-1]
    length = np.where(lanes[1:] == lane, np.diff(line.time(edges)), 0)
    taken = np.zeros(len(length), dtype=bool)
    for part in (COMPUTE, COMMUNICATION, MEMORY):
        of_part = [s for s in segments if s.part == part]
        running = [_runs(s.union, edges) for s in of_part]
        beside = np.zeros(len(length), dtype=np.int64)
        for mask in running:
            beside += mask
        common = _common_multiples(lanes, beside)  # so that even shares are integers, and sums exact
        share = np.where(taken, 0, length * (common[lane] // np.maximum(beside, 1)))
        for segment, mask in zip(of_part, running, strict=True):
            before = np.concatenate(([0], np.cumsum(np.where(mask, share, 0))))
            yield segment, (before[last] - before[first]) / common[line.lane(begin)]
        taken |= beside > 0


def _common_multiples(lanes: Ints, beside: Ints) -> Ints:
    """Of each lane the least number that as many as ever run beside one another between its edges divide."""
    common = np.ones(int(lanes.max(initial=-1)) + 1, dtype=np.int64)
    numbers = pl.DataFrame({"lane": lanes[:-1], "beside": beside}).filter(pl.col("beside") > 1).unique()
    for number in numbers["beside"].unique().to_list():
        lanes = numbers.filter(pl.col("beside") == number)["lane"].to_numpy()
        common[lanes] = np.lcm(common[lanes], number)
    return common


def _runs(union: tuple[Ints, Ints], edges: Ints) -> Bools:
    """Whether the union covers each interval between two edges, all of its own among them."""
    depth = np.zeros(len(edges), dtype=np.int8)
    depth[np.searchsorted(edges, union[0])] += 1
    depth[np.searchsorted(edges, union[1])] -= 1
    return np.asarray(np.cumsum(depth)[:-1] > 0)


# How long each step of a serving engine took, and what its devices did in it.

NS_PER_S = 1e9
_KEYS = ["run_id", "step"]


def serving_time(frames: StepView) -> pl.DataFrame:
    """One row a run and step chosen that an engine named, by run and begin, with what `serving_steps` has of it.

    Also state (see `with_state`), begin_ns, end_ns, duration_ns and basis (of `all_steps`), gap_ns (from its end to
    the begin of the next step of any phase, null for the last), output_token_ns, and of its devices window_ns, busy_ns
    and exposed_host_ns in sum, null where none worked in the trace.
    """
    every = frames.of_trace.all_steps.sort("run_id", "begin_ns", "step")
    gap = (pl.col("begin_ns").shift(-1).over("run_id") - pl.col("end_ns")).clip(lower_bound=0).alias("gap_ns")
    timed = every.select(*_KEYS, "begin_ns", "end_ns", "duration_ns", "basis", gap)
    named = timed.join(frames.of_trace.serving_steps, on=_KEYS, how="inner", maintain_order="left")
    chosen = frames.of_each_step.steps if frames.choice.number is None else frames.steps
    rows = with_state(named).join(chosen, on=_KEYS, how="semi", maintain_order="left")
    return rows.with_columns(_output_token_ns()).join(_of_devices(frames), on=_KEYS, how="left", maintain_order="left")


def _output_token_ns() -> pl.Expr:
    """A step is how long each request that decodes in it waits for a token; of several at once nobody said how many."""
    one_each = (pl.col("decode_tokens") == pl.col("decode_requests")) & (pl.col("decode_requests") > 0)
    return pl.when(one_each).then("duration_ns").alias("output_token_ns")


def _of_devices(frames: StepView) -> pl.DataFrame:
    parts = frames.of_each_step.once(device_time).parts
    exposed = pl.sum_horizontal("idle_host_ns", "idle_launch_ns", "behind_wait_ns").sum().alias("exposed_host_ns")
    return parts.group_by(_KEYS).agg(pl.col("window_ns", "busy_ns").sum(), exposed)
