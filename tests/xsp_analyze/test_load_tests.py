"""What LoadGen states of its tests, in A01, on the first screen, and as level M of a leveled set."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

import xsp
from tests.helpers.run_sets import write_run
from tests.helpers.synth import KinetoTrace
from xsp.cli.main import main
from xsp_analyze.findings import advise
from xsp_analyze.frames.model_time import latency_by_run, latency_of_model, load_test
from xsp_analyze.pages.report.first_screen import first_screen
from xsp_analyze.service import Answers
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_CASES = ("server_cpu", "too_slow_cpu", "offline_cpu", "multistream_cpu")


def _printed(summary: Path) -> Mapping[str, str]:
    """The summary's own lines, by key."""
    pairs = (line.partition(":") for line in summary.read_text().splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def _figures(folder: Path) -> tuple[int, int, float | None]:
    """Mean and median latency, and samples a second where the summary has them."""
    lines = _printed(folder / "mlperf_log_summary.txt")
    rate = lines.get("Completed samples per second", lines.get("Samples per second"))
    mean, median = (int(lines[key]) for key in ("Mean latency (ns)", "50.00 percentile latency (ns)"))
    return mean, median, None if rate is None else float(rate)


def _model(*paths: Path) -> Mapping[str, Any]:
    return xsp.open(*paths).analyze("A01").to_polars().row(0, named=True)


def _as_figures(row: Mapping[str, Any], folder: Path) -> None:
    mean, median, rate = _figures(folder)
    assert (row["latency_ns"], row["median_ns"], row["latency_basis"]) == (mean, median, "load_test")
    if rate is not None:
        assert row["throughput_per_s"] == pytest.approx(rate, abs=0.005)
    assert (row["low_ns"], row["high_ns"]) == (None, None)


@pytest.mark.parametrize("logs", ["folder", "mlperf_log_summary.txt", "mlperf_log_detail.txt"])
@pytest.mark.parametrize("case", _CASES)
def test_latency_and_throughput_are_those_of_the_summary_with_and_without_a_trace(
    fixtures_dir: Path, case: str, logs: str
) -> None:
    folder = fixtures_dir / "loadgen" / case
    _as_figures(_model(folder if logs == "folder" else folder / logs), folder)


@pytest.mark.real
@pytest.mark.parametrize("case", ["bert_server.l40s", "server_with_trace"])
def test_real_tests_have_the_figures_of_their_summaries(real_dir: Path, case: str) -> None:
    folder = real_dir / "loadgen" / case
    _as_figures(_model(folder), folder)
    test = load_test(convert([folder], Options()))
    assert test is not None
    lines = _printed(folder / "mlperf_log_summary.txt")
    assert test.target_latency_ns == int(lines["target_latency (ns)"])
    assert test.percentiles_ns["p99_00"] == int(lines["99.00 percentile latency (ns)"])
    assert (test.target_name, test.meets_target, test.over_target_share) == ("p99_00", True, 0.0)


def test_of_four_samples_a_query_throughput_is_that_of_samples(fixtures_dir: Path) -> None:
    """12.405025 ms for a query of four: LoadGen prints no rate in the scenario MultiStream."""
    row = _model(fixtures_dir / "loadgen" / "multistream_cpu")
    assert (row["batch_size"], row["throughput_per_s"]) == (4, pytest.approx(4 / 0.012405025))


def test_a_latency_that_no_log_states_is_unknown(fixtures_dir: Path, tmp_path: Path) -> None:
    lines = (fixtures_dir / "loadgen" / "offline_cpu" / "mlperf_log_summary.txt").read_text().splitlines(keepends=True)
    summary = tmp_path / "mlperf_log_summary.txt"
    summary.write_text("".join(line for line in lines if "latency (ns)" not in line or "target" in line))
    row = _model(summary)
    assert (row["throughput_per_s"], row["latency_ns"], row["median_ns"]) == (323.64, None, None)


def test_a_single_step_is_as_the_trace_has_it(fixtures_dir: Path) -> None:
    trace = xsp.open(fixtures_dir / "loadgen" / "server_cpu")
    assert trace.analyze("A01", steps=0).to_polars().select("latency_ns", "latency_basis").rows() == [
        (5_840_231, "host")
    ]


def test_a_missed_target_says_by_how_many_queries(fixtures_dir: Path) -> None:
    """1 us was allowed to 99 %; all 40 queries took longer, the 99th percentile 4.393476 ms."""
    test = load_test(convert([fixtures_dir / "loadgen" / "too_slow_cpu"], Options()))
    assert test is not None
    assert (test.target_latency_ns, test.target_share, test.target_name) == (1_000, 0.99, "p99_00")
    assert (test.meets_target, test.over_target_count, test.query_count) == (False, 40, 40)
    assert test.over_target_share == 1.0
    assert test.reason.startswith("Reduce target QPS to improve latency. Run unsuccessful. Processed 40 queries.")


def test_offline_has_no_target(fixtures_dir: Path) -> None:
    test = load_test(convert([fixtures_dir / "loadgen" / "offline_cpu"], Options()))
    assert test is not None
    assert (test.target_latency_ns, test.meets_target, test.over_target_share) == (None, None, None)


def _screen(path: Path) -> dict[str, Any]:
    trace = xsp.open(path).trace
    return first_screen(Answers(trace), ())


def test_the_first_screen_says_whether_the_test_is_valid_and_why_not(fixtures_dir: Path) -> None:
    screen = _screen(fixtures_dir / "loadgen" / "too_slow_cpu")
    verdict = "LoadGen Server PerformanceOnly: INVALID (early stopping, performance constraints)"
    assert screen["line"][1:] == [verdict, "3.27\u202fms, the mean latency that the load generator states"]
    tiles = {tile["id"]: tile for tile in screen["tiles"]}
    assert tiles["test"]["value"] == "INVALID"
    assert "Reduce target QPS to improve latency." in tiles["test"]["note"]
    assert (tiles["target"]["label"], tiles["target"]["value"]) == ("Latency target 1.00\u202fµs", "MISSED")
    assert tiles["target"]["note"].endswith("40 of 40 queries took longer (100\u202f%).")
    assert list(tiles) == ["test", "samples", "target", "p50_00", "p99_00", "step"]
    assert tiles["step"]["label"] == "Latency, mean"


def test_without_a_trace_the_first_screen_says_the_same(fixtures_dir: Path) -> None:
    folder = fixtures_dir / "loadgen" / "too_slow_cpu"
    alone = _screen(folder / "mlperf_log_detail.txt")
    assert alone["line"] == _screen(folder)["line"]


def _kernels() -> KinetoTrace:
    """Two steps of 10 ms with a kernel of 4 ms in a layer."""
    trace = KinetoTrace()
    for step in range(2):
        start = step * 20_000_000
        trace.step(step, start, 10_000_000)
        trace.module("Linear_0", start + 1_000, 9_000_000)
        trace.operator("aten::linear", start + 10_000, 8_000_000)
        trace.launch("gemm", start + 20_000, start + 30_000, 4_000_000)
    return trace


def _set(folder: Path, logs: Path, *, with_trace: bool) -> Path:
    """A set whose run without a profiler is a load test."""
    shared: dict[str, Any] = {"batch_size": 4, "device": {"name": "GPU"}, "serialized": True, "steps": 2}
    write_run(folder / "ML", "ML", _kernels(), **shared)
    write_run(folder / "MLG", "MLG", _kernels(), **shared)
    files = [log for log in sorted(logs.glob("mlperf_log_*")) if with_trace or "trace" not in log.name]
    described = [{"path": log.name, "format": "loadgen"} for log in files]
    write_run(folder / "M", "M", **{**shared, "steps": 0, "files": described, "batch_size": None})
    for log in files:
        shutil.copy(log, folder / "M")
    return folder


@pytest.mark.parametrize("with_trace", [True, False])
def test_a_load_test_is_level_m_of_a_set(fixtures_dir: Path, tmp_path: Path, *, with_trace: bool) -> None:
    """A query of 12.405025 ms without a profiler, 10 ms steps with one, of which a kernel takes 4 ms."""
    profile = xsp.open(_set(tmp_path / "set", fixtures_dir / "loadgen" / "multistream_cpu", with_trace=with_trace))
    assert dict(profile.table("runs").select("role", "format").rows())["model"] == "loadgen"
    model = profile.analyze("A01").to_polars().select("batch_size", "latency_ns", "latency_basis").rows()
    assert model == [(4, 12_405_025.0, "load_test")]
    (kernels,) = profile.analyze("A15").to_polars().select("kernel_duration_ns", "gpu_share").rows()
    assert kernels == (4_000_000.0, pytest.approx(4_000_000 / 12_405_025))
    overhead = profile.analyze("B02").to_polars()
    assert overhead.filter(scope="model")["baseline_ns"][0] == 12_405_025


@pytest.mark.parametrize("case", ["server_cpu", "offline_cpu"])
def test_nothing_is_a_share_of_time_in_a_queue(fixtures_dir: Path, tmp_path: Path, case: str) -> None:
    profile = xsp.open(_set(tmp_path / "set", fixtures_dir / "loadgen" / case, with_trace=True))
    mean, _, rate = _figures(fixtures_dir / "loadgen" / case)
    row = profile.analyze("A01").to_polars().row(0, named=True)
    assert (row["latency_ns"], row["latency_per_input_ns"]) == (mean, None)
    assert row["throughput_per_s"] == pytest.approx(rate, abs=0.005)
    assert profile.analyze("A15").to_polars()["gpu_share"].to_list() == [None]
    assert profile.analyze("A02").to_polars()["model_share"].null_count() > 0
    levels = profile.analyze("B02").to_polars().filter(scope="model")["level"].to_list()
    assert levels == ["kernel"]
    assert "loadgen_queued" in profile.table("ledger")["kind"].to_list()


def test_queries_that_waited_are_no_uneven_steps(fixtures_dir: Path) -> None:
    def rules(case: str) -> set[str]:
        frames = StepView.of(xsp.open(fixtures_dir / "loadgen" / case).trace)
        return {each.rule.id for each in advise(frames)}

    assert "uneven-steps" not in rules("server_cpu")
    assert "uneven-steps" in rules("multistream_cpu")


def test_tests_without_traces_are_compared_by_what_they_state(
    fixtures_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summaries = [fixtures_dir / "loadgen" / case / "mlperf_log_summary.txt" for case in ("server_cpu", "too_slow_cpu")]
    assert main(["compare", *map(str, summaries)]) == 0
    assert "-1.16" in capsys.readouterr().out  # 3.274337 less 3.312897 ms, over the latter


def test_shares_of_a_single_trace_are_as_they_were(tmp_path: Path) -> None:
    path = _kernels().write(tmp_path / "trace.json.gz")
    frames = StepView.of(xsp.open(path).trace)
    assert frames.once(latency_of_model).select("latency_ns", "model_ns").rows() == [(10_000_000.0, 10_000_000.0)]
    assert frames.once(latency_by_run)["is_queued"].to_list() == [False]
