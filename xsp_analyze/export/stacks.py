"""Device time summed over stacks of names: layers, operators, kernel."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_model import Attribution, Level
from xsp_model.tree import depths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model import Trace
    from xsp_model.arrays import Bools, Ints

__all__ = ["device_stacks"]

_ROOT = 0


class _Stacks:
    """Stacks of names; stack 0 is empty, every other one is a stack with a name on top."""

    def __init__(self) -> None:
        self.below: Ints = np.array([-1], dtype=np.int64)
        self.name: Ints = np.array([-1], dtype=np.int64)

    def push(self, below: Ints, name: Ints) -> Ints:
        """The stack that each name on each stack makes."""
        pairs, which = np.unique(np.stack([below, name], axis=1), axis=0, return_inverse=True)
        first = len(self.below)
        self.below = np.append(self.below, pairs[:, 0])
        self.name = np.append(self.name, pairs[:, 1])
        return np.asarray(which.reshape(-1) + first, dtype=np.int64)

    def names(self, stack: int) -> list[int]:
        """The names of a stack, outermost first."""
        path = []
        while stack != _ROOT:
            path.append(int(self.name[stack]))
            stack = int(self.below[stack])
        return path[::-1]


def device_stacks(trace: Trace) -> tuple[list[list[str]], list[int]]:
    """Stacks and the device time in ns of each, in order of their names; times add up to all device time.

    Work of a layer stands under the layer's callers and it; other work under `[model only]` or why it is an orphan.
    """
    columns = ("parent_id", "layer_id", "level", "name", "duration_ns", "attribution")
    spans = trace.scan("spans").select(columns).with_columns(pl.col(pl.Categorical).cast(pl.String)).collect()
    work = spans.with_row_index("at").filter(pl.col("level") == Level.KERNEL, pl.col("duration_ns") > 0)
    if work.is_empty():
        return [], []
    stacks, name_ids = _Stacks(), _NameIds(spans["name"])
    parent = spans["parent_id"].fill_null(-1).to_numpy()
    layers = _stack_of_each(
        stacks, parent, _is(spans, Level.LAYER), name_ids.ids, np.zeros(spans.height, dtype=np.int64)
    )
    label = work["attribution"].fill_null("").to_numpy()
    base = np.where(label == str(Attribution.LAYER), layers[work["layer_id"].fill_null(-1).to_numpy()], _ROOT)
    other = base == _ROOT
    base[other] = stacks.push(base[other], name_ids.add([f"[{w.replace('_', ' ')}]" for w in label[other]]))
    total = _with_operators(stacks, spans, work, base, name_ids)
    sums = pl.DataFrame({"stack": total, "ns": work["duration_ns"]}).group_by("stack").agg(pl.col("ns").sum())
    named: dict[tuple[str, ...], int] = {}
    for stack, ns in sums.rows():
        names = tuple(name_ids[n] for n in stacks.names(stack))
        named[names] = named.get(names, 0) + ns
    return [list(names) for names in sorted(named)], [named[names] for names in sorted(named)]


class _NameIds:
    """Names as numbers."""

    def __init__(self, names: pl.Series) -> None:
        distinct = names.unique(maintain_order=True)
        self._names: list[str] = distinct.to_list()
        self._numbers = {name: n for n, name in enumerate(self._names)}
        self.ids: Ints = names.replace_strict(distinct, np.arange(len(distinct)), return_dtype=pl.Int64).to_numpy()

    def add(self, names: Sequence[str]) -> Ints:
        """The numbers of names, new ones included."""
        for name in names:
            if name not in self._numbers:
                self._numbers[name] = len(self._names)
                self._names.append(name)
        return np.array([self._numbers[name] for name in names], dtype=np.int64)

    def __getitem__(self, number: int) -> str:
        return self._names[number]


def _is(spans: pl.DataFrame, level: Level) -> Bools:
    return (spans["level"] == str(level)).to_numpy()


def _stack_of_each(stacks: _Stacks, parent: Ints, counts: Bools, ids: Ints, base: Ints) -> Ints:
    """The stack of the spans that count among each span and its ancestors, on top of the root's base."""
    stack_of = base.copy()
    depth = depths(parent)
    order = np.argsort(depth, kind="stable")
    edges = np.searchsorted(depth[order], np.arange(depth.max(initial=0) + 2))
    for first, end in pairwise(edges.tolist()):
        at = order[first:end]
        inside = at[parent[at] >= 0]
        stack_of[inside] = stack_of[parent[inside]]
        own = at[counts[at]]
        stack_of[own] = stacks.push(stack_of[own], ids[own])
    return stack_of


def _with_operators(stacks: _Stacks, spans: pl.DataFrame, work: pl.DataFrame, base: Ints, name_ids: _NameIds) -> Ints:
    """The operators around each activity, and its own name, on top of its base: one stack for each activity."""
    operators = _Stacks()
    parent = spans["parent_id"].fill_null(-1).to_numpy()
    empty = np.zeros(spans.height, dtype=np.int64)
    chain = _stack_of_each(operators, parent, _is(spans, Level.OPERATOR), name_ids.ids, empty)[work["at"].to_numpy()]
    pairs, which = np.unique(np.stack([base, chain], axis=1), axis=0, return_inverse=True)
    joined = np.empty(len(pairs), dtype=np.int64)
    for index, (below, over) in enumerate(pairs.tolist()):
        stack = np.array([below], dtype=np.int64)
        for name in operators.names(over):
            stack = stacks.push(stack, np.array([name], dtype=np.int64))
        joined[index] = stack[0]
    return stacks.push(joined[which.reshape(-1)], name_ids.ids[work["at"].to_numpy()])
