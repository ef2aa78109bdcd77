"""A08: every kernel execution, with its layer and launch configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.activities import with_shapes
from xsp_analyze.columns import COUNTER_COLUMNS, EXECUTION, KERNEL_NAME, KIND, LAYER_INDEX, LAYER_NAME, LAYER_TYPE, STEP
from xsp_analyze.core import Column, Role, analysis
from xsp_analyze.counters import derived

if TYPE_CHECKING:
    from xsp_analyze.view import View

__all__ = ["kernel_information"]

_WORDS = ("layer_name", "layer_type", "kernel_name", "kind", "phase", "attribution")
_ORDER = ("layer_index", "layer_name", "run_id", "process_id", "order_ns", "start_ns", "device_id", "stream_id")


def _shape(what: str) -> Column:
    return Column(
        what, pl.List(pl.Int64()), f"{what.capitalize()} size along x, y, z; null: unknown, or none.", role=Role.LABEL
    )


@analysis(
    "A08",
    "kernel information",
    needs=("kernel",),
    read=(
        "Every piece of device work with its layer and launch configuration; search for a layer or a kernel to "
        "see what ran in it and in which order."
    ),
    columns=(
        STEP,
        EXECUTION,
        replace(LAYER_INDEX, role=Role.LABEL),
        LAYER_NAME,
        LAYER_TYPE,
        replace(KERNEL_NAME, role=Role.LABEL),
        replace(KIND, role=Role.LABEL),
        _shape("grid"),
        _shape("block"),
        Column("phase", pl.String(), "forward, recompute, backward, optimizer or other.", role=Role.LABEL),
        Column("attribution", pl.String(), "Why it has a layer, or has none.", role=Role.LABEL),
        Column("run_id", pl.Int64(), "The run (rank) it ran in.", role=Role.LABEL),
        Column("device_id", pl.Int64(), "The device it ran on.", role=Role.LABEL),
        Column("stream_id", pl.Int64(), "The stream it ran on.", role=Role.LABEL),
        Column("count", pl.Float64(), "1; in a mean step, the share of steps that it is in."),
        Column(
            "duration_ns",
            pl.Float64(),
            "Its duration; in a mean step, the trimmed mean over the steps that it is in, times `count`.",
            "ns",
        ),
        *COUNTER_COLUMNS,
    ),
)
def kernel_information(view: View) -> pl.LazyFrame:
    """One row a kernel execution, by layer (none: last), then in order of launch."""
    rows = with_shapes(view.trace, view.executions)
    return (
        derived(rows.lazy().with_columns(pl.col("duration_ns").alias("counted_ns")), view.ideal_intensity)
        .with_columns(pl.col(_WORDS).cast(pl.String), *(_triple(what) for what in ("grid", "block")))
        .sort(*view.by, *_ORDER, "kernel_name", "duration_ns", nulls_last=True)
        .with_row_index("execution")
        .with_columns(pl.col("execution").cast(pl.Int64))
    )


def _triple(what: str) -> pl.Expr:
    axes = [f"{what}_{axis}" for axis in "xyz"]
    return pl.when(pl.all_horizontal(pl.col(axes).is_not_null())).then(pl.concat_list(axes)).alias(what)
