"""Device work of modules: inside their own calls, and in backward by the layer it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.module_tree import inside_phase
from xsp_model import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.frames.module_tree import ModuleTree
    from xsp_model.arrays import Bools, Ints

__all__ = ["module_work"]

_CELL = ("run_id", "step", "phase", "call", "other")
_BACKWARD = str(Phase.BACKWARD)


def module_work(tree: ModuleTree, activities: pl.DataFrame) -> pl.DataFrame:
    """One row a call, phase, run and step: device_sum_ns and activity_count, inclusive and self_*.

    `activities` have `work_ns` and `work_count`, what each of them counts for. Work launched inside a module's call
    counts for it and every call around it. Backward work counts for the call whose forward it undoes and every call
    around that, except for instances inside whose own calls it was launched, where it is counted already.
    """
    owner = tree.owner
    layer = activities["layer_id"].fill_null(-1).to_numpy()
    placed = activities.select(
        "run_id",
        "step",
        pl.col("phase").cast(pl.String),
        "work_ns",
        "work_count",
        pl.Series("inside", owner[activities["span_id"].to_numpy()]),
        pl.Series("layer_call", np.where(layer >= 0, owner[layer], -1)),
    )
    own = placed.filter(pl.col("inside") >= 0).with_columns(
        inside_phase(pl.col("phase")), pl.col("inside").alias("call"), pl.lit(-1, pl.Int64).alias("other")
    )
    backward = placed.filter(pl.col("layer_call") >= 0, pl.col("phase") == _BACKWARD).with_columns(
        pl.col("layer_call").alias("call"), pl.col("inside").alias("other")
    )
    parts = [part for rows in (own, backward) for part in _spread(tree, rows)]
    return pl.concat(parts).group_by("run_id", "step", "phase", "call", maintain_order=True).agg(pl.all().sum())


def _spread(tree: ModuleTree, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The rows' work on their calls and on the calls around these."""
    cells = rows.group_by(_CELL, maintain_order=True).agg(pl.col("work_ns", "work_count").sum())
    other, again = cells["other"].to_numpy(), tree.calls["again"].to_numpy()
    yield _on(cells, cells["call"].to_numpy(), other < 0, own=True).clear()
    for level, call in enumerate(tree.around(cells["call"].to_numpy())):
        free = (call >= 0) & ((other < 0) | ~tree.ran_in_instance(other, call))
        if level == 0:
            yield _on(cells, call, free, own=True)
        yield _on(cells, call, free & ~again[call], own=False)


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
