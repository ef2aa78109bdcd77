"""The networkx view: nodes are spans, edges say how they hang together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tests.helpers.model_sample import sample_trace
from xsp_model import Trace, TraceBuilder

if TYPE_CHECKING:
    import networkx as nx


def _edges(graph: nx.DiGraph[int]) -> set[tuple[int, int, str]]:
    return {(a, b, str(facts["edge"])) for a, b, facts in graph.edges(data=True)}


def test_edges_are_child_launch_and_backward_of() -> None:
    graph = sample_trace().to_networkx()
    assert _edges(graph) == {
        (0, 1, "child"),
        (1, 2, "child"),
        (2, 3, "child"),
        (3, 4, "launch"),
        (0, 5, "child"),
        (5, 2, "backward_of"),
    }


def test_nodes_carry_what_is_known_of_the_span() -> None:
    node = sample_trace().to_networkx().nodes[4]
    assert node["name"] == "gemm"
    assert (node["start_ns"], node["duration_ns"], node["stream_id"]) == (100, 300, 7)
    assert "thread_id" not in node


def test_a_part_has_only_its_own_edges() -> None:
    graph = sample_trace().to_networkx([2, 3, 5])
    assert set(graph.nodes) == {2, 3, 5}
    assert _edges(graph) == {(2, 3, "child"), (5, 2, "backward_of")}


def test_a_wait_hangs_on_the_last_work_of_its_stream() -> None:
    graph = _waiting().to_networkx()
    assert _edges(graph) == {(1, 3, "sync")}


def _waiting() -> Trace:
    """Two kernels on stream 7, one on stream 9, and a wait for stream 7 that ends with the second kernel."""
    builder = TraceBuilder()
    builder.add("runs", pl.DataFrame({"run_id": [0], "clock_origin_ns": [0]}))
    kernel = {"level": "kernel", "kind": "kernel", "attribution": "orphan_no_launch"}
    rows = [
        {"span_id": 0, "start_ns": 0, "duration_ns": 10, "stream_id": 7, "name": "first", **kernel},
        {"span_id": 1, "start_ns": 20, "duration_ns": 30, "stream_id": 7, "name": "second", **kernel},
        {"span_id": 2, "start_ns": 22, "duration_ns": 29, "stream_id": 9, "name": "elsewhere", **kernel},
        {"span_id": 3, "start_ns": 25, "duration_ns": 27, "stream_id": 7, "name": "wait", "level": "runtime"}
        | {"kind": "sync"},
    ]
    spans = pl.DataFrame(rows).with_columns(run_id=pl.lit(0), process_id=pl.lit(1), device_id=pl.lit(0))
    builder.add("spans", spans)
    return builder.build()
