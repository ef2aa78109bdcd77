"""In which phase of training each span is: forward, recompute, backward, optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.climb import innermost
from xsp_ingest.link.distinct_texts import matches
from xsp_ingest.link.nest import nest
from xsp_ingest.link.threads import Threads
from xsp_model import Kind, LayerSource, Level, scratch
from xsp_model.arrays import true_indices

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from xsp_ingest.link.forest import Forest
    from xsp_model.arrays import Bools

__all__ = ["phases"]

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
    phase = scratch.full(len(backward), _OTHER, np.int8)
    if forward.any():
        phase[innermost(forest.parent, forward) >= 0] = _FORWARD
    nearest = innermost(forest.parent, optimizer | backward)  # an optimizer may step within backward operators
    for piece in scratch.pieces(len(phase)):
        above = nearest[piece]
        phase[piece][(above >= 0) & optimizer[above]] = _OPTIMIZING
        phase[piece][(above >= 0) & backward[above]] = _BACKWARD
    again = _is_recomputed(forest, module, backward)
    if again.any():
        nearest = innermost(forest.parent, backward | module)
        for piece in scratch.pieces(len(phase)):
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
    spans = scratch.gather_rows(forest.spans.select("process_id", "thread_id", "start_ns", "duration_ns"), at)
    threads = Threads.of(spans)
    start, end = spans["start_ns"].to_numpy(), scratch.empty(len(at), np.int64)
    for piece in scratch.pieces(len(at)):
        end[piece] = start[piece] + spans["duration_ns"][piece].fill_null(0).to_numpy()
    rank = np.zeros(len(at), dtype=np.int8)
    parent = nest(threads.numbers(spans), start, end, rank, threads=threads.count).parent
    again[at] = innermost(parent, backward[at]) >= 0
    return again & module
