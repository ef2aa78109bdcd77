"""B38: what changes with the batch size, and which is optimal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.a01_model_information import model_information
from xsp_analyze.analyses.a15_kernel_by_model import kernel_by_model
from xsp_analyze.columns import BATCH_SIZE, KERNEL_DURATION, LATENCY_BASIS, PRECISION, ROOF_COLUMNS, STEP, WORK_BASIS
from xsp_analyze.core import LATENCY_NS, Column, FigureSpec, analysis
from xsp_analyze.formulas import quotient
from xsp_analyze.needs import holds

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["batch_sizes"]

_ROOF = [
    c
    for c in ROOF_COLUMNS
    if c.name in ("flop_count", "flop_per_s", "arithmetic_intensity", "ideal_intensity", "bound", "roof_share")
]
_OF_DEVICES = ("kernel_duration_ns", "gpu_share")
_OF_PRECISION = ("precision", *(c.name for c in _ROOF), "work_basis")


@analysis(
    "B38",
    "batch sizes",
    needs=("batch sizes",),
    read=(
        "Where throughput no longer grows the device is full; where the bound turns from memory to compute a larger"
        " batch stops helping each byte."
    ),
    section="batches",
    columns=(
        STEP,
        BATCH_SIZE,
        Column("latency_ns", LATENCY_NS, "Latency of a step, as in A01.", "ns"),
        Column("latency_per_input_ns", pl.Float64(), "Latency over batch size.", "ns"),
        Column("throughput_per_s", pl.Float64(), "Inputs per second.", "1/s"),
        Column(
            "doubling_gain",
            pl.Float64(),
            "Throughput at twice the batch size over that at this one, less 1; null: twice was not measured.",
        ),
        Column(
            "is_optimal",
            pl.Boolean(),
            "The first batch size whose doubling raises throughput by 5 % or less; null: none was doubled, or none is.",
        ),
        LATENCY_BASIS,
        replace(KERNEL_DURATION, doc="Sum of the durations of all device work; null: none was recorded."),
        Column("gpu_share", pl.Float64(), "Share of the latency in which devices worked, as in A15."),
        replace(
            PRECISION, role=WORK_BASIS.role, doc="The precision of most flop over all batch sizes: what these are of."
        ),
        *_ROOF,
        Column(
            "is_first_compute_bound",
            pl.Boolean(),
            "The batch size from which on all measured ones are compute bound; null: none is, or the roof is unknown.",
        ),
        WORK_BASIS,
    ),
    figure=FigureSpec(
        "scatter",
        x="batch_size",
        y=("throughput_per_s", "latency_ns", "gpu_share", "flop_count", "flop_per_s", "arithmetic_intensity"),
        title="By batch size",
    ),
)
def batch_sizes(frames: StepView) -> pl.LazyFrame:
    """One row a batch size, smallest first, with the columns of A01 and A15 that a batch size changes."""
    keys = [*frames.by, "batch_size"]
    latencies = model_information.function(frames).collect().drop_nulls("batch_size")
    kernels = kernel_by_model.function(frames).collect() if holds(frames.of_trace, "kernel") else None
    rows = _with_gain(latencies, keys)
    for part in () if kernels is None else (_of_devices(kernels, keys), _of_one_precision(kernels, keys)):
        rows = rows.join(part, on=keys, how="left", maintain_order="left")
    missing = [c for c in batch_sizes.columns if c.name not in rows.columns and not c.optional]
    rows = rows.with_columns(pl.lit(None, c.type_of(averaged=frames.averaged)).alias(c.name) for c in missing)
    return rows.with_columns(_first_compute_bound(frames, rows)).sort(keys).lazy()


def _with_gain(latencies: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    doubled = latencies.select(*keys[:-1], pl.col("batch_size") // 2, pl.col("throughput_per_s").alias("doubled_per_s"))
    even = doubled.filter(latencies["batch_size"] % 2 == 0)
    gain = (quotient(pl.col("doubled_per_s"), pl.col("throughput_per_s")) - 1).alias("doubling_gain")
    return latencies.join(even, on=keys, how="left", maintain_order="left").with_columns(gain)


def _of_devices(kernels: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    return kernels.unique(keys, keep="first", maintain_order=True).select(*keys, *_OF_DEVICES)


def _of_one_precision(kernels: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """The rooflines in the precision of most flop, so that one line joins what is of one kind."""
    counted = kernels.drop_nulls(["precision", "flop_count"])
    sums = (
        counted.group_by("precision").agg(pl.col("flop_count").sum()).sort("flop_count", "precision", descending=True)
    )
    return counted.filter(pl.col("precision").is_in(sums["precision"].head(1).implode())).select(*keys, *_OF_PRECISION)


def _first_compute_bound(frames: StepView, rows: pl.DataFrame) -> pl.Expr:
    """True in the row, false in the others, null in all where there is none or steps are answered one by one."""
    bounds = dict(rows.sort("batch_size").select("batch_size", "bound").drop_nulls().iter_rows())
    first = None
    for size in sorted(bounds, reverse=True):
        if bounds[size] != "compute":
            break
        first = size
    chosen = None if frames.by else first
    return (pl.col("batch_size") == pl.lit(chosen, pl.Int64)).alias("is_first_compute_bound")
