"""How alike models are, and which join first: cosines of their mixes, and a tree of average linkage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_model.arrays import Floats

__all__ = ["Join", "cosines", "leaf_order", "linkage"]


@dataclass(frozen=True, slots=True)
class Join:
    """Two clusters become one, at a distance. Leaves are numbered from 0, joins after them in their order."""

    first: int
    second: int
    distance: float
    size: int


def cosines(vectors: Sequence[Mapping[str, float]]) -> Floats:
    """Cosine of every pair (n x n, 0..1 for shares); 0 beside a vector that is empty, and 1 of each with itself."""
    names = sorted({name for vector in vectors for name in vector})
    rows = [[vector.get(name, 0.0) for name in names] for vector in vectors]
    table = np.array(rows, dtype=float).reshape(len(vectors), len(names))
    norms = np.linalg.norm(table, axis=1)
    units = table / np.where(norms > 0, norms, 1)[:, None]
    similarity: Floats = np.clip(units @ units.T, 0.0, 1.0)
    np.fill_diagonal(similarity, 1.0)
    return similarity


def linkage(distances: Floats) -> list[Join]:
    """Joins of the closest clusters until one is left; the distance of two is the mean over pairs of their leaves.

    Average linkage (UPGMA), Sokal and Michener 1958. Of equal distances the lowest numbers join first. A few hundred
    rows at most: each join looks at all pairs.
    """
    count = len(distances)
    between = distances.astype(float).copy()
    np.fill_diagonal(between, np.inf)
    number, size = list(range(count)), [1] * count
    joins: list[Join] = []
    for step in range(count - 1):
        a, b = divmod(int(np.argmin(between)), count)
        a, b = min(a, b), max(a, b)
        first, second = sorted((number[a], number[b]))
        joins.append(Join(first, second, float(between[a, b]), size[a] + size[b]))
        mean = (between[a] * size[a] + between[b] * size[b]) / (size[a] + size[b])
        between[a], between[:, a] = mean, mean
        between[b], between[:, b] = np.inf, np.inf
        between[a, a] = np.inf
        number[a], size[a] = count + step, size[a] + size[b]
    return joins


def leaf_order(joins: Sequence[Join], count: int) -> list[int]:
    """The leaves so that every cluster's stand side by side, in the order in which the tree is drawn."""
    if not joins:
        return list(range(count))
    order: list[int] = []
    waiting = [count + len(joins) - 1]
    while waiting:
        node = waiting.pop()
        if node < count:
            order.append(node)
        else:
            waiting += [joins[node - count].second, joins[node - count].first]
    return order
