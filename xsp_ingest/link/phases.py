"""In which phase of training each span is: forward, recompute, backward, optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.nest import nest
from xsp_ingest.link.words import matches
from xsp_model import Kind, LayerSource, Level, Phase
from xsp_model.tree import innermost

if TYPE_CHECKING:
    from xsp_ingest.link.forest import Forest
    from xsp_model.arrays import Bools

__all__ = ["phases"]

_OPTIMIZER = r"^Optimizer\.(step|zero_grad)"
_PHASES = pl.Series(
    [*(str(p) for p in (Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD, Phase.OPTIMIZER, Phase.OTHER)), None],
    dtype=pl.Categorical,
)


def phases(forest: Forest, source: LayerSource, is_layer: Bools) -> pl.Series:
    """The phase of every span; null for device work whose launch is not in the file."""
    backward = forest.backward | (forest.twin >= 0)
    module = forest.is_kind(Kind.MODULE)
    optimizer = matches(forest.spans["name"], _OPTIMIZER) & ~forest.is_level(Level.KERNEL)
    forward = np.zeros(forest.spans.height, dtype=np.bool_)
    forward[forest.twin[forest.twin >= 0]] = True
    if source is LayerSource.RANGE:
        forward |= _forward_ranges(forest, is_layer, backward)
    if not backward.any() and not optimizer.any():
        forward |= is_layer  # nothing but inference: all work of layers is forward
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


def _forward_ranges(forest: Forest, layer: Bools, backward: Bools) -> Bools:
    """Of ranges that are layers those of the forward pass: they hold forward twins, and no backward work began in them.

    The backward pass may run on a thread of its own, so time decides whether a range is about both.
    """
    holds = np.zeros(len(layer), dtype=np.bool_)
    above = np.unique(forest.twin[forest.twin >= 0])
    while len(above := np.unique(forest.parent[above][forest.parent[above] >= 0])):
        above = above[~holds[above]]
        holds[above] = True
    found = np.flatnonzero(holds & layer)
    spans = forest.spans.select("process_id", "start_ns", pl.col("duration_ns").fill_null(0))
    begun = spans.filter(pl.Series(backward)).select("process_id", "start_ns").sort("start_ns")
    ranges = spans[found].with_columns(pl.Series("at", found)).sort("start_ns")
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
