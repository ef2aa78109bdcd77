"""Paths of chosen spans above others: which there are is found out once for each span, not for all that ran in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from xsp_analyze.frames.group_ids import numbers_in_order
from xsp_model.arrays import no_refs
from xsp_model.tree import depths

if TYPE_CHECKING:
    from xsp_model.arrays import Bools, Ints, Positions

__all__ = ["SpanPaths", "above"]

_CYCLE = "the span tree has a cycle"


@dataclass(frozen=True)
class SpanPaths:
    """The wanted spans above each of some rows.

    `spans` are all that are above any row; `at` is, of each row, the place in `spans` of the innermost, `outer`, of
    each of `spans`, the place of the next one above it; -1: there is none.
    """

    spans: Ints
    outer: Ints
    at: Ints

    def paths_by_code(self, code: Ints) -> tuple[Ints, Ints]:
        """For each row the number of its path of codes, where `code` is of `spans`; and the paths.

        A path is a row of codes, outermost first, padded with -1; the last path is empty.
        """
        depth = depths(self.outer)
        number = np.full(len(self.spans), -1, dtype=np.int64)
        parents, own = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        size, total = int(code.max(initial=-1)) + 1, 0
        for level in range(int(depth.max(initial=-1)) + 1):
            here = np.flatnonzero(depth == level)
            parent = number[self.outer[here]] if level else np.full(len(here), -1, dtype=np.int64)
            which, first = numbers_in_order((parent + 1) * size + code[here], (total + 1) * size)
            number[here] = total + which
            parents.append(parent[first])
            own.append(code[here][first])
            total += len(first)
        return np.where(self.at >= 0, number[self.at], total) if len(number) else np.zeros(len(self.at), np.int64), (
            _paths(np.concatenate(parents), np.concatenate(own))
        )


def above(start: Ints, parent: Ints, selected: Bools, stop: Bools | None = None) -> SpanPaths:
    """The wanted spans among each start (-1: none) and those above it, up to the first span for which `stop` holds."""
    nearest = _nearest(start, parent, selected, stop)
    index_of = no_refs(len(parent))
    spans, outer, total = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)], 0
    paths = _new(nearest, index_of)
    while len(paths):
        index_of[paths] = np.arange(total, total + len(paths))
        total += len(paths)
        spans.append(paths)
        outer.append(_nearest(parent[paths], parent, selected, stop))
        paths = _new(outer[-1], index_of)
    return SpanPaths(
        np.concatenate(spans), _place_spans(np.concatenate(outer), index_of), _place_spans(nearest, index_of)
    )


def _place_spans(spans: Ints, index_of: Positions) -> Ints:
    return np.where(spans >= 0, index_of[spans], -1).astype(np.int64) if len(index_of) else spans


def _new(spans: Ints, index_of: Positions) -> Ints:
    """Those of the spans that have no place yet, each once, in order."""
    is_new = np.zeros(len(index_of), dtype=np.bool_)
    is_new[spans[spans >= 0]] = True
    return np.flatnonzero(is_new & (index_of < 0))


def _nearest(start: Ints, parent: Ints, selected: Bools, stop: Bools | None) -> Ints:
    nearest = np.full(len(start), -1, dtype=np.int64)
    rows = np.flatnonzero(start >= 0)
    current = start[rows]
    for _ in range(len(parent) + 1):
        if stop is not None:
            goes_on = ~stop[current]
            rows, current = rows[goes_on], current[goes_on]
        if not len(rows):
            return nearest
        hit = selected[current]
        nearest[rows[hit]] = current[hit]
        rows, current = rows[~hit], parent[current[~hit]]
        rows, current = rows[current >= 0], current[current >= 0]
    raise ValueError(_CYCLE)


def _paths(parent: Ints, code: Ints) -> Ints:
    """One row a path and a last, empty one; a path is that of its parent (-1: none) and its own code."""
    depth = depths(parent)
    paths = np.full((len(parent) + 1, int(depth.max(initial=-1)) + 1), -1, dtype=np.int64)
    path = np.arange(len(parent))
    up = path
    while len(path):
        paths[path, depth[up]] = code[up]
        up = parent[up]
        path, up = path[up >= 0], up[up >= 0]
    return paths
