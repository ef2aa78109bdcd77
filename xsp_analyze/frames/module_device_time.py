"""Device work of modules: inside their own calls, and elsewhere by the layer it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.module_tree import inside_phase
from xsp_model import Attribution, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.frames.module_tree import ModuleTree
    from xsp_model.arrays import Bools, Ints

__all__ = ["module_work"]

_CELL = ("run_id", "step", "phase", "inside", "layer_call", "unplaced")
_BACKWARD = str(Phase.BACKWARD)
_UNDOING = (
    _BACKWARD,
    str(Phase.OPTIMIZER),
)  # of what is in a module's layer but not in its call: also steps taken there


def module_work(tree: ModuleTree, activities: pl.DataFrame) -> pl.DataFrame:
    """One row a call, phase, run and step: device_sum_ns and activity_count, inclusive and self_*.

    `activities` have `work_ns` and `work_count`, what each of them counts for. Work launched inside a module's call
    counts for it and every call around it. Work of a layer elsewhere (backward work, and replays of what was captured
    there) counts for the call it is of and every call around that, except for instances inside whose own calls it was
    launched, where it is counted already. It is a call's own (self_*) as it is a layer's: replays of which no layer is
    known, and backward work without one, are nobody's own.
    """
    cells = _cells(tree, activities)
    inside, layer_call = cells["inside"].to_numpy(), cells["layer_call"].to_numpy()
    elsewhere = (layer_call >= 0) & ~tree.ran_in_instance(inside, layer_call)
    is_own = ~elsewhere & ~cells["unplaced"].to_numpy()
    there = pl.when(pl.col("phase").is_in(_UNDOING)).then(pl.lit(_BACKWARD)).otherwise(inside_phase(pl.col("phase")))
    parts = (
        *_spread(tree, cells.with_columns(inside_phase(pl.col("phase"))), inside, inside < 0, is_own),
        *_spread(
            tree, cells.with_columns(there.alias("phase")), np.where(elsewhere, layer_call, -1), elsewhere, elsewhere
        ),
    )
    return pl.concat(parts).group_by("run_id", "step", "phase", "call", maintain_order=True).agg(pl.all().sum())


def _cells(tree: ModuleTree, activities: pl.DataFrame) -> pl.DataFrame:
    """The work summed by the call it was launched `inside` and the call its layer is of (-1: none).

    `unplaced`: it would be of a layer, but nothing says of which.
    """
    layer = activities["layer_id"].fill_null(-1).to_numpy()
    replay = pl.col("attribution").cast(pl.String) == str(Attribution.GRAPH_REPLAY)
    lost = (pl.col("phase") == _BACKWARD) & (pl.Series("layer", layer) < 0)
    return (
        activities.select(
            "run_id",
            "step",
            pl.col("phase").cast(pl.String),
            "work_ns",
            "work_count",
            pl.Series("inside", tree.owner[activities["span_id"].to_numpy()]),
            pl.Series("layer_call", np.where(layer >= 0, tree.owner[layer], -1)),
            (replay | lost).fill_null(value=False).alias("unplaced"),
        )
        .group_by(_CELL, maintain_order=True)
        .agg(pl.col("work_ns", "work_count").sum())
    )


def _spread(tree: ModuleTree, cells: pl.DataFrame, call: Ints, besides: Bools, is_own: Bools) -> Iterator[pl.DataFrame]:
    """The cells' work on these calls (-1: none), as their own where it is, and on the calls around them.

    Of `besides` instances that the work ran inside of are left out.
    """
    again, inside = tree.calls["again"].to_numpy(), cells["inside"].to_numpy()
    yield _on(cells, call, is_own & (call >= 0), own=True)
    for around in tree.around(call):
        free = (around >= 0) & ~again[around]
        yield _on(cells, around, free & ~(besides & tree.ran_in_instance(inside, around)), own=False)


def _on(cells: pl.DataFrame, call: Ints, mask: Bools, *, own: bool) -> pl.DataFrame:
    """The wanted cells' work as the inclusive work, or the own work, of the calls."""
    zero = pl.col("work_ns", "work_count") * 0
    ours, theirs = ("self_", "") if own else ("", "self_")
    return (
        cells.with_columns(pl.Series("call", call))
        .filter(pl.Series(mask))
        .select(
            "run_id",
            "step",
            "phase",
            "call",
            pl.col("work_ns").alias(f"{ours}device_sum_ns"),
            pl.col("work_count").alias(f"{ours}activity_count"),
            zero.name.map(lambda name: theirs + _MEASURE[name]),
        )
        .select("run_id", "step", "phase", "call", *_MEASURES)
    )


_MEASURE = {"work_ns": "device_sum_ns", "work_count": "activity_count"}
_MEASURES = ("device_sum_ns", "activity_count", "self_device_sum_ns", "self_activity_count")
