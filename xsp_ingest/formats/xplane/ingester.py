"""Recognises and reads XPlane profiles."""

from __future__ import annotations

import mmap
from dataclasses import replace
from typing import TYPE_CHECKING

from xsp_ingest.files.values import varint
from xsp_ingest.formats.xplane import log_folder, wire
from xsp_ingest.ingester import Ingester, Match
from xsp_model import Finding, LedgerKind, Severity, XspError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from xsp_ingest.files.probe import Probe
    from xsp_ingest.formats.xplane.plane import Plane
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["XPlane"]

_PLANES, _ERRORS, _WARNINGS = 1, 2, 3
_PLANE_KEY = 0x0A  # field 1, a message
_NAME = 2
_KNOWN_FIELDS = range(1, 7)
_PLANE_NAMES = ("/host:", "/device:", "Task Environment", "#Chip", "/megascale", "CUSTOM:")


class XPlane(Ingester):
    """The ingester of `*.xplane.pb`."""

    name: str = "xplane"
    title: str = "XPlane (*.xplane.pb) of TensorFlow and JAX, CPU and GPU; seen: TensorFlow of 2020 and 2.21, JAX 0.10"

    def sniff(self, probe: Probe) -> Match:
        """A protobuf message that begins with a plane, whose name is one that TensorFlow's profiler gives."""
        head = probe.head
        if head[:1] != bytes([_PLANE_KEY]):
            return Match.NONE
        size, at = varint(head, 1, len(head))
        return Match.exact_if(at > 0 and _begins_as_plane(head, at, min(at + size, len(head)), probe.path))

    def files_in(self, folder: Path) -> Sequence[Path]:
        """The profiles of TensorBoard's log folder, one a host; XspError where it holds several sessions."""
        return log_folder.profiles(folder, self.sniff)

    def read(self, path: Path, options: Options) -> RawTrace:
        """The file's rows; XspError where it is damaged, cut off or holds no events."""
        from xsp_ingest.formats.xplane.plane import read_plane
        from xsp_ingest.formats.xplane.shape import shape

        planes: list[Plane] = []
        counts: dict[int, int] = {}
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            data = memoryview(mapped)
            try:
                for field in wire.fields(data, 0, len(data), path):
                    if field.number == _PLANES and field.is_message:
                        planes.append(read_plane(data, field.start, field.end, path))
                    counts[field.number] = counts.get(field.number, 0) + 1
            finally:
                data.release()
        if not planes:
            raise XspError("the file holds no planes", path=path, advice="Is it an .xplane.pb file?")
        raw = shape(planes, path, options)
        return replace(raw, findings=(*raw.findings, *_findings(counts)))


def _begins_as_plane(head: bytes, start: int, end: int, path: Path) -> bool:
    """Whether the fields that lie in the head are a plane's, up to one that does not."""
    try:
        for field in wire.fields(head, start, end, path):
            if field.number not in _KNOWN_FIELDS:
                return False
            if field.number == _NAME:
                return head[field.start : field.end].decode(errors="replace").startswith(_PLANE_NAMES)
    except XspError:
        return False
    return False


def _findings(counts: dict[int, int]) -> Iterator[Finding]:
    """What the profiler itself complained of: how often; its texts may name machines."""
    for number, what, severity in ((_ERRORS, "errors", Severity.WARNING), (_WARNINGS, "warnings", Severity.INFO)):
        detail = f"the profiler itself reported {what} while it ran"
        yield Finding(
            LedgerKind.PROFILER_DIAGNOSTIC, detail, counts.get(number, 0), severity, advice="TensorBoard shows them"
        )
