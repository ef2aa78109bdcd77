"""The work that operators have to do, by models (B11) and beside what counters measured (B27)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import ABOVE_ROOF, LAYER_INDEX, LAYER_NAME, LAYER_TYPE, STEP
from xsp_analyze.core import AMOUNT, TIME_NS, Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import quotient
from xsp_analyze.frames.kernels.measured_work import compared_work
from xsp_analyze.frames.layers.layer_time import LAYER_KEY
from xsp_analyze.frames.operators.operator_work import operator_work, rates_and_roof

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["measured_work", "modelled_work"]

# B11: what operators must do at least, from the shapes of their inputs, beside what counters measured.


@analysis(
    "B11",
    "modelled work",
    needs=("operators", "kernel"),
    additive=(
        "count",
        "modelled_count",
        "modelled_flop",
        "modelled_bytes",
        "device_sum_ns",
        "roof_ns",
        "gain_ns",
        "dram_bytes",
    ),
    read=(
        "Modelled flop over device time, held against the device's peak, says how far an operator is from what its "
        "shapes ask for; measured far above modelled is work that the algorithm added."
    ),
    columns=(
        STEP,
        Column(
            "operator", pl.String(), "The outermost operator whose work is modelled, or the outermost.", role=Role.KEY
        ),
        Column("count", AMOUNT, "Its calls; in a mean step, per step on average."),
        Column("modelled_count", AMOUNT, "Of these, the ones whose shapes gave a number: what is summed below."),
        Column("modelled_flop", pl.Float64(), "Two for each multiply-add of products; null: none modelled.", "flop"),
        Column(
            "modelled_bytes", pl.Float64(), "Inputs read and output written once each; null: none modelled.", "byte"
        ),
        Column("modelled_intensity", pl.Float64(), "Modelled flop per modelled byte.", "flop/byte"),
        Column("device_sum_ns", TIME_NS, "Device time of all its calls.", "ns"),
        Column("modelled_share", pl.Float64(), "Part of the device time that is of modelled calls."),
        Column("modelled_flop_per_s", pl.Float64(), "Modelled flop over the device time of modelled calls.", "flop/s"),
        Column(
            "roof_ns",
            pl.Float64(),
            "Least time of modelled calls: at the nearest of the device's roofs, by the precision they run in.",
            "ns",
        ),
        Column(
            "roof_share",
            pl.Float64(),
            "That over the device time of these calls, without shapes above their roof where others are not; see B23.",
        ),
        ABOVE_ROOF,
        Column("gain_ns", pl.Float64(), "Device time less the least: what would be gained at the roof.", "ns"),
        Column("measured_flop", pl.Float64(), "FP32 operations by counters; null: not measured.", "flop"),
        Column("dram_bytes", pl.Float64(), "DRAM traffic by counters; null: not measured.", "byte"),
    ),
    figure=FigureSpec("bars", x="operator", y=("modelled_flop_per_s",), title="Modelled throughput", top=20),
)
def modelled_work(frames: StepView) -> pl.LazyFrame:
    """One row an operator's name, by device time, longest first, then by name; work of no operator has none."""
    operators = operator_work(frames)
    time = pl.col("device_sum_ns")
    share = pl.when(time > 0).then(quotient(pl.col("modelled_device_ns"), time)).alias("modelled_share")
    return (
        operators.lazy()
        .with_columns(share, *rates_and_roof())
        .sort(*frames.by, -pl.col("device_sum_ns"), "operator", nulls_last=True)
    )


# B27: what counters measured of operators beside what their shapes ask for at least.

_NS_PER_S = 1e9


@analysis(
    "B27",
    "measured against modelled work",
    needs=("operators", "kernel", "metrics"),
    additive=(
        "count",
        "device_sum_ns",
        "measured_bytes",
        "modelled_bytes",
        "excess_bytes",
        "measured_flop",
        "modelled_flop",
    ),
    read=(
        "Bytes far above the model's are traffic that the operator's shapes do not ask for, and below it caches held "
        "operands; flop above the model's are padding or another algorithm."
    ),
    columns=(
        STEP,
        Column("operator", pl.String(), "The operator that work is counted by, as in B11.", role=Role.KEY),
        replace(LAYER_INDEX, doc="The layer that its device work belongs to; null: none."),
        LAYER_NAME,
        LAYER_TYPE,
        Column("count", AMOUNT, "Its calls with device work; in a mean step, per step on average."),
        Column("device_sum_ns", TIME_NS, "Device time of these calls.", "ns"),
        Column("bytes_ratio", pl.Float64(), "Measured bytes over modelled ones; null: one is unknown for every call."),
        Column("excess_bytes", pl.Float64(), "Measured bytes less modelled ones; below 0: caches held some.", "byte"),
        Column("measured_bytes", pl.Float64(), "DRAM traffic of the calls of which both is known.", "byte"),
        Column("modelled_bytes", pl.Float64(), "Of the same calls: operands read and outputs written once.", "byte"),
        Column("bytes_share", pl.Float64(), "Part of the device time that is of these calls."),
        Column("byte_per_s", pl.Float64(), "Measured bytes over their device time.", "byte/s"),
        Column("flop_ratio", pl.Float64(), "Measured flop over modelled flop of products."),
        Column(
            "measured_flop", pl.Float64(), "Flop in all precisions measured, of calls of which both is known.", "flop"
        ),
        Column("modelled_flop", pl.Float64(), "Of the same calls: two for each multiply-add of products.", "flop"),
        Column("flop_share", pl.Float64(), "Part of the device time that is of these calls."),
    ),
    figure=FigureSpec(
        "bars",
        x="operator",
        y=("excess_bytes",),
        title="DRAM traffic above what shapes ask for",
        color="layer_name",
        top=20,
    ),
)
def measured_work(frames: StepView) -> pl.LazyFrame:
    """One row an operator's name and layer, by device time, longest first, then by name and layer."""
    rows = compared_work(frames, ("operator", *LAYER_KEY))
    measured, modelled, spent = pl.col("measured_bytes"), pl.col("modelled_bytes"), pl.col("bytes_compared_ns")
    return (
        rows.lazy()
        .with_columns(
            pl.when(modelled > 0).then(quotient(measured, modelled)).alias("bytes_ratio"),
            (measured - modelled).alias("excess_bytes"),
            pl.when(spent > 0).then(quotient(measured * _NS_PER_S, spent)).alias("byte_per_s"),
            pl.when(pl.col("modelled_flop") > 0).then(quotient(pl.col("measured_flop"), pl.col("modelled_flop")))
            .alias("flop_ratio"),
            *(_share(amount) for amount in ("bytes", "flop")),
            pl.col("count", "device_sum_ns").cast(pl.Float64 if frames.is_mean else pl.Int64),
            pl.col("layer_name", "layer_type").cast(pl.String),
        )
        .sort(*frames.by, -pl.col("device_sum_ns"), "operator", "layer_index", nulls_last=True)
    )  # fmt: skip


def _share(amount: str) -> pl.Expr:
    spent = pl.col("device_sum_ns")
    return pl.when(spent > 0).then(quotient(pl.col(f"{amount}_compared_ns"), spent)).alias(f"{amount}_share")
