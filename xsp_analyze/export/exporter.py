"""Writes an export to its file, which appears only when it is whole."""

from __future__ import annotations

import gzip
import os
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from xsp_analyze.export.registry import EXPORTERS
from xsp_analyze.export.target import Exporter
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from xsp_analyze.export.target import Sink
    from xsp_model import Trace

__all__ = ["Exporter", "export", "find"]

_GZIP_LEVEL = 6


def find(name: str) -> Exporter:
    """The format of that name; XspError where there is none."""
    for exporter in EXPORTERS:
        if exporter.name == name:
            return exporter
    names = ", ".join(exporter.name for exporter in EXPORTERS)
    raise XspError(f"there is no export format {name!r}", advice=f"Known formats: {names}")


def export(trace: Trace, exporter: Exporter, path: Path) -> None:
    """Writes the trace; compressed where the name ends in .gz. The same trace gives the same bytes.

    Raises OSError where the file cannot be written, XspError where the format cannot hold the trace.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with unfinished.open("xb") as file, _compressed(file, path) as target:
            exporter.write(trace, target)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def _compressed(file: IO[bytes], path: Path) -> Iterator[Sink]:
    if path.suffix != ".gz":
        yield file
        return
    with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as packed:
        yield packed
