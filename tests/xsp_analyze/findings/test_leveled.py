"""Whether the runs of a set agree: planted ones that do not, and sets that are as they should be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.run_sets import merged, write_run
from tests.helpers.synth import KinetoTrace
from xsp_analyze.findings import advise
from xsp_analyze.trace.step_view import StepView

if TYPE_CHECKING:
    from collections.abc import Sequence

_REPO = Path(__file__).resolve().parents[3]
_US = 1_000
_STEADY = (10_000, 10_100, 10_050, 9_950, 10_000)


def _trace(durations_us: Sequence[int]) -> KinetoTrace:
    """Steps of one module with one kernel."""
    trace, start = KinetoTrace(), 0
    for number, duration_us in enumerate(durations_us):
        trace.step(number, start, duration_us * _US)
        trace.module("Linear_0", start + 10 * _US, 8_000 * _US)
        trace.operator("aten::addmm", start + 20 * _US, 100 * _US)
        trace.launch("gemm", start + 30 * _US, start + 60 * _US, 7_000 * _US)
        start += (duration_us + 500) * _US
    return trace


def _set(out: Path, model_us: Sequence[int], profiled_us: Sequence[int]) -> Path:
    """M, ML and MLG, each timed as the runner does."""
    for level, durations_us in (("M", model_us), ("ML", profiled_us), ("MLG", profiled_us)):
        trace = None if level == "M" else _trace(durations_us)
        durations_ns = [each * _US for each in durations_us]
        facts = {"batch_size": 8, "device": {"name": "NVIDIA H200"}, "serialized": level == "ML"}
        write_run(out / level.lower(), level, trace, step_durations_ns=durations_ns, **facts)
    return out


def _sentences(run_set: Path) -> list[str]:
    findings = advise(StepView.of(merged(run_set)))
    return [one.observation.sentence.replace("\u202f", " ") for one in findings if one.rule.id == "runs-disagree"]


def test_a_run_without_a_profiler_that_is_slower_than_one_with_it_is_doubted(tmp_path: Path) -> None:
    slower = [duration * 2 for duration in _STEADY]
    assert _sentences(_set(tmp_path, slower, _STEADY)) == [
        "A step takes 20.0 ms without a profiler, 100 % longer than the 10.0 ms under one (level ML)."
    ]


def test_steps_that_profiling_makes_longer_are_as_they_should_be(tmp_path: Path) -> None:
    assert _sentences(_set(tmp_path, _STEADY, [duration * 2 for duration in _STEADY])) == []


def test_steps_that_overlap_with_those_of_the_other_run_say_nothing(tmp_path: Path) -> None:
    """Medians are 8 % apart, and a quarter of the slower run's steps is as fast as a quarter of the other's."""
    assert _sentences(_set(tmp_path, (9_900, 9_900, 10_800, 10_800, 10_900), _STEADY)) == []


def test_steps_that_differ_among_themselves_are_doubted(tmp_path: Path) -> None:
    """Quartiles of 6, 8, 10, 12 and 14 ms are 8 and 12 ms: 40 % of 10."""
    assert _sentences(_set(tmp_path, (6_000, 12_000, 10_000, 14_000, 8_000), [11_000] * 5)) == [
        "The middle half of the steps without a profiler spreads over 40.0 % of their median."
    ]


def test_two_steps_are_too_few_to_say_so(tmp_path: Path) -> None:
    assert _sentences(_set(tmp_path, (20_000, 20_000), (10_000, 10_000))) == []


@pytest.mark.slow
def test_the_leveled_fixture_agrees() -> None:
    assert _sentences(_REPO / "fixtures" / "run_set" / "convnet_v100_synthetic") == []


@pytest.mark.real
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_leveled_examples_agree(tmp_path: Path, real_dir: Path, seed: int) -> None:
    tool = real_dir.parent / "tools" / "leveled-example"
    if not tool.is_file():
        pytest.skip("the writer of leveled examples is not beside the real traces")
    subprocess.run([sys.executable, str(tool), "--seed", str(seed), "--out", str(tmp_path / "set")], check=True)
    assert _sentences(tmp_path / "set") == []
