"""What a report says of a profile: which run gave which number, what profiling cost, and where the roof is."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.profile_trace import profile
from tests.helpers.report_trace import HOSTILE, small_trace
from xsp_analyze.analyses.nsys.cuda import cuda_gpu_kern_sum
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.frames.launch_paths import time_tree
from xsp_analyze.frames.layers.nested_steps import nested_timelines
from xsp_analyze.pages.report.attribution import longest
from xsp_analyze.pages.report.page import render
from xsp_analyze.render import terminal
from xsp_analyze.service import summarise
from xsp_analyze.trace.step_view import StepView
from xsp_analyze.trace.trace_view import TraceView
from xsp_model import TraceBuilder
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace


@pytest.fixture(name="trace", scope="module")
def fixture_trace() -> Trace:
    return profile()


@pytest.fixture(name="data", scope="module")
def fixture_data(trace: Trace) -> dict[str, Any]:
    return _data(render(trace))


def _data(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    data: dict[str, Any] = json.loads(match[1])
    return data


def _section(data: dict[str, Any], identity: str) -> dict[str, Any]:
    return next(s for s in data["sections"] if s["id"] == identity)


def _block(data: dict[str, Any], identity: str, kind: str) -> dict[str, Any]:
    return next(b for b in _section(data, identity)["blocks"] if b["type"] == kind)


def test_a_profile_has_sections_on_overhead_and_rooflines(data: dict[str, Any]) -> None:
    assert [s["id"] for s in data["sections"]] == [
        "next", "ledger", "model", "overhead", "timeline", "tree", "layers", "gpu", "types", "kernels", "rooflines",
        "devices", "modules", "analyses",
    ]  # fmt: skip


def test_a_plain_trace_has_neither(tmp_path: Path) -> None:
    ids = [s["id"] for s in _data(render(small_trace(tmp_path)))["sections"]]
    assert not {"overhead", "rooflines"} & set(ids)


def test_without_counters_there_is_no_roofline() -> None:
    data = _data(render(profile(counters=False)))
    assert "rooflines" not in [s["id"] for s in data["sections"]]
    assert "flop count" in _block(data, "kernels", "kernels")["unknown"]


def test_the_head_says_what_each_run_gave(data: dict[str, Any]) -> None:
    rows = {row["label"]: row["text"] for row in data["measured"]}
    assert data["title"] == "net"
    assert rows["Run 0"].startswith("gave model latency: run.json")
    assert rows["Run 1"].startswith("gave layer latency: ml.json")
    assert rows["Run 2"].startswith("gave kernels and all device time: mlg.json")
    assert rows["Run 3"].startswith("gave hardware counters, none of its times: ncu.csv")


def test_the_head_tells_the_cost_of_profiling_and_the_bound(data: dict[str, Any]) -> None:
    assert "Profiling down to kernels made a step 40.0\u202f% longer (40.0\u202f\u00b5s)" in " ".join(data["short"])
    assert "The model is compute bound in fp32: its 20.0\u202fflop/byte lie above the 10.0" in " ".join(data["short"])


def test_sections_say_which_run_they_are_from(data: dict[str, Any]) -> None:
    assert _section(data, "layers")["means"].endswith("Latency from run 1 and device time from run 2.")
    assert _section(data, "tree")["means"].endswith("All from run 2.")
    notes = {item["label"]: item["note"] for item in _block(data, "model", "facts")["items"]}
    assert notes["Latency"].endswith("Taken from run 0.")
    assert notes["Device time"].endswith("Taken from run 2.")


def test_device_work_of_other_runs_counts_nowhere(trace: Trace, data: dict[str, Any]) -> None:
    assert int(time_tree(TraceView(trace)).time_ns[0]) == 6 * 30_000
    summary = summarise(trace)
    assert (summary.device_time_ns, summary.layer_call_count) == (6 * 30_000, 6)
    assert [d["activities"] for d in summary.devices] == [6]
    assert _block(data, "ledger", "shares")["parts"][0]["exact"] == "180\u202f000\u202fns in 6 activities"
    rows = cuda_gpu_kern_sum.function(StepView.of(trace)).collect()
    assert rows["count"].to_list() == [3, 3]


def test_modules_have_calls_of_one_run_and_device_time_of_another(trace: Trace) -> None:
    rows = run(find("B06"), StepView.of(trace)).table
    assert rows["count"].to_list() == [1, 1]
    assert rows["host_ns"].to_list() == [45_000, 45_000]
    assert rows["device_sum_ns"].to_list() == [30_000, 30_000]


def test_timelines_nest_layers_in_the_step_and_kernels_in_layers(trace: Trace) -> None:
    model, layers, kernels = nested_timelines(StepView.of(trace))
    assert [t.duration_ns for t in (model, layers, kernels)] == [100_000, 110_000, 140_000]
    assert model.layers.is_empty()
    assert layers.layers.select("layer_name", "start_ns", "duration_ns", "depth").rows() == [
        ("Linear_0", 5_000, 45_000, 0), ("ReLU_0", 65_000, 45_000, 0),
    ]  # fmt: skip
    assert layers.kernels.is_empty()
    assert kernels.kernels.select("name", "layer_name", "start_ns", "duration_ns").rows() == [
        ("gemm", "Linear_0", 15_000, 30_000), (HOSTILE, "ReLU_0", 75_000, 30_000),
    ]  # fmt: skip


def test_the_figure_and_the_table_measure_a_step_alike(trace: Trace) -> None:
    builder = TraceBuilder()
    for name in TABLES:
        builder.add(name, trace.frame(name))
    timed = {"run_id": [1, 1, 1], "step": [0, 1, 2], "duration_ns": [109_000] * 3}  # within spans of 110 us
    builder.add("step_times", pl.DataFrame(timed))
    view = StepView.of(builder.build())
    rows = run(find("B02"), view).table.filter(level="layer", scope="model")
    assert rows.select("baseline_ns", "measured_ns").rows() == [(100_000, 109_000)]
    assert [line.duration_ns for line in nested_timelines(view)] == [100_000, 109_000, 140_000]


def test_a_run_that_stands_in_is_drawn_once_at_its_own_level() -> None:
    lines = nested_timelines(StepView.of(profile(without="model")))
    assert [(t.level, t.duration_ns) for t in lines] == [("layers", 110_000), ("kernels", 140_000)]


def test_runs_without_device_work_make_a_report() -> None:
    data = _data(render(profile(without="kernels", counters=False)))
    why = {one["id"]: one["why"] for one in data["missing"]}
    assert why["tree"].startswith("B41 (device time by path) needs the level kernel")
    assert [line["title"] for line in _block(data, "overhead", "timelines")["lines"]] == [
        "Model only (M)", "Layers profiled (ML)",
    ]  # fmt: skip
    assert {row["label"]: row["text"] for row in data["measured"]}["Window"].startswith("510\u202f\u00b5s from")


def test_the_figure_holds_what_each_level_and_layer_cost(data: dict[str, Any]) -> None:
    block = _block(data, "overhead", "timelines")
    assert [(line["time"], line["before"]) for line in block["lines"]] == [
        (100_000, None), (110_000, 100_000), (140_000, 110_000),
    ]  # fmt: skip
    assert block["layers"][0] == {
        "layer_index": 0, "baseline": 45_000, "measured": 55_000, "overhead": 10_000,
        "overhead_share": pytest.approx(10 / 45),
    }  # fmt: skip
    assert block["lines"][2]["row"] == [0, 0, 1, 1]


def test_long_timelines_keep_their_longest_boxes_in_order() -> None:
    boxes = pl.DataFrame({"name": ["a", "b", "c"], "duration_ns": [5, 1, 7]})
    assert longest(boxes, 2)["name"].to_list() == ["a", "c"]
    assert longest(boxes, 3)["name"].to_list() == ["a", "b", "c"]


def test_the_roofline_has_points_and_the_roof_they_are_under(data: dict[str, Any]) -> None:
    blocks = [b for b in _section(data, "rooflines")["blocks"] if b["type"] == "roofline"]
    assert [b["title"] for b in blocks] == ["Layers under the roof", "Kernels under the roof"]
    assert blocks[0]["roofs"] == [{"precision": 0, "peak": 10e12, "bandwidth": 1e12}]
    assert [(p["name"], p["x"], p["y"], p["time"]) for p in blocks[1]["points"]] == [
        ("gemm", 20, 2e12, 30_000), (HOSTILE, 20, 2e12, 30_000),
    ]  # fmt: skip
    assert blocks[1]["models"][0]["share"] == pytest.approx(0.2)
    text = _block(data, "rooflines", "text")["text"]
    assert "20.0\u202fflop/byte, so the roof over it is the fp32 peak of A device (its data sheet)" in text
    assert "20.0\u202f% of that" in text


def test_counters_stand_in_the_tables(data: dict[str, Any]) -> None:
    counters = {"flop_count", "dram_read_bytes", "dram_write_bytes", "achieved_occupancy"}
    counters |= {"arithmetic_intensity", "flop_per_s", "memory_bound"}
    for section in ("layers", "kernels"):
        assert counters <= {c["key"] for c in _block(data, section, section)["columns"]}
    facts = {item["label"]: item["value"] for item in _block(data, "model", "facts")["items"]}
    assert facts["Work"] == "120\u202fMFLOP"
    assert facts["Arithmetic intensity"] == "20.0\u202fflop/byte"


def test_the_terminal_names_the_file_of_each_number(trace: Trace) -> None:
    last = terminal.render(run(find("A15"), StepView.of(trace))).splitlines()[-1]
    assert last.startswith(
        "model latency from run.json, layer latency from ml.json, kernels and device time from mlg.json,"
        " counters from ncu.csv; run count: 4;"
    )


def test_a_hostile_kernel_is_no_markup(trace: Trace) -> None:
    assert HOSTILE not in render(trace)


@pytest.mark.slow
def test_the_same_profile_gives_the_same_page() -> None:
    assert len({render(profile()) for _ in range(3)}) == 1
