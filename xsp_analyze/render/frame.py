"""A frame that a query gave: its values as they are, as text, CSV, JSON or Parquet, some rows at a time."""

from __future__ import annotations

import json
from io import BytesIO
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.render.csv_text import flat, write_csv
from xsp_analyze.render.json_text import plain
from xsp_analyze.render.terminal import table_lines
from xsp_analyze.text.table import Table, TextColumn
from xsp_analyze.text.units import UNKNOWN, count, count_of
from xsp_model.errors import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["as_csv", "as_json", "as_parquet", "as_table"]

_ROWS_AT_ONCE = 65_536


def as_csv(frame: pl.DataFrame, *, raw: bool = False) -> Iterator[bytes]:
    """Full precision and empty cells for null; lists as JSON. Texts that spreadsheets run are guarded, unless `raw`."""
    yield write_csv([flat(column) for column in frame.head(0)], raw=raw).encode()
    for part in frame.iter_slices(_ROWS_AT_ONCE):
        yield write_csv([flat(column) for column in part], raw=raw, header=False).encode()


def as_json(frame: pl.DataFrame) -> Iterator[bytes]:
    """An array of objects, one a line; null is unknown, and no number is NaN."""
    yield b"["
    before = "\n"
    for part in frame.iter_slices(_ROWS_AT_ONCE):
        lines = [json.dumps(plain(row), ensure_ascii=False, allow_nan=False) for row in part.iter_rows(named=True)]
        if lines:
            yield (before + ",\n".join(lines)).encode(errors="backslashreplace")
            before = ",\n"
    yield b"\n]\n"


def as_parquet(frame: pl.DataFrame) -> Iterator[bytes]:
    """One Parquet file."""
    out = BytesIO()
    frame.write_parquet(out, compression="zstd")
    yield out.getvalue()


def as_table(frame: pl.DataFrame, *, width: int | None = None, rows: int | None = None) -> str:
    """A table for a terminal of so many cells, of at most so many rows; numbers stand right and are not rounded.

    Text gives way first, in the middle; a column that still has no room is named below instead.
    """
    shown = frame if rows is None else frame.head(rows)
    columns = [
        TextColumn(clean(series.name), [_text(value) for value in series], is_number=series.dtype.is_numeric())
        for series in shown
    ]
    more = frame.height - shown.height
    notes = [f"{count(more)} more rows; --rows 0 shows all."] if more > 0 else []
    notes.append(f"{count_of(frame.height, 'row', 'rows')}")
    return "\n".join(table_lines(Table("", columns, notes), width, otherwise="select less")) + "\n"


def _text(value: object) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, pl.Series | list):
        return clean(json.dumps(plain(list(value)), ensure_ascii=False))
    return clean(str(value))
