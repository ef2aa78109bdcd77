"""Device time as a tree: layer within layer, operator within operator, kernel; over all steps and calls by path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.pages.report.launch_path import LaunchPaths, launch_paths
from xsp_analyze.text.units import count_of
from xsp_model.tree import depths
from xsp_model.vocabulary import Attribution

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.arrays import Ints

__all__ = ["TimeTree", "prune", "time_tree"]

_OUTSIDE: Mapping[str, str] = {
    Attribution.MODEL_ONLY: "outside every layer",
    Attribution.GRAPH_REPLAY: "graph replay",
    Attribution.ORPHAN_BEFORE_WINDOW: "launched before the trace began",
    Attribution.ORPHAN_NO_LAUNCH: "launch not in the trace",
    Attribution.ORPHAN_NO_CORRELATION: "no correlation id",
}
"""Names of the nodes that hold what no layer holds."""


@dataclass(frozen=True)
class TimeTree:
    """Nodes in columns; a parent stands before its children, node 0 is the root (its own parent is -1).

    `time_ns` and `count` of a node include all below it; kinds are `all`, `outside`, `layer`, `operator`, `others`
    and the kinds of device work.
    """

    parent: Ints
    name: Sequence[str]
    kind: Sequence[str]
    time_ns: Ints
    count: Ints


class _Nodes:
    """Grows a tree level by level: one node for each distinct (parent, name)."""

    def __init__(self) -> None:
        self.parent: list[int] = [-1]
        self.name: list[str] = ["all device work"]
        self.kind: list[str] = ["all"]

    def below(self, parent: Ints, code: Ints, names: Sequence[str], kind: str | Sequence[str]) -> Ints:
        """The node of each row below its parent's; rows that agree in parent and code share one."""
        distinct, which = np.unique(parent * len(names) + code, return_inverse=True)
        first = len(self.parent)
        self.parent.extend((distinct // len(names)).tolist())
        name_ids = (distinct % len(names)).tolist()
        self.name.extend(names[c] for c in name_ids)
        self.kind.extend([kind] * len(name_ids) if isinstance(kind, str) else [kind[c] for c in name_ids])
        numbers: Ints = first + which
        return numbers


def time_tree(view: TraceView) -> TimeTree:
    """The whole tree; its root's time is the sum of all device activities' durations, to the nanosecond."""
    paths = launch_paths(view)
    if not len(paths.leaf):
        return TimeTree(np.array([-1]), ["all device work"], ["all"], np.zeros(1, np.int64), np.zeros(1, np.int64))
    nodes = _Nodes()
    at = _outermost(nodes, paths)
    for depth in range(paths.operators.shape[1]):
        inside = np.flatnonzero(paths.operators[:, depth] >= 0)
        at[inside] = nodes.below(at[inside], paths.operators[inside, depth], paths.names, "operator")
    leaf_names, leaf_kinds = [n for n, _ in paths.leaves], [k for _, k in paths.leaves]
    at = nodes.below(at, paths.leaf, leaf_names, leaf_kinds)
    return _sum_upwards(nodes, at, paths)


def _outermost(nodes: _Nodes, paths: LaunchPaths) -> Ints:
    """Each path's node before its operators: its innermost layer's, or that of what it is outside for."""
    at = np.zeros(len(paths.leaf), dtype=np.int64)
    kinds = list(_OUTSIDE)
    outside = np.array([i for i, a in enumerate(paths.attribution) if a != str(Attribution.LAYER)], dtype=np.int64)
    kind_ids = np.array([kinds.index(paths.attribution[i]) for i in outside], dtype=np.int64)
    at[outside] = nodes.below(at[outside], kind_ids, list(_OUTSIDE.values()), "outside")
    for depth in range(paths.layers.shape[1]):
        inside = np.flatnonzero(paths.layers[:, depth] >= 0)
        at[inside] = nodes.below(at[inside], paths.layers[inside, depth], paths.names, "layer")
    return at


def _sum_upwards(nodes: _Nodes, at: Ints, paths: LaunchPaths) -> TimeTree:
    """Adds each leaf's time and count to all above it, deepest first; parents were made before their children."""
    parent = np.array(nodes.parent, dtype=np.int64)
    time, count = np.zeros(len(parent), dtype=np.int64), np.zeros(len(parent), dtype=np.int64)
    np.add.at(time, at, paths.duration_ns)
    np.add.at(count, at, paths.count)
    depth_of = depths(parent)
    for depth in range(int(depth_of.max()), 0, -1):
        rows = np.flatnonzero(depth_of == depth)
        np.add.at(time, parent[rows], time[rows])
        np.add.at(count, parent[rows], count[rows])
    return TimeTree(parent, nodes.name, nodes.kind, time, count)


def prune(tree: TimeTree, max_nodes: int) -> TimeTree:
    """The `max_nodes` longest nodes, children longest first; what each parent loses is one node `others`.

    A parent is never shorter than its child, so the longest nodes make a tree.
    """
    order = np.lexsort((np.arange(len(tree.parent)), -tree.time_ns))
    kept = np.sort(order[:max_nodes]) if len(order) > max_nodes else np.arange(len(order))
    is_kept = np.zeros(len(order), dtype=bool)
    is_kept[kept] = True
    frame = pl.DataFrame(
        {"node": np.arange(len(order)), "parent": tree.parent, "time_ns": tree.time_ns, "count": tree.count}
    )
    lost = frame.filter(pl.Series(~is_kept) & pl.Series(is_kept[tree.parent]))
    others = lost.group_by("parent", maintain_order=True).agg(
        pl.len().alias("nodes"), pl.col("time_ns").sum(), pl.col("count").sum()
    )
    return _parents_first(tree, kept, others)


def _parents_first(tree: TimeTree, kept: Ints, others: pl.DataFrame) -> TimeTree:
    """The kept nodes and the rests, parents first and longest first within a parent."""
    node_of = np.full(len(tree.parent), -1, dtype=np.int64)
    node_of[kept] = np.arange(len(kept))
    parent = np.concatenate((np.where(kept == 0, -1, node_of[tree.parent[kept]]), node_of[others["parent"].to_numpy()]))
    name = [*(tree.name[k] for k in kept), *(count_of(n, "other", "others") for n in others["nodes"])]
    kind = [*(tree.kind[k] for k in kept), *("others" for _ in range(others.height))]
    time = np.concatenate((tree.time_ns[kept], others["time_ns"].to_numpy()))
    count = np.concatenate((tree.count[kept], others["count"].to_numpy()))
    order = np.lexsort((np.arange(len(parent)), -time, [k == "others" for k in kind], depths(parent)))
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    moved = np.where(parent[order] < 0, -1, back[parent[order]])
    return TimeTree(moved, [name[i] for i in order], [kind[i] for i in order], time[order], count[order])
