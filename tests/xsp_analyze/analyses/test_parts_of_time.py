"""B39 to B42: what layers and devices' time are made of, each in parts that add up to what another analysis has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.fixture_cases import SOUND, FixtureCase, every, trace_of
from tests.helpers.hand import Hand
from xsp_analyze.catalog import find, outcome
from xsp_analyze.core import Result, run
from xsp_analyze.frames.layers.layer_time import LAYER_KEY
from xsp_analyze.trace.step_view import StepView

if TYPE_CHECKING:
    from xsp_model import Trace

_DEVICE = ["run_id", "device_id"]


def _answered(view: StepView, *identities: str) -> list[pl.DataFrame] | None:
    """What the analyses answer; None where the trace lacks what one of them needs."""
    answers = [outcome(view, identity) for identity in identities]
    tables = [one.table for one in answers if isinstance(one, Result)]
    return tables if len(tables) == len(answers) else None


def _views(case: FixtureCase) -> list[StepView]:
    """Over the whole trace, and of a trace of steps the mean and each."""
    trace = trace_of(case)
    view = StepView.of(trace)
    return [view.of_all_steps, view, view.of_each_step] if view.is_mean else [view]


@every(SOUND)
def test_device_work_in_layers_adds_up_to_kernels_by_name_and_by_layer(case: FixtureCase) -> None:
    for view in _views(case):
        tables = _answered(view, "B39", "A10", "A11")
        if tables is None:
            continue
        parts, by_name, by_layer = tables
        for table in (by_name, parts):
            assert table["duration_ns"].sum() == pytest.approx(by_name["duration_ns"].sum())
            assert table["count"].sum() == pytest.approx(by_name["count"].sum())
        keys = [*view.by, *LAYER_KEY]
        sums = parts.filter(pl.col("layer_index").is_not_null()).group_by(keys).agg(pl.col("duration_ns").sum())
        joined = sums.join(by_layer, on=keys, how="left", nulls_equal=True)
        assert joined["duration_ns"].to_list() == pytest.approx(joined["kernel_duration_ns"].to_list())


@every(SOUND)
def test_parts_of_each_device_add_up_to_its_window(case: FixtureCase) -> None:
    for view in _views(case):
        tables = _answered(view, "B42", "B03")
        if tables is None:
            continue
        parts, windows = tables
        keys = [*view.by, *_DEVICE]
        of_part = [
            pl.col("duration_ns").filter(pl.col("part") == part).sum().alias(part)
            for part in ("compute", "communication", "memory", "idle")
        ]
        sums = parts.group_by(keys).agg(pl.col("duration_ns").sum(), pl.col("window_share").sum(), *of_part)
        joined = windows.join(sums, on=keys, how="left", nulls_equal=True).fill_null(0)
        expected = {
            "duration_ns": "window_ns",
            "compute": "compute_ns",
            "communication": "exposed_communication_ns",
            "memory": "exposed_memory_ns",
            "idle": "idle_ns",
        }
        for column, other in expected.items():
            assert joined[column].to_list() == pytest.approx(joined[other].to_list())
        assert joined.filter(pl.col("window_ns") > 0)["window_share"].to_list() == pytest.approx(
            [1.0] * joined.filter(pl.col("window_ns") > 0).height
        )


@every(SOUND)
def test_a_node_of_the_tree_is_the_sum_of_its_children(case: FixtureCase) -> None:
    tables = _answered(StepView.of(trace_of(case), "all"), "B41", "A10")
    if tables is None:
        return
    tree, by_name = tables
    tree = tree.with_columns(pl.col("duration_ns").fill_null(0))  # of sums without times
    assert tree["duration_ns"][0] == by_name["duration_ns"].sum()
    below = tree.drop_nulls("parent").group_by("parent").agg(pl.col("duration_ns", "count").sum())
    held = below.join(tree, left_on="parent", right_on="node", suffix="_node")
    assert held["duration_ns"].to_list() == held["duration_ns_node"].to_list()
    assert held["count"].to_list() == held["count_node"].to_list()
    depth = dict(tree.select("node", "depth").iter_rows())
    assert all(
        depth[parent] + 1 == deep for parent, deep in tree.drop_nulls("parent").select("parent", "depth").iter_rows()
    )


def _two_steps() -> Trace:
    """Two steps of 200 ns with one layer [10, 110).

    In it linear [20, 80) calls addmm [30, 70), which launches gemm (50 ns, in the second step 70) through cublasSgemm;
    relu [80, 90) launches nothing. Outside of it the step copies 20 ns.
    """
    hand = Hand()
    hand.run(0, layer_source="module")
    for step, product_ns in enumerate((50, 70)):
        at = step * 1_000
        held = {"parent_id": hand.step(step, at, 200), "step": step}
        layer = hand.module("net.Linear_0", at + 10, 100, 0, **held)
        within = {"step": step, "layer_id": layer}
        linear = hand.span("operator", "operator", "aten::linear", at + 20, 60, parent_id=layer, **within)
        addmm = hand.span("operator", "operator", "aten::addmm", at + 30, 40, parent_id=linear, **within)
        library = hand.span("library", "range", "cublasSgemm", at + 35, 30, parent_id=addmm, step=step)
        hand.span("operator", "operator", "aten::relu", at + 80, 10, parent_id=layer, **within)
        hand.work("gemm", at + 60, product_ns, parent_id=library, layer_id=layer, step=step, attribution="layer")
        hand.work("Memcpy DtoH", at + 150, 20, kind="memcpy", step=step, parent_id=held["parent_id"])
    return hand.build()


def test_a_layer_s_work_stands_with_what_launched_it_and_the_host_s_with_its_own_time() -> None:
    view = StepView.of(_two_steps())
    work = run(find("B39"), view).table
    rows = work.select("layer_name", "operator", "library", "kernel_name", "count", "duration_ns").rows()
    assert rows == [
        ("Linear_0", "aten::linear > aten::addmm", "cublasSgemm", "gemm", 1.0, 60.0),
        (None, None, None, "Memcpy DtoH", 1.0, 20.0),
    ]
    host = run(find("B40"), view).table
    assert host.select("layer_index", "operator", "count", "host_ns", "self_ns").rows() == [
        (0, "aten::addmm", 1.0, 40.0, 40.0),
        (0, "aten::linear", 1.0, 60.0, 20.0),
        (0, "aten::relu", 1.0, 10.0, 10.0),
    ]
    each = run(find("B39"), view.of_each_step).table.filter(kernel_name="gemm")
    assert each.select("step", "count", "duration_ns").rows() == [(0, 1, 50), (1, 1, 70)]
    assert run(find("B40"), StepView.of(_two_steps(), "all")).table["count"].to_list() == [2, 2, 2]


def test_the_tree_holds_layers_then_operators_then_work() -> None:
    tree = run(find("B41"), StepView.of(_two_steps())).table
    assert tree.select("node", "parent", "depth", "name", "kind", "count", "duration_ns").rows() == [
        (0, None, 0, "all device work", "all", 4, 160),
        (1, 0, 1, "outside every layer", "outside", 2, 40),
        (2, 0, 1, "Linear_0", "layer", 2, 120),
        (3, 2, 2, "aten::linear", "operator", 2, 120),
        (4, 3, 3, "aten::addmm", "operator", 2, 120),
        (5, 1, 2, "Memcpy DtoH", "memcpy", 2, 40),
        (6, 4, 4, "gemm", "kernel", 2, 120),
    ]
    assert tree["device_share"].to_list() == [1.0, 0.25, 0.75, 0.75, 0.75, 0.25, 0.75]


def test_moments_shared_by_classes_are_shared_out_and_causes_of_idle_time_follow() -> None:
    # compute: gemm [0, 100), softmax [50, 100) beside it. Communication [90, 160), of which 60 alone. Idle [160, 200).
    hand = Hand()
    hand.run(0)
    hand.work("gemm", 0, 100)
    hand.work("softmax_kernel", 50, 50, stream_id=8)
    hand.work("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 90, 70, stream_id=9)
    hand.work("Memset", 200, 40, kind="memset")
    table = run(find("B42"), StepView.of(hand.build())).table
    assert table.select("device_id", "part", "name", "duration_ns", "window_share").rows() == [
        (0, "compute", "matrix product", 75.0, 75 / 240),
        (0, "compute", "softmax", 25.0, 25 / 240),
        (0, "communication", "communication", 60.0, 60 / 240),
        (0, "memory", "memset", 40.0, 40 / 240),
        (0, "idle", "unknown", 40.0, 40 / 240),
    ]
