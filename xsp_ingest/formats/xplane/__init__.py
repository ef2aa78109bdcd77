"""XPlane: the profiles that TensorFlow and JAX write, `*.xplane.pb`."""

from __future__ import annotations

import mmap
from dataclasses import replace
from typing import TYPE_CHECKING

from xsp_ingest.files.content import Probe
from xsp_ingest.files.values import varint
from xsp_ingest.formats.xplane import wire
from xsp_ingest.ingester import Ingester, Match
from xsp_model import Finding, LedgerKind, Severity, XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from xsp_ingest.formats.xplane.plane import Plane
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["XPLANE"]

_LAYOUT = ("plugins", "profile")


def profiles(folder: Path, is_profile: Callable[[Probe], object]) -> Sequence[Path]:
    """The profiles of the folder's only session, one a host; none where the folder is no log folder.

    `folder` is the log folder, a session in it, or anything between; XspError where it holds several sessions.
    """
    files_of = {session: files for session in _sessions(folder) if (files := _inside(session, is_profile))}
    if len(files_of) > 1:
        raise XspError(
            f"the log folder holds {len(files_of)} profiling sessions",
            path=folder,
            advice=f"Give one of them, as {next(reversed(files_of))}",
        )
    return next(iter(files_of.values()), [])


def _sessions(folder: Path) -> list[Path]:
    parts = folder.absolute().parts
    if parts[-3:-1] == _LAYOUT:
        return [folder]
    for below in (folder.joinpath(*_LAYOUT), folder / _LAYOUT[1], folder):
        if below.is_dir() and below.absolute().parts[-2:] == _LAYOUT:
            return sorted(path for path in below.iterdir() if path.is_dir() and not path.is_symlink())
    return []


def _inside(session: Path, is_profile: Callable[[Probe], object]) -> list[Path]:
    files = (path for path in sorted(session.iterdir()) if path.is_file() and not path.is_symlink())
    return [path for path in files if path.stat().st_size and _is_claimed(path, is_profile)]


def _is_claimed(path: Path, is_profile: Callable[[Probe], object]) -> bool:
    try:
        return bool(is_profile(Probe(path)))
    except XspError:
        return False


# Recognises and reads XPlane profiles.
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
        return profiles(folder, self.sniff)

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


XPLANE = XPlane()
