"""Runs of several batch sizes in one profile, each merged by itself, worked out on paper.

The device does 2e12 flop/s and moves 1e12 byte/s (ridge: 2 flop/byte). Of each batch size there is a run without a
profiler, one of kernels (a step of one gemm, beside it a copy at batch size 8) and one of counters:

    batch size      4          8          16
    M               100 us     120 us     240 us     so inputs/s are 40 000, 66 666.7 and 66 666.7: doubling 8 gains 0
    gemm            50 us      80 us      200 us
    copy                       10 us
    GPU share       0.5        0.75       0.8333
    flop            1e6        6e6        20e6
    bytes           1e6        2e6        5e6
    flop/byte       1          3          4          memory, compute, compute
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.run_sets import DRAM, FLOPS, merged, write_counters, write_run
from tests.helpers.synth import KinetoTrace
from xsp.cli.main import main
from xsp_analyze.catalog import all_analyses, find
from xsp_analyze.cohort.cohort import Member, group_by_system
from xsp_analyze.cohort.facts import facts_of
from xsp_analyze.cohort.tables import models
from xsp_analyze.core import run
from xsp_analyze.figure.draw import draw
from xsp_analyze.merge.merge import merge
from xsp_analyze.pages.report.overview import batches
from xsp_analyze.pages.report.page import render_answers
from xsp_analyze.service import Answers
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.ingester import Options
from xsp_ingest.run_set import read_run_set
from xsp_model import XspError, bundle

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_LATENCY = {4: 100_000, 8: 120_000, 16: 240_000}
_GEMM = {4: 50_000, 8: 80_000, 16: 200_000}
_FLOP = {4: 1_000_000, 8: 6_000_000, 16: 20_000_000}
_BYTES = {4: 1_000_000, 8: 2_000_000, 16: 5_000_000}
_DEVICE = {"name": "GPU on paper", "peaks": {"fp32_flop_per_s": 2e12, "dram_byte_per_s": 1e12}}
_BY_BATCH = ("A01", "A15", "B38")


def _kernels(batch: int) -> KinetoTrace:
    trace = KinetoTrace()
    for step in range(3):
        t = step * 500_000
        trace.step(step + 1, t, 300_000)
        trace.module(f"Linear_{batch}", t + 1_000, 290_000)
        trace.operator("aten::linear", t + 1_500, 200_000)
        trace.launch("gemm", t + 2_000, t + 8_000, _GEMM[batch], grid=(batch, 1, 1))
        if batch == 8:
            trace.copy("HtoD", t + 210_000, t + 216_000, 10_000, size=1_000)
    return trace


def _write(folder: Path, batch: int) -> None:
    described: dict[str, Any] = {"batch_size": batch, "device": _DEVICE, "serialized": True}
    write_run(folder / f"m-{batch}", "M", step_durations_ns=[_LATENCY[batch]] * 3, **described)
    write_run(folder / f"mlg-{batch}", "MLG", _kernels(batch), **described)
    ffma, half = _FLOP[batch] // 2, _BYTES[batch] // 2
    flop_rows, dram_rows = [("gemm", batch, [0, 0, ffma])], [("gemm", batch, [half, half])]
    write_counters(folder / f"flop-{batch}", ["flop_count_sp"], FLOPS, flop_rows, **described)
    write_counters(folder / f"dram-{batch}", ["dram_read_bytes", "dram_write_bytes"], DRAM, dram_rows, **described)


@pytest.fixture(name="folder", scope="module")
def fixture_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("set")
    for batch in _LATENCY:
        _write(folder, batch)
    return folder


@pytest.fixture(name="runs", scope="module")
def fixture_runs(folder: Path) -> list[Trace]:
    return read_run_set(folder, Options())


@pytest.fixture(name="profile", scope="module")
def fixture_profile(runs: list[Trace]) -> Trace:
    return merge(runs)


def _rows(trace: Trace, identifier: str, *columns: str) -> list[tuple[object, ...]]:
    return run(find(identifier), StepView.of(trace)).table.select(columns).rows()


@pytest.mark.slow
def test_a15_has_a_row_a_batch_size(profile: Trace) -> None:
    rows = _rows(profile, "A15", "batch_size", "model_latency_ns", "kernel_duration_ns", "kernel_count", "gpu_share")
    assert rows == [
        (4, 100_000, 50_000, 1, 0.5),
        (8, 120_000, 90_000, 2, 0.75),
        (16, 240_000, 200_000, 1, pytest.approx(5 / 6)),
    ]


def test_each_batch_size_is_under_the_roof_with_its_own_counters(profile: Trace) -> None:
    rows = _rows(profile, "A15", "batch_size", "flop_count", "arithmetic_intensity", "flop_per_s", "bound")
    assert rows == [
        (4, 1e6, 1.0, pytest.approx(1e6 / 50e-6), "memory"),
        (8, 6e6, 3.0, pytest.approx(6e6 / 80e-6), "compute"),
        (16, 20e6, 4.0, pytest.approx(20e6 / 200e-6), "compute"),
    ]


def test_the_optimal_batch_size_by_throughput_and_by_intensity(profile: Trace) -> None:
    columns = ("batch_size", "throughput_per_s", "doubling_gain", "is_optimal", "is_first_compute_bound", "gpu_share")
    rows = _rows(profile, "B38", *columns)
    assert rows == [
        (4, pytest.approx(40_000), pytest.approx(2 / 3), False, False, 0.5),
        (8, pytest.approx(200_000 / 3), pytest.approx(0), True, True, 0.75),
        (16, pytest.approx(200_000 / 3), None, False, False, pytest.approx(5 / 6)),
    ]


def test_everything_else_is_of_the_optimal_batch_size(profile: Trace) -> None:
    assert _rows(profile, "A10", "kernel_name", "duration_ns")[0] == ("gemm", 80_000)
    assert _rows(profile, "A02", "layer_name", "latency_ns") == [("Linear_8", 290_000)]
    assert Answers(profile).of_model()["batch_size"] == 8
    assert Answers(profile).first("A15")["batch_size"] == 8


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "steps"), [(16, None), (8, "all"), (4, "each")])
def test_a_batch_size_is_answered_as_though_it_were_alone(runs: list[Trace], batch: int, steps: str | None) -> None:
    own = [trace for trace in runs if trace.frame("runs")["batch_size"][0] == batch]
    together, alone = StepView.of(merge(runs, batch_size=batch), steps), StepView.of(merge(own), steps)
    for analysis in all_analyses():
        if analysis.id not in _BY_BATCH:
            assert _answer(together, analysis.id) == _answer(alone, analysis.id), analysis.id
    for identifier in ("A01", "A15"):
        table = run(find(identifier), together).table.filter(batch_size=batch).drop("is_optimal", strict=False)
        assert table.equals(run(find(identifier), alone).table.drop("is_optimal", strict=False)), identifier


def _answer(frames: StepView, identifier: str) -> list[tuple[object, ...]]:
    """The rows but for numbers of spans; none where the trace has nothing to answer with."""
    try:
        return run(find(identifier), frames).table.drop("span_id", strict=False).rows()
    except XspError:
        return []


@pytest.mark.slow
def test_the_batch_size_of_a_profile_is_the_user_s_choice(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.xsp"
    assert main(["merge", str(folder), "--batch-size", "16", "-o", str(out)]) == 0
    trace = bundle.read(out)
    assert _rows(trace, "A10", "duration_ns") == [(200_000,)]
    provenance = run(find("A10"), StepView.of(trace)).provenance["taken_from"]
    assert isinstance(provenance, dict)
    assert provenance["other_batch_sizes"] == "batch sizes 4, 8 (all else is of 16)"


@pytest.mark.slow
def test_a_folder_of_run_sets_is_one_set(tmp_path: Path) -> None:
    for batch in (4, 8):
        _write(tmp_path / f"b{batch}", batch)
    profile = merged(tmp_path)
    assert _rows(profile, "A15", "batch_size", "kernel_duration_ns") == [(4, 50_000), (8, 90_000)]
    assert profile.frame("runs")["source_path"][0] == "b8/m-8/run.json"


def test_a_batch_size_that_no_run_has_is_refused(runs: list[Trace]) -> None:
    with pytest.raises(XspError, match="no run is of batch size 5") as refusal:
        merge(runs, batch_size=5)
    assert refusal.value.advice == "The batch sizes of the runs are: 4, 8, 16"


@pytest.mark.slow
def test_of_batch_sizes_run_at_fewer_levels_none_is_chosen(tmp_path: Path) -> None:
    _write(tmp_path, 16)
    for batch in (4, 8):  # 8 is optimal, and only 16 was profiled
        described: dict[str, Any] = {"batch_size": batch, "device": _DEVICE}
        write_run(tmp_path / f"m-{batch}", "M", step_durations_ns=[_LATENCY[batch]] * 3, **described)
    profile = merged(tmp_path)
    assert Answers(profile).of_model()["batch_size"] == 16
    assert _rows(profile, "A15", "batch_size") == [(16,)]
    assert [row[2] for row in _rows(profile, "B38", "batch_size", "is_optimal", "gpu_share")][:2] == [None, None]


def test_a_batch_size_without_a_run_of_the_level_that_others_have_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, 4)
    write_run(tmp_path / "mlg-8", "MLG", _kernels(8), batch_size=8, device=_DEVICE)
    with pytest.raises(XspError, match="of different batch sizes"):
        merged(tmp_path)


def test_a_run_that_does_not_tell_its_batch_size_is_of_the_one_chosen(tmp_path: Path) -> None:
    for batch in (4, 8):
        described: dict[str, Any] = {"batch_size": batch, "device": _DEVICE}
        write_run(tmp_path / f"m-{batch}", "M", step_durations_ns=[_LATENCY[batch]] * 3, **described)
    write_run(tmp_path / "mlg", "MLG", _kernels(8), batch_size=None, device=_DEVICE)
    with pytest.raises(XspError, match="does not tell its batch size, and others are of 4, 8") as refusal:
        merged(tmp_path)
    assert "--batch-size" in refusal.value.advice
    profile = merge(read_run_set(tmp_path, Options()), batch_size=8)
    assert _rows(profile, "A15", "batch_size", "gpu_share") == [(8, 0.75)]


def test_findings_of_another_batch_size_do_not_stand_beside_the_numbers_of_this_one(profile: Trace) -> None:
    details = run(find("A10"), StepView.of(profile)).ledger["detail"].to_list()
    named = [text for text in details if "/ncu.csv" in text]
    assert len(named) == 2
    assert all("-8/" in text for text in named)


def test_the_page_says_which_batch_size_is_optimal_and_which_it_is_of(profile: Trace) -> None:
    answers = Answers(profile)
    section = batches(answers)
    assert section is not None
    texts = [block["text"] for block in section["blocks"] if block["type"] == "text"]
    ours, by_throughput, by_intensity = (text.replace("\u202f", " ") for text in texts)
    assert ours.startswith("Everything else on this page is of batch size 8; another one is chosen when")
    assert by_throughput.startswith("The optimal batch size by throughput is 8, with 66 667 inputs/s: doubling it")
    assert by_intensity.endswith("is compute bound from batch size 8 on, and memory bound just below.")
    titles = [block["title"] for block in section["blocks"] if block["type"] in ("line", "roofline")]
    assert titles == [
        "throughput", "latency", "GPU share", "flop count", "arithmetic throughput", "arithmetic intensity",
        "The model at each batch size under the roof",
    ]  # fmt: skip
    roofline = next(block for block in section["blocks"] if block["type"] == "roofline")
    assert [(point["label"], point["x"]) for point in roofline["points"]] == [
        ("batch 16", 4.0),
        ("batch 8", 3.0),
        ("batch 4", 1.0),
    ]
    assert "batch-sizes" in render_answers(answers)


def test_of_one_batch_size_there_is_no_such_section(tmp_path: Path) -> None:
    _write(tmp_path, 4)
    answers = Answers(merged(tmp_path))
    assert batches(answers) is None
    assert answers.of("B38") == "B38 (batch sizes) needs runs at several batch sizes, which this trace does not hold."


@pytest.mark.parametrize("identifier", ["A01", "A15", "B38"])
def test_figures_over_batch_sizes_can_be_printed(profile: Trace, identifier: str) -> None:
    pytest.importorskip("matplotlib")
    assert draw(Answers(profile), find(identifier), "svg").content.startswith(b"<?xml")


def test_a_cohort_says_of_which_batch_size_its_shares_are(runs: list[Trace]) -> None:
    members = [Member("p", facts_of(merge(runs, batch_size=16), "p"))]
    (row,) = models(group_by_system(members)).table.to_dicts()
    assert (row["batch_sizes"], row["optimal_batch"], row["batch_size"]) == ("4, 8, 16", 8, 8)
    assert (row["profiled_batch_size"], row["gpu_share"]) == (16, pytest.approx(5 / 6))


def test_of_several_batch_sizes_the_one_without_the_level_of_the_others_is_named(tmp_path: Path) -> None:
    _write(tmp_path, 4)
    _write(tmp_path, 16)
    write_run(tmp_path / "mlg-8", "MLG", _kernels(8), batch_size=8, device=_DEVICE)
    with pytest.raises(XspError, match="no run of level M is of batch size 8, and others have one"):
        merged(tmp_path)


def test_a_sweep_beside_a_set_in_a_folder_of_its_own_is_of_one_set_with_it(tmp_path: Path) -> None:
    described: dict[str, Any] = {"batch_size": 4, "device": _DEVICE}
    write_run(tmp_path / "m-batch-4", "M", step_durations_ns=[_LATENCY[4]] * 3, **described)
    described = {"batch_size": 8, "device": _DEVICE}
    write_run(tmp_path / "b8" / "m", "M", step_durations_ns=[_LATENCY[8]] * 3, **described)
    write_run(tmp_path / "b8" / "mlg", "MLG", _kernels(8), **described)
    profile = merged(tmp_path)
    assert _rows(profile, "A01", "batch_size") == [(4,), (8,)]
    assert _rows(profile, "A15", "batch_size") == [(8,)]


def test_a_second_run_of_a_batch_size_is_left_out_and_named(tmp_path: Path) -> None:
    for name, batch, times in (("a", 4, 1), ("b", 4, 3), ("c", 8, 1)):
        durations = [times * _LATENCY[batch]] * 3
        write_run(tmp_path / name, "M", step_durations_ns=durations, batch_size=batch, device=_DEVICE)
    rows = merged(tmp_path).table("ledger").to_pylist()
    (row,) = (row for row in rows if row["kind"] == "run_not_used")
    assert row["run_id"] is None
    assert row["detail"].endswith("the model run (b/run.json)")
