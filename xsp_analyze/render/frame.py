"""A frame that a query gave: its values as they are, as text, CSV, JSON or Parquet, some rows at a time."""

from __future__ import annotations

import json
from io import BytesIO
from typing import TYPE_CHECKING

import polars as pl
from rich.cells import cell_len, set_cell_size

from xsp_analyze.render.csv_text import flat
from xsp_analyze.render.json_text import plain
from xsp_analyze.render.units import UNKNOWN
from xsp_model.plain_text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["as_csv", "as_json", "as_parquet", "as_table"]

_GAP = "  "
_NARROWEST_TEXT = 16
_ROWS_AT_ONCE = 65_536


def as_csv(frame: pl.DataFrame) -> Iterator[bytes]:
    """Full precision and empty cells for null; lists as JSON."""
    yield pl.DataFrame([flat(column) for column in frame.head(0)]).write_csv().encode()
    for part in frame.iter_slices(_ROWS_AT_ONCE):
        yield pl.DataFrame([flat(column) for column in part]).write_csv(include_header=False).encode()


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
    columns = [[_text(value) for value in series] for series in shown]
    heads = [clean(name) for name in frame.columns]
    numbers = [dtype.is_numeric() for dtype in frame.dtypes]
    widths = _fitted([max(map(cell_len, [head, *cells])) for head, cells in zip(heads, columns, strict=True)],
                     numbers, width)  # fmt: skip
    lines = [_line(heads, widths, numbers), _rule(widths)]
    lines += [_line(row, widths, numbers) for row in zip(*columns, strict=True)]
    if left := heads[len(widths) :]:
        lines.append(f"Too narrow for: {', '.join(left)}. Widen the window, or select less.")
    if (more := frame.height - shown.height) > 0:
        lines.append(f"{more:,} more rows; --rows 0 shows all.")
    lines.append(f"{frame.height:,} {'row' if frame.height == 1 else 'rows'}")
    return "\n".join(lines) + "\n"


def _text(value: object) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, pl.Series | list):
        return clean(json.dumps(plain(list(value)), ensure_ascii=False))
    return clean(str(value))


def _fitted(natural: Sequence[int], numbers: Sequence[bool], width: int | None) -> list[int]:
    """Widths of the columns that fit, from the left; one at least."""
    if width is None or sum(natural) + len(_GAP) * (len(natural) - 1) <= width:
        return list(natural)
    least = [n if number else min(n, _NARROWEST_TEXT) for n, number in zip(natural, numbers, strict=True)]
    fitted: list[int] = []
    for one in least:
        if fitted and sum(fitted) + len(_GAP) * len(fitted) + one > width:
            break
        fitted.append(one)
    spare = max(width - sum(fitted) - len(_GAP) * (len(fitted) - 1), 0)
    hungry = sorted((natural[i] - one, i) for i, one in enumerate(fitted))
    for place, (wish, i) in enumerate(hungry):  # those that wish for little first, so that the rest share what is left
        more = min(wish, spare // (len(hungry) - place))
        fitted[i] += more
        spare -= more
    return fitted


def _line(cells: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> str:
    parts = zip(cells, widths, numbers, strict=False)  # columns without a width are left out
    return _GAP.join(_padded(cell, width, right=number) for cell, width, number in parts).rstrip()


def _rule(widths: Sequence[int]) -> str:
    return "\u2500" * (sum(widths) + len(_GAP) * (len(widths) - 1))


def _padded(cell: str, width: int, *, right: bool) -> str:
    if cell_len(cell) > width:
        tail = width // 3
        cell = f"{set_cell_size(cell, width - tail - 1)}…{cell[-tail:]}"
    blank = " " * max(width - cell_len(cell), 0)
    return blank + cell if right else cell + blank
