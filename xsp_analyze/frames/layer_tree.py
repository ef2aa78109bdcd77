"""The layers of a trace as a tree: each path of names once, under the path it was called in, with its structure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.block_names import without_numbers
from xsp_analyze.frames.group_ids import group_ids, numbers_by_appearance
from xsp_analyze.frames.kernels.activities import column_at
from xsp_analyze.frames.layer_time import LAYER_KEY
from xsp_model.tree import innermost

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.arrays import Ints

__all__ = ["LayerTree"]

_NODE = ("path", "layer_name", "layer_type")


class LayerTree:
    """Nodes in order of first call, each before what was called in it.

    `nodes` has a row a node: path, layer_name, layer_type, layer_index (null: no work of its own), shapes, and
    is_listed: whether it is a row of tables over layers, and the only node of that row. `around[i]` is the node that
    node i was called in, or -1, `below[i]` are the nodes called in it, `roots` has those called in none, a list
    a process: several that run side by side are no sequence.
    `structure[i]` is the same number for nodes whose subtrees are equal: types, shapes, which of them are rows, and
    order, whatever numbers stand in types that are names (`block.17`). `listed[i]` is how many nodes of its subtree are
    rows.
    """

    def __init__(self, frames: TraceView) -> None:
        self.nodes, outer, process = _nodes(frames)
        self.names: list[str] = self.nodes["layer_name"].cast(pl.String).fill_null("-").to_list()
        self.types: list[str] = self.nodes["layer_type"].cast(pl.String).fill_null("-").to_list()
        self.is_listed: list[bool] = self.nodes["is_listed"].to_list()
        self.layer_index: list[int] = self.nodes["layer_index"].fill_null(-1).to_list()
        self.around: list[int] = outer.tolist()
        self.below: list[list[int]] = [[] for _ in self.around]
        of_process: dict[int, list[int]] = {}
        for node, (around, number) in enumerate(zip(self.around, process.tolist(), strict=True)):
            (self.below[around] if around >= 0 else of_process.setdefault(number, [])).append(node)
        self.roots = list(of_process.values())
        self.structure, self.listed = self._structures()

    def _structures(self) -> tuple[list[int], list[int]]:
        alike = {kind: without_numbers(kind) for kind in set(self.types)}
        kinds = pl.Series("kind", [alike[kind] for kind in self.types], dtype=pl.String)
        own = group_ids([kinds, *self.nodes.select("shapes", "is_listed", "is_shared")])[0].tolist()
        listed = list(map(int, self.is_listed))
        numbers: dict[tuple[int, ...], int] = {}
        structure = [0] * len(own)
        for node in range(len(own) - 1, -1, -1):
            below = self.below[node]
            structure[node] = numbers.setdefault((own[node], *(structure[child] for child in below)), len(numbers))
            listed[node] += sum(listed[child] for child in below)
        return structure, listed

    def subtree(self, node: int) -> list[int]:
        """The node and all below it, each before what was called in it."""
        nodes, waiting = [], [node]
        while waiting:
            at = waiting.pop()
            nodes.append(at)
            waiting.extend(reversed(self.below[at]))
        return nodes


def _nodes(frames: TraceView) -> tuple[pl.DataFrame, Ints, Ints]:
    """The nodes, and for each the one it was called in, or -1, and a number for the process that first called it."""
    calls = _calls(frames)
    number, first = numbers_by_appearance(*group_ids(calls.select(_NODE)))
    indexed = calls.with_columns(pl.Series("node", number)).group_by("node", maintain_order=True)
    described = indexed.agg(pl.col("layer_index", "shapes").drop_nulls().first())
    nodes = calls.select(_NODE)[first].hstack(described.drop("node"))
    shares = pl.len().over(LAYER_KEY) > 1
    is_row = pl.col("layer_index").is_not_null()
    nodes = nodes.with_columns((is_row & ~shares).alias("is_listed"), (is_row & shares).alias("is_shared"))
    around = _around(frames, calls["span_id"].to_numpy(), number)[first]
    process, _ = numbers_by_appearance(*group_ids(calls.select("run_id", "process_id")[first]))
    return nodes, np.where(around < np.arange(len(around)), around, -1), process


def _calls(frames: TraceView) -> pl.DataFrame:
    """Every call of a layer, with own work or without, those of the runs that layers are taken from first."""
    trace = frames.trace
    columns = ("span_id", *LAYER_KEY, "path", "shapes")
    calls = trace.scan("layers").select(columns).collect()
    calls = calls.hstack([column_at(trace, name, calls["span_id"]) for name in ("run_id", "process_id", "start_ns")])
    calls = frames.own_runs.of(calls) if frames.replays_tell_layers else frames.layer_runs.of(calls)
    named = calls.with_columns(pl.coalesce("path", "layer_name").alias("path"))
    behind = ~pl.col("run_id").is_in(frames.layer_runs.ids)
    return named.sort(behind, "run_id", "start_ns", "span_id")


def _around(frames: TraceView, calls: Ints, number: Ints) -> Ints:
    """For each call the node of the call around it, or -1."""
    parents = frames.trace.scan("spans").select("parent_id").collect()["parent_id"].fill_null(-1).to_numpy()
    is_layer = np.zeros(len(parents), dtype=np.bool_)
    is_layer[calls] = True
    node = np.full(len(parents) + 1, -1, dtype=np.int64)  # the last for no span
    node[calls] = number
    outside = parents[calls]
    owner = innermost(parents, is_layer)
    return node[np.where(outside >= 0, owner[outside], -1)]
