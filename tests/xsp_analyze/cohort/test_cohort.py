"""B13 against answers worked out by hand, and similarity against scipy."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.helpers.cohort_members import member
from tests.helpers.hand import Hand
from tests.helpers.shaped_trace import shaped
from tests.helpers.synth import KinetoTrace
from xsp_analyze.cohort import tables
from xsp_analyze.cohort.cohort import Member, group_by_system
from xsp_analyze.cohort.facts import Mix, Utilisation, facts_of, from_json, operator_mix, utilisation
from xsp_analyze.cohort.quality import read_prices
from xsp_analyze.cohort.tables import cosines, leaf_order, linkage
from xsp_analyze.frames.model_time import LoadTest
from xsp_analyze.pages.cohort import render
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_MS = 1_000_000


def _trace(kineto: KinetoTrace, tmp_path: Path) -> Trace:
    path = tmp_path / "t.json"
    path.write_bytes(kineto.to_bytes())
    return convert([path], Options())


# Utilisation


def test_gpu_utilisation_is_active_time_over_time_elapsed(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    for number, start in ((0, 0), (1, 10 * _MS)):
        kineto.step(number, start, 10 * _MS)
        kineto.operator("aten::mm", start + 1_000, 5 * _MS)
        # 2 ms and 3 ms side by side for 1 ms on two streams: active for 4 ms of 10
        kineto.launch("a", start + 1 * _MS - 9_000, start + 1 * _MS, 2 * _MS)
        kineto.launch("b", start + 2 * _MS - 9_000, start + 2 * _MS, 3 * _MS, stream_id=9)
    used = utilisation(StepView.of(_trace(kineto, tmp_path)))
    assert used.gpu == pytest.approx(0.4)
    assert replace(used, gpu=None) == Utilisation()  # no counters: nothing is known of FP32


def test_work_that_a_step_launched_counts_though_it_ends_after_its_range(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.step(0, 0, 10 * _MS)
    kineto.operator("aten::mm", 1_000, 9 * _MS)
    kineto.launch("a", 8 * _MS - 20_000, 8 * _MS, 6 * _MS)  # the step ends with it, at 14 ms
    assert utilisation(StepView.of(_trace(kineto, tmp_path))).gpu == pytest.approx(6 / 14)


# Operator mix


def test_device_time_goes_to_the_outermost_operator(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.step(0, 0, 20 * _MS)
    kineto.operator("aten::conv2d", 1_000, 5 * _MS)
    kineto.operator("aten::convolution", 2_000, 4 * _MS)
    kineto.launch("implicit_gemm", 3_000, 1 * _MS, 3 * _MS)
    kineto.operator("aten::relu_", 6 * _MS, 1 * _MS)
    kineto.launch("elementwise", 6 * _MS + 1_000, 7 * _MS, 1 * _MS)
    kineto.runtime("cudaLaunchKernel", 9 * _MS, 5_000, correlation=77)
    kineto.kernel("alone", 10 * _MS, 4 * _MS, correlation=77)
    mix = operator_mix(StepView.of(_trace(kineto, tmp_path)))
    assert mix.basis == "device time of operators"
    assert mix.shares == {"conv2d": 0.75, "relu": 0.25}
    assert mix.covered_share == 0.5  # 4 of 8 ms were launched by an operator
    assert mix.class_basis == "device time"  # `alone` too, which no operator launched
    assert mix.class_shares == {"other": 0.5, "convolution": 0.375, "elementwise": 0.125}


def test_without_a_device_it_is_the_operators_own_time(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.step(0, 0, 20 * _MS)
    kineto.operator("aten::linear", 1_000, 6 * _MS)
    kineto.operator("aten::addmm", 2_000, 5 * _MS)  # inside: its time is the outer one's
    kineto.operator("aten::gelu", 8 * _MS, 2 * _MS)
    mix = operator_mix(StepView.of(_trace(kineto, tmp_path)))
    assert mix.basis == "host time of operators"
    assert mix.shares == {"linear": 0.75, "gelu": 0.25}
    assert mix.class_basis == "host time of operators"
    assert mix.class_shares == {"matrix product": 0.75, "elementwise": 0.25}


def test_work_that_no_operator_launched_is_no_mix(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.step(0, 0, 20 * _MS)
    kineto.operator("aten::linear", 1_000, _MS)
    kineto.runtime("cudaLaunchKernel", 9 * _MS, 5_000, correlation=77)
    kineto.kernel("alone", 10 * _MS, 4 * _MS, correlation=77)
    mix = operator_mix(StepView.of(_trace(kineto, tmp_path)))
    assert mix == Mix(class_basis="device time", class_shares={"other": 1.0})


def test_one_slow_step_does_not_decide_the_mix(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    for number, slow in enumerate((0, 0, 90)):
        start = number * 100 * _MS
        kineto.step(number, start, 100 * _MS)
        kineto.operator("aten::linear", start + 1_000, 3 * _MS)
        kineto.operator("aten::gelu", start + 5 * _MS, (1 + slow) * _MS)
    assert operator_mix(StepView.of(_trace(kineto, tmp_path))).shares == {"linear": 0.75, "gelu": 0.25}


# Facts


def test_facts_survive_json(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.step(0, 0, 20 * _MS)
    kineto.operator("aten::linear", 1_000, 6 * _MS)
    kineto.launch("gemm", 2_000, 1 * _MS, 3 * _MS)
    facts = facts_of(_trace(kineto, tmp_path), "named")
    assert facts.model == "named"
    assert from_json(json.loads(json.dumps(facts.to_json()))) == facts


def test_memory_is_the_devices_where_one_worked(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.step(0, 0, 20 * _MS)
    kineto.operator("aten::linear", 1_000, 6 * _MS)
    kineto.memory(3_000, 64, allocated=64, reserved=64, device_id=None)
    assert facts_of(_trace(kineto, tmp_path), "m").peak_memory_bytes == 64
    kineto.launch("gemm", 2_000, 1 * _MS, 3 * _MS)
    assert facts_of(_trace(kineto, tmp_path), "m").peak_memory_bytes is None  # of the device nothing is known
    for size in (512, 256):
        kineto.memory(4_000 + size, size, allocated=size, reserved=size)
    facts = facts_of(_trace(kineto, tmp_path), "m")
    assert (facts.peak_memory_bytes, facts.peak_memory_place) == (512, "device")


def test_a_sample_beyond_64_bits_is_no_peak_of_memory() -> None:
    hand = Hand()
    hand.run(0)
    hand.step(0, 0, 10)
    shared = {"run_id": 0, "counter": "allocated_bytes", "unit": "byte"}
    hand.extra["counters"] = [{**shared, "time_ns": at, "value": value} for at, value in ((1, 64.0), (2, 2.0**63))]
    assert facts_of(hand.build(), "m").peak_memory_bytes == 64


def test_modelled_work_is_that_of_products_where_there_are_any() -> None:
    # 24 Mflop of products in BF16 over 440,000 + 200,000 bytes; the ReLU's 50,000 comparisons are in FP32
    facts = facts_of(shaped(dtype="c10::BFloat16"), "m")
    assert (facts.bound, facts.intensity) == ("compute", 24e6 / 640e3)
    assert (facts.memory_bound_layers, facts.layers_under_roof) == (1, 2)


# Rows


def test_batch_sizes_of_a_model_are_one_row_at_the_optimal_one() -> None:
    # 100, 180, 185 inputs/s at 1, 2, 4: doubling 2 gains 2.8 %, so 2 is optimal
    times = {1: 10 * _MS, 2: 2 / 180 * 1e9, 4: 4 / 185 * 1e9}
    systems = group_by_system([member("m", batch=b, latency_ns=t, gpu_share=b / 10) for b, t in times.items()])
    row = tables.models(systems).table.row(0, named=True)
    assert len(systems) == 1
    assert (row["batch_sizes"], row["optimal_batch"], row["batch_size"]) == ("1, 2, 4", 2, 2)
    assert row["throughput_per_s"] == pytest.approx(180)
    assert row["latency_ns"] == pytest.approx(2 / 180 * 1e9)
    assert row["single_latency_ns"] == 10 * _MS
    assert row["gpu_share"] == 0.2  # of the trace of that batch size


def test_rows_do_not_depend_on_the_order_of_traces() -> None:
    members = [member("a"), member("a", batch=2), member("b"), member("a", "cpu"), member("c", batch=None)]
    expected = tables.models(group_by_system(members)).table
    assert all(tables.models(group_by_system(order)).table.equals(expected) for order in permutations(members))


def test_traces_without_a_batch_size_are_rows_of_their_own() -> None:
    members = [member("a", name="x", batch=None), member("a", name="y", batch=None)]
    assert [s.member.name for s in group_by_system(members)] == ["x", "y"]


def test_traces_of_one_name_at_two_paths_are_two_rows_and_their_labels_differ() -> None:
    alike = [replace(member("net", name="t", batch=None), path=f"/{folder}/t.json") for folder in ("a", "b")]
    assert len(group_by_system(alike)) == 2
    named = [replace(member("net", name=f"{f}-t", batch=None), path=f"/{f}/t.json") for f in ("a", "b")]
    assert tables.models(group_by_system(named)).table["model"].to_list() == ["net (a-t)", "net (b-t)"]
    assert tables.models(group_by_system(named[:1])).table["model"].to_list() == ["net"]


def test_a_load_test_says_its_rate_and_percentiles() -> None:
    percentiles = {"p50_00": 5e6, "p99_00": 9e6}
    test = LoadTest(
        run_id=0,
        test="LoadGen Server",
        valid=False,
        broken_rules=["min queries"],
        reason="Processed 40 queries.",
        mean_latency_ns=6e6,
        percentiles_ns=percentiles,
        samples_per_s=98.3,
        target_latency_ns=8e6,
        target_share=0.99,
        query_count=40,
        over_target_count=1,
    )
    systems = group_by_system([member("bert", load_test=test), member("other")])
    row = tables.models(systems).table.row(0, named=True)
    assert (row["load_test_per_s"], row["p99_latency_ns"]) == (98.3, 9e6)
    assert tables.load_tests(systems).table.to_dicts() == [
        {
            "trace": "bert-gpu-1", "test": "LoadGen Server", "valid": False, "broken_rules": "min queries",
            "reason": "Processed 40 queries.", "samples_per_s": 98.3, "target_latency_ns": 8e6, "target_share": 0.99,
            "over_target_share": 0.025, "meets_target": False,
            "p50_00_latency_ns": 5e6, "p90_00_latency_ns": None,
            "p95_00_latency_ns": None,
            "p97_00_latency_ns": None, "p99_00_latency_ns": 9e6, "p99_90_latency_ns": None,
        }
    ]  # fmt: skip
    assert "MLPerf LoadGen tests" in render(systems, title="t")


@pytest.mark.real
def test_real_load_tests_say_what_their_summaries_print(real_dir: Path) -> None:
    folders = sorted((real_dir / "loadgen").iterdir())
    members = []
    for folder in folders:
        paths = sorted(folder.glob("mlperf_log_detail.txt"))
        members.append(Member(folder.name, facts_of(convert(paths, Options()), folder.name)))
    rows = tables.load_tests(group_by_system(members)).table.rows(named=True)
    for row, folder in zip(rows, folders, strict=True):
        pairs = (line.partition(" : ") for line in (folder / "mlperf_log_summary.txt").read_text().splitlines())
        printed_values = {key.strip(): value.strip() for key, colon, value in pairs if colon}
        assert row["samples_per_s"] == pytest.approx(float(printed_values["Completed samples per second"]), abs=0.005)
        for printed, column in (("50.00", "p50_00"), ("97.00", "p97_00"), ("99.90", "p99_90")):
            assert row[f"{column}_latency_ns"] == int(printed_values[f"{printed} percentile latency (ns)"])


def test_one_model_on_two_systems_is_compared() -> None:
    systems = group_by_system([member("a", "h100"), member("a", "a100", latency_ns=25 * _MS), member("b", "h100")])
    rows = tables.across(systems).table.select("model", "system", "speedup").rows()
    assert rows == [("a", "h100", pytest.approx(2.5)), ("a", "a100", pytest.approx(1.0))]


def test_throughput_is_not_held_against_steps() -> None:
    systems = group_by_system([member("a", "h100"), member("a", "a100", batch=None)])
    assert tables.across(systems).table["speedup"].to_list() == [1.0, None]


def test_first_by_each_measure_names_the_first_only() -> None:
    systems = group_by_system(
        [member(f"m{n}", latency_ns=(n + 1) * _MS, convolution_share=float(n == 3)) for n in range(7)]
    )
    top = tables.top(systems).table
    latency = top.filter(top["measure"] == "latency_ns")
    assert latency["model"].to_list() == ["m0", "m1", "m2", "m3", "m4"]
    assert top.filter(top["measure"] == "convolution_share").is_empty()  # one model alone is no order


def test_cost_is_price_over_throughput(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('currency = "USD"\n[per_hour]\n"gpu" = 3.6\n"big gpu" = 36\n')
    prices = read_prices(path)
    systems = group_by_system([member("a", "one GPU"), member("b", "one Big GPU"), member("c", "cpu")])
    # 100 inputs/s: 1000 inputs take 10 s; 3.6 an hour is 0.01 for 10 s
    costs = tables.models(systems, prices).table["cost_per_1k_inputs"].to_list()
    assert costs == [pytest.approx(0.01), pytest.approx(0.1), None]


@pytest.mark.parametrize("text", ["", "[per_hour]\n", '[per_hour]\n"a" = -1\n', '[per_hour]\n"a" = true\n', "x ="])
def test_prices_that_are_none_are_a_sentence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(XspError, match="prices"):
        read_prices(path)


# Similarity


def test_similarity_is_the_cosine_of_shares() -> None:
    mixes = ({"conv": 1.0}, {"conv": 0.6, "mm": 0.8}, {"mm": 1.0})
    systems = group_by_system([member(f"m{n}", mix=Mix("host", m, None)) for n, m in enumerate(mixes)])
    rows = tables.similarity(systems).table.select("model", "other_model", "similarity_share").rows()
    assert rows == [
        ("m1", "m2", pytest.approx(0.8)),
        ("m0", "m1", pytest.approx(0.6)),
        ("m0", "m2", pytest.approx(0.0)),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_joins_are_those_of_scipy(seed: int) -> None:
    hierarchy = pytest.importorskip("scipy.cluster.hierarchy")
    distance = pytest.importorskip("scipy.spatial.distance")
    random = np.random.default_rng(seed)
    vectors = random.dirichlet(np.full(6, 0.4), size=int(random.integers(2, 40)))
    distances = 1 - cosines([{str(n): float(x) for n, x in enumerate(v)} for v in vectors])
    ours = linkage(distances)
    np.fill_diagonal(distances, 0)
    theirs = hierarchy.linkage(distance.squareform(distances, checks=False), "average")
    assert [(j.first, j.second, j.size) for j in ours] == [(int(a), int(b), int(n)) for a, b, _, n in theirs]
    np.testing.assert_allclose([j.distance for j in ours], theirs[:, 2], atol=1e-12)
    assert sorted(leaf_order(ours, len(vectors))) == list(range(len(vectors)))


def test_one_model_is_a_tree_of_itself() -> None:
    assert linkage(np.zeros((1, 1))) == []
    assert leaf_order([], 1) == [0]


def test_nothing_has_no_similarity() -> None:
    assert cosines([]).shape == (0, 0)
    np.testing.assert_array_equal(cosines([{}, {}]), np.eye(2))
    assert [t.analysis.id for t in tables.tables([])] == ["B13"]


def test_a_cohort_of_thousands_is_a_page_and_tables() -> None:
    mix = Mix("host", {"conv2d": 1.0}, None, "host", {"convolution": 1.0})
    systems = group_by_system([member(f"m{n}", mix=mix) for n in range(2_500)])
    page = render(systems, title="large")
    assert "The first 2\u202f000 of 2\u202f500 rows" in page
    assert len(page) < 3_000_000
    assert [t.analysis.id for t in tables.tables(systems)] == ["B13", "B13.top", "B13.mix"]


# The page


def test_names_are_text_and_links_are_kept() -> None:
    evil = '<img src=x onerror="alert(1)">'
    named_badly = replace(member(evil, mix=Mix("host", {"conv": 1.0}, None)), report="traces/a b#1/report.html")
    page = render(group_by_system([named_badly, member("b", mix=Mix("host", {"mm": 1.0}, None))]), title=evil)
    assert "<img" not in page
    assert '"traces/a%20b%231/report.html"' in page
    assert "Which models are alike" in page


def test_an_empty_cohort_is_a_page() -> None:
    assert "</html>" in render([], title="nothing")
