"""Graphs that run the same kernels are told apart by their order: a model replays its pieces as it captured them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from xsp_model.arrays import Ints

__all__ = ["rounds"]


def rounds(possible: Sequence[Sequence[int]], set_of: Sequence[Hashable], meaning: Callable[[int], int]) -> Ints:
    """For each replay, in order, its graph where going around the graphs of one set leaves only that; else -1.

    `possible[i]`: the graphs that replay i may be of; `set_of[g]`: what graph g was captured with (a run, for a batch
    size), in order of capture. A trace may begin and end anywhere in a round. Where it may have begun in several
    places, a replay has a graph only where all of them give one that says the same.
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for graph in sorted({graph for each in possible for graph in each}):
        members[set_of[graph]].append(graph)
    out = np.full(len(possible), -1, dtype=np.int64)
    of_set: dict[Hashable, list[int]] = defaultdict(list)
    for replay, each in enumerate(possible):
        sets = {set_of[graph] for graph in each}
        if len(sets) == 1:
            of_set[sets.pop()].append(replay)
    for name, replays in of_set.items():
        out[replays] = _around(members[name], [possible[replay] for replay in replays], meaning)
    return out


def _around(graphs: Sequence[int], possible: Sequence[Sequence[int]], meaning: Callable[[int], int]) -> Ints:
    """The graphs of these replays of one set; -1 where its order leaves them open."""
    alike = {tuple(each): number for number, each in enumerate(dict.fromkeys(map(tuple, possible)))}
    sought = np.array([alike[tuple(each)] for each in possible])
    class_of = {graph: number for each, number in alike.items() for graph in each}
    classes = np.array([class_of.get(graph, -1) for graph in graphs])
    ways = [
        np.resize(np.roll(np.array(graphs), -begin), len(sought))
        for begin in np.flatnonzero(classes == sought[0])
        if (np.resize(np.roll(classes, -begin), len(sought)) == sought).all()
    ]
    if not ways:
        return np.full(len(sought), -1, dtype=np.int64)
    if len(ways) == 1:
        return ways[0]
    meaning_of = np.zeros(max(graphs) + 1, dtype=np.int64)
    meaning_of[list(graphs)] = [meaning(graph) for graph in graphs]
    certain = np.logical_and.reduce([meaning_of[way] == meaning_of[ways[0]] for way in ways[1:]])
    return np.where(certain, ways[0], -1)
