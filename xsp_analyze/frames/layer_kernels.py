"""Layers beside the device work that belongs to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.counters import counter_sums
from xsp_analyze.frames.filled_counters import basis_of, filled_layer_executions
from xsp_analyze.frames.kernel_means import layer_executions
from xsp_analyze.frames.layer_time import LAYER_KEY, layer_latencies
from xsp_model import Attribution

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["GRAPH_REPLAY", "layer_kernels"]

GRAPH_REPLAY = "graph replay"
"""Name and type of the row that holds replayed device work which no layer can be given for."""


def layer_kernels(frames: StepView, *, filled: bool = False) -> pl.LazyFrame:
    """One row a layer, in order: latency, kernel_count, kernel_duration_ns (0: none), non_kernel_ns, counters.

    non_kernel_ns is layer_latency_ns less kernel_duration_ns as it is, negative where kernels outlast the layer. Where
    graphs were replayed a last row, without index and latency, holds the work that cannot be tied to a layer. `filled`:
    where nothing was measured counters are as modelled, and `work_basis` says so; see `filled_counters`.
    """
    keys = [*frames.by, *LAYER_KEY]
    work = frames.once(filled_layer_executions) if filled else frames.once(layer_executions)
    sums = (*counter_sums(work), pl.col("count").sum().alias("kernel_count"), pl.col("duration_ns").sum())
    sums = (*sums, basis_of()) if filled else sums
    belongs = pl.col("attribution") == str(Attribution.LAYER)
    in_layers = work.filter(belongs).group_by(keys, maintain_order=True).agg(sums)
    replays = (
        work.filter(pl.col("attribution") == str(Attribution.GRAPH_REPLAY))
        .with_columns(pl.lit(None, pl.Int64).alias("layer_index"))
        .group_by(*frames.by, "layer_index", maintain_order=True)
        .agg(pl.lit(GRAPH_REPLAY).alias("layer_name"), pl.lit(GRAPH_REPLAY).alias("layer_type"), *sums)
    )
    latency = frames.once(layer_latencies).lazy().select(*keys, pl.col("latency_ns").alias("layer_latency_ns"))
    layers = latency.join(in_layers.lazy(), on=keys, how="full", coalesce=True, nulls_equal=True)
    return (
        pl.concat([_as_text(layers), _as_text(replays.lazy())], how="diagonal_relaxed")
        .with_columns(pl.col("duration_ns", "kernel_count").fill_null(0))
        .rename({"duration_ns": "kernel_duration_ns"})
        .with_columns((pl.col("layer_latency_ns") - pl.col("kernel_duration_ns")).alias("non_kernel_ns"))
        .sort(keys, nulls_last=True)
    )


def _as_text(frame: pl.LazyFrame) -> pl.LazyFrame:
    return frame.with_columns(pl.col("layer_name", "layer_type").cast(pl.String))
