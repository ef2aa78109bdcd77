"""GraphML export: networkx reads the same graph back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import networkx as nx
import pytest

from tests.helpers.exported import small, written
from tests.helpers.fixture_cases import SOUND, FixtureCase, every, trace_of
from xsp_analyze.export import part_of
from xsp_model import XspError
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace


def _back(trace: Trace, folder: Path) -> nx.DiGraph[int]:
    graph: Any = nx.read_graphml(written(trace, "graphml", folder), node_type=int)
    assert isinstance(graph, nx.DiGraph)
    return graph


def _names(graph: nx.DiGraph[int]) -> dict[int, str]:
    return {node: str(graph.nodes[node]["name"]) for node in graph}


def _edges(graph: nx.DiGraph[int]) -> set[tuple[int, int, str]]:
    return {(a, b, str(graph.edges[a, b]["edge"])) for a, b in graph.edges}


@every(case for case in SOUND if case.name != "torch_profiler/odd_names")
def test_networkx_reads_the_same_graph_back(case: FixtureCase, tmp_path: Path) -> None:
    before, after = trace_of(case).to_networkx(), _back(trace_of(case), tmp_path)
    assert {node: after.nodes[node] for node in after} == {node: before.nodes[node] for node in before}
    assert _edges(after) == _edges(before)


def test_characters_that_xml_cannot_hold_are_replaced(tmp_path: Path) -> None:
    (case,) = (c for c in SOUND if c.name == "torch_profiler/odd_names")
    before, after = trace_of(case).to_networkx(), _back(trace_of(case), tmp_path)
    assert set(after.nodes) == set(before.nodes)
    assert any("<script>" in name for name in _names(after).values())


def test_numbers_stay_numbers(tmp_path: Path) -> None:
    graph = _back(small(tmp_path), tmp_path)
    (gemm,) = (graph.nodes[node] for node, name in _names(graph).items() if name == "gemm<float>")
    assert (gemm["duration_ns"], gemm["step"], gemm["level"]) == (70_007, 1, "kernel")


def test_a_part_keeps_its_tree(tmp_path: Path) -> None:
    graph = _back(part_of(small(tmp_path), step=1, levels=["model", "layer", "kernel"]), tmp_path)
    names = _names(graph)
    edges = {(names[a], names[b], kind) for a, b, kind in _edges(graph)}
    assert edges == {
        ("ProfilerStep#1", "Net_0", "child"),
        ("Net_0", "Linear_0", "child"),
        ("Linear_0", "gemm<float>", "launch"),
        ("ProfilerStep#1", "gemm_backward", "launch"),
    }


def test_too_many_nodes_are_refused_with_advice(tmp_path: Path) -> None:
    trace = small(tmp_path)
    refused = pytest.raises(XspError, match=r"too many for GraphML, which takes up to 5\. Choose a step with --steps")
    with override_limits(graphml_max_spans=5), refused:
        written(trace, "graphml", tmp_path)
