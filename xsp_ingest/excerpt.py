"""Some rows of one capture, as they are in the file: for answers that take no links, layers or steps.

A trace made of them has the tables that a trace has, with the rows and columns asked for alone. Nobody may write it to
a bundle, and it says nothing of what the file holds besides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.content import Probe
from xsp_ingest.files.safe_files import check
from xsp_ingest.formats.nsys.sqlite import NSYS_SQLITE
from xsp_model import Trace, XspError
from xsp_model.columns.arrow import conform
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

__all__ = ["excerpt"]

_READERS = (NSYS_SQLITE,)  # not all ingesters are asked: to import them takes longer than many an answer
_RUNS = pl.DataFrame({"run_id": [0], "clock_origin_ns": [0]})


def excerpt(
    paths: Sequence[Path],
    columns: Mapping[str, Collection[str]],
    *,
    format: str | None = None,  # noqa: A002
) -> Trace | None:
    """The trace of these sorts of rows (see `Analysis.reads`); None where the files must be read as a whole for it.

    So it is as well where they are damaged or of another format: reading them then says what is wrong.
    """
    if len(paths) != 1 or not paths[0].is_file():
        return None
    path = paths[0]
    try:
        check(path)
        probe = Probe(path)
        reader = next((each for each in _READERS if format in (None, each.name) and each.sniff(probe)), None)
        tables = reader.read_excerpt(path, columns) if reader is not None else None
    except XspError:
        return None
    return None if tables is None else Trace({name: _table(name, tables) for name in TABLES})


def _table(name: str, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    if name in tables:
        return tables[name]
    return conform(_RUNS if name == "runs" else pl.DataFrame(), TABLES[name]).head(
        _RUNS.height if name == "runs" else 0
    )
