"""Perfetto's protobuf: a track for each thread and stream, arrows, counters, and layers and operators on the device."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.export.chrome import Tracks
from xsp_analyze.export.perfetto_packets import Packets
from xsp_analyze.export.rows import arguments, category, metrics, name, own_layers, rows, text, twins
from xsp_analyze.export.target import Exporter
from xsp_analyze.trace.timed_runs import capture_runs, timed_runs, without_captures
from xsp_model import Kind, Level
from xsp_model.columns.tree import innermost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from xsp_analyze.export.rows import Row
    from xsp_analyze.export.target import Sink
    from xsp_model import Trace

__all__ = ["NEVER", "PERFETTO", "Lanes", "OnTracks", "Stretches"]

# Slices on tracks: Perfetto ends the slice that began last, so what does not nest goes to a further track.

NEVER = 1 << 63
"""The end of what was never closed."""


class Lanes:
    """The tracks that stand for one thread or stream: spans come by start, and of one start the longest first.

    `end` is told of each slice that ends, before any that begins then or later; of what was never closed, nothing.
    """

    def __init__(self, end: Callable[[int, int], None], track: Callable[[int], int]) -> None:
        self._end = end
        self._track = track  # the track of each lane by its number
        self._open: list[tuple[int, list[int]]] = []  # of each lane its track, and the ends of its open slices

    def put(self, start_ns: int, end_ns: int) -> int:
        """The first track in which the span lies beside or within what runs then."""
        for uuid, ends in self._open:
            self._close(uuid, ends, start_ns)
            if not ends or end_ns <= ends[-1]:
                ends.append(end_ns)
                return uuid
        uuid = self._track(len(self._open))
        self._open.append((uuid, [end_ns]))
        return uuid

    def _close(self, uuid: int, ends: list[int], time_ns: int) -> None:
        while ends and ends[-1] <= time_ns:
            self._end(uuid, ends.pop())

    def rest(self) -> Iterator[tuple[int, int]]:
        """Track and end of each slice that is still open and was closed at some time."""
        for uuid, ends in self._open:
            yield from ((uuid, end) for end in reversed(ends) if end < NEVER)


# Which track a span goes to, each described when it is first used.

_INT32 = 1 << 31
_AS_RECORDED = ""


class OnTracks:
    """Puts spans on tracks: of a process its threads, of a device its streams, each with what its work is of below."""

    def __init__(self, trace: Trace, packets: Packets) -> None:
        self._packets = packets
        self._numbers = Tracks(trace)
        self._uuid = count(1)
        names = {e["pid"]: e["args"]["name"] for e in self._numbers.names() if e["name"] == "process_name"}
        self._groups = {pid: self._group(pid, str(name), rank) for rank, (pid, name) in enumerate(names.items())}
        self._lanes: dict[tuple[int, int, str], Lanes] = {}
        self._counters: dict[tuple[int, str, str], int] = {}

    def _group(self, pid: int, name: str, rank: int) -> int:
        uuid = next(self._uuid)
        if pid in self._numbers.device_pids or pid >= _INT32:
            self._packets.track(uuid, name, None, rank)
        else:
            self._packets.process(uuid, name, pid)
        return uuid

    def of(self, row: Row, derived: str = _AS_RECORDED) -> Lanes:
        """The tracks of a span's thread or stream; of a stream also those of what its work is of."""
        pid, tid = self._numbers.of(row)
        lanes = self._lanes.get((pid, tid, derived))
        if lanes is None:
            number = row["stream_id"] if _is_on_device(row) else row["thread_id"]
            shown = "unknown" if number is None else number
            name = f"{'stream' if _is_on_device(row) else 'thread'} {shown}{f', {derived}' if derived else ''}"
            lanes = Lanes(self._packets.end, lambda lane: self._lane(pid, tid, name, lane))
            self._lanes[pid, tid, derived] = lanes
        return lanes

    def _lane(self, pid: int, tid: int, name: str, lane: int) -> int:
        uuid = next(self._uuid)
        is_thread = name.startswith("thread") and lane == 0 and max(pid, tid) < _INT32
        if is_thread and pid not in self._numbers.device_pids:
            self._packets.thread(uuid, name, pid, tid)
        else:
            shown = f"{name} ({lane + 1})" if lane else name
            self._packets.track(uuid, shown, self._groups[pid], uuid)
        return uuid

    def counter(self, row: Mapping[str, object]) -> int:
        """The track of a counter's samples."""
        pid, _ = self._numbers.of_counter(dict(row))
        key = (pid, str(row["counter"]), str(row["unit"]))
        if key not in self._counters:
            self._counters[key] = next(self._uuid)
            self._packets.counter(self._counters[key], key[1], self._groups[pid], key[2])
        return self._counters[key]

    def close(self) -> None:
        """Ends what is open at the end of the trace."""
        for lanes in self._lanes.values():
            for uuid, end in lanes.rest():
                self._packets.end(uuid, end)


def _is_on_device(row: Row) -> bool:
    return bool(row["level"] == Level.KERNEL or row["kind"] == Kind.SYNC)


# What the work of a stream is of, as slices: work in a row of one call of a layer, or of one operator.


@dataclass
class _Stretch:
    """Work in a row: the first of it, and what it comes to."""

    first: Row
    end_ns: int
    activities: int
    device_ns: int


class Stretches:
    """Gathers the work of each stream in order of its start; a slice lasts until the last of its work ends."""

    def __init__(self, tracks: OnTracks, packets: Packets, what: str, columns: tuple[str, str]) -> None:
        self._tracks = tracks
        self._packets = packets
        self._what = what
        self._id, self._name = columns
        self._current: dict[tuple[object, ...], _Stretch] = {}

    def add(self, row: Row) -> None:
        """The next work; what is of nothing ends what the stream's work before it was of."""
        stream = (row["run_id"], row["device_id"], row["stream_id"])
        current = self._current.get(stream)
        duration = row["duration_ns"] or 0
        if current is not None and current.first[self._id] == row[self._id]:
            current.end_ns = max(current.end_ns, row["start_ns"] + duration)
            current.activities += 1
            current.device_ns += duration
            return
        if current is not None:
            self._put(self._current.pop(stream))
        if row[self._id] is not None:
            self._current[stream] = _Stretch(row, row["start_ns"] + duration, 1, duration)

    def close(self) -> None:
        """Writes what every stream ended with."""
        for stretch in self._current.values():
            self._put(stretch)
        self._current.clear()

    def _put(self, stretch: _Stretch) -> None:
        first, start = stretch.first, stretch.first["start_ns"]
        uuid = self._tracks.of(first, self._what).put(start, stretch.end_ns)
        details = (("span", first[self._id]), ("activities", stretch.activities), ("device sum ns", stretch.device_ns))
        self._packets.begin(uuid, start, f"{self._what} of device work", first[self._name], arguments=details)


# From spans to Perfetto's slices, arrows and counters.

_LAUNCH, _BACKWARD = 1, 2  # kinds of arrows, told apart by what their numbers leave when divided by two


def _write(trace: Trace, file: Sink) -> None:
    packets = Packets(file, _epoch_ns(trace), max(0, -_first_ns(trace)))
    tracks = OnTracks(trace, packets)
    layers = Stretches(tracks, packets, "layers", ("layer_id", "own_layer"))
    operators = Stretches(tracks, packets, "operators", ("operator_id", "operator_name"))
    of_captures = pl.col("run_id").is_in(list(capture_runs(trace)))
    for row in rows(
        trace,
        ~of_captures,
        own=own_layers(trace),
        counted=metrics(trace),
        work=_work_of(trace),
        forward=twins(trace),
        backward=_twins_of(trace),
        operator=_operators(trace),
    ):
        _slice(row, tracks, packets)
        if row["level"] == Level.KERNEL:
            layers.add(row)
            operators.add(row)
    for stretches in (layers, operators):
        stretches.close()
    tracks.close()
    for row in text(trace.scan("counters")).collect().iter_rows(named=True):
        packets.count(tracks.counter(row), row["time_ns"], row["value"])


def _epoch_ns(trace: Trace) -> int | None:
    epochs: list[int | None] = timed_runs(trace)["epoch_ns"].to_list()
    return epochs[0] if epochs else None


def _first_ns(trace: Trace) -> int:
    """When the first span or sample is: Perfetto has no times before 0."""
    spans = without_captures(trace, trace.scan("spans")).select(pl.col("start_ns").min()).collect().item()
    samples = trace.scan("counters").select(pl.col("time_ns").min()).collect().item()
    return min(spans or 0, samples or 0)


def _slice(row: Row, tracks: OnTracks, packets: Packets) -> None:
    start, duration = row["start_ns"], row["duration_ns"]
    uuid = tracks.of(row).put(start, NEVER if duration is None else start + duration)
    number = row["span_id"]
    starts = [*_arrows(row["work_ids"], _LAUNCH), *_arrows(row["twin_ids"], _BACKWARD)]
    is_launched = row["level"] == Level.KERNEL and row["parent_id"] is not None
    ends = [
        *(_arrows([number], _LAUNCH) if is_launched else ()),
        *(_arrows([number], _BACKWARD) if row["forward_id"] is not None else ()),
    ]
    details = (("span", number), *arguments(row))
    packets.begin(uuid, start, category(row), name(row), arguments=details, flows_from=starts, flows_to=ends)


def _arrows(spans: list[int] | None, kind: int) -> list[int]:
    return [2 * span + kind for span in spans or ()]


def _work_of(trace: Trace) -> pl.DataFrame:
    """For each span the device work that it launched."""
    work = without_captures(trace, trace.scan("spans")).filter(
        pl.col("level").cast(pl.String) == Level.KERNEL, pl.col("parent_id").is_not_null()
    )
    ids = work.group_by(pl.col("parent_id").alias("launch_id")).agg(pl.col("span_id").sort().alias("work_ids"))
    return ids.rename({"launch_id": "span_id"}).collect()


def _twins_of(trace: Trace) -> pl.DataFrame:
    """For each forward operator its backward ones."""
    twins = trace.scan("operators").filter(pl.col("forward_id").is_not_null())
    ids = twins.group_by(pl.col("forward_id").alias("twin_id")).agg(pl.col("span_id").sort().alias("twin_ids"))
    return ids.rename({"twin_id": "span_id"}).collect()


def _operators(trace: Trace) -> pl.DataFrame:
    """For device work the innermost operator that it was launched in."""
    spans = trace.scan("spans").select("span_id", "parent_id", pl.col("level", "name").cast(pl.String)).collect()
    parent = spans["parent_id"].fill_null(-1).to_numpy()
    nearest = innermost(parent, (spans["level"] == Level.OPERATOR).to_numpy())
    work = spans.select("span_id", pl.Series("operator_id", nearest)).filter(
        spans["level"] == Level.KERNEL, pl.col("operator_id") >= 0
    )
    names = spans.select(pl.col("span_id").alias("operator_id"), pl.col("name").alias("operator_name"))
    return work.join(names, on="operator_id", how="left")


PERFETTO = Exporter("perfetto", "Perfetto's protobuf, for ui.perfetto.dev and trace_processor", _write)
"""The format, as the registry lists it."""
