"""Every format that traces are written in, in one place, and how an export comes to its file."""

from __future__ import annotations

import gzip
import os
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from xsp_analyze.export.arrow import ARROW
from xsp_analyze.export.chrome import CHROME
from xsp_analyze.export.graphml import GRAPHML
from xsp_analyze.export.jaeger import JAEGER, OTLP
from xsp_analyze.export.perfetto import PERFETTO
from xsp_analyze.export.speedscope import SPEEDSCOPE
from xsp_analyze.export.target import Exporter, FolderExporter
from xsp_model import XspError
from xsp_model.output_files import writing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from xsp_analyze.export.target import Sink
    from xsp_model import Trace

__all__ = ["EXPORTERS", "Exporter", "FolderExporter", "export", "find"]

EXPORTERS: tuple[Exporter | FolderExporter, ...] = (JAEGER, OTLP, CHROME, PERFETTO, SPEEDSCOPE, GRAPHML, ARROW)
"""The formats, in the order in which help lists them."""


# Writes an export to its file, which appears only when it is whole.

_GZIP_LEVEL = 6


def find(name: str) -> Exporter | FolderExporter:
    """The format of that name; XspError where there is none."""
    for exporter in EXPORTERS:
        if exporter.name == name:
            return exporter
    names = ", ".join(exporter.name for exporter in EXPORTERS)
    raise XspError(f"there is no export format {name!r}", advice=f"Known formats: {names}")


def export(trace: Trace, exporter: Exporter | FolderExporter, path: Path) -> None:
    """Writes the trace; compressed where the name ends in .gz; into a folder where the format is one of several files.

    The same trace gives the same bytes. XspError where a file cannot be written or the format cannot hold the trace.
    """
    if isinstance(exporter, FolderExporter):
        _export_files(trace, exporter, path)
        return
    with writing(path) as file, _compress_if_gz(file, path) as target:
        exporter.write(trace, target)


def _export_files(trace: Trace, exporter: FolderExporter, folder: Path) -> None:
    if os.path.exists(folder) and not folder.is_dir():  # noqa: PTH110 (raises nothing for a name that is too long)
        raise XspError(
            f"is no folder, and {exporter.name} writes several files", path=folder, advice="Name a folder with -o"
        )
    for name, write in exporter.files(trace):
        with writing(folder / name) as file:
            write(file)


@contextmanager
def _compress_if_gz(file: IO[bytes], path: Path) -> Iterator[Sink]:
    if path.suffix != ".gz":
        yield file
        return
    with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as packed:
        yield packed
