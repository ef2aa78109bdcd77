"""From where device work was launched: paths of layers and operators above it, as a tree and as parts of layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.formulas import known_sum, quotient
from xsp_analyze.frames.group_ids import group_ids, numbers_by_appearance, numbers_in_order
from xsp_analyze.frames.kernels.activities import column_at, origins
from xsp_analyze.frames.kernels.kernel_means import layer_executions
from xsp_analyze.frames.kernels.measured_work import GRAPH_REPLAY
from xsp_analyze.frames.layers.layer_time import LAYER_KEY
from xsp_analyze.frames.layers.modules import module_rows
from xsp_model.columns.arrays import no_refs
from xsp_model.columns.tree import depths
from xsp_model.vocabulary import Attribution, Level

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = [
    "HOST_KEY",
    "WORK_KEY",
    "LaunchPaths",
    "SpanPaths",
    "TimeTree",
    "above",
    "device_parts",
    "host_parts",
    "launch_paths",
    "prune",
    "time_tree",
    "time_tree_of_modules",
]

# Paths of chosen spans above others: which there are is found out once for each span, not for all that ran in it.

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
    """The spans that have no place yet, each once, in order."""
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


# For device activities, the layers and operators that they were launched under, outermost first.


@dataclass(frozen=True)
class LaunchPaths:
    """One row a distinct path; `layers` and `operators` hold codes into `names`, left-aligned, padded with -1.

    Millions of activities go by a few paths: `duration_ns` and `count` are sums over those of one path.
    """

    layers: Ints
    operators: Ints
    leaf: Ints  # code into `leaves`
    duration_ns: Ints
    count: Ints
    attribution: Sequence[str]
    names: Sequence[str]
    leaves: Sequence[tuple[str, str]]  # name and kind of device work


def launch_paths(view: TraceView) -> LaunchPaths:
    """Layers come from the activity's `layer_id`, so that backward work stands with its forward layer.

    Of a profile, the activities are those of the runs that kernels are taken from.
    Operators are those between the activity and the first layer above it, on whichever thread launched it.
    """
    trace = view.trace
    is_operator = (pl.col("level") == str(Level.OPERATOR)).alias("is_operator")
    spans = view.trace.scan("spans").select("parent_id", is_operator).collect()
    work = (
        view.kernel_runs.scan("spans")
        .filter(pl.col("attribution").is_not_null())
        .select("span_id", "parent_id", "layer_id", "name", "kind", "attribution", pl.col("duration_ns").fill_null(0))
        .collect()
    )
    parent = _numbers(spans["parent_id"])
    is_layer = _layer_spans(trace, len(parent))
    layers = above(_numbers(work["layer_id"]), parent, is_layer)
    origin = origins(trace, work["span_id"])
    launch = np.where(origin != work["span_id"].to_numpy(), origin, _numbers(work["parent_id"]))
    operators = above(launch, parent, spans["is_operator"].to_numpy(), stop=is_layer)
    name_codes, names = _name_codes(trace, layers.spans, operators.spans)
    layer, of_layers = layers.paths_by_code(name_codes[: len(layers.spans)])
    operator, of_operators = operators.paths_by_code(name_codes[len(layers.spans) :])
    leaf, leaf_rows = numbers_in_order(*group_ids(work.select("name", "kind"), ordered=True))
    which, first = numbers_by_appearance(*group_ids([*map(pl.Series, (layer, operator, leaf)), work["attribution"]]))
    duration, count = np.zeros(len(first), dtype=np.int64), np.bincount(which, minlength=len(first))
    np.add.at(duration, which, work["duration_ns"].to_numpy())
    return LaunchPaths(
        layers=of_layers[layer[first]],
        operators=of_operators[operator[first]],
        leaf=leaf[first],
        duration_ns=duration,
        count=count,
        attribution=work["attribution"][first].cast(pl.String).to_list(),
        names=names,
        leaves=list(work.select(pl.col("name", "kind"))[leaf_rows].cast(pl.String).iter_rows()),
    )


def _numbers(column: pl.Series) -> Ints:
    return column.fill_null(-1).to_numpy()


def _name_codes(trace: Trace, *spans: Ints) -> tuple[Ints, list[str]]:
    """The names of these spans as codes that sort as the names do, and the name of each code.

    Of modules it is the instance's, of ranges and operators that are layers what all calls share.
    """
    ids = pl.DataFrame({"span_id": np.concatenate(spans)})
    shared = pl.when(pl.col("source").cast(pl.String) == "module").then("layer_name").otherwise("layer_type")
    layers = trace.scan("layers").select("span_id", shared.alias("layer_name"))
    named = ids.lazy().join(layers, on="span_id", how="left", maintain_order="left").collect()
    name = named.select(pl.coalesce("layer_name", column_at(trace, "name", ids["span_id"]))).to_series()
    code, first = numbers_in_order(*group_ids([name], ordered=True))
    return code, name[first].cast(pl.String).to_list()


def _layer_spans(trace: Trace, count: int) -> Bools:
    """Which spans are layers of the source in force in their run."""
    layers = trace.scan("layers").select("span_id", "source").collect()
    runs = trace.frame("runs").select("run_id", "layer_source")
    run = column_at(trace, "run_id", layers["span_id"])
    mask = np.zeros(count, dtype=np.bool_)
    for run_id, source in runs.drop_nulls().iter_rows():
        mask[layers["span_id"].filter((run == run_id) & (layers["source"] == source)).to_numpy()] = True
    return mask


_OUTSIDE: Mapping[str, str] = {
    Attribution.MODEL_ONLY: "outside every layer",
    Attribution.GRAPH_REPLAY: "graph replay",
    Attribution.ORPHAN_BEFORE_WINDOW: "launched before the trace began",
    Attribution.ORPHAN_NO_LAUNCH: "launch not in the trace",
    Attribution.ORPHAN_NO_CORRELATION: "no correlation id",
    Attribution.UNIFIED_MEMORY: "unified memory",
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


def prune(tree: TimeTree, max_nodes: int, name_of_rest: Callable[[int], str]) -> TimeTree:
    """The `max_nodes` longest nodes, children longest first; what each parent loses is one node of kind `others`.

    It is named by how many nodes it is of. A parent is never shorter than its child, so the longest nodes make a tree.
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
    names = list(map(name_of_rest, others["nodes"]))
    return _parents_first(tree, kept, others, names)


def _parents_first(tree: TimeTree, kept: Ints, others: pl.DataFrame, names: Sequence[str]) -> TimeTree:
    """The kept nodes and the rests, parents first and longest first within a parent."""
    node_of = np.full(len(tree.parent), -1, dtype=np.int64)
    node_of[kept] = np.arange(len(kept))
    parent = np.concatenate((np.where(kept == 0, -1, node_of[tree.parent[kept]]), node_of[others["parent"].to_numpy()]))
    name = [*(tree.name[k] for k in kept), *names]
    kind = [*(tree.kind[k] for k in kept), *("others" for _ in names)]
    time = np.concatenate((tree.time_ns[kept], others["time_ns"].to_numpy()))
    count = np.concatenate((tree.count[kept], others["count"].to_numpy()))
    order = np.lexsort((np.arange(len(parent)), -time, [k == "others" for k in kind], depths(parent)))
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    moved = np.where(parent[order] < 0, -1, back[parent[order]])
    return TimeTree(moved, [name[i] for i in order], [kind[i] for i in order], time[order], count[order])


def time_tree_of_modules(modules: pl.DataFrame) -> TimeTree:
    """B06's rows as a tree: node 0 is all modules, then every module, parents first; times in whole ns.

    A module counts at least what those in it do: phases are matched apart, and may leave a parent behind by rounding.
    """
    rows = module_rows(modules)
    depth = [0, *(d + 1 for d in rows["depth"].to_list())]
    parent = _parents_of(depth)
    time = [0, *(round(v or 0) for v in rows["device_sum_ns"].to_list())]
    calls = [0, *(round(v or 0) for v in rows["count"].to_list())]
    below = [0] * len(parent)
    for node in range(len(parent) - 1, 0, -1):  # children stand after their parent
        time[node] = max(time[node], below[node])
        below[parent[node]] += time[node]
    time[0] = below[0]
    names = ["all modules", *rows["module"].to_list()]
    kinds = ["all", *(["layer"] * rows.height)]
    return TimeTree(np.array(parent), names, kinds, np.array(time), np.array(calls))


def _parents_of(depths: list[int]) -> list[int]:
    """The parent of each node of a depth-first list, -1 for the first."""
    parents: list[int] = []
    path: list[int] = []
    for node, depth in enumerate(depths):
        del path[depth:]
        parents.append(path[-1] if path else -1)
        path.append(node)
    return parents


# What layers are made of: their device work by operator, library call and kernel, and their operators on the host.

WORK_KEY = (*LAYER_KEY, "operator", "library", "kernel_name", "kind", "phase")
"""What tells rows of `device_parts` of one step apart."""
HOST_KEY = (*LAYER_KEY, "operator")
"""What tells rows of `host_parts` of one step apart."""
_COUNTED = ("flop_count", "dram_read_bytes", "dram_write_bytes")
_HOST_TIMES = ("count", "host_ns", "self_ns")


def device_parts(view: StepView) -> pl.DataFrame:
    """WORK_KEY, count, duration_ns, flop_count, dram_read_bytes, dram_write_bytes and achieved_occupancy.

    Longest first within a layer. Numbers are those of A08: of a mean step, or of the whole trace. Work of a graph's
    replay that no layer holds stands under GRAPH_REPLAY.
    """
    rows = view.once(layer_executions)
    work = rows.with_columns(*_around_launches(view.trace, origins(view.trace, rows["span_id"])))
    is_replay = pl.col("attribution") == str(Attribution.GRAPH_REPLAY)
    replay = pl.lit(GRAPH_REPLAY).cast(pl.Categorical)
    named = (pl.when(is_replay).then(replay).otherwise(c).alias(c) for c in ("layer_name", "layer_type"))
    index = pl.when(~is_replay).then("layer_index").alias("layer_index")
    return _sum_parts(work.with_columns(index, *named), view.by)


def _sum_parts(work: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    weighted = (pl.col("achieved_occupancy") * pl.col("duration_ns")).sum()
    time_counted = pl.col("duration_ns").filter(pl.col("achieved_occupancy").is_not_null()).sum()
    number, first = numbers_by_appearance(*group_ids(work.select(*by, *WORK_KEY)))
    sums = (
        work.with_columns(pl.Series("number", number))
        .group_by("number", maintain_order=True)
        .agg(
            pl.col("count").sum(),
            pl.col("duration_ns").sum(),
            *(known_sum(pl.col(c)) for c in _COUNTED),
            pl.when(time_counted > 0).then(quotient(weighted, time_counted)).alias("achieved_occupancy"),
        )
        .drop("number")
    )
    order: list[str | pl.Expr] = [*by, *LAYER_KEY, -pl.col("duration_ns"), *WORK_KEY[len(LAYER_KEY) :]]
    return (
        work.select(*by, *WORK_KEY)[first]
        .with_columns(pl.col(pl.Categorical).cast(pl.String))
        .hstack(sums)
        .sort(order, nulls_last=True)
    )


def _around_launches(trace: Trace, work: Ints) -> list[pl.Series]:
    """`operator` and `library` of each activity: what of these it was launched in, within the layer around."""
    spans = trace.scan("spans")
    parent = spans.select(pl.col("parent_id").fill_null(-1)).collect().to_series().to_numpy()
    levels = spans.select("level").collect().to_series()
    is_layer, is_operator, is_library = (
        (levels == str(level)).to_numpy() for level in (Level.LAYER, Level.OPERATOR, Level.LIBRARY)
    )
    start = parent[work] if len(work) else work
    operators, libraries = (above(start, parent, mask, stop=is_layer) for mask in (is_operator, is_library))
    return [
        _path_names(trace, operators, both_ends=True).alias("operator"),
        _path_names(trace, libraries, both_ends=False).alias("library"),
    ]


def _path_names(trace: Trace, paths_of: SpanPaths, *, both_ends: bool) -> pl.Series:
    """The innermost name of each row's path, and before it the outermost, as `outer > inner`, if there are several."""
    names = column_at(trace, "name", pl.Series(paths_of.spans, dtype=pl.Int64)).cast(pl.String)
    code, first = numbers_in_order(*group_ids([names]))
    which, paths = paths_of.paths_by_code(code)
    texts_of = names[first].to_list()
    texts = [_ends([texts_of[c] for c in path if c >= 0], both_ends=both_ends) for path in paths.tolist()]
    return pl.Series(texts, dtype=pl.String).cast(pl.Categorical).gather(which)


def _ends(names: Sequence[str], *, both_ends: bool) -> str | None:
    if both_ends and len(names) > 1:
        return f"{names[0]} > {names[-1]}"
    return names[-1] if names else None


def host_parts(view: StepView) -> pl.DataFrame:
    """HOST_KEY, count, host_ns and self_ns (outside the operators called in them); most self time first in a layer.

    Of the runs that layers are taken from.
    """
    spans = view.of_trace.layer_runs.scan("spans").filter(
        pl.col("level").cast(pl.String) == str(Level.OPERATOR), pl.col("duration_ns").is_not_null()
    )
    timed = spans.select("span_id", "parent_id", "run_id", "step", "name", "duration_ns", "layer_id").collect()
    inner = timed.group_by("parent_id").agg(pl.col("duration_ns").sum().alias("inner_ns"))
    layers = view.trace.scan("layers").filter(pl.col("layer_index").is_not_null())
    held = layers.select(pl.col("span_id").alias("layer_id"), *LAYER_KEY).collect()
    calls = (
        timed.join(inner, left_on="span_id", right_on="parent_id", how="left", maintain_order="left")
        .join(held, on="layer_id", how="inner", maintain_order="left")
        .with_columns(
            pl.col("name").cast(pl.String).alias("operator"),
            pl.col("layer_name", "layer_type").cast(pl.String),
            pl.lit(1, pl.Int64).alias("count"),
            pl.col("duration_ns").alias("host_ns"),
            (pl.col("duration_ns") - pl.col("inner_ns").fill_null(0)).clip(lower_bound=0).alias("self_ns"),
        )
    )
    per_step = calls.group_by("run_id", "step", *HOST_KEY, maintain_order=True).agg(pl.col(_HOST_TIMES).sum())
    order: list[str | pl.Expr] = [*view.by, *LAYER_KEY, -pl.col("self_ns"), "operator"]
    return view.combine(per_step, HOST_KEY, _HOST_TIMES).sort(order, nulls_last=True)
