"""What a call of each layer must do at least, modelled from the shapes that its operators took."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.layers.layer_time import LAYER_KEY
from xsp_analyze.frames.operators.operator_calls import call_kinds
from xsp_analyze.work_models.call import Tensor, call_of
from xsp_model import Level, Phase

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace

__all__ = ["layer_work"]

_READING_ALL = (None, "matrix product", "convolution", "normalisation", "softmax", "elementwise")
_ENOUGH = 32  # times: an operation of the model, an exponential say, is several of the device


def layer_work(frames: TraceView) -> pl.DataFrame:
    """One row a layer whose operators recorded shapes: the columns of LAYER_KEY and a forward call's least work.

    `input_bytes` and `output_bytes`: of the operator in it with most, as what passes between operators may stay in
    caches; `flop`: products, where all its operators are modelled and the rest hardly counts. Each is a mean over
    its calls in all runs; null: not modelled.
    """
    kinds = frames.once(call_kinds)
    kind_of = pl.DataFrame({"span_id": kinds.ids, "kind": kinds.kind_of})
    works = kinds.kinds.select("flop", "vector_flop", _read_bytes(kinds.kinds), "written_bytes").with_row_index("kind")
    counts = pl.col("flop") >= _ENOUGH * pl.col("vector_flop")
    calls = (
        _outermost(frames.trace)
        .join(kind_of, on="span_id", how="left", maintain_order="left")
        .join(works.with_columns(pl.col("kind").cast(pl.Int64)), on="kind", how="left", maintain_order="left")
        .group_by("layer_id", maintain_order=True)
        .agg(
            pl.col("read_bytes").max().alias("input_bytes"),
            pl.col("written_bytes").max().alias("output_bytes"),
            pl.when(pl.col("flop").is_not_null().all()).then(pl.col("flop").sum()).alias("flop"),
            pl.col("vector_flop").sum(),
        )
        .with_columns(pl.when(counts, pl.col("flop") > 0).then("flop").alias("flop"))
    )
    layers = frames.trace.frame("layers").select(pl.col("span_id").alias("layer_id"), *LAYER_KEY)
    return (
        calls.join(layers.filter(pl.col("layer_index").is_not_null()), on="layer_id", how="inner")
        .group_by(LAYER_KEY, maintain_order=True)
        .agg(pl.col("input_bytes", "output_bytes", "flop").mean())
    )


def _read_bytes(kinds: pl.DataFrame) -> pl.Series:
    """What a call of each kind reads: as modelled; else all its tensors, but where models say that parts may do."""
    rows = zip(kinds["read_bytes"], kinds["operator_class"], kinds["input_shapes"], kinds["input_dtypes"], strict=True)
    return pl.Series(
        "read_bytes",
        [
            _tensor_bytes(shapes, dtypes) if modelled is None and kind in _READING_ALL else modelled
            for modelled, kind, shapes, dtypes in rows
        ],
        dtype=pl.Float64,
    )


def _tensor_bytes(shapes: str | None, dtypes: str | None) -> float | None:
    call = call_of("", shapes, dtypes)
    tensors = [each for each in (call.inputs if call else ()) if isinstance(each, Tensor)]
    return float(sum(each.bytes for each in tensors)) if tensors else None


def _outermost(trace: Trace) -> pl.DataFrame:
    """span_id and layer_id of forward operators of layers that ran inside no other one."""
    operators = trace.scan("spans").filter(pl.col("level") == str(Level.OPERATOR))
    inner = operators.select("span_id").with_columns(pl.lit(value=True).alias("inside"))
    return (
        operators.join(inner, left_on="parent_id", right_on="span_id", how="left")
        .filter(
            pl.col("inside").is_null(),
            pl.col("layer_id").is_not_null(),
            pl.col("phase").is_null() | (pl.col("phase") == str(Phase.FORWARD)),
        )
        .sort("start_ns", "span_id")
        .select("span_id", "layer_id")
        .collect()
    )
