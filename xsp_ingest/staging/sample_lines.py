"""Files of samples that our runners write: a line that says the format, a line a sample, a line that says the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

from xsp_ingest.files.content import cut_off, lines
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["SampleFile", "read_lines"]

_VERSION = 1
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # the last where it nests too deep


class _SaysFormat(Protocol):
    @property
    def format(self) -> str: ...
    @property
    def version(self) -> int: ...


_Header = TypeVar("_Header", bound=_SaysFormat)
_Sample = TypeVar("_Sample")


class _End(msgspec.Struct, frozen=True):
    end: bool


@dataclass(frozen=True, slots=True)
class SampleFile(Generic[_Header, _Sample]):
    """What such a file holds, and what was odd about it."""

    header: _Header
    samples: list[_Sample]
    findings: tuple[Finding, ...]


def read_lines(path: Path, name: str, header: type[_Header], sample: type[_Sample]) -> SampleFile[_Header, _Sample]:
    """The file's header and samples; XspError where it is of no format of that name, of a later version, or cut off."""
    records = (line for block in lines(path) for line in block.splitlines(keepends=True) if line.strip())
    first = _header(next(records, b""), name, header, path)
    samples, bad, ended = _decode_samples(records, sample, path)
    findings = (
        Finding(LedgerKind.BAD_LINE, "lines that are no samples", bad),
        Finding(LedgerKind.NO_END, "the samples have no closing line: what took them was stopped", 0 if ended else 1),
    )
    return SampleFile(first, samples, findings)


def _header(line: bytes, name: str, kind: type[_Header], path: Path) -> _Header:
    try:
        header = msgspec.json.decode(line.removeprefix(b"\xef\xbb\xbf"), type=kind)
    except _NO_JSON as error:
        raise XspError(f"the first line of the samples cannot be read ({error})", path=path) from error
    if header.format != name:
        raise XspError(f"the first line does not say that the file is of {name!r}", path=path)
    if header.version != _VERSION:
        raise XspError(
            f"the samples are of version {header.version} of their format, and version {_VERSION} can be read",
            path=path,
            advice="Use a newer XSP",
        )
    return header


def _decode_samples(records: Iterable[bytes], kind: type[_Sample], path: Path) -> tuple[list[_Sample], int, bool]:
    """Samples, how many lines are none, and whether the closing line is there."""
    sample, end = msgspec.json.Decoder(kind), msgspec.json.Decoder(_End)
    samples: list[_Sample] = []
    bad, ended = 0, False
    for line in records:
        try:
            samples.append(sample.decode(line))
        except _NO_JSON:
            try:
                ended = end.decode(line).end
            except _NO_JSON:
                if not line.endswith(b"\n"):
                    raise cut_off(path, "its last line is no whole sample") from None
                bad += 1
    return samples, bad, ended
