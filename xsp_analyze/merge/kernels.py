"""Ties the kernels of one run to the same kernels of another by name, grid, block and order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.activities import AXES, device_activities, shapes_of, with_shapes
from xsp_analyze.frames.kernel_means import aligned
from xsp_analyze.frames.steps import steps_of
from xsp_analyze.merge.alignment import Alignment, align
from xsp_analyze.merge.kernel_names import base_name, normal_name
from xsp_analyze.merge.matched import Matched

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from xsp_model import Trace

__all__ = ["kernel_work", "match_kernels", "template"]


def kernel_work(trace: Trace) -> pl.DataFrame:
    """The kernels in launch order with `execution`: the same number for the same kernel of every step."""
    activities = with_shapes(trace, device_activities(trace))
    steps = steps_of(trace)
    if steps.is_empty():
        ordered = activities.sort("launch_ns", "start_ns", "span_id").with_row_index("execution")
        rows = ordered.with_columns(pl.lit(0, pl.Int64).alias("step"))
    else:
        rows = aligned(activities.with_columns(shapes_of(trace, activities)), steps)
    return rows.filter(pl.col("kind").cast(pl.String) == "kernel").sort("run_id", "step", "launch_ns", "span_id")


def template(work: pl.DataFrame) -> pl.DataFrame:
    """The kernels of the first of the steps that hold the most, of the first run."""
    if work.is_empty():
        return work
    counts = (
        work.group_by("run_id", "step").len().sort("run_id", pl.col("len"), "step", descending=[False, True, False])
    )
    return work.filter(pl.col("run_id") == counts["run_id"][0], pl.col("step") == counts["step"][0])


def match_kernels(ours: pl.DataFrame, theirs: pl.DataFrame) -> tuple[Matched, pl.DataFrame]:
    """How well the kernels match, and pairs of rows: `first` of ours, `second` of theirs.

    Where theirs is a whole multiple of ours (a profiler that saw several steps) each of ours has several partners.
    Names are compared whole, or by the function alone where that finds more: some profilers write no more.
    """
    repeats = max(round(theirs.height / ours.height), 1) if ours.height else 1
    aligned = max((_align(ours, theirs, repeats, spell) for spell in (normal_name, base_name)), key=lambda a: a.rate)
    labels = [_labels(ours) * repeats, _labels(theirs)]
    pairs = pl.DataFrame(aligned.pairs, schema={"first": pl.Int64, "second": pl.Int64}, orient="row")
    pairs = pairs.with_columns(pl.col("first") % max(ours.height, 1))
    return Matched("kernels", aligned, labels[0], labels[1]), pairs


def _align(ours: pl.DataFrame, theirs: pl.DataFrame, repeats: int, spell: Callable[[str], str]) -> Alignment:
    spelling = {name: spell(name) for name in {*ours["name"].cast(pl.String), *theirs["name"].cast(pl.String)}}
    return align(_keys(ours, spelling) * repeats, _keys(theirs, spelling))


def _keys(kernels: pl.DataFrame, spelling: dict[str, str]) -> list[Hashable]:
    names = [spelling[name] for name in kernels["name"].cast(pl.String)]
    return list(zip(names, kernels.select(AXES).rows(), strict=True))


def _labels(kernels: pl.DataFrame) -> list[str]:
    shapes = kernels.select(AXES).rows()
    names = kernels["name"].cast(pl.String).to_list()
    return [f"{name} grid {_size(s[:3])} block {_size(s[3:])}" for name, s in zip(names, shapes, strict=True)]


def _size(axes: tuple[int | None, ...]) -> str:
    return "x".join("?" if axis is None else str(axis) for axis in axes)
