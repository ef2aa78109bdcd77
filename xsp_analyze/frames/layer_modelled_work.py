"""What a call of each layer must do at least, modelled from the shapes that its operators took."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.layer_time import LAYER_KEY
from xsp_analyze.frames.modelled_calls import CALL, following_shapes, modelled_calls
from xsp_model import Level, Phase

if TYPE_CHECKING:
    from xsp_model import Trace

__all__ = ["layer_work"]

_ENOUGH = 32  # a few flops an element beside products: less than this share of the work they do not matter


def layer_work(trace: Trace) -> pl.DataFrame:
    """One row a layer whose operators recorded shapes: the columns of LAYER_KEY and a forward call's least work.

    `input_bytes` and `output_bytes`: of the operator in it with most, as what passes between operators may stay in
    caches; `flop`: products, where all its operators are modelled and the rest hardly counts. Each is a mean over
    its calls in all runs; null: not modelled.
    """
    operators = _outermost(trace)
    works = modelled_calls(operators.select(CALL).unique(maintain_order=True))
    counts = pl.col("flop") >= _ENOUGH * pl.col("elements")
    calls = (
        operators.join(works, on=CALL, how="left", nulls_equal=True, maintain_order="left")
        .group_by("layer_id", maintain_order=True)
        .agg(
            pl.col("input_bytes", "output_bytes").max(),
            pl.when(pl.col("flop").is_not_null().all()).then(pl.col("flop").sum()).alias("flop"),
            pl.col("elements").sum(),
        )
        .with_columns(pl.when(counts, pl.col("flop") > 0).then("flop").alias("flop"))
    )
    layers = trace.frame("layers").select(pl.col("span_id").alias("layer_id"), *LAYER_KEY)
    return (
        calls.join(layers.filter(pl.col("layer_index").is_not_null()), on="layer_id", how="inner")
        .group_by(LAYER_KEY, maintain_order=True)
        .agg(pl.col("input_bytes", "output_bytes", "flop").mean())
    )


def _outermost(trace: Trace) -> pl.DataFrame:
    """Forward operators of layers that ran inside no other one: layer_id, name, shapes, and the next one's shapes.

    The next one is the next that takes a tensor: batch normalisation counts its batches before it starts.
    """
    spans = trace.scan("spans")
    operators = spans.filter(pl.col("level") == str(Level.OPERATOR))
    inner = operators.select("span_id").with_columns(pl.lit(value=True).alias("inside"))
    inputs = trace.scan("operators").select("span_id", "input_shapes", "input_dtypes", "concrete_inputs")
    return (
        operators.join(inner, left_on="parent_id", right_on="span_id", how="left")
        .filter(pl.col("inside").is_null())
        .join(inputs, on="span_id", how="left")
        .sort("start_ns", "span_id")
        .with_columns(following_shapes())
        .filter(pl.col("layer_id").is_not_null(), pl.col("phase").is_null() | (pl.col("phase") == str(Phase.FORWARD)))
        .select("layer_id", pl.col("name").cast(pl.String), *CALL[1:])
        .collect()
    )
