"""Rule 4: which spans are layers and which work is whose, and the table of them: identity, path, own time, memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.forest import at_spans
from xsp_ingest.link.nest import SLACK_NS, nest
from xsp_ingest.link.nesting import Threads
from xsp_ingest.link.spans import as_categorical, innermost, matches, outermost
from xsp_model import Attribution, AttributionBasis, Kind, LayerSource, Level, Phase, XspError
from xsp_model.columns import arrays
from xsp_model.columns.arrays import distinct_values, lookup, no_refs, nullable_index, pieces, release, true_indices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from xsp_ingest.link.forest import Forest
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = [
    "Layering",
    "calls",
    "choose_source",
    "lay",
    "layer_spans",
    "phases",
    "with_compiled",
    "with_index",
    "with_recorded",
]

# In which phase of training each span is: forward, recompute, backward, optimizer.
_OPTIMIZER = (
    r"^Optimizer\.(step|zero_grad)"
    r"|(?:^|/)(?:Adam|AdamW|Adamax|Nadam|SGD|GradientDescent|Momentum|RMSProp|Adagrad|Adadelta|Ftrl)(?:_\d+)?(?:/|$)"
    r"|(?:^|/)update_[^/]+(?:/[^/]+)*/\w*Apply[A-Z]\w*$"
)
"""PyTorch's record, and TensorFlow's scopes: of an optimizer of that name, or of the variables that one updates."""
_BACKWARD_HOOK = r"^FSDP::\w*backward"
_FORWARD, _RECOMPUTE, _BACKWARD, _OPTIMIZING, _OTHER = range(5)  # indices in `Phase`


def phases(forest: Forest, source: LayerSource, is_layer: Bools) -> NDArray[np.int8]:
    """The phase of every span, an index in `Phase`; -1 for device work whose launch is not in the file."""
    backward = forest.backward | (forest.twin >= 0) | matches(forest.spans["name"], _BACKWARD_HOOK)
    module = forest.is_kind(Kind.MODULE)
    optimizer = matches(forest.spans["name"], _OPTIMIZER) & ~forest.is_level(Level.KERNEL)
    forward = module.copy()
    forward[forest.twin[forest.twin >= 0]] = True
    if source is LayerSource.RANGE:
        forward |= _forward_ranges(forest, is_layer, backward)
    if not backward.any() and not optimizer.any():
        forward |= is_layer  # nothing but inference: all work of layers is forward
    phase = arrays.full(len(backward), _OTHER, np.int8)
    if forward.any():
        phase[innermost(forest.parent, forward) >= 0] = _FORWARD
    nearest = innermost(forest.parent, optimizer | backward)  # an optimizer may step within backward operators
    for piece in arrays.pieces(len(phase)):
        above = nearest[piece]
        phase[piece][(above >= 0) & optimizer[above]] = _OPTIMIZING
        phase[piece][(above >= 0) & backward[above]] = _BACKWARD
    again = _is_recomputed(forest, module, backward)
    if again.any():
        nearest = innermost(forest.parent, backward | module)
        for piece in arrays.pieces(len(phase)):
            above = nearest[piece]
            phase[piece][(above >= 0) & again[above]] = _RECOMPUTE
    phase[forest.is_level(Level.KERNEL) & (forest.parent < 0)] = -1
    return phase


def _forward_ranges(forest: Forest, layer: Bools, backward: Bools) -> Bools:
    """Of ranges that are layers those of the forward pass: they hold forward twins, and no backward work began in them.

    The backward pass may run on a thread of its own, so time decides whether a range is about both.
    """
    holds = np.zeros(len(layer), dtype=np.bool_)
    above = distinct_values(forest.twin[forest.twin >= 0])
    while len(above := distinct_values(forest.parent[above][forest.parent[above] >= 0])):
        above = above[~holds[above]]
        holds[above] = True
    candidates = np.flatnonzero(holds & layer)
    spans = forest.spans.select("process_id", "start_ns", pl.col("duration_ns").fill_null(0))
    begun = spans.filter(pl.Series(backward)).select("process_id", "start_ns").sort("start_ns")
    ranges = spans[candidates].with_columns(pl.Series("at", candidates)).sort("start_ns")
    after = ranges.join_asof(
        begun.rename({"start_ns": "begun_ns"}),
        left_on="start_ns",
        right_on="begun_ns",
        by="process_id",
        strategy="forward",
        check_sortedness=False,
    )
    mixed = (pl.col("begun_ns") < pl.col("start_ns") + pl.col("duration_ns")).fill_null(value=False)
    out = np.zeros(len(layer), dtype=np.bool_)
    out[after.filter(~mixed)["at"].to_numpy()] = True
    return out


def _is_recomputed(forest: Forest, module: Bools, backward: Bools) -> Bools:
    """Module calls that a backward operator on their own thread holds: activation checkpointing.

    The tree does not show it, since there an operator is never above a module.
    """
    both = module | backward
    again = np.zeros(len(both), dtype=np.bool_)
    if not module.any() or not backward.any():
        return again
    at = true_indices(both)
    spans = arrays.gather_rows(forest.spans.select("process_id", "thread_id", "start_ns", "duration_ns"), at)
    threads = Threads.of(spans)
    start, end = spans["start_ns"].to_numpy(), arrays.empty(len(at), np.int64)
    for piece in arrays.pieces(len(at)):
        end[piece] = start[piece] + spans["duration_ns"][piece].fill_null(0).to_numpy()
    rank = np.zeros(len(at), dtype=np.int8)
    parent = nest(threads.numbers(spans), start, end, rank, threads=threads.count).parent
    again[at] = innermost(parent, backward[at]) >= 0
    return again & module


_ATTRIBUTIONS = tuple(Attribution)
_ENOUGH = 0.9  # named ranges are the layers only where they, and no name alone, hold this share of the launched time


@dataclass(frozen=True, slots=True)
class Layering:
    """For every span the call of the layer its work belongs to (-1: none), its phase and, for device work, attribution.

    `held_in` is the innermost call of a layer around the span itself, before backward work is moved to its twin.
    `phase` and `attribution` are indices in `Phase` and `Attribution`, -1 for null.
    """

    source: LayerSource
    layer: Positions
    held_in: Positions
    phase: NDArray[np.int8]
    attribution: NDArray[np.int8]

    def phases(self, first: int = 0, end: int | None = None) -> pl.Series:
        """The phases of spans as a Categorical column."""
        return as_categorical(self.phase[first:end], [str(x) for x in Phase]).alias("phase")

    def attributions(self, first: int = 0, end: int | None = None) -> pl.Series:
        """The attributions of spans as a Categorical column."""
        return as_categorical(self.attribution[first:end], [str(x) for x in _ATTRIBUTIONS]).alias("attribution")


def layer_spans(forest: Forest, source: LayerSource) -> Bools:
    """Which spans are calls of layers by this source; of operators, outermost ones that have no forward twin."""
    if source is LayerSource.MODULE:
        return forest.is_kind(Kind.MODULE)
    if source is LayerSource.RANGE:
        return forest.is_kind(Kind.RANGE) & forest.is_level(Level.LAYER)
    if source is LayerSource.OPERATOR:
        operator = forest.is_level(Level.OPERATOR)
        at = np.flatnonzero(operator & (forest.twin < 0))
        at = at[outermost(forest.parent, operator)[at] == at]
        top = np.zeros(len(operator), dtype=np.bool_)
        top[at] = True
        return top
    return np.zeros(forest.spans.height, dtype=np.bool_)


def choose_source(forest: Forest, requested: str) -> LayerSource:
    """The source requested, or the best one present: modules, ranges that divide enough of the work, else operators.

    XspError where the one requested is not in the trace.
    """
    if requested != "auto":
        source = LayerSource(requested)
        if source is not LayerSource.NONE and not layer_spans(forest, source).any():
            raise XspError(f"the trace has no layers of source {source}", advice="Use --layer-source auto")
        return source
    if forest.is_kind(Kind.MODULE).any():
        return LayerSource.MODULE
    ranges = layer_spans(forest, LayerSource.RANGE)
    operators = forest.is_level(Level.OPERATOR).any()
    if ranges.any() and (not operators or _do_divide(forest, ranges)):
        return LayerSource.RANGE
    return LayerSource.OPERATOR if operators else LayerSource.NONE


def _do_divide(forest: Forest, ranges: Bools) -> bool:
    """Whether ranges hold enough of the launched device time, or on a host alone of the outermost operators' time.

    As where they are the layers, backward work is that of the range around its forward twin. A name that holds enough
    by itself (`model_inference` around everything) divides nothing.
    """
    work = forest.is_level(Level.KERNEL) & (forest.parent >= 0)
    if not work.any():
        operator = forest.is_level(Level.OPERATOR)
        work = operator & (outermost(forest.parent, operator) == np.arange(len(operator)))
    at = true_indices(work)
    holder = _through_twins(forest, ranges, innermost(forest.parent, ranges))[at]
    names = forest.spans["name"].gather(nullable_index(holder)).cast(pl.String)
    duration = forest.spans["duration_ns"].gather(at).fill_null(0)
    held = pl.DataFrame({"name": names, "ns": duration}).group_by("name").agg(pl.col("ns").sum())
    enough = _ENOUGH * max(float(held["ns"].sum()), 1.0)
    named = held.drop_nulls("name")["ns"]
    return float(named.sum()) >= enough > float(named.max() or 0)  # type: ignore[arg-type]


def lay(forest: Forest, source: LayerSource) -> Layering:
    """Attributes every span to a call of a layer, by where it ran, its forward twin, or where it was captured."""
    is_layer = layer_spans(forest, source)
    held_in = innermost(forest.parent, is_layer)
    layer = _through_hooks(forest, held_in, _through_twins(forest, is_layer, held_in))
    replayed = true_indices(forest.replayed)
    arrays.release()
    layer[replayed] = _through(forest.captured_in[replayed], layer)
    return Layering(source, layer, held_in, phases(forest, source, is_layer), _attribution(forest, layer))


def _through(reference: Positions, values: Positions) -> Positions:
    """`values[reference]`, -1 where there is no reference."""
    return np.where(reference >= 0, values[reference], values.dtype.type(-1))


def _through_twins(forest: Forest, is_layer: Bools, held_in: Positions) -> Positions:
    """Of a layer and a backward operator around a span the nearer one decides: recompute against backward."""
    has_twin = forest.twin >= 0
    if not has_twin.any():
        return held_in.copy()
    nearest, out = innermost(forest.parent, is_layer | has_twin), no_refs(len(held_in))
    for piece in arrays.pieces(len(out)):
        near, held = nearest[piece], held_in[piece].copy()
        moved = (near >= 0) & has_twin[near] & ~is_layer[near]  # -1 reads the last, which does not matter then
        held[moved] = held_in[forest.twin[near[moved]]]
        out[piece] = held
    return out


_HOOK = r"^FSDP::(\w+)(?: .*)?\((\S+)\)$"
"""What FSDP2 does for a module, by its path: `FSDP::all_gather (layers.1)`, wherever it is called from."""


def _through_hooks(forest: Forest, held_in: Positions, layer: Positions) -> Positions:
    """The layers, changed: what a hook of FSDP does is the module's that it names, in its nearest call.

    Which module has a path is told by the hook before its forward pass, which its call holds.
    """
    hooks = matches(forest.spans["name"], _HOOK)
    if not hooks.any():
        return layer
    at = true_indices(hooks)
    names = forest.spans["name"].gather(at).cast(pl.String)
    ranges = arrays.gather_rows(forest.spans.select("process_id", "start_ns"), at).with_columns(
        pl.Series("at", at), names.str.extract(_HOOK, 2).alias("path"), names.str.extract(_HOOK, 1).alias("hook"),
        pl.Series("call", held_in[at]),
    )  # fmt: skip
    before = ranges.filter(pl.col("hook") == "pre_forward", pl.col("call") >= 0).sort("start_ns")
    calls = before.select("process_id", "path", "start_ns", pl.col("call").alias("of_path"))
    near, later = ["process_id", "path"], calls.rename({"of_path": "next_of_path"})
    ranges = ranges.sort("start_ns").join_asof(calls, on="start_ns", by=near, check_sortedness=False)
    ranges = ranges.join_asof(later, on="start_ns", by=near, strategy="forward", check_sortedness=False)
    named = ranges.select("at", pl.coalesce("of_path", "next_of_path").alias("of_path")).drop_nulls()
    of_hook = no_refs(len(layer))
    of_hook[named["at"].to_numpy()] = named["of_path"].to_numpy()
    nearest, out = innermost(forest.parent, hooks), layer.copy()
    for piece in arrays.pieces(len(out)):
        near_hook = nearest[piece]
        call = np.where(near_hook >= 0, of_hook[near_hook], -1)
        out[piece] = np.where(call >= 0, call, layer[piece])
    return out


def _attribution(forest: Forest, layer: Positions) -> NDArray[np.int8]:
    """For device work its attribution's index in `Attribution`."""
    of_layer, of_replay, of_model = map(
        _ATTRIBUTIONS.index, (Attribution.LAYER, Attribution.GRAPH_REPLAY, Attribution.MODEL_ONLY)
    )
    out: NDArray[np.int8] = arrays.full(len(layer), -1, np.int8)
    graph = forest.is_kind(Kind.GRAPH)
    for piece in arrays.pieces(len(layer)):
        orphan = (forest.parent[piece] < 0) & ~graph[piece]
        without_layer = np.where(orphan, forest.orphans[piece], np.where(forest.replayed[piece], of_replay, of_model))
        work = forest.is_level(Level.KERNEL, piece)
        out[piece] = np.where(work, np.where(layer[piece] >= 0, of_layer, without_layer), -1)
    return out


# The table `layers`: every call of a layer with its identity, path, own host time, shapes and memory.

_INSTANCE = r"_\d+$"
_MODULE = "nn.Module: "


def calls(forest: Forest, layering: Layering) -> pl.DataFrame:
    """One row a call: the columns of `layers` with `at` for the span's position, without `layer_index`.

    Besides, `has_work` says whether operators or device work ran in the call outside its children, `first_ns`
    when the first of its own operators started, and `sequence_index` is null until `with_recorded`.
    Modules and ranges are listed whatever the layers' source is.
    """
    sources = [LayerSource.MODULE, LayerSource.RANGE]
    if layering.source is LayerSource.OPERATOR:
        sources.append(LayerSource.OPERATOR)
    parts = [_of_source(forest, source) for source in sources]
    release()
    rows = pl.concat([part for part in parts if part.height] or parts[:1])
    return rows.with_columns(sequence_index=pl.lit(None, pl.Int64))


def _of_source(forest: Forest, source: LayerSource) -> pl.DataFrame:
    is_call = layer_spans(forest, source)
    at = np.flatnonzero(is_call)
    up = forest.parent[at]
    holder = innermost(forest.parent, is_call)
    above = np.where(up >= 0, holder[up], -1).astype(np.int64)
    bounds = _Bounds.of(forest.spans, at, above)
    run = pl.col("run_id") if "run_id" in forest.spans.columns else pl.lit(0).alias("run_id")
    spans = forest.spans.select(run, "name", "step", "start_ns")[at]
    own = spans.select(
        pl.Series("at", at),
        pl.Series("above", above),
        "run_id",
        pl.col("name").cast(pl.String).cast(pl.Categorical),
        pl.col("step").cast(pl.Int64),
        "start_ns",
        pl.lit(str(source)).alias("source"),
        pl.Series("is_container", np.isin(at, above[bounds.inside])),
        pl.Series("self_host_ns", bounds.self_time(at, np.where(bounds.inside, above, -1))),
    )
    named = _with_names(own, source)
    del own, spans, bounds, above, up  # of as many calls as there are, what is in `named` by now
    for facts_of in (_first_operator, _own_work, _memory):
        named = _beside(named, facts_of(forest, holder))
    if source is LayerSource.MODULE:
        named = _beside(named, _first_launch(forest, holder))
        named = named.with_columns(pl.coalesce("first_ns", "launched_ns").alias("first_ns")).drop("launched_ns")
    return named.with_columns(
        pl.col("has_work").fill_null(value=False), pl.coalesce("first_ns", "start_ns").alias("first_ns")
    ).drop("start_ns", "above", "run_id", "step", "name")


def _beside(calls: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """The calls with the facts of some of them; a join would hold all columns of all calls twice."""
    fact_index = nullable_index(lookup(facts["at"].to_numpy(), calls["at"].to_numpy()))
    return calls.hstack(facts.drop("at").select(pl.all().gather(fact_index)))


@dataclass(frozen=True, slots=True)
class _Bounds:
    """When calls began and ended, and which of them ended inside the call that they began in."""

    start: Ints
    end: Ints
    inside: Bools  # one that runs on beside the call above it is no part of it

    @classmethod
    def of(cls, spans: pl.DataFrame, at: Ints, above: Ints) -> _Bounds:
        """Of the calls at these positions, each in the call `above` it (-1: none), which is one of them."""
        of_calls = spans.select("start_ns", pl.col("duration_ns"))[at]
        start = of_calls["start_ns"].to_numpy()
        end = start + of_calls["duration_ns"].fill_null(0).to_numpy()
        held = np.flatnonzero(above >= 0)
        inside = np.zeros(len(at), dtype=np.bool_)
        inside[held] = end[held] <= end[np.searchsorted(at, above[held])] + SLACK_NS
        return cls(start, end, inside)

    def self_time(self, at: Ints, above: Ints) -> Ints:
        """Duration less the time in which calls directly inside ran, on whichever thread."""
        own: Ints = self.end - self.start
        child = np.flatnonzero(above >= 0)
        parent = np.searchsorted(at, above[child])
        inside = pl.DataFrame(
            {"parent": parent, "start": self.start[child], "end": np.minimum(self.end[child], self.end[parent])}
        )
        before = pl.col("end").cum_max().shift(1).over("parent")  # calls are in order of start
        alone = pl.col("end") - pl.max_horizontal("start", before)
        np.subtract.at(own, parent, inside.select(alone.clip(lower_bound=0)).to_series().to_numpy())
        own[own < 0] = 0
        return own


def _with_names(own: pl.DataFrame, source: LayerSource) -> pl.DataFrame:
    """Adds layer_name, layer_type and path, from the outermost calls inwards.

    A module's instance has one name. A range or operator that comes more than once in one call of a step is
    another layer each time: `aten::conv2d#2` is the second.
    """
    done = pl.DataFrame(schema={"at": pl.Int64, "path": pl.Categorical})
    parts = []
    waiting = own
    while waiting.height:
        ready = waiting.filter((pl.col("above") < 0) | pl.col("above").is_in(done["at"].implode()))
        waiting = waiting.filter((pl.col("above") >= 0) & ~pl.col("above").is_in(done["at"].implode()))
        named = _one_depth(ready, done, source)
        parts.append(named)
        done = named.select("at", "path")
    return pl.concat(parts) if parts else _one_depth(own, done, source)


def _one_depth(ready: pl.DataFrame, above: pl.DataFrame, source: LayerSource) -> pl.DataFrame:
    outer = above.rename({"at": "above", "path": "outer"})
    nested = ready.join(outer, on="above", how="left", maintain_order="left").sort("start_ns", "at")
    siblings = ["run_id", "outer", "step", "name"]
    if source is LayerSource.MODULE:
        name = pl.col("name").cast(pl.String).str.strip_prefix(_MODULE)  # which NVTX ranges of modules keep
        kind = name.str.replace(_INSTANCE, "")
    else:
        count = pl.int_range(1, pl.len() + 1).over(siblings).alias("nth")
        nested = nested.with_columns(count)
        once = pl.col("nth").max().over("outer", "name") == 1
        kind = pl.col("name").cast(pl.String)
        name = pl.when(once).then(kind).otherwise(pl.format("{}#{}", kind, "nth"))
    path = pl.concat_str(pl.col("outer").cast(pl.String), name, separator=".", ignore_nulls=True)
    return nested.with_columns(  # categorical: calls are many, their names few
        layer_name=name.cast(pl.Categorical), layer_type=kind.cast(pl.Categorical), path=path.cast(pl.Categorical)
    ).select(*ready.columns, "layer_name", "layer_type", "path")


def _first_operator(forest: Forest, holder: Positions) -> pl.DataFrame:
    """When a call's first own operator started; shapes and types of the first one that has them."""
    at = forest.operators["at"].to_numpy()
    owner = holder[at]
    first = _first_of(owner, len(holder))
    facts = pl.DataFrame({"at": owner[first].astype(np.int64)}).with_columns(
        forest.spans["start_ns"].gather(at[first]).alias("first_ns")
    )
    for name, column in (("shapes", "input_shapes"), ("dtypes", "input_dtypes")):
        rows = _first_of(owner, len(holder), forest.operators[column].is_not_null().to_numpy())
        texts = pl.DataFrame({"at": owner[rows].astype(np.int64)}).with_columns(
            forest.operators[column].gather(rows).cast(pl.Categorical).alias(name)  # as some readers give them
        )
        facts = facts.join(texts, on="at", how="left", maintain_order="left")
    return facts


def _first_launch(forest: Forest, holder: Positions) -> pl.DataFrame:
    """When a call first launched work of its own: its position in the order of layers where operators are not recorded.

    So a container that adds a residual comes after its children, as in a trace of the same model with operators.
    """
    first = [pl.DataFrame(schema={"at": pl.Int64, "launched_ns": pl.Int64})]
    for piece in pieces(len(holder)):
        is_work = forest.is_level(Level.KERNEL, piece) & ~forest.replayed[piece] & (forest.parent[piece] >= 0)
        work = piece.start + np.flatnonzero(is_work & (holder[piece] >= 0))
        launched = forest.spans["start_ns"].gather(forest.parent[work]).alias("launched_ns")
        launches = pl.DataFrame({"at": holder[work].astype(np.int64)}).with_columns(launched)
        first.append(launches.group_by("at").agg(pl.col("launched_ns").min()))
    return pl.concat(first).group_by("at").agg(pl.col("launched_ns").min())


def _first_of(owner: Positions, count: int, mask: Bools | None = None) -> Ints:
    """The first of the rows in `mask` (None: all) that each owner (-1: nobody) has, by owner; of `count` spans."""
    first = no_refs(count)
    for piece in reversed(list(pieces(len(owner)))):  # what is written last stays
        rows = np.flatnonzero((owner[piece] >= 0) & (True if mask is None else mask[piece]))[::-1] + piece.start
        first[owner[rows]] = rows
    return first[true_indices(first >= 0)].astype(np.int64)


def _own_work(forest: Forest, holder: Positions) -> pl.DataFrame:
    is_owner = np.zeros(len(holder) + 1, dtype=np.bool_)
    for piece in pieces(len(holder)):
        is_kernel = forest.is_level(Level.KERNEL, piece) & ~forest.replayed[piece]
        is_owner[holder[piece][forest.is_level(Level.OPERATOR, piece) | is_kernel]] = True  # -1 marks the last entry
    at = np.flatnonzero(is_owner[:-1])
    return pl.DataFrame({"at": at, "has_work": np.ones(len(at), dtype=np.bool_)})


def _memory(forest: Forest, holder: Positions) -> pl.DataFrame:
    """Bytes allocated in a call outside its children: on devices, or on the host where no device memory was used."""
    taken = forest.allocations
    if taken["device_id"].is_not_null().any():
        taken = taken.filter(pl.col("device_id").is_not_null())
    owner = taken["owner"].to_numpy()
    call_at = np.where(owner >= 0, holder[owner], -1) if len(holder) else owner
    own = taken.select(pl.Series("at", call_at, dtype=pl.Int64), pl.col("bytes")).filter(pl.col("at") >= 0)
    return own.group_by("at").agg(pl.col("bytes").filter(pl.col("bytes") > 0).sum().alias("allocated_bytes"))


def with_recorded(calls: pl.DataFrame, spans: pl.DataFrame, recorded: pl.DataFrame) -> pl.DataFrame:
    """The calls with what the file itself says of them instead of what was worked out."""
    if recorded.is_empty():
        return calls
    texts, kinds = ("layer_type", "shapes", "dtypes"), calls.schema
    calls = calls.with_columns(pl.col(texts).cast(pl.String))
    facts = at_spans(spans, recorded).drop("row").with_columns(pl.col(texts).cast(pl.String))
    joined = calls.join(facts, on="at", how="left", maintain_order="left", suffix="_recorded")
    columns = [name for name in facts.columns if name in calls.columns and name != "at"]
    # As they were: the tables of several runs are put together, also of those of which nothing is said.
    better = (pl.coalesce(f"{name}_recorded", name).cast(kinds[name]).alias(name) for name in columns)
    return joined.with_columns(better).drop(f"{name}_recorded" for name in columns)


def with_compiled(calls: pl.DataFrame, attributions: pl.DataFrame) -> pl.DataFrame:
    """The calls, those that have a part of a compiled kernel as calls with work of their own."""
    parts = attributions.filter(pl.col("basis") == str(AttributionBasis.COMPILED_CODE))["layer"]
    if parts.is_empty():
        return calls
    return calls.with_columns(pl.col("has_work") | pl.col("at").is_in(parts.unique().implode()))


def with_index(tables: Sequence[pl.DataFrame], source: LayerSource) -> list[pl.DataFrame]:
    """Adds `layer_index` over all runs: layers with own work, in the file's order, else of first own operator.

    A layer is known by its name where names are instances (modules), else by its path.
    """
    key = "layer_name" if source is LayerSource.MODULE else "path"
    every = pl.concat([t.with_columns(pl.lit(n).alias("table")) for n, t in enumerate(tables)])
    counted = (
        every.filter(pl.col("source") == str(source))
        .group_by(key)
        .agg(
            (pl.col("has_work").any() | ~pl.col("is_container").any()).alias("counts"),
            pl.col("first_ns").filter(pl.col("has_work")).min().alias("work_ns"),
            pl.col("first_ns").min(),
            pl.col("sequence_index").min(),
        )
        .filter("counts")
        .sort("sequence_index", pl.coalesce("work_ns", "first_ns"), pl.col(key).cast(pl.String), nulls_last=True)
        .with_row_index("layer_index")
        .select(key, pl.col("layer_index").cast(pl.Int64), pl.lit(str(source)).alias("source"))
    )
    drop = ["has_work", "first_ns", "sequence_index", "table"]
    indexed = every.join(counted, on=[key, "source"], how="left", maintain_order="left")
    return [indexed.filter(pl.col("table") == n).drop(drop) for n in range(len(tables))]
