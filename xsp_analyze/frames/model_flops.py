"""Flop of products over what the devices could have done meanwhile: model and hardware flop utilisation.

Model flop are those that the model's equations ask for; hardware flop are all that ran, with what activation
checkpointing computes again. Each product counts at the peak of the precision that it runs in.
Source: Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways", 2022, appendix B; Korthikanti et al.,
"Reducing Activation Recomputation in Large Transformer Models", 2022.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.call_roofs import PRODUCTS, roofed_calls
from xsp_analyze.frames.counted_operators import calls_made
from xsp_analyze.frames.kernels.activities import column_at
from xsp_analyze.frames.kernels.kernel_means import layer_executions
from xsp_analyze.frames.layer_time import LAYER_KEY
from xsp_analyze.frames.operator_calls import call_of_work, operator_calls
from xsp_model import Phase
from xsp_model.arrays import nullable_index

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["FLOPS", "flops_by_layer"]

FLOPS = ("model_flop", "hardware_flop", "model_peak_ns", "hardware_peak_ns", "product_ns", "counted_ns", "device_ns")
"""Flop, what they take at the peak; device time of product kernels, of those whose flop are known, of all work."""


def flops_by_layer(frames: StepView) -> pl.DataFrame:
    """One row a layer (and step, where each is answered), work of none in a row of nulls: precision, FLOPS."""
    keys = [*frames.by, *LAYER_KEY]
    both = _flops(frames).join(_times(frames), on=keys, how="full", coalesce=True, nulls_equal=True)
    return both.sort(keys, nulls_last=True)


def _flops(frames: StepView) -> pl.DataFrame:
    calls = _products(frames)
    is_model = pl.col("phase").ne_missing(str(Phase.RECOMPUTE))
    per_step = calls.group_by("run_id", "step", *LAYER_KEY, maintain_order=True).agg(
        pl.col("flop").filter(is_model).sum().alias("model_flop"),
        pl.col("flop").sum().alias("hardware_flop"),
        _all_known("product_ns", is_model).alias("model_peak_ns"),
        _all_known("product_ns", pl.lit(value=True)).alias("hardware_peak_ns"),
    )
    sums = frames.combine(per_step, LAYER_KEY, FLOPS[:4])
    precision = calls.group_by(LAYER_KEY, maintain_order=True).agg(
        pl.col("precision").drop_nulls().unique(maintain_order=True).str.join(", ")
    )
    return sums.join(precision, on=LAYER_KEY, how="left", nulls_equal=True, maintain_order="left")


def _products(frames: StepView) -> pl.DataFrame:
    """The calls of products that ran on devices: run_id, step, phase, the layer, flop, product_ns and precision."""
    roofed, calls = frames.of_trace.once(roofed_calls), frames.of_trace.once(operator_calls).calls
    made = calls_made(frames)
    cases = roofed.cases.select("flop", "product_ns", "precision", "launched")[roofed.case_of[made["row"].to_numpy()]]
    products = made.hstack(cases).filter(pl.col("flop") > 0, pl.col("launched"))
    spans = calls["span_id"].gather(products["row"])
    layers = frames.trace.scan("layers").select(pl.col("span_id").alias("layer_id"), *LAYER_KEY).collect()
    return (
        products.with_columns(column_at(frames.trace, c, spans) for c in ("phase", "layer_id"))
        .join(layers, on="layer_id", how="left", maintain_order="left")
        .with_columns(pl.col("phase", "layer_name", "layer_type").cast(pl.String))
    )


def _all_known(column: str, rows: pl.Expr) -> pl.Expr:
    """The sum over the rows; null where one of them is not known: a peak is missing."""
    values = pl.col(column).filter(rows)
    return pl.when(values.null_count() == 0).then(values.sum())


def _times(frames: StepView) -> pl.DataFrame:
    """Device time of each layer, of the product kernels in it, and of those of operators whose flop are known."""
    rows = frames.once(layer_executions)
    roofed = frames.of_trace.once(roofed_calls)
    has_flop = (roofed.cases["flop"] > 0).fill_null(value=False).to_numpy()[roofed.case_of]
    work = frames.of_trace.all_activities.select("span_id")
    counts = work.with_columns(
        pl.Series(has_flop)
        .gather(nullable_index(frames.of_trace.once(call_of_work)))
        .fill_null(value=False)
        .alias("told")
    )
    is_product = pl.col("kernel_class").cast(pl.String).is_in(PRODUCTS)
    time = pl.col("duration_ns")
    return (
        rows.join(counts, on="span_id", how="left", maintain_order="left")
        .with_columns(pl.col("layer_name", "layer_type").cast(pl.String))
        .group_by(*frames.by, *LAYER_KEY, maintain_order=True)
        .agg(
            time.filter(is_product).sum().alias("product_ns"),
            time.filter(is_product & pl.col("told")).sum().alias("counted_ns"),
            time.sum().alias("device_ns"),
        )
    )
