"""A real leveled set: our runner takes M, ML and MLG on the CPU, the command merges and reports them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from xsp_analyze.analyses.recording import profiling_overhead
from xsp_analyze.core import run
from xsp_analyze.frames.layers.layer_time import layer_latencies
from xsp_analyze.frames.model_time import latency_by_run
from xsp_analyze.merge.merge import merge
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.ingester import Options
from xsp_ingest.run_set import read_run_set
from xsp_model import bundle

if TYPE_CHECKING:
    from xsp_model import Trace

_REPO = Path(__file__).resolve().parents[3]
_STEPS = 40
_LAYERS = (
    27  # 9 convolutions, 7 batch norms, 4 ReLUs, 1 identity, 1 pool, 1 linear; 3 blocks and the net add or flatten
)
_OPTIONS = ("--levels", "M,ML,MLG", "--batch", "4", "--steps", str(_STEPS), "--threads", "1", "--device", "cpu")

pytestmark = pytest.mark.torch


def _xsp(*arguments: str | Path) -> None:
    program = "import sys; from xsp.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, cwd=_REPO, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.fixture(name="runs", scope="module")
def fixture_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The set that `xsp collect` leaves."""
    pytest.importorskip("torch", reason="torch is not installed")
    out = tmp_path_factory.mktemp("leveled") / "runs"
    _xsp("collect", "--workload", "tests.runners.workload:small_convnet", *_OPTIONS, "-o", out)
    return out


@pytest.fixture(name="profile", scope="module")
def fixture_profile(runs: Path) -> Trace:
    return merge(read_run_set(runs, Options()))


def _durations_ns(run: Path) -> list[int]:
    durations: list[int] = json.loads((run / "run.json").read_text())["step_durations_ns"]
    return durations


def _trimmed_mean(values: list[int]) -> float:
    """As the paper has it: without the lowest and the highest fifth."""
    cut = len(values) // 5
    kept = sorted(values)[cut : len(values) - cut]
    return sum(kept) / len(kept)


def test_every_layer_of_one_run_is_found_in_the_other(profile: Trace) -> None:
    detail = profile.frame("ledger").filter(kind="match_layers")["detail"].to_list()
    assert len(detail) == 1
    assert detail[0].endswith(f"match at 1.000 ({_LAYERS} of {_LAYERS})")


def test_model_latency_is_of_the_run_without_a_profiler(runs: Path, profile: Trace) -> None:
    latency = StepView.of(profile).once(latency_by_run)["latency_ns"].to_list()
    assert latency == [pytest.approx(_trimmed_mean(_durations_ns(runs / "m")), rel=1e-9)]


def test_layer_latency_is_of_the_layer_run(runs: Path, profile: Trace) -> None:
    view = StepView.of(profile)
    alone = StepView.of(merge(read_run_set(runs / "ml", Options())))
    assert view.once(layer_latencies).height == _LAYERS
    assert view.once(layer_latencies)["latency_ns"].to_list() == pytest.approx(
        alone.once(layer_latencies)["latency_ns"].to_list(), rel=1e-9
    )
    assert view.of_trace.layer_runs != view.of_trace.model_runs


def test_overhead_is_what_each_level_adds_to_the_one_before(runs: Path, profile: Trace) -> None:
    rows = run(profiling_overhead, StepView.of(profile)).table
    overall = {row["level"]: row for row in rows.filter(scope="model").iter_rows(named=True)}
    assert list(overall) == ["layer", "kernel", "total"]
    assert overall["total"]["baseline_ns"] == pytest.approx(_trimmed_mean(_durations_ns(runs / "m")))
    added = {level: row["overhead_ns"] for level, row in overall.items()}
    assert added["layer"] + added["kernel"] == pytest.approx(added["total"])
    assert rows.filter(pl.col("layer_index").is_not_null()).height == _LAYERS


def test_operators_stand_in_for_kernels_and_the_run_says_so(runs: Path, profile: Trace) -> None:
    assert [json.loads((runs / r / "run.json").read_text())["deepest_level"] for r in ("m", "ml", "mlg")] == [
        "model",
        "operator",
        "operator",
    ]
    assert "kernel" not in profile.levels
    assert "operator" in profile.levels


def test_all_levels_ran_with_the_same_settings(runs: Path) -> None:
    described = [json.loads((runs / r / "run.json").read_text()) for r in ("m", "ml", "mlg")]
    for key in ("settings", "options", "model", "framework", "batch_size", "device", "warmup_steps"):
        assert described[0][key] == described[1][key] == described[2][key]
    assert [len(_durations_ns(runs / r)) for r in ("m", "ml", "mlg")] == [_STEPS] * 3


def test_the_command_merges_and_reports_what_it_collected(runs: Path, tmp_path: Path) -> None:
    _xsp("merge", runs, "-o", tmp_path / "p.xsp")
    _xsp("report", tmp_path / "p.xsp", "-o", tmp_path / "p.html")
    assert bundle.read(tmp_path / "p.xsp").frame("runs")["role"].cast(pl.String).to_list() == [
        "model",
        "layers",
        "kernels",
    ]
    page = (tmp_path / "p.html").read_text()
    assert '"id":"overhead"' in page.replace(": ", ":")
    assert "Profiling overhead" in page
