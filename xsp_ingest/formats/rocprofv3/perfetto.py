"""The Perfetto trace that rocprofv3 writes (`--output-format pftrace`): slices and what is annotated on them.

Facts: field numbers from Perfetto's `protos/perfetto/trace` (TracePacket, TrackEvent, DebugAnnotation, InternedData);
categories and annotations from ROCprofiler-SDK's `source/lib/output/generatePerfetto.cpp`. A slice has its times as the
annotations `begin_ns` and `end_ns`, so that no clock of Perfetto's and no end of a slice is needed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xsp_ingest.files.content import cut_off
from xsp_ingest.files.protobuf import Messages
from xsp_ingest.files.values import varint
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["CATEGORIES", "Slice", "Slices", "is_rocprofs"]

CATEGORIES = ("hip_api", "hsa_api", "rccl_api", "marker_api", "kernel_dispatch", "memory_copy")
"""The categories of slices that are read."""

_ANNOTATED = (b"begin_ns", b"delta_ns", b"corr_id")
_NAMED = re.compile(b"|".join(b"\x12" + re.escape(bytes([len(c)]) + c.encode()) for c in CATEGORIES))
_PACKET = 0x0A  # the key of field 1, whose content is length-delimited
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


def is_rocprofs(text: bytes) -> bool:
    """Whether a content that begins so is a Perfetto trace with rocprofv3's categories and annotations."""
    return text[:1] == bytes([_PACKET]) and all(name in text for name in _ANNOTATED) and bool(_NAMED.search(text))


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
        if data[at] != _PACKET:
            raise XspError(f"the Perfetto trace is damaged: no packet at byte {at}", path=path)
        length, start = varint(data, at + 1, len(data))
        if start < 0 or start + length > len(data):
            raise cut_off(path)
        yield start, start + length
        at = start + length
