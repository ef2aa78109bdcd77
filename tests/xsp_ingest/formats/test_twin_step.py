"""The same training step as torch.profiler and as Nsight Systems recorded it, in one process: the same tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_model import Trace

_US = 1_000


@pytest.fixture(scope="module")
def torch(fixtures_dir: Path) -> Trace:
    return convert([fixtures_dir / "torch_profiler" / "twin_step_cpu" / "trace.json.gz"], Options())


@pytest.fixture(scope="module")
def nsight(fixtures_dir: Path) -> Trace:
    return convert([fixtures_dir / "nsys_sqlite" / "twin_step_cpu" / "nvtx.sqlite"], Options())


def _spans(trace: Trace) -> pl.DataFrame:
    return trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))


def _tree(trace: Trace, levels: Sequence[str]) -> list[tuple[int, str, str]]:
    """Depth, level and name of the spans of these levels in order of their starts; others are not counted as depth."""
    kept = _spans(trace)
    depth: dict[int, int] = {}
    rows = []
    for span, parent, level, name in kept.select("span_id", "parent_id", "level", "name").iter_rows():
        above = -1 if parent is None else depth[parent]
        depth[span] = above + (level in levels)
        if level in levels:
            rows.append((depth[span], level, name))
    return rows


def test_the_operator_tree_is_the_same(torch: Trace, nsight: Trace) -> None:
    ours, theirs = (_tree(trace, ("operator",)) for trace in (torch, nsight))
    assert len(ours) == 584
    assert max(depth for depth, _, _ in ours) == 6
    assert theirs == ours


def test_so_is_the_whole_tree_with_step_layers_and_the_optimizers_calls(torch: Trace, nsight: Trace) -> None:
    levels = ("application", "model", "layer", "operator")
    ours, theirs = (_tree(trace, levels) for trace in (torch, nsight))
    assert [entry for entry in ours if entry[1] in ("application", "model")] == [
        (0, "model", "ProfilerStep#0"),
        (1, "application", "Optimizer.zero_grad#SGD.zero_grad"),
        (1, "application", "Optimizer.step#SGD.step"),
    ]
    assert theirs == ours


def test_operators_have_the_same_shapes_and_sequence_numbers(torch: Trace, nsight: Trace) -> None:
    def facts(trace: Trace) -> pl.DataFrame:
        joined = trace.frame("operators").join(_spans(trace).select("span_id", "name"), on="span_id").sort("span_id")
        number = pl.col("sequence_number") - pl.col("sequence_number").min()  # torch counts through the whole process
        return joined.select("name", "input_shapes", number.alias("number"))

    ours, theirs = facts(torch), facts(nsight)
    assert ours.select("name", "input_shapes").equals(theirs.select("name", "input_shapes"))
    assert ours.height - ours["input_shapes"].null_count() > 500
    # torch's NVTX profiler writes no number on the engine's own range around a node.
    unnumbered = pl.col("name").str.starts_with("autograd::engine")
    assert ours.filter(~unnumbered)["number"].equals(theirs.filter(~unnumbered)["number"])
    assert ours.filter(~unnumbered)["number"].max() == 31


def test_layers_are_the_same_and_backward_work_is_theirs(torch: Trace, nsight: Trace) -> None:
    def layers(trace: Trace) -> pl.DataFrame:
        spans = _spans(trace)
        calls = spans.filter(pl.col("level") == "layer")
        return calls.select("name", "phase", "step")

    # Most of the time is the backward pass, outside all modules, but theirs by its forward twins.
    assert nsight.frame("runs")["layer_source"].to_list() == ["range"]
    assert layers(torch).height == 32
    assert layers(torch).equals(layers(nsight))


def _backward(trace: Trace) -> pl.DataFrame:
    """Operators of the backward pass with the name of the layer whose forward pass they undo."""
    spans = _spans(trace)
    operators = spans.filter(pl.col("level") == "operator", pl.col("phase") == "backward")
    twins = trace.frame("operators").select("span_id", "forward_id")
    return operators.join(twins, on="span_id").sort("span_id").select("name", pl.col("forward_id").is_not_null())


def test_backward_operators_find_their_forward_twins_in_both(torch: Trace, nsight: Trace) -> None:
    ours, theirs = _backward(torch), _backward(nsight)
    assert ours.height > 200
    assert theirs.equals(ours)


def test_times_of_both_are_of_the_same_step(torch: Trace, nsight: Trace) -> None:
    """Two runs of one step on a busy machine: not the same times, but of one order, and children fit into parents."""
    totals: list[float] = []
    for trace in (torch, nsight):
        spans = _spans(trace)
        inner = spans.drop_nulls("parent_id").join(spans, left_on="parent_id", right_on="span_id", suffix="_outer")
        end, end_outer = (pl.col(f"start_ns{of}") + pl.col(f"duration_ns{of}") for of in ("", "_outer"))
        assert inner.filter(end - end_outer > _US).is_empty()
        assert spans.filter(pl.col("level") == "operator", pl.col("duration_ns") <= 0).is_empty()
        totals.append(_sum_ns(spans, pl.col("name") == "aten::convolution"))
        step = _sum_ns(spans, pl.col("level") == "model")
        assert 0.5 * step < _sum_ns(spans, pl.col("parent_id") == 0) <= step
    assert 1 / 3 < totals[0] / totals[1] < 3


def _sum_ns(spans: pl.DataFrame, which: pl.Expr) -> float:
    return float(spans.filter(which)["duration_ns"].sum())
