"""Rows as whole numbers: one number stands for a row's values of several columns, to group, sort and find rows by.

Millions of rows then move as one array of integers: a sort of such numbers costs a tenth of one by several columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_model.columns.arrays import lookup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from xsp_model.columns.arrays import Bools, Ints

__all__ = [
    "first_rows",
    "group_ids",
    "groups",
    "in_order",
    "numbers_by_appearance",
    "numbers_in_order",
    "positions_in",
    "run_starts",
    "running_max",
    "sort_by",
]

_ID_LIMIT = 1 << 62  # ids stay below, so that sums of two fit in 64 bits


def group_ids(columns: Iterable[pl.Series], *, ordered: bool = False) -> tuple[Ints, int]:
    """A number for each row, from 0 and below the size returned; rows get the same exactly if all values agree.

    A null is a value of its own. `ordered`: numbers sort as the rows do by these columns, text by letters, nulls last.
    """
    ids: Ints | None = None
    size = 1
    for column in columns:
        values, count = _ordinals(column, ordered=ordered)
        if ids is not None and size * count > _ID_LIMIT:
            ids, size = _dense(ids)
        if size * count > _ID_LIMIT:
            values, count = _dense(values)
        ids = values if ids is None else ids * count + values
        size *= count
    assert ids is not None  # noqa: S101 (there is a column)
    return ids, size


def _dense(values: Ints) -> tuple[Ints, int]:
    distinct, at = np.unique(values, return_inverse=True)
    return at.astype(np.int64, copy=False), max(len(distinct), 1)


def _ordinals(column: pl.Series, *, ordered: bool) -> tuple[Ints, int]:
    """The column's values as numbers from 0 and below the size, in their order (where asked for), null the last."""
    numbers = _numbers(column, ordered=ordered)
    low, high = numbers.min(), numbers.max()
    if not isinstance(low, int) or not isinstance(high, int):  # no value at all
        return np.zeros(len(column), dtype=np.int64), 1
    if high - low >= _ID_LIMIT:
        numbers = numbers.rank("dense").cast(pl.Int64)
        low, high = 1, int(numbers.max())  # type: ignore[arg-type]
    span = high - low + 1
    if not numbers.null_count():
        values = numbers.to_numpy()
        return (values - low if low else values), span
    return (numbers - low).fill_null(span).to_numpy(), span + 1  # what is behind the highest may not fit in 64 bits


def _numbers(column: pl.Series, *, ordered: bool) -> pl.Series:
    """Whole numbers that stand for the values; null stays null."""
    if column.dtype.is_integer() or column.dtype == pl.Boolean:
        return column.cast(pl.Int64)
    if column.dtype == pl.String and not ordered:
        column = column.cast(pl.Categorical)
    if not isinstance(column.dtype, pl.Categorical | pl.Enum):
        return column.rank("dense").cast(pl.Int64)
    physical = column.to_physical().cast(pl.Int64)
    if not ordered:
        return physical
    texts = column.unique().drop_nulls()
    physical_ids = texts.to_physical().to_numpy()
    table = np.zeros(int(physical_ids.max(initial=0)) + 1, dtype=np.int64)
    table[physical_ids] = texts.cast(pl.String).rank("dense").to_numpy()
    ranks = pl.Series(table).gather(physical.fill_null(0)) if len(texts) else physical
    return ranks if not column.null_count() else ranks.set(column.is_null(), None)


def sort_by(code: Ints, size: int) -> Ints:
    """The rows in order of their ids, equal ones in the order in which they stand."""
    count = len(code)
    if not count or bool((code[1:] >= code[:-1]).all()):
        return np.arange(count, dtype=np.int64)
    bits = count.bit_length()
    if size << bits >= 2 * _ID_LIMIT:
        return np.argsort(code, kind="stable")
    packed = code << bits  # the row within the number makes a sort of numbers stable: far faster than a sort of places
    packed |= np.arange(count, dtype=np.int64)
    packed.sort()
    packed &= (1 << bits) - 1
    return packed


def in_order(columns: Sequence[pl.Series]) -> Ints:
    """The rows sorted by the columns, text by letters, nulls last; rows that agree in all stand as they stood."""
    room = _ID_LIMIT >> len(columns[0]).bit_length()  # so that a code and a row fit in one number
    ids, size = group_ids(columns[:1], ordered=True)
    taken = 1
    for column in columns[1:]:
        values, count = _ordinals(column, ordered=True)
        if size * count > room:
            break
        ids, size, taken = ids * count + values, size * count, taken + 1
    order = sort_by(ids, size)
    return order if taken == len(columns) else _with_ties_sorted(order, ids[order], columns[taken:])


def _with_ties_sorted(order: Ints, sorted_ids: Ints, columns: Sequence[pl.Series]) -> Ints:
    """The order of rows by ids, those of equal ids sorted by the columns."""
    starts = run_starts(sorted_ids)
    lengths = np.diff(np.append(starts, len(order)))
    run = np.repeat(np.arange(len(starts)), lengths)
    tied = np.flatnonzero(np.repeat(lengths > 1, lengths))
    if len(tied):
        rows = order[tied]
        by_rest = in_order([column.gather(rows) for column in columns])
        order[tied] = rows[by_rest[sort_by(run[tied][by_rest], len(starts))]]
    return order


def numbers_in_order(code: Ints, size: int) -> tuple[Ints, Ints]:
    """The ids as numbers from 0 in their own order, and the first row of each number."""
    if size > 4 * len(code) + (1 << 16):
        code, size = _dense(code)
    first = first_rows(code, size)
    occurs = first < len(code)
    return (np.cumsum(occurs) - 1)[code], first[occurs]


def positions_in(table: pl.DataFrame, rows: pl.DataFrame, keys: Sequence[str]) -> Ints:
    """For each of the rows the first row of the table with the same values of the keys, or -1; a null is like none."""
    code, _ = group_ids([pl.concat([table[key], rows[key]]) for key in keys])
    rows_of_table = lookup(code[: table.height], code[table.height :])
    for key in keys:
        if rows[key].null_count():
            rows_of_table[rows[key].is_null().to_numpy()] = -1
    return rows_of_table


def run_starts(*sorted_columns: Ints) -> Ints:
    """Where runs of rows that agree in all of these columns start; the first at 0."""
    differ: Bools = np.zeros(max(len(sorted_columns[0]) - 1, 0), dtype=np.bool_)
    for values in sorted_columns:
        differ |= values[1:] != values[:-1]
    first = np.zeros(min(len(sorted_columns[0]), 1), dtype=np.int64)
    return np.concatenate((first, np.flatnonzero(differ) + 1))


def first_rows(number: Ints, count: int) -> Ints:
    """For each of the numbers 0, ..., count - 1 the first row that bears it; the number of rows where none does."""
    firsts = np.full(count, len(number), dtype=np.int64)
    firsts[number[::-1]] = np.arange(len(number) - 1, -1, -1)  # the last to be written stays
    return firsts


def numbers_by_appearance(code: Ints, size: int) -> tuple[Ints, Ints]:
    """The ids as numbers from 0 in order of first appearance, and the first row of each number."""
    if size > 4 * len(code) + (1 << 16):
        code, size = _dense(code)
    first = first_rows(code, size)
    rows = np.sort(first[first < len(code)])
    table = np.zeros(size, dtype=np.int64)
    table[code[rows]] = np.arange(len(rows))
    return table[code], rows


def groups(rows: pl.DataFrame, keys: Sequence[str]) -> tuple[pl.DataFrame, Ints, Ints]:
    """The values of the keys that occur, in order, nulls last; the rows in that order; where each group starts in it.

    The rows of a group stand as they stood. The last start is the number of rows: a group ends where the next begins.
    """
    code, size = group_ids(rows.select(keys), ordered=True)
    order = sort_by(code, size)
    starts = run_starts(code[order])
    return rows.select(keys)[order[starts]], order, np.append(starts, len(order))


def running_max(values: Ints, starts: Ints) -> Ints:
    """The largest value so far within each run of rows; runs start at `starts`, the first at 0."""
    if not len(values):
        return values
    low = int(values.min())
    reach = int(values.max()) - low + 1
    if reach * len(starts) >= _ID_LIMIT:
        distinct, at = np.unique(values, return_inverse=True)
        return distinct[running_max(at.astype(np.int64, copy=False), starts)]
    lengths = np.diff(np.append(starts, len(values)))
    lift = np.repeat(np.arange(len(starts), dtype=np.int64) * reach - low, lengths)  # each run above the one before
    highest: Ints = np.maximum.accumulate(values + lift)
    return highest - lift
