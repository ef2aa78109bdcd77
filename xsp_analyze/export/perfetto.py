"""Perfetto's protobuf: a track for each thread and stream, arrows, counters, and layers and operators on the device."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.export.chrome import Tracks
from xsp_analyze.export.part import arguments, category, metrics, name, own_layers, rows, text, twins
from xsp_analyze.export.target import Exporter
from xsp_analyze.trace.timed_runs import capture_runs, timed_runs, without_captures
from xsp_model import Kind, Level
from xsp_model.columns.tree import innermost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from xsp_analyze.export.part import Row
    from xsp_analyze.export.target import Sink
    from xsp_model import Trace

__all__ = [
    "NEVER",
    "PERFETTO",
    "Lanes",
    "OnTracks",
    "Packets",
    "Stretches",
    "double",
    "fixed64",
    "message",
    "number",
    "text_field",
]

# The packets of a Perfetto trace, by the numbers that fields have in its schema, and their wire format.

# Protobuf's wire format, as much of it as Perfetto's packets need (protobuf.dev, "Encoding").
_CONTINUES, _SEVEN_BITS = 0x80, 7
_TWO_TO_64 = 1 << 64
_VARINT, _EIGHT_BYTES, _LENGTH = 0, 1, 2


def number(field: int, value: int) -> bytes:
    """An integer; negative ones as the ten bytes of their two's complement, as int32 and int64 have them."""
    return _key(field, _VARINT) + _varint(value % _TWO_TO_64)


def fixed64(field: int, value: int) -> bytes:
    """An integer in eight bytes."""
    return _key(field, _EIGHT_BYTES) + struct.pack("<Q", value)


def double(field: int, value: float) -> bytes:
    """A floating point number."""
    return _key(field, _EIGHT_BYTES) + struct.pack("<d", value)


def text_field(field: int, value: str) -> bytes:
    """A text in UTF-8; what UTF-8 cannot hold is a question mark."""
    return message(field, value.encode(errors="replace"))


def message(field: int, content: bytes) -> bytes:
    """A message, or bytes."""
    return _key(field, _LENGTH) + _varint(len(content)) + content


@lru_cache(maxsize=1024)
def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _varint(value: int) -> bytes:
    if value < _CONTINUES:
        return bytes((value,))
    out = bytearray()
    while value >= _CONTINUES:
        out.append(value & (_CONTINUES - 1) | _CONTINUES)
        value >>= _SEVEN_BITS
    out.append(value)
    return bytes(out)


# Schema: `protos/perfetto/trace` of Perfetto 59: trace_packet, track_event, track_descriptor, interned_data,
# debug_annotation, clock_snapshot.
_SEQUENCE = 1
_CLEARED, _NEEDS_STATE = 1, 2  # flags: nothing is interned yet; this uses what is
_BEGIN, _END, _COUNTER = 1, 2, 4
_REALTIME, _BOOTTIME = 1, 6  # clocks; the latter is the one that packets without a clock of their own are in
_IN_ORDER = 3  # of child tracks: by their ranks
_MAX_INTERNED = 1 << 17
_PACKET = 1
_OF_SEQUENCE = number(10, _SEQUENCE)
_STATEFUL = _OF_SEQUENCE + number(13, _NEEDS_STATE)
_CATEGORIES, _NAMES, _KEYS, _TEXTS = 1, 2, 3, 29  # fields of InternedData


class Packets:
    """Writes packets; a name, category or text goes in once and is a number from then on."""

    def __init__(self, file: Sink, epoch_ns: int | None, shift_ns: int = 0) -> None:
        self._file = file
        self._shift_ns = shift_ns  # of all times, where some are before the trace's own 0
        self._iids: dict[tuple[int, str], int] = {}
        self._added: list[bytes] = []  # what the next packet interns
        self._put(_OF_SEQUENCE + number(13, _CLEARED | _NEEDS_STATE) + number(87, 1))
        if epoch_ns is not None and epoch_ns >= 0:
            clocks = (_clock(_BOOTTIME, shift_ns), _clock(_REALTIME, epoch_ns))
            self._put(number(10, _SEQUENCE) + message(6, b"".join(clocks) + number(2, _BOOTTIME)))

    def _put(self, packet: bytes) -> None:
        self._file.write(message(_PACKET, packet))

    def process(self, uuid: int, name: str, pid: int) -> None:
        """A process, which holds threads and counters."""
        self._describe(uuid, name, message(3, number(1, pid) + text_field(6, name)))

    def thread(self, uuid: int, name: str, pid: int, tid: int) -> None:
        """A thread of a process."""
        self._describe(uuid, name, message(4, number(1, pid) + number(2, tid) + text_field(5, name)))

    def track(self, uuid: int, name: str, parent: int | None, rank: int) -> None:
        """A track within another, or of its own; those of one parent stand in the order of their ranks."""
        within = b"" if parent is None else number(5, parent)
        self._describe(uuid, name, within + number(11, _IN_ORDER) + number(12, rank))

    def counter(self, uuid: int, name: str, parent: int, unit: str) -> None:
        """A track of a number over time."""
        self._describe(uuid, name, number(5, parent) + message(8, text_field(6, unit)))

    def _describe(self, uuid: int, name: str, more: bytes) -> None:
        self._put(_OF_SEQUENCE + message(60, number(1, uuid) + text_field(2, name) + more))

    def begin(
        self,
        uuid: int,
        time_ns: int,
        category: str,
        name: str,
        *,
        arguments: Iterable[tuple[str, object]] = (),
        flows_from: Sequence[int] = (),
        flows_to: Sequence[int] = (),
    ) -> None:
        """A slice begins; arrows of a number lead from the slices that it starts at to those that it ends at."""
        event = [
            number(9, _BEGIN),
            number(11, uuid),
            number(3, self._iid(_CATEGORIES, category)),
            number(10, self._iid(_NAMES, name)),
            *(message(4, self._annotation(key, value)) for key, value in arguments),
            *(fixed64(47, flow) for flow in flows_from),
            *(fixed64(48, flow) for flow in flows_to),
        ]
        self._event(time_ns, b"".join(event))

    def end(self, uuid: int, time_ns: int) -> None:
        """The slice that began last on the track, of those that are open, ends."""
        self._event(time_ns, number(9, _END) + number(11, uuid))

    def count(self, uuid: int, time_ns: int, value: float) -> None:
        """A counter's value from now on."""
        self._event(time_ns, number(9, _COUNTER) + number(11, uuid) + double(44, value))

    def _event(self, time_ns: int, event: bytes) -> None:
        interned = message(12, b"".join(self._added)) if self._added else b""
        self._added.clear()
        self._put(number(8, time_ns + self._shift_ns) + _STATEFUL + interned + message(11, event))

    def _annotation(self, key: str, value: object) -> bytes:
        named = number(1, self._iid(_KEYS, key))
        if isinstance(value, bool):
            return named + number(2, value)
        if isinstance(value, int):
            return named + number(4, value)
        if isinstance(value, float):
            return named + double(5, value)
        written = str(value)
        if len(self._iids) < _MAX_INTERNED or (_TEXTS, written) in self._iids:
            return named + number(17, self._iid(_TEXTS, written))
        return named + text_field(6, written)

    def _iid(self, table: int, written: str) -> int:
        """The number of a text in one of the tables, each from 1."""
        iid = self._iids.get((table, written))
        if iid is None:
            iid = self._iids[table, written] = len(self._iids) + 1
            self._added.append(message(table, number(1, iid) + text_field(2, written)))
        return iid


def _clock(clock: int, time_ns: int) -> bytes:
    return message(1, number(1, clock) + number(2, time_ns))


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
