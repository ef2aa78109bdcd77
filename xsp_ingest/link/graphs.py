"""Rule 5: device work that a graph launch replayed, and where its nodes were captured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.distinct_texts import matches
from xsp_ingest.link.recorded_links import resolve_rows
from xsp_model import Kind, Level
from xsp_model.arrays import no_refs

if TYPE_CHECKING:
    from xsp_ingest.link.span_kinds import SpanKinds
    from xsp_model.arrays import Bools, Positions

__all__ = ["GRAPH_LAUNCH", "captures", "replayed_work"]

GRAPH_LAUNCH = r"(?i)^(cuda|cu|hip)GraphLaunch"


def captures(
    spans: pl.DataFrame,
    kinds: SpanKinds,
    kernels: pl.DataFrame,
    parent: Positions,
    moments: pl.DataFrame,
    owner: Positions,
) -> tuple[Positions, Bools]:
    """For each span the span its graph node was captured in (-1: unknown or no replay), and whether it was replayed.

    What the file says of a kernel goes first.
    A replayed node is looked up by its own id, else by that of the node it was instantiated from.
    """
    captured_in = no_refs(spans.height)
    nodes = kernels.filter(pl.col("graph_node_id").is_not_null()).select("at", "graph_node_id")
    made = _capture_owners(moments, owner)
    if made.height:
        captured = nodes.join(made, on="graph_node_id", how="inner", maintain_order="left")
        captured_in[captured["at"].to_numpy()] = captured["owner"].to_numpy()
    recorded = resolve_rows(spans, kernels, "captured_in_row")
    captured_in[recorded["at"].to_numpy()] = recorded["position"].to_numpy()
    return captured_in, replayed_work(spans, kinds, kernels, parent)


def replayed_work(spans: pl.DataFrame, kinds: SpanKinds, kernels: pl.DataFrame, parent: Positions) -> Bools:
    """Which spans are device work that a graph launch issued: by launch, by kind, or by the graph node they carry."""
    launches = np.append(matches(spans["name"], GRAPH_LAUNCH), [False])  # parent -1 reads the last
    replayed: Bools = (launches[parent] & kinds.is_level(Level.KERNEL)) | kinds.is_kind(Kind.GRAPH)
    replayed[kernels.filter(pl.col("graph_node_id").is_not_null())["at"].to_numpy()] = True
    return replayed


def _capture_owners(moments: pl.DataFrame, owner: Positions) -> pl.DataFrame:
    """graph_node_id and owner: the span a node, or the node it was cloned from, was created in."""
    created = moments.with_columns(pl.Series("owner", owner)).filter(pl.col("graph_node_id").is_not_null())
    first = created.sort("start_ns").unique("graph_node_id", keep="first", maintain_order=True)
    origin = first.select(pl.col("graph_node_id").alias("original_graph_node_id"), pl.col("owner").alias("at_capture"))
    return (
        first.join(origin, on="original_graph_node_id", how="left", maintain_order="left")
        .select("graph_node_id", pl.coalesce("at_capture", "owner").alias("owner"))
        .filter(pl.col("owner") >= 0)
    )
