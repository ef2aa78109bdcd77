"""B24: model and hardware flop utilisation of a step, of layer types and of layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import STEP
from xsp_analyze.core import Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import quotient
from xsp_analyze.frames.model_time import latency_of_model
from xsp_analyze.frames.operators.operator_work import FLOPS, flops_by_layer
from xsp_model import XspError

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["flop_utilisation"]

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
            "flop are known; below 1 the utilisation is too low, below 0.5 none is given.",
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
        _summed(layers, frames, "layer type", pl.col("layer_type")),
        _summed(layers, frames, "layer", pl.col("layer_name"), pl.col("layer_index")),
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


def _summed(layers: pl.DataFrame, frames: StepView, scope: str, name: pl.Expr, *keys: pl.Expr) -> pl.DataFrame:
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
    rows = _summed(layers, frames, "model", pl.lit("all products")).drop("device_ns")
    latency = frames.once(latency_of_model).select(*frames.by, pl.col("model_ns").cast(pl.Float64).alias("time_ns"))
    return rows.join(latency, on="step", how="left") if frames.by else rows.join(latency, how="cross")


def _shares() -> list[pl.Expr]:
    time = pl.col("time_ns")
    share = pl.when(pl.col("product_ns") > 0).then(quotient(pl.col("counted_ns"), pl.col("product_ns")))
    counts = (time > 0) & (share >= _MIN_COUNTED)
    return [
        pl.when(counts).then(quotient(pl.col("model_peak_ns"), time)).alias("mfu"),
        pl.when(counts).then(quotient(pl.col("hardware_peak_ns"), time)).alias("hfu"),
        pl.col("hardware_peak_ns").alias("peak_ns"),
        share.alias("counted_share"),
        time.cast(pl.Float64),
    ]
