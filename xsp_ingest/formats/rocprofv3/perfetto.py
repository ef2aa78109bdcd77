"""The Perfetto trace that rocprofv3 writes (`--output-format pftrace`): slices and what is annotated on them.

Facts: categories and annotations from ROCprofiler-SDK's `source/lib/output/generatePerfetto.cpp`. A slice has its times
as the annotations `begin_ns` and `end_ns`, so that no clock of Perfetto's and no end of a slice is needed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_ingest.files.content import read_all
from xsp_ingest.files.perfetto import CLEARED, Interned, annotations_of, packets
from xsp_ingest.files.values import int64, natural
from xsp_ingest.formats.rocprofv3.outputs import CATEGORIES
from xsp_ingest.formats.rocprofv3.records import API, COPY, COUNT, KERNEL, Records, column, plain_kernel_name
from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["Slice", "Slices", "from_perfetto"]

_BEGINS = 1  # type of a slice's first event


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice with what is annotated on it."""

    category: str
    name: str | None
    track: str | None  # its name
    annotations: dict[str, int | float | str]


@dataclass
class Slices:
    """Goes over the slices of a trace; what stands in fields is known once that is done."""

    path: Path
    process: int | None = None
    other: int = 0  # slices of other categories, or without times
    gaps: int = 0  # packets in front of which some were lost
    _interned: dict[int, Interned] = field(default_factory=dict)
    _tracks: dict[int, str] = field(default_factory=dict)

    def of(self, data: bytes) -> Iterator[Slice]:
        """The slices in the order of the file; XspError where it is damaged or cut off."""
        for packet in packets(data, self.path):
            one = self._slice(packet)
            if one is not None:
                yield one

    def _slice(self, packet: Any) -> Slice | None:  # noqa: ANN401
        self.gaps += packet.is_behind_dropped
        if packet.flags & CLEARED:
            self._interned[packet.sequence] = Interned()
        interned = self._interned.setdefault(packet.sequence, Interned())
        if packet.HasField("interned"):
            interned.add(packet.interned)
        if packet.HasField("track"):
            self._describe(packet.track)
        event = packet.event
        if not packet.HasField("event") or event.type != _BEGINS:
            return None
        categories = [interned.categories.get(iid, "") for iid in event.category_iids]
        categories += [each.decode(errors="replace") for each in event.categories]
        category = next((each for each in categories if each in CATEGORIES), None)
        annotations = dict(annotations_of(event, interned))
        if category is None or "begin_ns" not in annotations:
            self.other += 1
            return None
        name = event.name.decode(errors="replace") or interned.names.get(event.name_iid)
        return Slice(category, name, self._tracks.get(event.track_uuid), annotations)

    def _describe(self, track: Any) -> None:  # noqa: ANN401
        if track.name:
            self._tracks[track.uuid] = track.name.decode(errors="replace")
        if self.process is None:
            self.process = track.process.pid or track.thread.pid or None


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
