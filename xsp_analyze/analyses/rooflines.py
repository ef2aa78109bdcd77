"""Work beside what the device can do (A09, A14, B24), and operators' work by models (B11, B27)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.analyses.kernels import list_of_kernels, order_of_list
from xsp_analyze.columns import (
    ABOVE_ROOF,
    DURATION,
    EXECUTION,
    KERNEL_CLASS,
    KERNEL_DURATION,
    KERNEL_LABEL,
    KERNEL_NAME,
    LAYER_INDEX,
    LAYER_NAME,
    LAYER_TYPE,
    PRECISION,
    ROOF_COLUMNS,
    STEP,
)
from xsp_analyze.core import AMOUNT, TIME_NS, Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import quotient
from xsp_analyze.frames.idle import DEVICE
from xsp_analyze.frames.kernels.measured_work import compared_work, filled_executions, layer_kernels
from xsp_analyze.frames.kernels.roofline import agreed_peaks, by_precision, device_peaks, require_flops, under_roof
from xsp_analyze.frames.layers.layer_time import LAYER_KEY
from xsp_analyze.frames.model_time import latency_of_model
from xsp_analyze.frames.operators.operator_work import FLOPS, flops_by_layer, operator_work, rates_and_roof
from xsp_model import XspError

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["flop_utilisation", "kernel_roofline", "layer_roofline", "measured_work", "modelled_work"]


# A09: every kernel execution under the roof of its device.
@analysis(
    "A09",
    "kernel roofline",
    needs=("kernel", "work"),
    section="rooflines",
    read=(
        "Points far below the roof leave speed unused; points left of the ridge are limited by memory bandwidth, "
        "points right of it by arithmetic."
    ),
    columns=(
        STEP,
        replace(EXECUTION, doc="The kernel's row in A08."),
        PRECISION,
        replace(LAYER_INDEX, role=Role.LABEL),
        LAYER_NAME,
        replace(KERNEL_NAME, role=Role.LABEL),
        KERNEL_LABEL,
        KERNEL_CLASS,
        replace(DURATION, doc="Its duration, as in A08."),
        *ROOF_COLUMNS,
    ),
    figure=FigureSpec(
        "roofline", x="arithmetic_intensity", y=("flop_per_s",), title="Kernels under the roof", color="precision"
    ),
)
def kernel_roofline(frames: StepView) -> pl.LazyFrame:
    """One row a kernel execution and precision that it works in, in the order of A08."""
    executions = frames.once(filled_executions)
    require_flops(executions, "A09 (kernel roofline)")
    order = order_of_list(frames)
    rows = by_precision(list_of_kernels(frames, executions[order], np.arange(len(order))).collect())
    return under_roof(rows, device_peaks(frames), on=DEVICE).sort("execution", "place").lazy()


# A14: every layer under the roof of the devices that ran it.


@analysis(
    "A14",
    "layer roofline",
    needs=("layer", "kernel", "work"),
    key=("layer_index", "layer_name", "layer_type", "precision"),
    about_layers=True,
    section="rooflines",
    read=(
        "Layers left of the ridge gain from fusion and smaller types, layers right of it from tensor cores and "
        "better kernels."
    ),
    columns=(STEP, LAYER_INDEX, LAYER_NAME, PRECISION, LAYER_TYPE, KERNEL_DURATION, *ROOF_COLUMNS),
    figure=FigureSpec(
        "roofline", x="arithmetic_intensity", y=("flop_per_s",), title="Layers under the roof", color="precision"
    ),
)
def layer_roofline(frames: StepView) -> pl.LazyFrame:
    """One row a layer and precision that its kernels work in, in order; work without a layer, as in A11, last."""
    require_flops(frames.once(filled_executions), "A14 (layer roofline)")
    keys = [*frames.by, *LAYER_KEY]
    rows = by_precision(layer_kernels(frames, filled=True).collect())
    return under_roof(rows, agreed_peaks(frames)).sort(*keys, "place", nulls_last=True).lazy()


# B24: model and hardware flop utilisation of a step, of layer types and of layers.
_MIN_COUNTED = 0.5  # of the device time of products: where less is known a utilisation says nothing


@analysis(
    "B24",
    "flop utilisation",
    needs=("operators", "kernel"),
    section="rooflines",
    key=("scope", "name", "layer_index"),
    read=(
        "MFU is the part of its devices' peak that the model's products use; HFU counts what was computed again too. "
        "Of a layer it is of the device time it takes, so idle time lowers only the model's."
    ),
    columns=(
        STEP,
        Column("scope", pl.String(), "model, layer type or layer.", role=Role.KEY),
        Column("name", pl.String(), "The layer type's or layer's name.", role=Role.KEY),
        Column("layer_index", pl.Int64(), "Order of the layer; null for others.", role=Role.LABEL),
        Column(
            "mfu", pl.Float64(), "Model flop utilisation: products of the model at their peak, over time_ns.", "share"
        ),
        Column("hfu", pl.Float64(), "Hardware flop utilisation: the same with what was computed again.", "share"),
        Column("model_flop", pl.Float64(), "Flop of products: two a multiply-add, without recomputation.", "flop"),
        Column("hardware_flop", pl.Float64(), "Flop of products, recomputation counted.", "flop"),
        Column("peak_ns", pl.Float64(), "What the hardware flop take at the peaks of their precisions.", "ns"),
        Column(
            "time_ns",
            pl.Float64(),
            "Of the model the step's latency times its devices; of layers the device time of their work.",
            "ns",
        ),
        Column("precision", pl.String(), "What the products run in.", role=Role.LABEL),
        Column(
            "counted_share",
            pl.Float64(),
            "Part of the device time of product kernels (matrix products, convolutions, attention, experts) whose "
            "flop are known and took no less than the peak allows (Winograd): below 1 mfu and hfu are at least this, "
            "below 0.5 none is given.",
        ),
    ),
    figure=FigureSpec("bars", x="name", y=("mfu",), title="Model flop utilisation", top=20),
)
def flop_utilisation(frames: StepView) -> pl.LazyFrame:
    """One row for the model, one a layer type by flop, most first, and one a layer with products, in order."""
    layers = flops_by_layer(frames)
    if not layers["hardware_flop"].sum():
        raise XspError(
            "B24 (flop utilisation) needs products whose shapes were recorded, and no product of this trace has any",
            advice="Record shapes: torch.profiler.profile(record_shapes=True)",
        )
    of_layers = [
        _sums_by_name(layers, frames, "layer type", pl.col("layer_type")),
        _sums_by_name(layers, frames, "layer", pl.col("layer_name"), pl.col("layer_index")),
    ]
    scopes = [_of_model(frames, layers), *(rows.rename({"device_ns": "time_ns"}) for rows in of_layers)]
    by_flop = pl.when(pl.col("scope") == "layer type").then(-pl.col("hardware_flop"))
    return (
        pl.concat([rows.with_columns(order=order) for order, rows in enumerate(scopes)], how="diagonal_relaxed")
        .filter(pl.col("hardware_flop") > 0, pl.col("name").is_not_null())
        .with_columns(*_shares())
        .sort(*frames.by, "order", by_flop, "layer_index", "name", nulls_last=True)
        .lazy()
    )


def _sums_by_name(layers: pl.DataFrame, frames: StepView, scope: str, name: pl.Expr, *keys: pl.Expr) -> pl.DataFrame:
    """One row a name: sums of FLOPS, null where a peak is missing; and the precisions."""
    peaks = ("model_peak_ns", "hardware_peak_ns")
    has_peaks = [pl.col(c).is_not_null().filter(pl.col("hardware_flop") > 0).all() for c in peaks]
    return (
        layers.group_by(*frames.by, name.alias("name"), *keys, maintain_order=True)
        .agg(
            *(pl.col(c).sum() for c in FLOPS if c not in peaks),
            *(pl.when(is_known).then(pl.col(c).sum()).alias(c) for c, is_known in zip(peaks, has_peaks, strict=True)),
            pl.col("precision").drop_nulls().str.split(", ").explode().unique(maintain_order=True).str.join(", "),
        )
        .with_columns(pl.lit(scope).alias("scope"))
    )


def _of_model(frames: StepView, layers: pl.DataFrame) -> pl.DataFrame:
    """The model's row: of the latency of its steps on all their devices."""
    rows = _sums_by_name(layers, frames, "model", pl.lit("all products")).drop("device_ns")
    latency = frames.once(latency_of_model).select(*frames.by, pl.col("model_ns").cast(pl.Float64).alias("time_ns"))
    return rows.join(latency, on="step", how="left") if frames.by else rows.join(latency, how="cross")


def _shares() -> list[pl.Expr]:
    time = pl.col("time_ns")
    share = pl.when(pl.col("product_ns") > 0).then(quotient(pl.col("counted_ns"), pl.col("product_ns")))
    counts = (time > 0) & (share >= _MIN_COUNTED)
    return [
        *(
            pl.when(counts, pl.col(peak) <= time).then(quotient(pl.col(peak), time)).alias(name)
            for name, peak in (("mfu", "model_peak_ns"), ("hfu", "hardware_peak_ns"))
        ),
        pl.col("hardware_peak_ns").alias("peak_ns"),
        share.alias("counted_share"),
        time.cast(pl.Float64),
    ]


# The work that operators have to do, by models (B11) and beside what counters measured (B27).


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
