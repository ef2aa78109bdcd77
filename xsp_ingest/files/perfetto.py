"""Perfetto's protobuf: its packets, and tracks, slices, counters and flows of any tool as the trace events of Chrome.

Facts: field numbers and what they mean from Perfetto's `protos/perfetto/trace` (TracePacket, TrackDescriptor,
TrackEvent, InternedData, DebugAnnotation, ClockSnapshot, TracePacketDefaults) and its page "Clock synchronization".
"""

from __future__ import annotations

import re
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any

import msgspec

from xsp_ingest.files.content import cut_off, read_all, rewriting
from xsp_ingest.files.protobuf import Messages
from xsp_ingest.files.values import varint
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_ingest.files.content import Probe

__all__ = ["CLEARED", "PACKET", "Interned", "annotations_of", "as_chrome_json", "is_perfetto", "json_head", "packets"]

PACKET = 0x0A  # the key of field 1, whose content is length-delimited
CLEARED = 1  # flag of a packet before which nothing is interned
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_REALTIME, _BOOTTIME = 1, 6
_OF_SEQUENCE = range(64, 128)  # clocks that only one sequence of packets has
_FIRST_PACKETS, _ENOUGH = 8, 3  # by which a trace is known, also a damaged one
_SEQUENCE = 10
_MAX_INFLATED = 1 << 28
_DEEPEST = 32
_BLOCK = 1 << 20
_START = b'{"traceEvents":[\n'
_DESCRIBED = """
Packet: clocks 6 ClockSnapshot, timestamp 8 uint64, sequence 10 uint64, event 11 Event, interned 12 Interned
Packet: flags 13 uint64, is_cleared 41 bool, is_behind_dropped 42 bool, compressed 50 bytes, clock 58 uint64
Packet: defaults 59 Defaults, track 60 Track
ClockSnapshot: clocks 1 Clock*
Clock: id 1 uint64, time 2 uint64, is_incremental 3 bool, unit_ns 4 uint64
Defaults: event 11 EventDefaults, clock 58 uint64
EventDefaults: track_uuid 11 uint64
Event: category_iids 3 uint64*, annotations 4 Annotation*, legacy 6 Legacy, type 9 int32, name_iid 10 uint64
Event: track_uuid 11 uint64, categories 22 bytes*, name 23 bytes, count 30 int64?, number 44 double?
Event: older_flows 36 uint64*, older_ends 42 uint64*, flows 47 fixed64*, flow_ends 48 fixed64*
Legacy: name_iid 1 uint64, phase 2 int32, duration_us 3 int64, unscoped_id 6 uint64, local_id 10 uint64
Legacy: global_id 11 uint64, pid 18 int32, tid 19 int32
Annotation: name_iid 1 uint64, bool 2 bool?, uint 3 uint64?, int 4 int64?, double 5 double?, text 6 bytes?
Annotation: json 9 bytes?, name 10 bytes, entries 11 Annotation*, values 12 Annotation*, text_iid 17 uint64?
Interned: categories 1 Text*, names 2 Text*, annotations 3 Text*, texts 29 Text*
Text: iid 1 uint64, text 2 bytes
Track: uuid 1 uint64, name 2 bytes, process 3 Process, thread 4 Thread, parent 5 uint64, counter 8 Counter
Track: static_name 10 bytes
Process: pid 1 int32, name 6 bytes
Thread: pid 1 int32, tid 2 int64, name 5 bytes
Counter: multiplier 4 int64, is_incremental 5 bool, unit 6 bytes
"""


def _messages() -> Messages:
    described: dict[str, dict[str, tuple[int, str]]] = {}
    for line in _DESCRIBED.strip().splitlines():
        message, _, fields = line.partition(": ")
        for name, number, kind in (each.split() for each in fields.split(", ")):
            described.setdefault(message, {})[name] = int(number), kind
    return Messages("xsp.perfetto", described)


_PACKETS = _messages()


def is_perfetto(text: bytes) -> bool:
    """Whether a content that begins so is sound packets (field 1), one of the first of which names its sequence."""
    at, has_sequence = 0, False
    for number in range(_FIRST_PACKETS):
        length, start = varint(text, at + 1, len(text))
        if text[at : at + 1] != bytes([PACKET]) or start < 0:
            return has_sequence and (at >= len(text) or number >= _ENOUGH)
        at = start + length
        if at > len(text):
            break
        fields = _fields(text[start:at])
        if fields is None:
            return False
        has_sequence |= (_SEQUENCE, 0) in fields
    return has_sequence


def _fields(packet: bytes) -> set[tuple[int, int]] | None:
    """Numbers and wire types of the packet's fields; None where these do not end with it."""
    fields: set[tuple[int, int]] = set()
    at = 0
    while 0 <= at < len(packet):
        tag, at = varint(packet, at, len(packet))
        if at < 0:
            return None
        fields.add((tag >> 3, tag & 7))
        value, behind = varint(packet, at, len(packet))
        at = {0: behind, 1: at + 8, 2: behind + value if behind >= 0 else -1, 5: at + 4}.get(tag & 7, -1)
    return fields if at == len(packet) else None


def packets(data: bytes, path: Path, *, is_inflated: bool = False) -> Iterator[Any]:
    """The packets of the trace, also those that are compressed together; XspError where it is damaged or cut off."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415 (other formats need not wait for protobuf)

    packet_class = _PACKETS.of("Packet")
    at = 0
    while at < len(data):
        if data[at] != PACKET:
            raise XspError(f"the Perfetto trace is damaged: no packet at byte {at}", path=path)
        length, start = varint(data, at + 1, len(data))
        if start < 0 or start + length > len(data):
            raise cut_off(path)
        try:
            packet = packet_class.FromString(data[start : start + length])
        except DecodeError as error:
            raise XspError(f"the Perfetto trace is damaged: no sound packet at byte {start}", path=path) from error
        yield packet
        if packet.compressed and not is_inflated:
            yield from packets(_inflate(packet.compressed, path), path, is_inflated=True)
        at = start + length


def _inflate(compressed: bytes, path: Path) -> bytes:
    inflate = zlib.decompressobj()
    try:
        content = inflate.decompress(compressed, _MAX_INFLATED)
    except zlib.error as error:
        raise XspError("the Perfetto trace is damaged: its compressed packets are", path=path) from error
    if inflate.unconsumed_tail:
        raise XspError(f"a packet of the Perfetto trace inflates to over {_MAX_INFLATED >> 20} MiB", path=path)
    return content


@dataclass
class Interned:
    """What a sequence of packets has numbered so far."""

    categories: dict[int, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    annotations: dict[int, str] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)

    def add(self, message: Any) -> None:  # noqa: ANN401
        """Takes what a packet numbers."""
        for table in ("categories", "names", "annotations", "texts"):
            of: dict[int, str] = getattr(self, table)
            of.update((one.iid, _text(one.text)) for one in getattr(message, table))


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


def annotations_of(event: Any, interned: Interned) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """The names and values of what is annotated on an event."""
    for one in event.annotations:
        name = _text(one.name) or interned.annotations.get(one.name_iid)
        if name is not None and (value := _value_of(one, interned, 0)) is not None:
            yield name, value


def _value_of(one: Any, interned: Interned, depth: int) -> Any:  # noqa: ANN401
    kind = one.WhichOneof("value")
    if kind is not None:
        value = getattr(one, kind)
        return (
            _text(value) if isinstance(value, bytes) else interned.texts.get(value, "") if kind == "text_iid" else value
        )
    if depth > _DEEPEST:
        return None
    if one.values:
        return [_value_of(value, interned, depth + 1) for value in one.values]
    names = (_text(each.name) or interned.annotations.get(each.name_iid, "") for each in one.entries)
    return dict(zip(names, (_value_of(each, interned, depth + 1) for each in one.entries), strict=True)) or None


@lru_cache(maxsize=1 << 14)
def _parse_json(text: str) -> object:
    """What a text that is JSON says: lists and objects are annotated so by writers that have nothing else."""
    if text[:1] in {"[", "{"}:
        with suppress(msgspec.DecodeError, RecursionError):
            return msgspec.json.decode(text)
    return text


# From packets to trace events.

_LANE = re.compile(r"(?:thread|stream) (-?\d+)(?: \(\d+\))?")
_OF_RUN = re.compile(r"(rank|run) (\d+): ")
_GROUP = re.compile(r"(?:(?:rank|run) \d+: )?process (-?\d+)")
_DEVICE_GROUP = re.compile(r"(?:(?:rank|run) \d+: )?device (\d+)(?: \((.+)\))?$")
_RESTATED = re.compile(r"(?:layers|operators) of device work")  # as XSP's own export calls what restates work
_OPERATOR = ("cpu_op", "Operator")
_LEGACY = "XbensftCiIR"


@dataclass
class _Track:
    name: str = ""
    pid: int | None = None
    tid: int | None = None
    parent: int = 0
    is_counter: bool = False
    multiplier: int = 1
    is_incremental: bool = False
    unit: str = ""
    count: float = 0


@dataclass
class _Clock:
    """A moment at which a clock said `raw_ns` while the trace's own said `time_ns`."""

    time_ns: int
    raw_ns: int
    unit_ns: int
    is_incremental: bool


@dataclass
class _Events:
    """Makes trace events of packets; what stands in fields is known when that is done."""

    epoch_ns: int | None = None
    count: int = 0
    untimed: int = 0
    others: int = 0
    gaps: int = 0
    devices: dict[int, str] = field(default_factory=dict)
    _interned: dict[int, Interned] = field(default_factory=dict)
    _defaults: dict[int, tuple[int, int]] = field(default_factory=dict)  # of a sequence: clock and track
    _clocks: dict[tuple[int, int], _Clock] = field(default_factory=dict)
    _tracks: dict[int, _Track] = field(default_factory=dict)
    _lanes: dict[int, tuple[int | str, int | str]] = field(default_factory=dict)
    _named: dict[tuple[int | str, int | str], int] = field(default_factory=dict)
    _processes: dict[int, str] = field(default_factory=dict)
    _open: dict[int, list[tuple[int, dict[str, Any]]]] = field(default_factory=dict)
    _flows: set[int] = field(default_factory=set)

    def of(self, packet: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
        """The events that are complete with this packet."""
        self.gaps += packet.is_behind_dropped
        sequence = packet.sequence
        if packet.flags & CLEARED or packet.is_cleared:
            self._interned[sequence] = Interned()
            self._defaults.pop(sequence, None)
        if packet.HasField("interned"):
            self._interned.setdefault(sequence, Interned()).add(packet.interned)
        if packet.HasField("defaults"):
            self._defaults[sequence] = packet.defaults.clock, packet.defaults.event.track_uuid
        if packet.HasField("clocks"):
            self._synchronise(packet.clocks.clocks, sequence)
        if packet.HasField("track"):
            self._describe(packet.track)
        if packet.HasField("event"):
            yield from self._event(packet.event, sequence, self._time_ns(packet))
        elif not (packet.HasField("track") or packet.HasField("clocks") or packet.compressed):
            self.others += packet.timestamp > 0

    def rest(self) -> Iterator[dict[str, Any]]:
        """Slices without an end."""
        for begun in self._open.values():
            yield from (event for _, event in begun)

    def _synchronise(self, clocks: Any, sequence: int) -> None:  # noqa: ANN401
        times = {each.id: each.time for each in clocks}
        now = times.get(_BOOTTIME, next(iter(times.values()), 0))
        if self.epoch_ns is None and _REALTIME in times:
            self.epoch_ns = times[_REALTIME] - now
        for each in clocks:
            unit = each.unit_ns or 1
            key = (sequence if each.id in _OF_SEQUENCE else 0, each.id)
            self._clocks[key] = _Clock(now, each.time * unit, unit, each.is_incremental)

    def _time_ns(self, packet: Any) -> int:  # noqa: ANN401
        clock = packet.clock or self._defaults.get(packet.sequence, (0, 0))[0] or _BOOTTIME
        current = self._clocks.get((packet.sequence if clock in _OF_SEQUENCE else 0, clock))
        if current is None or clock == _BOOTTIME:
            return int(packet.timestamp)
        passed = packet.timestamp * current.unit_ns
        if current.is_incremental:
            current.time_ns += passed
            return current.time_ns
        return current.time_ns + int(passed) - current.raw_ns

    def _describe(self, track: Any) -> None:  # noqa: ANN401
        name = _text(track.name or track.static_name or track.thread.name or track.process.name)
        pid, tid = (track.thread.pid, track.thread.tid) if track.HasField("thread") else (track.process.pid, None)
        has_pid = track.HasField("thread") or track.HasField("process")
        counter = track.counter
        before = self._tracks.get(track.uuid)
        self._tracks[track.uuid] = _Track(
            name or (before.name if before else ""),
            pid if has_pid else None,
            tid,
            track.parent,
            track.HasField("counter"),
            counter.multiplier or 1,
            counter.is_incremental,
            _text(counter.unit),
            before.count if before else 0,
        )
        if track.HasField("process"):
            self._processes[pid] = name
        device = _DEVICE_GROUP.match(name)
        if device and device[2]:
            self.devices[int(device[1])] = device[2]
        self._lanes.clear()

    def _lane(self, uuid: int) -> tuple[int | str, int | str]:
        """Process and thread of what is on a track: numbers where they are known, else the names of tracks."""
        if (lane := self._lanes.get(uuid)) is None:
            lane = self._lanes[uuid] = self._new_lane(uuid)
        return lane

    def _new_lane(self, uuid: int) -> tuple[int | str, int | str]:
        track = self._tracks.get(uuid, _Track())
        around, above = track, track.parent
        for _ in range(_DEEPEST):
            if around.pid is not None or above not in self._tracks:
                break
            around, above = self._tracks[above], self._tracks[above].parent
        group = _GROUP.fullmatch(around.name)
        pid: int | str = around.pid if around.pid is not None else int(group[1]) if group else around.name or "tracks"
        of_run = _OF_RUN.match(around.name if around.pid is None else self._processes.get(around.pid, ""))
        if of_run:  # as text, so that each is read as a run of its own
            pid = f"[{of_run[1]} {of_run[2]}] {pid if group or around.pid is not None else around.name[of_run.end() :]}"
        if track.tid is not None:
            return pid, track.tid
        lane = _LANE.fullmatch(track.name)
        tid: int | str = int(lane[1]) if lane else track.name or f"track {uuid}"
        if isinstance(tid, str) and self._named.setdefault((pid, tid), uuid) != uuid:
            tid = f"{tid} ({uuid})"
        return pid, tid

    def _event(self, event: Any, sequence: int, time_ns: int) -> Iterator[dict[str, Any]]:  # noqa: ANN401
        self.count += 1
        uuid = event.track_uuid or self._defaults.get(sequence, (0, 0))[1]
        legacy = chr(event.legacy.phase) if 0 < event.legacy.phase < 128 else ""  # noqa: PLR2004 (ASCII)
        if event.type == _END or legacy == "E":
            yield from self._end(uuid, time_ns)
        elif event.type == _COUNTER:
            yield self._sample(uuid, event, time_ns)
        elif event.type in {_BEGIN, _INSTANT} or legacy in {*_LEGACY, "B"}:
            begun = self._begin(event, uuid, self._interned.setdefault(sequence, Interned()))
            begun |= {"ts": _microseconds(time_ns)}
            if event.type == _BEGIN or legacy == "B":
                self._open.setdefault(uuid, []).append((time_ns, begun))
            else:
                yield begun | (_legacy(event.legacy, legacy) if legacy else {"ph": "i"})
            yield from self._arrows(event, begun)
        else:
            self.untimed += 1

    def _begin(self, event: Any, uuid: int, interned: Interned) -> dict[str, Any]:  # noqa: ANN401
        numbered = (interned.categories.get(iid, "") for iid in event.category_iids)
        category = ",".join(filter(None, (*numbered, *map(_text, event.categories))))
        pid, tid = self._lane(uuid)
        iid = event.name_iid or event.legacy.name_iid
        return {
            "ph": "X",
            "cat": "gpu_user_annotation" if _RESTATED.fullmatch(category) else category,
            "name": _text(event.name) or interned.names.get(iid, ""),
            "pid": event.legacy.pid or pid,
            "tid": event.legacy.tid or tid,
            "args": {
                name: _parse_json(value) if isinstance(value, str) else value
                for name, value in annotations_of(event, interned)
            },
        }

    def _end(self, uuid: int, time_ns: int) -> Iterator[dict[str, Any]]:
        if not self._open.get(uuid):
            pid, tid = self._lane(uuid)
            yield {"ph": "E", "pid": pid, "tid": tid, "ts": _microseconds(time_ns)}  # for the reader to count
            return
        start_ns, begun = self._open[uuid].pop()
        yield begun | {"dur": _microseconds(time_ns - start_ns)}

    def _sample(self, uuid: int, event: Any, time_ns: int) -> dict[str, Any]:  # noqa: ANN401
        track = self._tracks.setdefault(uuid, _Track())
        kind = event.WhichOneof("value")
        value = (getattr(event, kind) if kind else 0) * track.multiplier
        track.count = track.count + value if track.is_incremental else value
        around = self._tracks.get(track.parent, _Track())
        device = _DEVICE_GROUP.match(around.name)
        return {
            "ph": "C",
            "cat": "counter",
            "name": track.name,
            "pid": self._lane(uuid)[0],
            "ts": _microseconds(time_ns),
            "args": {track.name: track.count},
            "device": int(device[1]) if device else None,
            "unit": track.unit,
        }

    def _arrows(self, event: Any, begun: Mapping[str, Any]) -> Iterator[dict[str, Any]]:  # noqa: ANN401
        """Both ends of arrows; between operators they are those from forward to backward ones."""
        category = "fwdbwd" if begun["cat"] in _OPERATOR else "ac2g"
        at = {"cat": category, "name": category, **{key: begun[key] for key in ("pid", "tid", "ts")}}
        for flow in (*event.flows, *event.older_flows):
            yield {"ph": "t" if flow in self._flows else "s", **at, "id": flow}
            self._flows.add(flow)
        for flow in (*event.flow_ends, *event.older_ends):
            yield {"ph": "f", **at, "id": flow, "bp": "e"}


def _legacy(legacy: Any, phase: str) -> dict[str, Any]:  # noqa: ANN401
    written: dict[str, Any] = {"ph": phase, "id": legacy.global_id or legacy.local_id or legacy.unscoped_id}
    return written | ({"dur": legacy.duration_us} if phase == "X" else {})


def _microseconds(time_ns: int) -> msgspec.Raw:
    sign, absolute_ns = "-" if time_ns < 0 else "", abs(time_ns)
    return msgspec.Raw(b"%s%d.%03d" % (sign.encode(), absolute_ns // 1000, absolute_ns % 1000))


def _chrome_json(data: bytes, path: Path, events: _Events) -> Iterator[bytes]:
    """The trace as the object form of Chrome's JSON, as Kineto writes it."""
    encode = msgspec.json.Encoder().encode
    between = _START
    for packet in packets(data, path):
        for event in events.of(packet):
            yield between + encode(event)
            between = b",\n"
    for event in events.rest():
        yield between + encode(event)
        between = b",\n"
    head: dict[str, Any] = {"deviceProperties": [{"id": n, "name": name} for n, name in sorted(events.devices.items())]}
    if events.epoch_ns is not None:
        head["baseTimeNanoseconds"] = events.epoch_ns
    yield (between if between is _START else b"") + b"]," + encode(head)[1:]


def json_head(probe: Probe) -> bytes:
    """How the content begins, of a Perfetto trace as Chrome's JSON."""
    return _json_head(probe.text) if is_perfetto(probe.text) else probe.text


@lru_cache(maxsize=1)
def _json_head(text: bytes) -> bytes:
    out = bytearray()
    with suppress(XspError):
        for piece in _chrome_json(text, Path(), _Events()):
            out += piece
    return bytes(out or _START)


@contextmanager
def as_chrome_json(path: Path, probe: Probe) -> Iterator[list[Finding]]:
    """Whoever opens the file meanwhile gets it as Chrome's JSON if it is a Perfetto trace; what was odd about it."""
    if not is_perfetto(probe.text):
        yield []
        return
    events = _Events()
    with TemporaryFile() as file:
        file.writelines(_chrome_json(read_all(path), path, events))
        file.flush()
        if not events.count:
            raise XspError(
                "the Perfetto trace holds no slices or counters of any program (track events)",
                path=path,
                advice="Record with a data source that writes them, such as track_event, beside those of the system",
            )
        with rewriting(lambda opened, blocks: _blocks_of(file) if opened == path else blocks):
            yield [
                Finding(LedgerKind.RECORDS_NOT_READ, "packets of other kinds of the Perfetto trace", events.others),
                Finding(LedgerKind.DROPPED_RECORDS, "gaps in the Perfetto trace, whose buffer was full", events.gaps),
                Finding(LedgerKind.NOT_AN_EVENT, "track events of unknown types", events.untimed),
            ]


def _blocks_of(file: IO[bytes]) -> Iterator[bytes]:
    at = 0
    while True:
        file.seek(at)  # others may read it meanwhile
        block = file.read(_BLOCK)
        if not block:
            return
        yield block
        at += len(block)
