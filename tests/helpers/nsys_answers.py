"""Compares our reports with what `nsys stats` prints, cell by cell."""

from __future__ import annotations

import csv
import io
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from xsp_analyze.core import Analysis, Column

__all__ = ["differences", "parse"]

_FACTORS = {"share": 100.0, "byte": 1e-6, "byte/s": 1e-6}


_SLACK = 1e-6  # of float sums, beside half a unit of the last digit that nsys prints


def parse(text: str) -> list[list[str]] | None:
    """The rows of an nsys CSV, headings first; None where nsys skipped the report or had nothing to print."""
    if text.startswith("SKIPPED") or not text.strip():
        return None
    return list(csv.reader(io.StringIO(text)))


def differences(report: Analysis, table: pl.DataFrame, theirs: list[list[str]]) -> list[str]:
    """A line for each thing that is not equal; nothing where our table says what theirs does, in their order.

    Rows that nsys sorts by nothing (equal in what it sorts by) may stand in any order among each other.
    """
    columns = [c for c in report.columns if c.name in table.columns]
    headings = [c.header for c in columns]
    if headings != theirs[0]:
        return [f"headings: {headings} for {theirs[0]}"]
    if table.height != len(theirs) - 1:
        return [f"{table.height} rows for {len(theirs) - 1}"]
    ours = list(table.select(c.name for c in columns).iter_rows())
    return list(_unequal(columns, ours, theirs[1:]))


def _unequal(columns: Sequence[Column], ours: list[tuple[object, ...]], theirs: list[list[str]]) -> Iterator[str]:
    odd = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if not _same_row(columns, a, b)]
    exact = [i for i, c in enumerate(columns) if c.decimals is None]
    mine = Counter(tuple(_text(ours[i][c]) for c in exact) for i in odd)
    if mine != Counter(tuple(theirs[i][c] for c in exact) for i in odd):
        yield from (f"row {i}: {ours[i]} for {theirs[i]}" for i in odd)
        return
    # The same rows in another order: theirs by what they say exactly.
    rows_of: dict[tuple[str, ...], list[int]] = {}
    for i in odd:
        rows_of.setdefault(tuple(theirs[i][c] for c in exact), []).append(i)
    for i in odd:
        candidates = rows_of[tuple(_text(ours[i][c]) for c in exact)]
        match = next((j for j in candidates if _same_row(columns, ours[i], theirs[j])), None)
        if match is None:
            yield f"row {i}: {ours[i]} for {[theirs[j] for j in candidates]}"
        else:
            candidates.remove(match)
            if not _tied(columns, theirs, i, match):
                yield f"row {i} stands at {match} in theirs: {theirs[match]}"


def _tied(columns: Sequence[Column], theirs: list[list[str]], a: int, b: int) -> bool:
    """Whether the measures by which a report is sorted are equal in both rows."""
    sorted_by = [i for i, c in enumerate(columns) if c.name in _SORTED_BY]
    return all(theirs[a][i] == theirs[b][i] for i in sorted_by[:1])


_SORTED_BY = (
    "call_start_ns",
    "total_ns",
    "total_bytes",
    "byte_per_s",
    "projected_ns",
    "duration_ns",
    "start_ns",
    "total_mean_ns",
)


def _same_row(columns: Sequence[Column], ours: tuple[object, ...], theirs: list[str]) -> bool:
    return all(_same(c, a, b) for c, a, b in zip(columns, ours, theirs, strict=True))


def _same(column: Column, ours: object, theirs: str) -> bool:
    if column.decimals is None or ours is None or not theirs:
        return _text(ours) == theirs
    assert isinstance(ours, int | float)
    value = ours * _FACTORS.get(column.unit, 1.0)
    return abs(value - float(theirs)) <= 0.5 * 10.0**-column.decimals + _SLACK * max(1.0, abs(value) * 1e-6)


def _text(value: object) -> str:
    return "" if value is None else str(value)
