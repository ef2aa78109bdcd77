"""Work that belongs to layers otherwise than by its launch: shared among several, or captured elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_model import Level
from xsp_model.arrays import lookup, nullable_index

if TYPE_CHECKING:
    from xsp_model import Trace
    from xsp_model.arrays import Ints

__all__ = ["attributed_host", "attribution_bases", "origins", "share_among_layers"]

_LAYER = ("layer_index", "layer_name", "layer_type")
_ALONE = 1.0


def origins(trace: Trace, spans: pl.Series) -> Ints:
    """For each device activity the span above which its operator stands: its own, or where its node was captured."""
    captured = (
        trace.scan("kernels")
        .filter(pl.col("captured_in_id").is_not_null())
        .select("span_id", "captured_in_id")
        .collect()
    )
    own = spans.to_numpy()
    if captured.is_empty():
        return own
    at = lookup(captured["span_id"].to_numpy(), own)
    return np.where(at >= 0, captured["captured_in_id"].to_numpy()[at], own)


def attribution_bases(trace: Trace, spans: pl.Series) -> pl.Series:
    """For each span how its layer is known, an `AttributionBasis`; null where it simply is that of its launch."""
    bases = trace.scan("attributions").select("span_id", "basis").unique("span_id", keep="first").collect()
    at = lookup(bases["span_id"].to_numpy(), spans.to_numpy())
    return bases["basis"].gather(nullable_index(at)).alias("attribution_basis")


def share_among_layers(
    trace: Trace, rows: pl.DataFrame, *, time: str, count: str, by_weight: tuple[str, ...] = ()
) -> pl.DataFrame:
    """The rows (of spans, `span_id`) with a row a layer in place of each that several layers share.

    Whole ns are shared without a remainder: the parts of a row add up to it. It is counted with the layer that has
    most of it. `by_weight`: other amounts. A column `layer_id` becomes that of the part.
    """
    shares = trace.scan("attributions").filter(pl.col("weight") < _ALONE).collect()
    if shares.is_empty():
        return rows
    layers = trace.scan("layers").select(pl.col("span_id").alias("layer_id"), *_LAYER)
    described = shares.lazy().join(layers, on="layer_id", how="left", maintain_order="left").collect()
    ordered = described.sort("span_id", -pl.col("weight"), "layer_id").with_columns(
        pl.col("weight").cum_sum().over("span_id").alias("end"),
        pl.int_range(pl.len()).over("span_id").alias("part"),
        pl.len().over("span_id").alias("parts"),
    )
    is_shared = rows["span_id"].is_in(ordered["span_id"].unique().implode())
    own = [name for name in ("layer_id", *_LAYER) if name in rows.columns]
    shared = rows.filter(is_shared).drop(own).with_row_index("number")
    joined = shared.join(ordered, on="span_id", how="inner", maintain_order="left_right")
    split = joined.with_columns(
        _part(time, rows.schema[time]),
        pl.when(pl.col("part") == 0).then(pl.col(count)).otherwise(pl.col(count) * 0).alias(count),
        *(pl.col(name) * pl.col("weight") for name in by_weight),
    )
    parts = split.select(pl.col(name).cast(kind) for name, kind in rows.schema.items())
    return pl.concat([rows.filter(~is_shared), parts])


def _part(time: str, kind: pl.DataType) -> pl.Expr:
    """The part's time: up to the whole share so far, less what was given before."""
    last = pl.col("part") == pl.col("parts") - 1
    until = pl.when(last).then(pl.col(time).cast(pl.Float64)).otherwise(pl.col(time) * pl.col("end"))
    until = until.floor() if kind.is_integer() else until
    return (until - until.shift(1, fill_value=0.0).over("number")).alias(time)


def attributed_host(trace: Trace) -> pl.DataFrame:
    """Host operators that layers are known of beside their calls: span_id, run_id, step, duration_ns, layer_id."""
    operators = trace.scan("spans").filter(pl.col("level") == str(Level.OPERATOR))
    first = trace.scan("attributions").select("span_id", "layer_id").unique("span_id", keep="first")
    columns = ("span_id", "run_id", "step", pl.col("duration_ns").fill_null(0))
    return first.join(operators.select(columns), on="span_id", how="inner").sort("span_id").collect()
