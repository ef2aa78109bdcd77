"""Replays of device graphs: which launches are of the same graph, and what of their work has a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.formulas import total_of
from xsp_analyze.frames.activities import column_at
from xsp_analyze.frames.attributions import attribution_bases
from xsp_model import Attribution, Kind
from xsp_model.arrays import lookup, nullable_index
from xsp_model.tree import innermost, outermost

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace

__all__ = ["GRAPH_LABELS", "REPLAY_MEASURES", "graph_replays", "replayed_share", "replayed_work"]

GRAPH_LABELS = ("captured_in", "attribution_basis", "launched_in")
"""What describes a graph: where it was captured, how its layers are known, and where it was first launched."""

REPLAY_MEASURES = ("replay_count", "kernel_count", "device_sum_ns", "attributed_ns", "launch_ns")

_GRAPH_LAUNCH = r"(?i)^(cuda|cu|hip)GraphLaunch"


def graph_replays(frames: TraceView) -> pl.DataFrame:
    """One row a run, step and graph, numbered in order of first replay: GRAPH_LABELS, REPLAY_MEASURES, layer_count.

    Replays are of one graph where they were captured by the same launches; of which that is not known, where the same
    kernels ran in the same order.
    """
    work = replayed_work(frames)
    if work.is_empty():
        return pl.DataFrame(schema=_SCHEMA)
    replays = _by_replay(work)
    order = replays.select(pl.col("key").rank("dense").alias("number")).with_row_index("row")
    first = order.group_by("number", maintain_order=True).agg(pl.col("row").min())
    graph = order.join(first.with_row_index("graph").select("number", "graph"), on="number", maintain_order="left")
    described = replays.with_columns(
        graph["graph"].cast(pl.Int64),
        _capture_places(frames.trace, replays["origin_id"]),
        _layers_around(frames.trace, replays["parent_id"]),
    )
    return (
        described.group_by("run_id", "step", "graph", maintain_order=True)
        .agg(
            pl.col("captured_in", "attribution_basis", "launched_in").first(),
            pl.len().cast(pl.Int64).alias("replay_count"),
            pl.col("kernel_count", "device_sum_ns", "attributed_ns", "launch_ns").sum(),
            pl.col("layers").list.explode().drop_nulls().n_unique().cast(pl.Int64).alias("layer_count"),
        )
        .select(*_SCHEMA)
    )


_SCHEMA = {
    "run_id": pl.Int64,
    "step": pl.Int64,
    "graph": pl.Int64,
    **dict.fromkeys(GRAPH_LABELS, pl.String),
    **dict.fromkeys(REPLAY_MEASURES, pl.Int64),
    "layer_count": pl.Int64,
}


def replayed_work(frames: TraceView) -> pl.DataFrame:
    """The device work that graph launches issued, in order of start."""
    work = frames.all_activities
    names = frames.span_names.cast(pl.String)
    launches = names.filter(names.str.contains(_GRAPH_LAUNCH))
    work = work.with_columns(attribution_bases(frames.trace, work["span_id"]).cast(pl.String))
    parents = column_at(frames.trace, "name", work["parent_id"]).cast(pl.String)
    is_graph = (work["kind"].cast(pl.String) == str(Kind.GRAPH)).fill_null(value=False)
    return work.filter(parents.is_in(launches.implode()).fill_null(value=False) | is_graph)


def replayed_share(view: TraceView) -> float:
    """The part of device time that replays of graphs launched, or that is known to be of one without its launch."""
    rows = view.all_activities
    calls = column_at(view.trace, "name", rows["parent_id"]).cast(pl.String)
    is_replayed = (
        (rows["kind"].cast(pl.String) == str(Kind.GRAPH))
        | (rows["attribution"].cast(pl.String) == str(Attribution.GRAPH_REPLAY))
        | calls.str.contains(_GRAPH_LAUNCH).fill_null(value=False)
    )
    total = total_of(rows["duration_ns"])
    return total_of(rows.filter(is_replayed)["duration_ns"]) / total if total else 0.0


def _by_replay(work: pl.DataFrame) -> pl.DataFrame:
    """One row a launch, in order: `key` is the same for replays of one graph, `origin_id` where it was captured."""
    captured = pl.col("origin_id") != pl.col("span_id")
    is_layer = pl.col("attribution").cast(pl.String) == str(Attribution.LAYER)
    token = pl.when(captured).then(pl.col("origin_id")).otherwise(-1 - pl.col("name").to_physical().cast(pl.Int64))
    replay = pl.coalesce("parent_id", "span_id").alias("replay")
    return (
        work.with_columns(token.alias("token"))
        .group_by("run_id", "step", replay, maintain_order=True)
        .agg(
            pl.col("parent_id").first(),
            (pl.col("token").hash() * (2 * pl.int_range(pl.len()) + 1).cast(pl.UInt64)).sum().alias("key"),
            pl.col("origin_id").filter(captured).min(),
            pl.col("attribution_basis").drop_nulls().first(),
            pl.len().cast(pl.Int64).alias("kernel_count"),
            pl.col("duration_ns").sum().alias("device_sum_ns"),
            pl.col("duration_ns").filter(is_layer).sum().alias("attributed_ns"),
            (pl.col("call_end_ns") - pl.col("call_start_ns")).first().fill_null(0).alias("launch_ns"),
            pl.col("layer_name").cast(pl.String).filter(is_layer).unique().alias("layers"),
        )
    )


def _capture_places(trace: Trace, origins: pl.Series) -> pl.Series:
    """For each captured launch the outermost range around it (a serving engine names captures), else its run's file."""
    spans = trace.scan("spans").select("parent_id", (pl.col("kind") == str(Kind.RANGE)).alias("is_range")).collect()
    around = outermost(spans["parent_id"].fill_null(-1).to_numpy(), spans["is_range"].to_numpy())
    held = pl.Series(around).gather(origins)
    ranges = column_at(trace, "name", held.set(held < 0, None)).cast(pl.String)
    files = trace.frame("runs").select("run_id", "source_path")
    runs = column_at(trace, "run_id", origins).to_frame("run_id")
    paths = runs.join(files, on="run_id", how="left", maintain_order="left")["source_path"]
    return pl.select(pl.coalesce(ranges, paths).alias("captured_in")).to_series()


def _layers_around(trace: Trace, launches: pl.Series) -> pl.Series:
    """For each launch the innermost layer around it."""
    layers = trace.scan("layers").select("span_id", "layer_name", "source").collect()
    parents = trace.scan("spans").select("parent_id").collect()["parent_id"].fill_null(-1).to_numpy()
    is_layer = np.zeros(len(parents), dtype=np.bool_)
    is_layer[layers["span_id"].to_numpy()] = True
    held = pl.Series(innermost(parents, is_layer)).gather(launches).fill_null(-1)
    rows = nullable_index(lookup(layers["span_id"].to_numpy(), held.to_numpy()))
    return layers["layer_name"].cast(pl.String).gather(rows).alias("launched_in")
