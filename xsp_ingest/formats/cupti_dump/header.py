"""The first line of a dump of JSON lines, or the metadata of a Parquet one: what it is and what it says of the run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import msgspec

from xsp_ingest.staging.raw import RunFacts
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["IS_DUMP", "PARQUET_KEY", "PARQUET_MAGIC", "Header", "facts_of", "parse_header"]

FORMAT = "xsp cupti dump"
PARQUET_KEY = b"xsp cupti dump"
PARQUET_MAGIC = b"PAR1"
IS_DUMP = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{[^\n]{0,4096}?"format"\s*:\s*"xsp cupti dump"')
_VERSION = 1
_Integer = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]


class Header(msgspec.Struct, frozen=True):
    """The fields of version 1; those that a dump does not have are None."""

    format: str
    version: int
    pid: _Integer | None = None
    clock: str | None = None
    epoch_ns: _Integer | None = None
    tool: str | None = None
    cupti_version: str | int | None = None
    driver_version: str | int | None = None
    framework: str | None = None
    model: str | None = None
    batch_size: _Integer | None = None
    rank: _Integer | None = None
    world_size: _Integer | None = None
    dropped: _Integer | None = None
    refused: tuple[str, ...] = ()


def parse_header(text: bytes, path: Path) -> Header:
    """The header; XspError where it is none, or of a later version of the format."""
    try:
        header = msgspec.json.decode(text.decode("utf-8", errors="replace"), type=Header)
    except (msgspec.DecodeError, RecursionError) as error:
        raise XspError(f"the header of the CUPTI dump cannot be read ({error})", path=path) from error
    if header.format != FORMAT:
        raise XspError(f"the header does not say that the file is an {FORMAT!r}", path=path)
    if header.version != _VERSION:
        raise XspError(
            f"the CUPTI dump is of version {header.version} of its format, and version {_VERSION} can be read",
            path=path,
            advice="Use a newer XSP",
        )
    return header


def facts_of(header: Header) -> RunFacts:
    """What the run is."""
    profiler = " ".join(str(part) for part in (header.tool or "CUPTI", header.cupti_version) if part is not None)
    return RunFacts(
        profiler=profiler,
        framework=header.framework,
        model=header.model,
        batch_size=header.batch_size,
        rank=header.rank,
        world_size=header.world_size,
        epoch_ns=header.epoch_ns,
    )
