"""The span tree: the total order of its rows, and walks up it over all spans at once."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_model.columns.arrays import no_refs, pieces, release
from xsp_model.limits import limits
from xsp_model.vocabulary import LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = [
    "MAX_DEPTH",
    "ancestors",
    "depths",
    "has_equal_neighbour",
    "innermost",
    "is_cyclic",
    "is_sorted",
    "jumps",
    "outermost",
    "total_order",
]

# Walks up the span tree, vectorised over all spans at once.

MAX_DEPTH = 512
"""Spans in one another, the outermost among them, that texts of them all are made of: all together grow with both."""
_CYCLE = "the span tree has a cycle"


def ancestors(parent: Positions) -> Iterator[Positions]:
    """For each span its parent, then its grandparent, ... (-1: none), until nobody has one.

    `parent[i]` is the row of span i's parent or -1. Raises ValueError on a cycle.
    """
    current = parent
    for _ in range(len(parent) + 1):
        if not (current >= 0).any():
            return
        yield current
        current = np.where(current >= 0, parent[current], -1)
    raise ValueError(_CYCLE)


def depths(parent: Positions) -> Ints:
    """How many spans are above each. Raises ValueError on a cycle."""
    depth = (parent >= 0).astype(np.int64)
    for rows, up in jumps(parent):
        depth[rows] += depth[up]
    return depth


def innermost(parent: Positions, mask: Bools) -> Positions:
    """For each span the nearest wanted span among itself and its ancestors, or -1."""
    nearest = np.where(mask, np.arange(len(parent)), -1)
    for rows, up in jumps(np.where(mask, -1, parent)):
        nearest[rows] = nearest[up]
    return nearest


def outermost(parent: Positions, mask: Bools) -> Positions:
    """For each span the farthest wanted span among itself and its ancestors, or -1."""
    farthest = np.where(mask, np.arange(len(parent)), -1)
    for rows, up in jumps(parent):
        above = farthest[up]
        farthest[rows] = np.where(above >= 0, above, farthest[rows])
    return farthest


def jumps(parent: Positions) -> Iterator[tuple[Positions, Positions]]:
    """Rows, and for each the span 1, 2, 4, 8, ... above it, until none has one: what is known of so many is doubled.

    So the deepest of trees takes as many rounds as its depth has binary digits. Raises ValueError on a cycle.
    """
    jump = parent
    for _ in range(len(parent).bit_length() + 1):
        rows = np.flatnonzero(jump >= 0)
        if not len(rows):
            return
        up = jump[rows]
        yield rows, up
        jump = jump.copy()
        jump[rows] = jump[up]
    raise ValueError(_CYCLE)


def is_cyclic(parent: Positions) -> bool:
    """Whether some span is its own ancestor."""
    up = parent
    for _ in range(len(parent).bit_length() + 1):
        if not (up >= 0).any():
            return False
        up = np.where(up >= 0, up[up], -1)
    return True


# The total order of spans: by start, then outer levels first, longer spans first, and by place and name.

_RANK = {str(level): rank for rank, level in enumerate(LEVELS)}
_TIES = (
    "run_id",
    "process_id",
    "thread_id",
    "device_id",
    "stream_id",
    "correlation_id",
    "name",
    "kind",
    "context_id",
    "span_id",
)
_TEXTS = ("name", "kind")  # compared as texts, however they are held
_LAST = (1 << 63) - 1  # null goes last


def total_order(spans: pl.DataFrame, details: Callable[[Positions], Sequence[Ints]] = lambda _: ()) -> Positions | None:
    """The rows of `spans` in their total order; None where they stand in it already. Without `run_id` it is one run.

    By start first, which settles nearly all; only spans that start together are compared column by column, and those
    alike in every column by numbers that `details` gives for them, then by the order they have (or their `span_id`).
    """
    start = spans["start_ns"].to_numpy()
    order = None if is_sorted(start) else _by_start(start)
    together = np.flatnonzero(has_equal_neighbour(start) if order is None else _has_equal_neighbour_in(start, order))
    ties = _Ties(spans, details)
    for few in _moments(start, order, together):
        rows = few if order is None else order[few]
        sorting_positions = ties.in_order(rows)
        if order is None and (sorting_positions == rows).all():
            continue
        order = _row_numbers(len(start)) if order is None else order
        order[few] = sorting_positions
    return order


def is_sorted(values: Ints) -> bool:
    """Whether none is smaller than the one before."""
    return all(
        (values[p][1:] >= values[p][:-1]).all() and (not p.start or values[p.start] >= values[p.start - 1])
        for p in pieces(len(values))
    )


def _moments(start: Ints, order: Positions | None, together: Ints) -> Iterator[Ints]:
    """The tied places some at a time, those that start together never apart."""

    def start_of(nth: int) -> int:
        row = together[nth]
        return int(start[row if order is None else order[row]])

    first, at_once = 0, limits().tied_spans
    while first < len(together):
        end = min(first + at_once, len(together))
        end = bisect_right(range(len(together)), start_of(end - 1), lo=end, key=start_of)
        yield together[first:end]
        first = end
        release()


class _Ties:
    """Compares spans by what tells them apart, words by their place among all words of the column."""

    def __init__(self, spans: pl.DataFrame, details: Callable[[Positions], Sequence[Ints]]) -> None:
        self._spans = spans
        self._details = details
        self._columns = [name for name in _TIES if name in spans.columns]
        self._alphabets = {name: _alphabet(spans[name]) for name in self._columns if name in _TEXTS}
        self._alphabets["level"] = _outermost_first(spans["level"])

    def in_order(self, rows: Positions) -> Positions:
        """These rows in order. Nearly all differ in start, level and length already."""
        start = self._spans["start_ns"].to_numpy()[rows]
        length = self._numbers("duration_ns", rows)
        keys = (start, self._numbers("level", rows), np.where(length == _LAST, _LAST, -length))
        by = np.lexsort(keys[::-1])
        alike = np.ones(max(len(by) - 1, 0), dtype=np.bool_)  # a row and the next
        for key in keys:
            alike &= key[by][1:] == key[by][:-1]
        if alike.any():
            left = np.flatnonzero(np.append(alike, False) | np.append(False, alike))
            group = np.append(0, np.cumsum(~alike))[left]
            by[left] = by[left][self._order_by_others(rows[by[left]], group)]
        return rows[by]

    def _order_by_others(self, rows: Positions, group: Ints) -> Ints:
        """The order of rows by the other columns, within their groups, which are in order."""
        keys = [group, *(self._numbers(name, rows) for name in self._columns)]
        keys = [key for key in keys if (key != key[0]).any()] or [group]
        by = np.lexsort(keys[::-1])
        alike = np.ones(max(len(by) - 1, 0), dtype=np.bool_)
        for key in keys:
            alike &= key[by][1:] == key[by][:-1]
        if not alike.any():
            return by
        left = np.flatnonzero(np.append(alike, False) | np.append(False, alike))
        last = np.append(0, np.cumsum(~alike))[left]
        by[left] = by[left][np.lexsort([*reversed(self._details(rows[by[left]])), last])]
        return by

    def _numbers(self, name: str, rows: Positions) -> Ints:
        if name not in self._alphabets:
            return self._spans[name].gather(rows).fill_null(_LAST).to_numpy()
        column, table = self._alphabets[name]
        physical = column.to_physical().gather(rows)
        ranks: Ints = table[physical.fill_null(len(table) - 1).to_numpy()]
        return ranks


def _alphabet(column: pl.Series) -> tuple[pl.Series, Ints]:
    """The column, and the places of its words in the order of the alphabet by what stands for the words."""
    return _number_words(column, lambda texts: texts.rank("dense").to_list())


def _outermost_first(column: pl.Series) -> tuple[pl.Series, Ints]:
    return _number_words(column, lambda texts: [_RANK[text] for text in texts])


def _number_words(column: pl.Series, number: Callable[[pl.Series], Sequence[int]]) -> tuple[pl.Series, Ints]:
    """The column of words, and a number for each of them by what stands for it; the last is that of null."""
    column = column if column.dtype in (pl.Categorical, pl.Enum) else column.cast(pl.Categorical)
    distinct = column.unique().drop_nulls()
    physical = distinct.to_physical().to_numpy()
    table = np.full(int(physical.max(initial=0)) + 2, _LAST, dtype=np.int64)
    table[physical] = number(distinct.cast(pl.String))
    return column, table


def _by_start(start: Ints) -> Positions:
    out = no_refs(len(start))
    out[:] = np.argsort(start, kind="stable")
    return out


def _row_numbers(count: int) -> Positions:
    out = no_refs(count)
    for piece in pieces(count):
        out[piece] = np.arange(piece.start, piece.stop)
    return out


def _has_equal_neighbour_in(values: Ints, order: Positions) -> Bools:
    """What `has_equal_neighbour` answers of `values[order]`, a part of them at a time."""
    out = np.zeros(len(order), dtype=np.bool_)
    for piece in pieces(len(order)):
        last = min(piece.stop + 1, len(order))  # one more, to be compared with
        out[piece.start : last] |= has_equal_neighbour(values[order[piece.start : last]])
    return out


def has_equal_neighbour(values: Ints) -> Bools:
    """Which of the sorted values have an equal neighbour."""
    same = values[1:] == values[:-1]
    out: Bools = np.concatenate((same, [False]))
    out[1:] |= same
    return out[: len(values)]
