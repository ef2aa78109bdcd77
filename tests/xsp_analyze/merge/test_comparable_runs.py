"""Which runs may be merged: facts that contradict refuse, facts that a file does not tell do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.run_sets import merged, write_run
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.merge.merge import merge
from xsp_analyze.service import Answers
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.ingester import Options
from xsp_ingest.run_set import failed_runs, read_run_set, read_single
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_STEPS = [1_000, 1_100, 1_200]


def _trace() -> KinetoTrace:
    trace = KinetoTrace()
    trace.module("Linear_0", 0, 100_000)
    trace.operator("aten::linear", 10_000, 80_000)
    trace.launch("gemm", 20_000, 30_000, 40_000)
    return trace


def _write(folder: Path, level: str, trace: KinetoTrace | None = None, **described: object) -> None:
    write_run(folder, level, trace, **{"batch_size": 8, "serialized": True, "device": {"name": "GPU"}, **described})


def test_a_trace_that_does_not_tell_its_version_goes_with_a_described_run(tmp_path: Path) -> None:
    _write(tmp_path / "M", "M", step_durations_ns=_STEPS)
    _trace().write(tmp_path / "trace.json.gz")
    inputs = [("model", tmp_path / "M" / "run.json"), ("kernels", tmp_path / "trace.json.gz")]
    profile = merge([read_single(path, role, Options()) for role, path in inputs])
    assert profile.frame("runs")["role"].to_list() == ["model", "kernels"]


@pytest.mark.parametrize(
    ("framework", "message"),
    [
        ({"name": "pytorch", "version": "2.5.0"}, "frameworks: pytorch 2.11.0 .* pytorch 2.5.0 "),
        ({"name": "tensorflow"}, "frameworks: pytorch 2.11.0 .* tensorflow "),
    ],
)
def test_versions_and_names_that_contradict_are_refused(tmp_path: Path, framework: object, message: str) -> None:
    _write(tmp_path / "M", "M", step_durations_ns=_STEPS)
    _write(tmp_path / "MLG", "MLG", _trace(), framework=framework)
    with pytest.raises(XspError, match=message):
        merged(tmp_path)


def test_two_versions_are_refused_although_the_first_run_tells_none(tmp_path: Path) -> None:
    _write(tmp_path / "M", "M", step_durations_ns=_STEPS, framework={"name": "pytorch"})
    _write(tmp_path / "ML", "ML", _trace(), framework={"name": "pytorch", "version": "2.5.0"})
    _write(tmp_path / "MLG", "MLG", _trace())
    with pytest.raises(XspError, match=r"pytorch 2\.5\.0 .* pytorch 2\.11\.0 "):
        merged(tmp_path)


def test_a_second_run_of_a_level_is_not_dropped_in_silence(tmp_path: Path) -> None:
    _write(tmp_path / "M", "M", step_durations_ns=_STEPS)
    _write(tmp_path / "M2", "M", step_durations_ns=[9 * step for step in _STEPS])
    _write(tmp_path / "MLG", "MLG", _trace())
    ledger = {row["kind"]: row["count"] for row in merged(tmp_path).frame("ledger").to_dicts()}
    assert ledger["run_not_used"] == 1


def test_without_a_layer_run_overhead_is_the_total_and_not_that_of_layers(tmp_path: Path) -> None:
    _write(tmp_path / "M", "M", step_durations_ns=_STEPS)
    _write(tmp_path / "MLG", "MLG", _trace(), step_durations_ns=[2 * step for step in _STEPS])
    rows = run(find("B02"), StepView.of(merged(tmp_path))).table.select("level", "scope", "overhead_ns").rows()
    assert rows == [("total", "model", 1_100.0)]


def test_a_single_run_of_each_level_is_all_used(tmp_path: Path) -> None:
    _write(tmp_path / "M", "M", step_durations_ns=_STEPS)
    _write(tmp_path / "MLG", "MLG", _trace())
    assert "run_not_used" not in merged(tmp_path).frame("ledger")["kind"].to_list()


def _swept(folder: Path) -> None:
    """M at three batch sizes: twice the inputs take as long, then twice as long."""
    for batch, latency in ((4, 1_000), (8, 1_000), (16, 2_000)):
        _write(folder / f"m-{batch}", "M", batch_size=batch, step_durations_ns=[latency] * 3)


def _throughput(profile: Trace) -> list[tuple[int, float, bool]]:
    rows = run(find("A01"), StepView.of(profile)).table.select("batch_size", "throughput_per_s", "is_optimal")
    return rows.rows()


@pytest.mark.slow
def test_a_sweep_beside_a_profile_gives_throughput_and_nothing_else(tmp_path: Path) -> None:
    _write(tmp_path / "MLG", "MLG", _trace())
    _write(tmp_path / "m-8", "M", step_durations_ns=[1_000] * 3)
    alone = merged(tmp_path)
    _swept_beside = tmp_path / "set"
    _write(_swept_beside / "MLG", "MLG", _trace())
    _swept(_swept_beside)
    profile = merged(_swept_beside)
    roles = ["model", "kernels", *["model, other batch size"] * 2]
    assert profile.frame("runs")["role"].cast(str).to_list() == roles
    assert _throughput(profile) == [(4, 4e6, False), (8, 8e6, True), (16, 8e6, False)]
    for identifier in ("A10", "A15", "B02", "A02"):
        ours, theirs = (run(find(identifier), StepView.of(each)).table for each in (profile, alone))
        assert ours.equals(theirs, null_equal=True), identifier
    assert Answers(profile).of_model()["batch_size"] == 8


def test_a_sweep_alone_gives_throughput(tmp_path: Path) -> None:
    _swept(tmp_path)
    assert _throughput(merged(tmp_path)) == [(4, 4e6, False), (8, 8e6, True), (16, 8e6, False)]


def test_a_profile_is_not_joined_with_a_model_run_of_another_batch_size_alone(tmp_path: Path) -> None:
    _write(tmp_path / "MLG", "MLG", _trace())
    _write(tmp_path / "m-4", "M", batch_size=4, step_durations_ns=_STEPS)
    with pytest.raises(XspError, match=r"of different batch sizes: 8 in .* 4 in "):
        merged(tmp_path)


def test_a_run_that_failed_when_it_was_collected_is_told_of(tmp_path: Path) -> None:
    _write(tmp_path / "M", "M", step_durations_ns=_STEPS)
    for name, text in (
        ("ml", '{"error": "CUDA out\\nof memory"}'),
        ("mlg", "{"),
        ("M", '{"error": "of an earlier try"}'),
    ):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "error.json").write_text(text)
    (failed,) = failed_runs(tmp_path)
    assert failed.detail.endswith("left out: ml (CUDA out of memory), mlg (no reason given)")
    ledger = merge(read_run_set(tmp_path, Options()), noted=[failed]).frame("ledger")
    assert ledger.filter(kind="run_failed")["count"].to_list() == [2]
