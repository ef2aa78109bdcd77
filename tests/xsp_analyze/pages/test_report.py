"""What a report says and that it keeps to itself; how it looks and behaves is in test_report_page."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.report_trace import HOSTILE, small_trace
from xsp_analyze.frames.launch_paths import TimeTree, time_tree
from xsp_analyze.frames.layers.modules import module_rows
from xsp_analyze.pages.blocks import safe_json
from xsp_analyze.pages.report.figures import cut_tree
from xsp_analyze.pages.report.page import render
from xsp_analyze.service import summarise
from xsp_analyze.trace.trace_view import TraceView
from xsp_model import Attribution, Kind, Level, Trace, TraceBuilder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(name="trace", scope="module")
def fixture_trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return small_trace(tmp_path_factory.mktemp("trace"))


def _data(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    data: dict[str, Any] = json.loads(match[1])
    return data


def _section(page: str, identity: str) -> dict[str, Any]:
    return next(s for s in _data(page)["sections"] if s["id"] == identity)


def _paths(tree: TimeTree) -> dict[tuple[str, ...], tuple[int, int]]:
    """Time and count of each node by its path of names."""
    paths: list[tuple[str, ...]] = []
    for node, parent in enumerate(tree.parent):
        paths.append((*(paths[parent] if parent >= 0 else ()), tree.name[node]))
    return {p: (int(t), int(c)) for p, t, c in zip(paths, tree.time_ns, tree.count, strict=True)}


def _empty_trace() -> Trace:
    builder = TraceBuilder()
    builder.add("runs", pl.DataFrame({"run_id": [0], "clock_origin_ns": [0]}))
    return builder.build()


def test_every_section_is_there_in_its_order(trace: Trace) -> None:
    assert [s["id"] for s in _data(render(trace))["sections"]] == [
        "next", "what-if", "ledger", "model", "timeline", "tree", "layers", "gpu", "types", "kernels", "devices",
        "modules", "analyses",
    ]  # fmt: skip


def test_every_section_says_what_its_numbers_mean(trace: Trace) -> None:
    assert all(len(s["means"]) > 20 for s in _data(render(trace))["sections"])


def test_the_page_asks_for_nothing_from_a_network(trace: Trace) -> None:
    page = render(trace)
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)
    assert "default-src 'none'" in page
    urls = {u for u in re.findall(r"https?://[^\s\"'`]+", page) if u != "http://www.w3.org/2000/svg"}
    assert urls == set()


def test_a_hostile_name_never_stands_in_the_page_as_markup(trace: Trace) -> None:
    page = render(trace)
    assert HOSTILE not in page
    assert HOSTILE in json.dumps(_data(page), ensure_ascii=False)


def test_json_in_the_page_can_end_no_script_element() -> None:
    text = safe_json({"name": "</script><!--\u2028&"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"name": "</script><!--\u2028&"}


def test_the_same_trace_gives_the_same_page(trace: Trace) -> None:
    assert render(trace) == render(trace)


def test_the_ledger_divides_all_device_time(trace: Trace) -> None:
    block = _section(render(trace), "ledger")["blocks"][0]
    assert sum(p["share"] for p in block["parts"]) == pytest.approx(1.0)
    assert [p["label"] for p in block["parts"]] == ["in a layer", "launched before the trace"]
    assert block["parts"][1]["exact"] == "7\u202f000\u202fns in 1 activity"


def test_the_tree_follows_layers_then_operators_then_kernels(trace: Trace) -> None:
    paths = _paths(time_tree(TraceView(trace)))
    root = ("all device work",)
    linear = (*root, "Net_0", "Linear_0", "aten::linear", "aten::addmm")
    assert paths[root] == (3 * (13_333 + 26_666) + 60_000 + 7_000, 9)
    assert paths[(*linear, "gemm_0")] == (13_333 + 26_666, 2)
    assert paths[(*root, "Net_0", "ReLU_0", "aten::relu", HOSTILE)] == (60_000, 2)
    assert paths[(*root, "launched before the trace began", "left over")] == (7_000, 1)


def test_children_of_the_tree_add_up_to_their_parent(trace: Trace) -> None:
    tree = time_tree(TraceView(trace))
    for node in range(len(tree.parent)):
        children = [i for i, parent in enumerate(tree.parent) if parent == node]
        if children:
            assert tree.time_ns[node] == sum(tree.time_ns[c] for c in children)


def test_a_tree_cut_short_keeps_its_sums_in_others(trace: Trace) -> None:
    tree = cut_tree(time_tree(TraceView(trace)), 4)
    paths = _paths(tree)
    assert paths[("all device work",)] == _paths(time_tree(TraceView(trace)))[("all device work",)]
    assert sum(kind == "others" for kind in tree.kind) >= 1
    roots = [int(t) for t, parent in zip(tree.time_ns, tree.parent, strict=True) if parent == 0]
    assert sum(roots) == int(tree.time_ns[0])


def test_backward_work_stands_under_the_layer_of_its_forward_twin() -> None:
    builder = TraceBuilder()
    builder.add("runs", pl.DataFrame({"run_id": [0], "clock_origin_ns": [0], "layer_source": ["module"]}))
    rows = [
        (0, None, Level.LAYER, Kind.MODULE, "nn.Module: Linear_0", 0, None, None),
        (1, None, Level.OPERATOR, Kind.OPERATOR, "AddmmBackward0", 50, None, None),
        (2, 1, Level.RUNTIME, Kind.CALL, "cudaLaunchKernel", 51, None, None),
        (3, 2, Level.KERNEL, Kind.KERNEL, "gemm", 60, 0, str(Attribution.LAYER)),
    ]
    names = ["span_id", "parent_id", "level", "kind", "name", "start_ns", "layer_id", "attribution"]
    spans = pl.DataFrame(
        [[str(v) if isinstance(v, Level | Kind) else v for v in row] for row in rows], schema=names, orient="row"
    )
    builder.add("spans", spans.with_columns(pl.lit(0).alias("run_id"), pl.lit(10).alias("duration_ns")))
    builder.add(
        "layers",
        pl.DataFrame(
            {"span_id": [0], "layer_index": [0], "layer_name": ["Linear_0"], "layer_type": ["Linear"],
             "source": ["module"], "is_container": [False]}
        ),
    )  # fmt: skip
    paths = _paths(time_tree(TraceView(builder.build())))
    assert paths[("all device work", "Linear_0", "AddmmBackward0", "gemm")] == (10, 1)


def test_a_trace_with_nothing_in_it_still_makes_a_page() -> None:
    data = _data(render(_empty_trace()))
    assert not {s["id"] for s in data["sections"]} & {"tree", "layers", "kernels"}
    assert {"tree", "layers", "kernels"} <= {one["id"] for one in data["missing"]}
    assert (data["first"]["bar"], data["first"]["tiles"], data["first"]["findings"]) == (None, [], [])


def test_tables_hold_exact_values_and_the_scale_to_show_them_in(trace: Trace) -> None:
    block = _section(render(trace), "kernels")["blocks"][0]
    column = next(i for i, c in enumerate(block["columns"]) if c["key"] == "duration_ns")
    assert block["columns"][column]["exact"] == "ns"
    names = block["values"][next(i for i, c in enumerate(block["columns"]) if c["key"] == "kernel_name")]
    assert block["values"][column][names.index(HOSTILE)] == 30_000


def test_counters_that_nobody_measured_are_named_instead_of_shown(trace: Trace) -> None:
    block = _section(render(trace), "kernels")["blocks"][0]
    assert "flop count" in block["unknown"]
    assert "flop_count" not in [c["key"] for c in block["columns"]]


def test_the_module_tree_is_depth_first_with_phases_side_by_side() -> None:
    table = pl.DataFrame(
        {
            "module_path": ["a", "a.b", "c", "a.d", "a.b"],
            "module_instance": ["a", "b", "c", "d", "b"],
            "depth": [0, 1, 0, 1, 1],
            "phase": ["forward", "forward", "forward", "forward", "backward"],
            "count": [1, 2, 1, 1, 2],
            "device_sum_ns": [10, 4, 1, 6, 3],
            "self_device_sum_ns": [0, 4, 1, 6, 3],
            "host_ns": [20, 5, 2, 7, None],
        }
    )
    rows = module_rows(table)
    assert rows["module"].to_list() == ["a", "b", "d", "c"]
    assert rows["device_sum_ns"].to_list() == [10, 7, 6, 1]
    assert rows["backward_ns"].to_list() == [None, 3, None, None]
    assert rows["recompute_ns"].null_count() == 4
    assert rows["count"].to_list() == [1, 2, 1, 1]


def test_the_summary_counts_levels_steps_and_devices(trace: Trace) -> None:
    summary = summarise(trace)
    assert summary.steps == [0, 1]
    assert summary.counts["kernel"] == 9
    assert [d["activities"] for d in summary.devices] == [9]
    assert {a.attribution: a.count for a in summary.attributed} == {"layer": 8, "orphan_before_window": 1}
    assert summary.layer_sources == ["module"]


@pytest.mark.real
@pytest.mark.parametrize("name", ["kineto/resnet18_train_ddp.mi300x.json.gz", "nsys/h100_fsdp_2gpu.nsys2026_2.sqlite"])
def test_the_tree_holds_every_nanosecond_of_real_traces(real_dir: Path, name: str) -> None:
    from xsp_ingest.convert import convert  # noqa: PLC0415
    from xsp_ingest.ingester import Options  # noqa: PLC0415

    trace = convert([real_dir / name], Options())
    page = render(trace)
    tree = time_tree(TraceView(trace))
    work = trace.frame("spans").filter(pl.col("attribution").is_not_null())
    assert int(tree.time_ns[0]) == work["duration_ns"].sum()
    assert int(tree.count[0]) == work.height
    assert "planted-secret" not in page
