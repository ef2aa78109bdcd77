"""Real leveled sets of TensorFlow and JAX on the CPU: collected, merged and reported by the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.frameworks import python_with
from xsp_analyze.analyses.recording import profiling_overhead
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_model import bundle

if TYPE_CHECKING:
    from xsp_model import Trace

_REPO = Path(__file__).resolve().parents[3]
_COMMON = ("--levels", "M,ML,MLG", "--device", "cpu", "--threads", "1", "--warmup", "2")
_STEPS = 4
# Share of the operators outside layers, by number, which is the same on a busy machine: Keras' optimizer runs a few
# operators for each variable.
_OUTSIDE = {"keras inference": 0.01, "keras training": 0.6, "jax training": 0.05}
_CASES = {
    "keras inference": ("tensorflow", "zoo:keras/MobileNetV2", "inference", 1),
    "keras training": ("tensorflow", "tests.runners.keras_workload:build", "training", 2),
    "jax training": ("jax", "zoo:transformer", "training", 2),
}
_MARKS = {"tensorflow": pytest.mark.tensorflow, "jax": pytest.mark.jax}


def _xsp(*arguments: str | Path) -> None:
    program = "import sys; from xsp.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, cwd=_REPO, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.fixture(
    name="case", scope="module", params=[pytest.param(name, marks=_MARKS[case[0]]) for name, case in _CASES.items()]
)
def fixture_case(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(name="runs", scope="module")
def fixture_runs(case: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The set that `xsp collect` leaves."""
    framework, workload, mode, batch = _CASES[case]
    chosen = ("--mode", mode) if workload.startswith("zoo:") else ()  # else the workload's own code decides
    out = tmp_path_factory.mktemp("leveled") / "runs"
    _xsp(
        *("collect", "--framework", framework, "--python", python_with(framework), "--workload", workload),
        *(*chosen, "--batch-size", str(batch), "--steps", str(_STEPS), *_COMMON, "-o", out),
    )
    return out


@pytest.fixture(name="merged", scope="module")
def fixture_merged(runs: Path) -> Path:
    """The bundle that `xsp merge` writes."""
    path = runs.parent / "set.xsp"
    _xsp("merge", runs, "-o", path)
    return path


@pytest.fixture(name="profile", scope="module")
def fixture_profile(merged: Path) -> Trace:
    return bundle.read(merged)


def _described(runs: Path, level: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((runs / level / "run.json").read_text())
    return document


def test_each_level_says_what_it_holds_and_that_there_are_no_kernels(runs: Path, profile: Trace) -> None:
    levels = [_described(runs, level) for level in ("m", "ml", "mlg")]
    assert [level["deepest_level"] for level in levels] == ["model", "operator", "operator"]
    assert [level["serialized"] for level in levels] == [True, True, True]
    assert levels[0]["files"] == []
    assert "kernel" not in profile.levels


def test_nothing_tells_whose_machine_it_was(runs: Path) -> None:
    private = [os.uname().nodename.encode(), str(_REPO).encode(), str(runs).encode(), str(Path.home()).encode()]
    for file in (path for level in ("ml", "mlg") for path in (runs / level).iterdir() if path.suffix != ".json"):
        content = file.read_bytes()
        assert not any(name in content for name in private if len(name) > 4)
    assert sorted(file.name for file in (runs / "ml").iterdir()) == [
        *("run.json", "system_samples.jsonl", "trace.xplane.pb")
    ]


def test_layers_are_the_model_s_and_match(case: str, runs: Path, profile: Trace) -> None:
    layers = profile.frame("layers").filter(pl.col("layer_index").is_not_null())
    named = {str(layer["name"]) for layer in _described(runs, "ml")["layers"]}
    assert layers["source"].cast(str).unique().to_list() == ["module"]
    assert set(layers["layer_name"].cast(str)) <= named
    expected = {
        "keras inference": {"Conv1", "block_1_expand", "block_16_project_BN", "predictions"},
        "keras training": {"encoder/first", "encoder/second", "head"},
        "jax training": {"embedding", "block1/attention/query", "block2/feed_forward/down", "head", "loss"},
    }
    assert expected[case] <= set(layers["layer_name"].cast(str))
    detail = profile.frame("ledger").filter(kind="match_layers")["detail"].item()
    assert " match at 1.000 (" in detail


def test_layers_hold_the_model_s_operators(case: str, profile: Trace) -> None:
    """In every profiled run; what is left is the optimizer's, the loss's and XLA's own."""
    outside = (
        profile.frame("ledger").filter(kind="operators_outside_layers").group_by("run_id").agg(pl.col("count").sum())
    )
    spans = profile.frame("spans")
    above = spans.select(pl.col("span_id").alias("parent_id"), pl.col("level").alias("above"))
    operators = spans.filter(level="operator").join(above, on="parent_id", how="left")
    total = (
        operators.filter(pl.col("above").cast(str).fill_null("") != "operator")
        .group_by("run_id")
        .agg(pl.len().alias("total"))
    )
    shares = total.join(outside, on="run_id", how="left").select(pl.col("count").fill_null(0) / pl.col("total"))
    assert total.height == 2
    assert all(share <= _OUTSIDE[case] for share in shares.to_series())


def test_steps_of_the_runs_stand_beside_each_other(profile: Trace) -> None:
    steps = profile.frame("spans").filter(kind="step").group_by("run_id").agg(pl.col("step").sort())
    assert [row["step"] for row in steps.iter_rows(named=True)] == [list(range(_STEPS))] * 2


def test_a_profiled_step_lies_within_the_time_taken_around_it(runs: Path, profile: Trace) -> None:
    """The runner's clock and the profiler's agree on each step: one stands around the other."""
    for run_id, level in ((1, "ml"), (2, "mlg")):
        steps = profile.frame("spans").filter(kind="step", run_id=run_id).sort("step")["duration_ns"].to_list()
        around: list[int] = _described(runs, level)["step_durations_ns"]
        assert all(inner <= outer for inner, outer in zip(steps, around, strict=True))


def test_overhead_is_there_for_each_level_and_adds_up(profile: Trace) -> None:
    rows = run(profiling_overhead, StepView.of(profile)).table.filter(scope="model")
    added = dict(rows.select("level", "overhead_ns").iter_rows())
    assert added["layer"] + added["kernel"] == pytest.approx(added["total"])


def test_the_report_has_layers_and_overhead(merged: Path) -> None:
    page = merged.with_suffix(".html")
    _xsp("report", merged, "-o", page)
    text = page.read_text(encoding="utf-8")
    assert "profiling overhead" in text
    assert "layer information" in text
