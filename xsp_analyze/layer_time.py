"""Latency and memory of layers, per run and step, on the basis that suits how the run was taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import known_sum
from xsp_model import Attribution, Phase

if TYPE_CHECKING:
    from xsp_model import Trace

__all__ = ["LAYER_KEY", "latency_bases", "layer_calls", "layer_labels", "layer_steps"]

LAYER_KEY = ("layer_index", "layer_name", "layer_type")
"""What makes two calls calls of the same layer."""

_SERIALISED_SHARE = 0.99
_STEP = ("run_id", "step", *LAYER_KEY)


def layer_calls(trace: Trace) -> pl.DataFrame:
    """One row a call of a layer with own work: its identity, run, step, start and end, host_ns (outside children)."""
    layers = trace.scan("layers").filter(pl.col("layer_index").is_not_null()).select("span_id").collect()["span_id"]
    of_layers = pl.col("span_id").is_in(layers.implode())  # so that the many others are not read
    spans = trace.scan("spans").filter(of_layers).select("span_id", "run_id", "step", "start_ns", "duration_ns")
    return (
        trace.scan("layers")
        .filter(pl.col("layer_index").is_not_null())
        .join(spans, on="span_id", how="left", maintain_order="left")
        .with_columns(
            (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"),
            pl.coalesce("self_host_ns", pl.when(~pl.col("is_container")).then("duration_ns")).alias("host_ns"),
            pl.col("span_id").alias("layer_id"),
        )
        .collect()
    )


def layer_labels(calls: pl.DataFrame) -> pl.DataFrame:
    """One row a layer, in order: path, shapes and dtypes of its first call that has them."""
    labels = (pl.col(c).drop_nulls().first().alias(c) for c in ("path", "shapes", "dtypes"))
    return calls.sort("start_ns", "span_id").group_by(LAYER_KEY, maintain_order=True).agg(labels)


def latency_bases(trace: Trace, calls: pl.DataFrame, activities: pl.DataFrame) -> pl.DataFrame:
    """What a layer's latency is measured by in each run: run_id, basis (host or device), observed (bool).

    Host without device work, whatever the run says. Else a run that says whether it was serialised is believed; of
    one that does not, host where at least 99 % of the layers' forward activities end within their layer's call, so
    that the device was waited for.
    """
    inside = (
        activities.filter(
            pl.col("attribution") == str(Attribution.LAYER),
            pl.col("phase") == str(Phase.FORWARD),
        )
        .join(calls.select("layer_id", "end_ns"), on="layer_id", how="inner")
        .group_by("run_id")
        .agg((pl.col("start_ns") + pl.col("duration_ns") <= pl.col("end_ns")).mean().alias("share"))
    )
    busy = activities.group_by("run_id").agg(pl.len().alias("activities"))
    observed = pl.col("share").fill_null(0.0) >= _SERIALISED_SHARE
    idle = pl.col("activities").is_null()
    return (
        trace.scan("runs")
        .select("run_id", "serialised")
        .collect()
        .join(busy, on="run_id", how="left")
        .join(inside, on="run_id", how="left")
        .select(
            "run_id",
            pl.when(idle | pl.coalesce("serialised", observed))
            .then(pl.lit("host"))
            .otherwise(pl.lit("device"))
            .alias("basis"),
            pl.col("serialised").is_null().alias("observed"),
        )
        .sort("run_id")
    )


def layer_steps(calls: pl.DataFrame, activities: pl.DataFrame, bases: pl.DataFrame) -> pl.DataFrame:
    """One row a run, step and layer: latency_ns on the run's basis, call_count, allocated_bytes (null: unknown)."""
    hosted = bases.filter(pl.col("basis") == "host")["run_id"].implode()
    host = calls.group_by(_STEP).agg(
        pl.col("host_ns").sum(),
        pl.len().cast(pl.Int64).alias("call_count"),
        known_sum(pl.col("allocated_bytes")).alias("allocated_bytes"),
    )
    device = _device_latency(activities.filter(~pl.col("run_id").is_in(hosted)), calls)
    on_host = pl.col("run_id").is_in(hosted)
    return (
        host.join(device, on=_STEP, how="full", coalesce=True, nulls_equal=True)
        .select(
            *_STEP,
            pl.when(on_host).then("host_ns").otherwise("device_ns").fill_null(0).alias("latency_ns"),
            pl.col("call_count").fill_null(0),
            "allocated_bytes",
        )
        .sort(_STEP, nulls_last=True)
    )


def _device_latency(activities: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """device_ns of each run, step and layer: over calls and phases, first start to last end; containers: busy time."""
    call = ("layer_id", "phase", "run_id", "step")
    end = pl.col("start_ns") + pl.col("duration_ns")
    reach = end.cum_max().shift(1).over(call)
    spans = (
        activities.filter(pl.col("layer_id").is_not_null())
        .sort("start_ns", "span_id")
        .with_columns((end - pl.max_horizontal("start_ns", reach)).clip(0).alias("covered_ns"))
        .group_by(call)
        .agg((end.max() - pl.col("start_ns").min()).alias("span_ns"), pl.col("covered_ns").sum().alias("busy_ns"))
    )
    latency = pl.when("is_container").then("busy_ns").otherwise("span_ns").alias("device_ns")
    return (
        spans.join(calls.select("layer_id", *LAYER_KEY, "is_container"), on="layer_id", how="inner")
        .with_columns(latency)
        .group_by(_STEP)
        .agg(pl.col("device_ns").sum())
    )
