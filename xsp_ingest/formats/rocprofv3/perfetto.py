"""The Perfetto trace that rocprofv3 writes (`--output-format pftrace`): slices and what is annotated on them.

Facts: field numbers from Perfetto's `protos/perfetto/trace` (TracePacket, TrackEvent, DebugAnnotation, InternedData);
categories and annotations from ROCprofiler-SDK's `source/lib/output/generatePerfetto.cpp`. A slice has its times as the
annotations `begin_ns` and `end_ns`, so that no clock of Perfetto's and no end of a slice is needed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_ingest.files.content import cut_off, read_all
from xsp_ingest.files.protobuf import Messages
from xsp_ingest.files.values import int64, natural, varint
from xsp_ingest.formats.rocprofv3.outputs import CATEGORIES, PACKET
from xsp_ingest.formats.rocprofv3.records import API, COPY, COUNT, KERNEL, Records, column, plain_kernel_name
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["Slice", "Slices", "from_perfetto"]

_CLEARED = 1  # flag of a packet before which nothing is interned
_BEGINS = 1  # type of a slice's first event
_PERFETTO = Messages(
    "xsp.perfetto",
    {
        "Packet": {
            "sequence": (10, "uint64"),
            "event": (11, "Event"),
            "interned": (12, "Interned"),
            "flags": (13, "uint64"),
            "is_behind_dropped": (42, "bool"),
            "track": (60, "Track"),
        },
        "Event": {
            "category_iids": (3, "uint64*"),
            "annotations": (4, "Annotation*"),
            "type": (9, "int32"),
            "name_iid": (10, "uint64"),
            "track_uuid": (11, "uint64"),
            "categories": (22, "bytes*"),
            "name": (23, "bytes"),
        },
        "Annotation": {
            "name_iid": (1, "uint64"),
            "uint": (3, "uint64?"),
            "int": (4, "int64?"),
            "double": (5, "double?"),
            "text": (6, "bytes?"),
            "name": (10, "bytes"),
            "text_iid": (17, "uint64?"),
        },
        "Interned": {
            "categories": (1, "Text*"),
            "names": (2, "Text*"),
            "annotations": (3, "Text*"),
            "texts": (29, "Text*"),
        },
        "Text": {"iid": (1, "uint64"), "text": (2, "bytes")},
        "Track": {"uuid": (1, "uint64"), "name": (2, "bytes"), "process": (3, "Process"), "thread": (4, "Process")},
        "Process": {"pid": (1, "int32")},  # of a thread: the process it is of
    },
)


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice with what is annotated on it."""

    category: str
    name: str | None
    track: str | None  # its name
    annotations: dict[str, int | float | str]


@dataclass
class _Interned:
    """What a sequence of packets has numbered so far."""

    categories: dict[int, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    annotations: dict[int, str] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)

    def add(self, message: Any) -> None:  # noqa: ANN401
        for table in ("categories", "names", "annotations", "texts"):
            of: dict[int, str] = getattr(self, table)
            of.update((one.iid, _text(one.text)) for one in getattr(message, table))


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


@dataclass
class Slices:
    """Goes over the slices of a trace; what stands in fields is known once that is done."""

    path: Path
    process: int | None = None
    other: int = 0  # slices of other categories, or without times
    gaps: int = 0  # packets in front of which some were lost
    _interned: dict[int, _Interned] = field(default_factory=dict)
    _tracks: dict[int, str] = field(default_factory=dict)

    def of(self, data: bytes) -> Iterator[Slice]:
        """The slices in the order of the file; XspError where it is damaged or cut off."""
        from google.protobuf.message import DecodeError  # noqa: PLC0415

        packet_class = _PERFETTO.of("Packet")
        for start, end in _packets(data, self.path):
            try:
                packet = packet_class.FromString(data[start:end])
            except DecodeError as error:
                raise XspError(
                    f"the Perfetto trace is damaged: no sound packet at byte {start}", path=self.path
                ) from error
            one = self._slice(packet)
            if one is not None:
                yield one

    def _slice(self, packet: Any) -> Slice | None:  # noqa: ANN401
        self.gaps += packet.is_behind_dropped
        if packet.flags & _CLEARED:
            self._interned[packet.sequence] = _Interned()
        interned = self._interned.setdefault(packet.sequence, _Interned())
        if packet.HasField("interned"):
            interned.add(packet.interned)
        if packet.HasField("track"):
            self._describe(packet.track)
        event = packet.event
        if not packet.HasField("event") or event.type != _BEGINS:
            return None
        numbered = [interned.categories.get(iid, "") for iid in event.category_iids]
        category = next((c for c in (*numbered, *map(_text, event.categories)) if c in CATEGORIES), None)
        annotations = dict(_annotations(event, interned))
        if category is None or "begin_ns" not in annotations:
            self.other += 1
            return None
        name = _text(event.name) or interned.names.get(event.name_iid)
        return Slice(category, name, self._tracks.get(event.track_uuid), annotations)

    def _describe(self, track: Any) -> None:  # noqa: ANN401
        if track.name:
            self._tracks[track.uuid] = _text(track.name)
        if self.process is None:
            self.process = track.process.pid or track.thread.pid or None


def _annotations(event: Any, interned: _Interned) -> Iterator[tuple[str, int | float | str]]:  # noqa: ANN401
    for one in event.annotations:
        kind = one.WhichOneof("value")
        name = _text(one.name) or interned.annotations.get(one.name_iid)
        if kind is None or name is None:
            continue
        value = getattr(one, kind)
        if kind == "text":
            value = _text(value)
        elif kind == "text_iid":
            value = interned.texts.get(value, "")
        yield name, value


def _packets(data: bytes, path: Path) -> Iterator[tuple[int, int]]:
    """Where the packets lie."""
    at = 0
    while at < len(data):
        if data[at] != PACKET:
            raise XspError(f"the Perfetto trace is damaged: no packet at byte {at}", path=path)
        length, start = varint(data, at + 1, len(data))
        if start < 0 or start + length > len(data):
            raise cut_off(path)
        yield start, start + length
        at = start + length


# From the slices of the Perfetto trace to the common columns.

_KERNELS, _COPIES = "kernel_dispatch", "memory_copy"
_AGENT = re.compile(r"^(?:Agent|GPU)\D*(\d+)$", re.IGNORECASE)
_ENDS = re.compile(r"(HOST|DEVICE)_TO_(HOST|DEVICE)$", re.IGNORECASE)
_STREAM = re.compile(r"\bSTREAM \[(\d+)\]")


def from_perfetto(path: Path) -> Records:
    """The records of the trace; XspError where it is damaged or cut off."""
    slices = Slices(path)
    kernels: list[dict[str, object]] = []
    copies: list[dict[str, object]] = []
    calls: list[dict[str, object]] = []
    counts: list[dict[str, object]] = []
    for one in slices.of(read_all(path)):
        row = {**_times(one), "stream": _stream(one)}
        if one.category == _KERNELS:
            row["dispatch"] = len(kernels)
            kernels.append({**row, **_kernel(one)})
            counts += ({"dispatch": row["dispatch"], "counter": c, "value": v} for c, v in _counter_values(one))
        elif one.category == _COPIES:
            copies.append({**row, **_copy(one)})
        else:
            calls.append({**row, "domain": one.category.upper(), "name": one.name})
    return Records(
        _frame(kernels, KERNEL, slices.process),
        _frame(copies, COPY, slices.process),
        _frame(calls, API, slices.process),
        counts=_frame(counts, COUNT, slices.process),
        findings=(
            Finding(LedgerKind.RECORDS_NOT_READ, "slices of other categories of the Perfetto trace", slices.other),
            Finding(LedgerKind.DROPPED_RECORDS, "gaps in the Perfetto trace, whose buffer was full", slices.gaps),
        ),
    )


def _frame(rows: list[dict[str, object]], columns: Mapping[str, pl.DataType], process: int | None) -> pl.DataFrame:
    return pl.DataFrame(
        {
            name: column(name, [int64(row.get(name, process if name == "process" else None)) for row in rows])
            if kind == pl.Int64
            else pl.Series(name, [row.get(name) for row in rows], dtype=kind)
            for name, kind in columns.items()
        },
        schema=dict(columns),
    )


def _times(one: Slice) -> dict[str, object]:
    annotations = one.annotations
    return {
        "start": annotations.get("begin_ns"),
        "end": annotations.get("end_ns"),
        "thread": annotations.get("tid"),
        "correlation": annotations.get("corr_id"),
    }


def _stream(one: Slice) -> int | None:
    """The stream that annotations name, or in earlier versions the name of the track."""
    if "stream_ID" in one.annotations:
        return int64(one.annotations["stream_ID"])
    match = _STREAM.search(one.track or "")
    return natural(match[1]) if match else None


def _agent(label: object) -> int | None:
    """The number in `Agent-4` or `GPU-0`: which agents there are is not in the trace."""
    match = _AGENT.match(label) if isinstance(label, str) else None
    return natural(match[1]) if match else None


def _kernel(one: Slice) -> dict[str, object]:
    """Grids and blocks are written as products of their sizes, which do not tell the sizes: these stay unknown."""
    annotations = one.annotations
    return {
        "name": None if one.name is None else plain_kernel_name(one.name),
        "agent": _agent(annotations.get("agent")),
        "registers": annotations.get("VGPR_Count"),
        "accumulation_registers": annotations.get("Accum_VGPR_Count"),
        "shared": annotations.get("LDS_Block_Size", annotations.get("group_segment_size")),
    }


def _copy(one: Slice) -> dict[str, object]:
    """A copy is its source's; where that is the host, its destination's."""
    annotations, name = one.annotations, one.name or ""
    ends = _ENDS.search(name)
    first, second = (end.upper() == "DEVICE" for end in ends.groups()) if ends else (False, False)
    agent = annotations.get("src_agent") if first else annotations.get("dst_agent") if second else None
    return {"direction": name, "agent": _agent(agent), "bytes": annotations.get("copy_bytes")}


def _counter_values(one: Slice) -> list[tuple[str, float]]:
    """Counters are what is annotated as a fraction: everything else is a whole number or a text."""
    return [(name, value) for name, value in one.annotations.items() if isinstance(value, float)]
