"""Rule 4: which spans are layers, which layer each span's work belongs to, and in which phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.backward import is_backward
from xsp_ingest.link.nest import nest
from xsp_ingest.link.words import matches
from xsp_model import Attribution, Kind, LayerSource, Level, Phase, XspError
from xsp_model.tree import innermost, outermost

if TYPE_CHECKING:
    from xsp_ingest.link.forest import Forest
    from xsp_model.arrays import Bools, Ints

__all__ = ["Layering", "choose_source", "lay", "layer_spans"]

_OPTIMIZER = r"^Optimizer\.(step|zero_grad)"
_PHASES = pl.Series(
    [*(str(p) for p in (Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD, Phase.OPTIMIZER, Phase.OTHER)), None],
    dtype=pl.Categorical,
)
_ENOUGH = 0.9  # named ranges are the layers only where they hold at least this share of the launched time


@dataclass(frozen=True, slots=True)
class Layering:
    """For every span the call of the layer its work belongs to (-1: none), its phase and, for device work, attribution.

    `held_in` is the innermost call of a layer around the span itself, before backward work is moved to its twin.
    """

    source: LayerSource
    layer: Ints
    held_in: Ints
    phase: pl.Series
    attribution: pl.Series


def layer_spans(forest: Forest, source: LayerSource) -> Bools:
    """Which spans are calls of layers by this source; of operators, outermost ones that have no forward twin."""
    if source is LayerSource.MODULE:
        return forest.is_kind(Kind.MODULE)
    if source is LayerSource.RANGE:
        return forest.is_kind(Kind.RANGE) & forest.is_level(Level.LAYER)
    if source is LayerSource.OPERATOR:
        operator = forest.is_level(Level.OPERATOR)
        top: Bools = outermost(forest.parent, operator) == np.arange(len(operator))
        top &= operator
        top &= forest.twin < 0
        return top
    return np.zeros(forest.spans.height, dtype=np.bool_)


def choose_source(forest: Forest, wanted: str) -> LayerSource:
    """The source asked for, or the best one present: modules, ranges that hold enough of the work, else operators.

    XspError where the one asked for is not in the trace.
    """
    if wanted != "auto":
        source = LayerSource(wanted)
        if source is not LayerSource.NONE and not layer_spans(forest, source).any():
            raise XspError(f"the trace has no layers of source {source}", advice="Use --layer-source auto")
        return source
    if forest.is_kind(Kind.MODULE).any():
        return LayerSource.MODULE
    ranges = layer_spans(forest, LayerSource.RANGE)
    operators = forest.is_level(Level.OPERATOR).any()
    if ranges.any() and (not operators or _held_share(forest, ranges) >= _ENOUGH):
        return LayerSource.RANGE
    return LayerSource.OPERATOR if operators else LayerSource.NONE


def _held_share(forest: Forest, ranges: Bools) -> float:
    """Share of the launched device time, or on a host alone of the outermost operators' time, inside the ranges."""
    work = forest.is_level(Level.KERNEL) & (forest.parent >= 0)
    if not work.any():
        operator = forest.is_level(Level.OPERATOR)
        work = operator & (outermost(forest.parent, operator) == np.arange(len(operator)))
    duration = forest.spans["duration_ns"].fill_null(0).to_numpy()
    held = work & (innermost(forest.parent, ranges) >= 0)
    return float(duration[held].sum()) / max(float(duration[work].sum()), 1.0)


def lay(forest: Forest, source: LayerSource) -> Layering:
    """Attributes every span to a call of a layer, by where it ran, its forward twin, or where it was captured."""
    is_layer = layer_spans(forest, source)
    held_in = innermost(forest.parent, is_layer)
    layer = _through_twins(forest, is_layer, held_in)
    layer = np.where(forest.replayed, _through(forest.captured_in, layer), layer)
    return Layering(source, layer, held_in, _phases(forest, source), _attribution(forest, layer))


def _through(reference: Ints, values: Ints) -> Ints:
    """`values[reference]`, -1 where there is no reference."""
    return np.where(reference >= 0, values[reference], -1)


def _through_twins(forest: Forest, is_layer: Bools, held_in: Ints) -> Ints:
    """Of a layer and a backward operator around a span the nearer one decides: recompute against backward."""
    has_twin = forest.twin >= 0
    nearest = innermost(forest.parent, is_layer | has_twin)
    by_twin = (nearest >= 0) & has_twin[nearest] & ~is_layer[nearest]
    return np.where(by_twin, _through(_through(nearest, forest.twin), held_in), held_in)


def _phases(forest: Forest, source: LayerSource) -> pl.Series:
    backward = is_backward(forest.spans, forest.operators) | (forest.twin >= 0)
    module = forest.is_kind(Kind.MODULE)
    optimizer = matches(forest.spans["name"], _OPTIMIZER) & ~forest.is_level(Level.KERNEL)
    forward = np.zeros(forest.spans.height, dtype=np.bool_)
    forward[forest.twin[forest.twin >= 0]] = True
    if not backward.any() and not optimizer.any():
        forward |= layer_spans(forest, source)  # nothing but inference: all work of layers is forward
    nearest = innermost(forest.parent, backward | module)
    in_backward = innermost(forest.parent, backward) >= 0
    again = _called_again(forest, module, backward)
    recompute = (nearest >= 0) & again[nearest]
    unknown = forest.is_level(Level.KERNEL) & (forest.parent < 0)
    codes = np.select(
        [
            unknown,
            recompute,
            in_backward,
            innermost(forest.parent, optimizer) >= 0,
            innermost(forest.parent, module | forward) >= 0,
        ],
        [-1, 1, 2, 3, 0],
        4,
    )
    return pl.Series("phase", _PHASES.gather(np.where(codes < 0, len(_PHASES) - 1, codes)))


def _called_again(forest: Forest, module: Bools, backward: Bools) -> Bools:
    """Module calls that a backward operator on their own thread holds: activation checkpointing.

    The tree does not show it, since there an operator is never above a module.
    """
    both = module | backward
    at = np.flatnonzero(both)
    again = np.zeros(len(both), dtype=np.bool_)
    if not module.any() or not backward.any():
        return again
    spans = forest.spans.select(
        pl.struct("process_id", "thread_id").rank("dense").cast(pl.Int64).alias("thread"),
        "start_ns",
        (pl.col("start_ns") + pl.col("duration_ns").fill_null(0)).alias("end_ns"),
    )[at]
    group, start, end = (spans[name].to_numpy() for name in spans.columns)
    parent = nest(group, start, end, np.zeros(len(at), dtype=np.int64)).parent
    again[at] = innermost(parent, backward[at]) >= 0
    return again & module


def _attribution(forest: Forest, layer: Ints) -> pl.Series:
    choice = (
        pl.when(pl.lit(pl.Series(~forest.is_level(Level.KERNEL))))
        .then(None)
        .when(pl.lit(pl.Series(layer >= 0)))
        .then(pl.lit(str(Attribution.LAYER)))
        .when(pl.lit(pl.Series((forest.parent < 0) & ~forest.is_kind(Kind.GRAPH))))
        .then(pl.lit(forest.orphans).cast(pl.String))
        .when(pl.lit(pl.Series(forest.replayed)))
        .then(pl.lit(str(Attribution.GRAPH_REPLAY)))
        .otherwise(pl.lit(str(Attribution.MODEL_ONLY)))
    )
    return pl.select(choice.cast(pl.Categorical).alias("attribution")).to_series()
