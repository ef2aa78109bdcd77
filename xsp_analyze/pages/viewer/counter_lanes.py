"""Lanes of what was sampled or counted over time: memory, power, clocks, GPU metrics, and the length of queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_analyze.frames.idle import DEVICE
from xsp_analyze.pages.viewer.columns import encode_numbers
from xsp_analyze.pages.viewer.lanes import Lane, Titles
from xsp_analyze.text.shown import clean

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.arrays import Floats, Ints

__all__ = ["CounterLane", "counter_lanes", "thin"]


@dataclass(frozen=True, slots=True)
class CounterLane:
    """A lane and its step function: from each of `times` (ns, in order) on the value is that of `values`."""

    lane: Lane
    unit: str
    times: Ints
    values: Floats

    def between(self, begin: int, until: int) -> CounterLane:
        """The part of it that tells the values in a window: from the last sample before it on."""
        first = max(int(np.searchsorted(self.times, begin, side="right")) - 1, 0)
        rows = slice(first, int(np.searchsorted(self.times, until)))
        return CounterLane(self.lane, self.unit, self.times[rows], self.values[rows])

    def encode(self, lane: int) -> dict[str, Any]:
        """As the viewer reads it, standing on the lane of that number."""
        is_integer = bool((self.values == np.trunc(self.values)).all()) and bool((np.abs(self.values) < 2**53).all())
        values = (self.values.astype(np.int64) if is_integer else self.values).tolist()
        return {
            "lane": lane,
            "unit": self.unit,
            "times": encode_numbers(self.times, differences=True),
            "values": values,
        }


def counter_lanes(frames: TraceView) -> list[CounterLane]:
    """Of each run what was sampled, by device and counter, then how much each device had waiting."""
    titles = Titles(frames)
    keys = ("run_id", "device_id", "counter", "unit")
    samples = frames.timed_runs.frame("counters")
    samples = samples.with_columns(pl.col("counter", "unit").cast(pl.String)).sort(*keys, "time_ns", nulls_last=True)
    series = samples.group_by(keys, maintain_order=True)
    lanes = [_lane_of_samples(titles, key, rows) for key, rows in series if rows.height > 1]  # one value is no curve
    lanes += _queues(frames, titles)
    return sorted(lanes, key=lambda each: (each.lane.run, each.lane.device is not None, each.lane.device or 0))


def _lane_of_samples(titles: Titles, key: tuple[Any, ...], rows: pl.DataFrame) -> CounterLane:
    run, device, counter, unit = key
    group = titles.of_host(run) if device is None else titles.of_device(run, device)
    owner = "host" if device is None else f"d{device}"
    title = clean(counter).removesuffix("_bytes").replace("_", " ")
    lane = Lane(f"{run}/{owner}/c/{clean(counter)}", group, title, "counter", 1, run, device)
    return CounterLane(lane, clean(unit), rows["time_ns"].to_numpy(), rows["value"].to_numpy())


def _queues(frames: TraceView, titles: Titles) -> list[CounterLane]:
    """How much work was launched on each device and had not started: of work whose launch is known."""
    work = frames.all_activities.select(*DEVICE, "call_start_ns", "start_ns").drop_nulls("call_start_ns")
    lanes = []
    for (run, device), rows in work.group_by(DEVICE, maintain_order=True):
        times, values = _waiting(rows["call_start_ns"].to_numpy(), rows["start_ns"].to_numpy())
        number = int(str(run))
        key = f"{number}/d{'-' if device is None else device}/queue"
        of_device = None if device is None else int(str(device))
        group = titles.of_device(number, of_device)
        lane = Lane(key, group, "launched, not yet started", "counter", 1, number, of_device)
        lanes.append(CounterLane(lane, "launches", times, values))
    return lanes


def _waiting(launched: Ints, started: Ints) -> tuple[Ints, Floats]:
    times = np.concatenate((launched, np.maximum(started, launched)))
    change = np.repeat(np.array([1, -1]), len(launched))
    order = np.argsort(times, kind="stable")
    times, waiting = times[order], np.cumsum(change[order])
    last = np.append(times[1:] != times[:-1], np.ones(min(len(times), 1), dtype=np.bool_))
    return times[last], waiting[last].astype(np.float64)


def thin(counter: CounterLane, cell_count: int, extent: tuple[int, int]) -> CounterLane:
    """At most four samples of each of so many cells of time: the first, the last, the smallest and the largest."""
    times, values = counter.times, counter.values
    if len(times) <= 4 * cell_count:
        return counter
    begin, end = extent
    cell = (times - begin) // max(-(-(end + 1 - begin) // cell_count), 1)
    starts = np.flatnonzero(np.concatenate(([True], cell[1:] != cell[:-1])))
    lasts = np.append(starts[1:], len(times)) - 1
    by_value = np.lexsort((values, cell))
    kept = np.unique(np.concatenate((starts, lasts, by_value[starts], by_value[lasts])))
    return CounterLane(counter.lane, counter.unit, times[kept], values[kept])
