"""The lanes of a trace: one a thread, one a stream, and which spans stand on each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_analyze.frames.group_ids import groups
from xsp_analyze.frames.idle import DEVICE
from xsp_analyze.pages.viewer.boxes import NONE, encode_numbers
from xsp_analyze.text.table import clean
from xsp_model import Kind
from xsp_model.columns.arrays import distinct_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.columns.arrays import Floats, Ints

__all__ = ["CounterLane", "Lane", "Titles", "counter_lanes", "lanes_of", "thin", "timed_spans"]

_SIDE = pl.when(pl.col("attribution").is_not_null()).then(2).when(pl.col("kind") == str(Kind.SYNC)).then(1).otherwise(0)
_HOST, _WAITS, _DEVICE = range(3)
_COLUMNS = ("span_id", "run_id", "level", "kind", "name", "start_ns", "duration_ns", "layer_id")
_PLACE_COLUMNS = ("process_id", "thread_id", "device_id", "stream_id")
_KEYS = ("run_id", "is_of_device", "process_id", "device_id", "side", "thread_id", "stream_id")


@dataclass(frozen=True, slots=True)
class Lane:
    """A thread, a stream or a counter: `rows` is how deep its boxes stand, `device` null on the host."""

    key: str
    group: str
    title: str
    side: str
    rows: int
    run: int
    device: int | None

    def encode(self) -> dict[str, Any]:
        """The lane as the viewer reads it."""
        return {name: getattr(self, name) for name in self.__slots__}


class Titles:
    """What lanes and their groups are called: by rank where the files tell it, else by run, else by neither."""

    def __init__(self, view: TraceView) -> None:
        runs = view.timed_runs.table.select("run_id", "rank").rows()
        self._several = len(runs) > 1
        self._rank = {run: rank for run, rank in runs if rank is not None}
        self._devices = {
            (run, number): name
            for run, number, name in view.timed_runs.frame("devices").select("run_id", "device_id", "name").rows()
        }

    def of_run(self, run: int) -> str:
        """The run, with a comma behind it; nothing where there is but one."""
        if not self._several:
            return ""
        return f"rank {self._rank[run]}, " if run in self._rank else f"run {run}, "

    def of_host(self, run: int, process: int | None = None) -> str:
        """The host of a run, with its process where there are several."""
        return self.of_run(run) + ("host" if process is None else f"host, process {process}")

    def of_device(self, run: int, device: int | None) -> str:
        """A device with its name."""
        name = self._devices.get((run, device)) if device is not None else None
        number = "-" if device is None else device
        return f"{self.of_run(run)}device {number}" + (f" ({clean(name)})" if name else "")


def timed_spans(view: TraceView) -> pl.LazyFrame:
    """Every span that was closed, of the runs of which times tell: its columns, place and side, in order of start.

    Of millions of spans some columns are to be held at a time. `is_work`: it stands on a stream, as its work.
    """
    closed = view.timed_runs.scan("spans").filter(pl.col("duration_ns").is_not_null())
    side = _SIDE.cast(pl.Int8).alias("side")
    of_host, of_device = pl.col("side") == _HOST, pl.col("side") != _HOST
    return (
        closed.select(*_COLUMNS, *_PLACE_COLUMNS, "attribution", side)
        .drop("attribution")
        .with_columns(
            of_device.alias("is_of_device"),
            (pl.col("side") == _DEVICE).alias("is_work"),
            *(pl.when(of_host).then(name).alias(name) for name in ("process_id", "thread_id")),
            *(pl.when(of_device).then(name).alias(name) for name in ("device_id", "stream_id")),
        )
    )


def lanes_of(view: TraceView, spans: pl.LazyFrame) -> tuple[list[Lane], Ints, Ints]:
    """The lanes of spans (as `timed_spans` has them), their rows in order of the lanes, and where each lane begins.

    Of a run first its threads, the one that began first first, then its devices. `rows` is 1 until boxes are placed.
    """
    keys = spans.select(*_KEYS, "start_ns").collect()
    table, order, limits = groups(keys, _KEYS)
    began = keys["start_ns"].gather(order[limits[:-1]])
    titles = Titles(view)
    processes = table.filter(~pl.col("is_of_device")).group_by("run_id").agg(pl.col("process_id").n_unique())
    several = {run for run, count in processes.iter_rows() if count > 1}
    rows = list(table.with_columns(began.alias("began")).iter_rows(named=True))
    in_order = sorted(range(len(rows)), key=lambda at: _position(rows[at]))
    pieces = [order[limits[at] : limits[at + 1]] for at in in_order]
    placed = np.concatenate([order[:0], *pieces])
    return [_lane(rows[at], titles, several) for at in in_order], placed, np.cumsum([0, *map(len, pieces)])


def _position(row: Mapping[str, Any]) -> tuple[int, ...]:
    keys = ("process_id", "device_id", "stream_id")
    process, device, stream = (NONE if row[name] is None else row[name] for name in keys)
    if row["side"] == _HOST:
        return row["run_id"], 0, process, row["began"], 0
    return row["run_id"], 1, device, -row["side"], stream


def _lane(row: Mapping[str, Any], titles: Titles, several: set[int]) -> Lane:
    run, side = row["run_id"], row["side"]
    if side == _HOST:
        thread = "no thread" if row["thread_id"] is None else f"thread {row['thread_id']}"
        group = titles.of_host(run, row["process_id"] if run in several else None)
        return Lane(
            f"{run}/p{_number_text(row['process_id'])}/t{_number_text(row['thread_id'])}",
            group,
            thread,
            "host",
            1,
            run,
            None,
        )
    stream = "no stream" if row["stream_id"] is None else f"stream {row['stream_id']}"
    key = f"{run}/d{_number_text(row['device_id'])}/s{_number_text(row['stream_id'])}"
    group = titles.of_device(run, row["device_id"])
    if side == _WAITS:
        return Lane(f"{key}/waits", group, f"waits on {stream}", "host", 1, run, row["device_id"])
    return Lane(key, group, stream, "device", 1, run, row["device_id"])


def _number_text(value: int | None) -> str:
    return "-" if value is None else str(value)


# Lanes of what was sampled or counted over time: memory, power, clocks, GPU metrics, and the length of queues.


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
        """The counter as the viewer reads it, standing on the lane of that number."""
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
    kept = distinct_values(np.concatenate((starts, lasts, by_value[starts], by_value[lasts])))
    return CounterLane(counter.lane, counter.unit, times[kept], values[kept])
