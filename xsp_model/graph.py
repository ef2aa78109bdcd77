"""The span tree as a networkx graph, for algorithms of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import polars as pl

from xsp_model.extras import require
from xsp_model.vocabulary import Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import networkx as nx

__all__ = ["to_digraph"]

_ATTRIBUTES = (
    "level",
    "kind",
    "name",
    "start_ns",
    "duration_ns",
    "process_id",
    "thread_id",
    "device_id",
    "stream_id",
    "step",
    "phase",
)


class _Tables(Protocol):
    """What is taken of a trace."""

    def scan(self, name: str) -> pl.LazyFrame: ...


def to_digraph(trace: _Tables, span_ids: Sequence[int] | None = None) -> nx.DiGraph[int]:
    """A graph whose nodes are span ids with the span's columns as attributes.

    Edges carry `edge`: `child` (ran inside), `launch` (runtime call to device work), `backward_of`
    (backward operator to its forward twin) and `sync` (device work to the wait it was waited for by).
    An edge is there when both its ends are. About 700 bytes and 4 us a node: choose a part of a large trace.
    XspError where networkx is not installed.
    """
    networkx = require("networkx", purpose="a graph of spans", extra="networkx")
    spans = trace.scan("spans").select("span_id", "parent_id", "correlation_id", *_ATTRIBUTES)
    if span_ids is not None:
        spans = spans.filter(pl.col("span_id").is_in(list(span_ids)))
    chosen = spans.with_columns(pl.col(pl.Categorical).cast(pl.String)).collect()
    graph: nx.DiGraph[int] = networkx.DiGraph()
    graph.add_nodes_from(
        (row.pop("span_id"), _without_nulls(row)) for row in chosen.drop("parent_id").iter_rows(named=True)
    )
    _add_edges(graph, _tree_edges(chosen))
    twins = trace.scan("operators").select("span_id", "forward_id").drop_nulls().collect()
    _add_edges(graph, ((a, b, "backward_of") for a, b in twins.iter_rows()))
    _add_edges(graph, _sync_edges(chosen))
    return graph


def _without_nulls(row: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in row.items() if value is not None}


def _add_edges(graph: nx.DiGraph[int], edges: Iterable[tuple[int, int, str]]) -> None:
    graph.add_edges_from((a, b, {"edge": kind}) for a, b, kind in edges if a in graph and b in graph)


def _tree_edges(spans: pl.DataFrame) -> Iterable[tuple[int, int, str]]:
    launched = pl.when(pl.col("level") == Level.KERNEL).then(pl.lit("launch")).otherwise(pl.lit("child"))
    return spans.filter(pl.col("parent_id").is_not_null()).select("parent_id", "span_id", launched).iter_rows()


def _sync_edges(spans: pl.DataFrame) -> Iterable[tuple[int, int, str]]:
    """The last device work on a stream that ended before a wait on that stream did."""
    waits = spans.filter(
        pl.col("kind") == "sync", pl.col("stream_id").is_not_null(), pl.col("duration_ns").is_not_null()
    )
    work = spans.filter(pl.col("level") == Level.KERNEL, pl.col("duration_ns").is_not_null())
    if waits.is_empty() or work.is_empty():
        return ()
    key = ["process_id", "device_id", "stream_id"]
    end = (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    pairs = (
        waits.select("span_id", *key, end)
        .sort("end_ns")
        .join_asof(
            work.select(pl.col("span_id").alias("work_id"), *key, end).sort("end_ns"),
            on="end_ns",
            by=key,
            check_sortedness=False,
        )
    )
    return pairs.filter(pl.col("work_id").is_not_null()).select("work_id", "span_id", pl.lit("sync")).iter_rows()
