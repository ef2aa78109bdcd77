"""Rule 4: which spans are layers, which layer each span's work belongs to, and in which phase of training it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.climb import innermost, outermost
from xsp_ingest.link.nest import nest
from xsp_ingest.link.nesting import Threads
from xsp_ingest.link.spans import as_categorical, matches
from xsp_model import Attribution, Kind, LayerSource, Level, Phase, XspError
from xsp_model.columns import arrays
from xsp_model.columns.arrays import no_refs, nullable_index, true_indices

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from xsp_ingest.link.forest import Forest
    from xsp_model.columns.arrays import Bools, Positions

__all__ = ["Layering", "choose_source", "lay", "layer_spans", "phases"]


# In which phase of training each span is: forward, recompute, backward, optimizer.


_OPTIMIZER = r"^Optimizer\.(step|zero_grad)"
_FORWARD, _RECOMPUTE, _BACKWARD, _OPTIMIZING, _OTHER = range(5)  # indices in `Phase`


def phases(forest: Forest, source: LayerSource, is_layer: Bools) -> NDArray[np.int8]:
    """The phase of every span, an index in `Phase`; -1 for device work whose launch is not in the file."""
    backward = forest.backward | (forest.twin >= 0)
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
    above = np.unique(forest.twin[forest.twin >= 0])
    while len(above := np.unique(forest.parent[above][forest.parent[above] >= 0])):
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


# Rule 4: which spans are layers, which layer each span's work belongs to, and in which phase.

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
    layer = _through_twins(forest, is_layer, held_in)
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
