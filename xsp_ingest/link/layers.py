"""Rule 4: which spans are layers, which layer each span's work belongs to, and in which phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.phases import phases
from xsp_model import Attribution, Kind, LayerSource, Level, XspError
from xsp_model.tree import innermost, outermost

if TYPE_CHECKING:
    from xsp_ingest.link.forest import Forest
    from xsp_model.arrays import Bools, Ints

__all__ = ["Layering", "choose_source", "lay", "layer_spans"]

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
    """Share of the launched device time, or on a host alone of the outermost operators' time, that is the ranges'.

    As where they are the layers, backward work is that of the range around its forward twin.
    """
    work = forest.is_level(Level.KERNEL) & (forest.parent >= 0)
    if not work.any():
        operator = forest.is_level(Level.OPERATOR)
        work = operator & (outermost(forest.parent, operator) == np.arange(len(operator)))
    duration = forest.spans["duration_ns"].fill_null(0).to_numpy()
    held = work & (_through_twins(forest, ranges, innermost(forest.parent, ranges)) >= 0)
    return float(duration[held].sum()) / max(float(duration[work].sum()), 1.0)


def lay(forest: Forest, source: LayerSource) -> Layering:
    """Attributes every span to a call of a layer, by where it ran, its forward twin, or where it was captured."""
    is_layer = layer_spans(forest, source)
    held_in = innermost(forest.parent, is_layer)
    layer = _through_twins(forest, is_layer, held_in)
    layer = np.where(forest.replayed, _through(forest.captured_in, layer), layer)
    return Layering(source, layer, held_in, phases(forest, source, is_layer), _attribution(forest, layer))


def _through(reference: Ints, values: Ints) -> Ints:
    """`values[reference]`, -1 where there is no reference."""
    return np.where(reference >= 0, values[reference], -1)


def _through_twins(forest: Forest, is_layer: Bools, held_in: Ints) -> Ints:
    """Of a layer and a backward operator around a span the nearer one decides: recompute against backward."""
    has_twin = forest.twin >= 0
    nearest = innermost(forest.parent, is_layer | has_twin)
    by_twin = (nearest >= 0) & has_twin[nearest] & ~is_layer[nearest]
    return np.where(by_twin, _through(_through(nearest, forest.twin), held_in), held_in)


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
