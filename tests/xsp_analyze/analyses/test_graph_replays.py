"""B18 lists replayed graphs, where they were captured and launched, and what of their work has a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tests.helpers.graph_pairs import Piece, add_replay, captured, paired
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS = (
    *("graph", "captured_in", "attribution_basis", "launched_in"),
    *("replay_count", "kernel_count", "device_sum_ns", "attributed_ns", "attributed_share", "layer_count"),
)


def test_one_row_a_graph_longest_first(tmp_path: Path) -> None:
    """Kernel i of a replay takes i + 1 us: twice 1 + 2, once 1 + 2 + 3 + 4, which no capture is of."""
    pieces = [Piece("gemm", "Linear_0"), Piece("relu", "ReLU_0")]
    replay = KinetoTrace()
    now = add_replay(replay, ["gemm", "relu"], 900_000_000, launched_in="Runner_0")
    now = add_replay(replay, ["a", "b", "c", "d"], now)
    add_replay(replay, ["gemm", "relu"], now, launched_in="Runner_0")
    trace = paired(replay, [captured([pieces], annotations=["capture_8_FULL"])], tmp_path)
    rows = run(find("B18"), StepView.of(trace)).table
    assert rows.select(_COLUMNS).rows() == [
        (1, None, None, None, 1, 4, 10_000, 0, 0.0, 0),
        (0, "capture_8_FULL", "graph_capture", "Runner_0", 2, 4, 6_000, 6_000, 1.0, 2),
    ]


def test_graphs_of_the_same_kernels_and_other_layers_are_two(tmp_path: Path) -> None:
    graphs = [[Piece("k", f"Block_{n}")] for n in range(2)] + [[Piece("head", "Embed_0")]]
    replay = KinetoTrace()
    now = 900_000_000
    for kernel in ("k", "k", "head", "k"):
        now = add_replay(replay, [kernel], now)
    trace = paired(replay, [captured(graphs)], tmp_path)
    rows = run(find("B18"), StepView.of(trace)).table.sort("graph")
    assert rows.select("graph", "replay_count", "captured_in").rows() == [
        (0, 2, "capture0.json"),
        (1, 1, "capture0.json"),
        (2, 1, "capture0.json"),
    ]
    assert rows["layer_count"].to_list() == [1, 1, 1]
    assert rows.select(pl.col("device_sum_ns").sum()).item() == 4_000
