"""What is noted around the steps of a run: warm-up by time, progress, clocks of GPUs, the settings in force."""

from __future__ import annotations

import io
import json
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from xsp_runners import torch_levels
from xsp_runners.run_folder import RunnerError
from xsp_runners.sets import observed as observed_module
from xsp_runners.sets.observed import GpuStates, Observed, Progress
from xsp_runners.torch_levels import waits_for_all

if TYPE_CHECKING:
    from collections.abc import Iterator

_REPO = Path(__file__).resolve().parents[2]


class _Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class _Reader:
    """Stands in for the driver."""

    def __init__(self) -> None:
        self.calls = 0
        self.closed = False

    def once(self) -> tuple[int, list[dict[str, Any]]]:
        self.calls += 1
        return self.calls, [{"device": 0, "sm_clock_hz": 1_980_000_000, "throttle": ["sw_power_cap"]}]

    def close(self) -> None:
        self.closed = True


def _observed(clock: _Clock, events: list[str], **options: Any) -> Observed:  # noqa: ANN401
    args = Namespace(**{"level": "M", "warmup": 2, "steps": 3, "warmup_seconds": 1.0, "rank": None, **options})
    return Observed(
        args,
        on_gpu=True,
        synchronize=lambda _: events.append("wait"),
        settings=lambda: {"tf32": True},
        clock=clock,
    )


@pytest.fixture(name="reader")
def fixture_reader(monkeypatch: pytest.MonkeyPatch) -> _Reader:
    reader = _Reader()
    monkeypatch.setattr(observed_module, "open_reader", lambda: reader)
    return reader


@pytest.mark.usefixtures("reader")
def test_warm_up_lasts_until_both_its_time_and_its_count_are_over() -> None:
    clock, events = _Clock(), list[str]()
    observed = _observed(clock, events)
    timed = 0
    while observed.warming():
        clock.now += 0.3  # a step of 0.3 s: the fourth ends after 1.2 s
        observed.end_warmup_step()
        timed += 1
    for _ in range(5):
        clock.now += 0.3
        observed.end_step()
    assert timed == 4
    assert events == ["wait"] * 4
    assert observed.facts["warmup_steps"] == 4 + 2
    assert observed.facts["warmup_ns"] == pytest.approx(6 * 0.3e9)
    assert observed.step_count == 9


def test_without_a_time_the_count_alone_is_the_warm_up(reader: _Reader) -> None:
    observed = _observed(_Clock(), [], warmup_seconds=0.0, warmup=1)
    assert not observed.warming()
    assert reader.calls == 1  # before the only step of the warm-up
    for _ in range(4):
        observed.end_step()
    assert observed.facts["warmup_steps"] == 1


@pytest.mark.parametrize("warmup", [1, 2, 5])
def test_clocks_are_read_once_before_the_last_step_of_the_warm_up_and_after_the_last_of_all(
    reader: _Reader, warmup: int
) -> None:
    observed = _observed(_Clock(), [], warmup_seconds=0.0, warmup=warmup)
    calls = []
    while observed.warming():
        observed.end_warmup_step()
    for _ in range(warmup + 3):
        calls.append(reader.calls)
        observed.end_step()
    assert calls == [0] * (warmup - 1) + [1] * 4
    before, after = observed.facts["gpu_before"], observed.facts["gpu_after"]
    assert (before, after) == (
        [{"time_ns": 1, "device": 0, "sm_clock_hz": 1_980_000_000, "throttle": ["sw_power_cap"]}],
        [{"time_ns": 2, "device": 0, "sm_clock_hz": 1_980_000_000, "throttle": ["sw_power_cap"]}],
    )
    assert observed.facts["settings"] == {"tf32": True}
    assert reader.closed


@pytest.mark.parametrize("error", [RunnerError("NVML says: no driver"), OSError("torn away")])
def test_a_driver_that_does_not_answer_is_asked_once_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    calls: list[int] = []

    def refuse() -> None:
        calls.append(1)
        raise error

    monkeypatch.setattr(observed_module, "open_reader", refuse)
    states = GpuStates()
    assert (states.now(), states.now(), len(calls)) == ([], [], 1)
    states.close()


class _Stream(io.StringIO):
    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def _progress(*, terminal: bool) -> str:
    clock, stream = _Clock(), _Stream(terminal=terminal)
    progress = Progress("ML", 2, 4, stream, clock)
    for done in range(1, 7):
        clock.now += 3
        progress.end_step(done)
    return stream.getvalue()


def test_progress_is_a_plain_line_now_and_then_where_nobody_watches() -> None:
    assert _progress(terminal=False).splitlines() == [
        "ML: warm-up 2 of 2, 6.0 s",
        "ML: step 2 of 4, 12.0 s",
        "ML: step 4 of 4, 18.0 s",
    ]


def test_progress_is_one_line_on_a_terminal() -> None:
    written = _progress(terminal=True)
    assert written.count("\n") == 1
    assert written.split("\r\x1b[K") == [
        "",
        "ML: warm-up 1 of 2, 3.0 s",
        "ML: warm-up 2 of 2, 6.0 s",
        "ML: step 1 of 4, 9.0 s",
        "ML: step 2 of 4, 12.0 s",
        "ML: step 3 of 4, 15.0 s",
        "ML: step 4 of 4, 18.0 s\n",
    ]


def test_progress_that_nobody_can_read_ends_nothing() -> None:
    stream = _Stream(terminal=False)
    stream.close()
    Progress("M", 1, 1, stream, _Clock()).end_step(2)


def _devices(in_use: set[int], waited: list[int], *, with_contexts: bool) -> SimpleNamespace:
    cuda = SimpleNamespace(
        device_count=lambda: 4,
        current_device=lambda: 1,
        synchronize=lambda device=1: waited.append(device),
        memory_reserved=lambda device: 1 << 20 if device in in_use else 0,
    )
    context = {"_cuda_hasPrimaryContext": lambda device: device in in_use} if with_contexts else {}
    return SimpleNamespace(cuda=cuda, _C=SimpleNamespace(**context))


@pytest.mark.parametrize("with_contexts", [True, False])
def test_all_devices_in_use_are_waited_for_and_no_other(*, with_contexts: bool) -> None:
    waited: list[int] = []
    in_use = {1, 3}
    wait = waits_for_all(_devices(in_use, waited, with_contexts=with_contexts))
    wait()
    assert waited == [1, 3]
    in_use.add(0)  # a program may take another one at any step
    wait()
    assert waited == [1, 3, 1, 0, 3]


@pytest.fixture(name="kept")
def fixture_kept() -> Iterator[Any]:
    """Torch, whose settings are afterwards what they were."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32
    yield torch
    cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32 = before


_PROGRAM = """
import os, sys, torch
from xsp_runners.steps import xsp_step
torch.backends.cudnn.benchmark = True
torch.manual_seed(7)
with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=True):
    for _ in range(9):
        with xsp_step():
            torch.rand(1)
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {"set_by": "program", "seed": None, "cudnn_deterministic": False, "cudnn_tf32": True}),
        (["--settings", "reproducible"], {"set_by": "xsp", "seed": 0}),
    ],
)
def test_a_programs_own_settings_are_left_alone_and_told_as_they_were_in_its_steps(
    tmp_path: Path,
    kept: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    expected: dict[str, object],
) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setattr(sys, "path", [str(_REPO), *sys.path])
    cudnn = kept.backends.cudnn
    cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32 = True, False, True
    (tmp_path / "program.py").write_text(_PROGRAM)
    options = [*options, "--script", str(tmp_path / "program.py"), "--steps", "2", "--warmup", "1", "--device", "cpu"]
    assert torch_levels.main(["--level", "M", "--out", str(tmp_path / "m"), *options]) == 0
    settings = json.loads((tmp_path / "m" / "run.json").read_text())["settings"]
    assert {name: settings[name] for name in expected} == expected
    own = expected["set_by"] == "program"
    assert settings["cudnn_benchmark"] is True  # as the program set it, whatever was before
    assert ("cublas_workspace_config" in settings) is not own
    assert cudnn.deterministic is not own
    assert cudnn.allow_tf32 is own


@pytest.mark.torch
def test_a_function_of_ones_own_meets_torch_as_it_is(tmp_path: Path, kept: Any) -> None:  # noqa: ANN401
    kept.manual_seed(5)
    state = kept.random.get_rng_state()
    kept.backends.cudnn.allow_tf32 = True
    options = ["--workload", "tests.runners.test_observed:touching_nothing", "--device", "cpu", "--steps", "1"]
    assert torch_levels.main(["--level", "M", "--out", str(tmp_path), *options]) == 0
    assert kept.equal(kept.random.get_rng_state(), state)
    assert kept.backends.cudnn.allow_tf32 is True


def touching_nothing(batch: int, device: str) -> Any:  # noqa: ANN401, ARG001 (as runners call it)
    """A step that does nothing."""
    return lambda: None


@pytest.mark.torch
def test_models_of_the_zoo_keep_reproducible_settings_and_say_where_they_are_from(
    tmp_path: Path,
    kept: Any,  # noqa: ANN401
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept.backends.cudnn.deterministic = False
    options = ["--workload", "zoo:mlp", "--device", "cpu", "--steps", "1", "--warmup-seconds", "0.01"]
    assert torch_levels.main(["--level", "M", "--out", str(tmp_path), *options]) == 0
    facts = json.loads((tmp_path / "run.json").read_text())
    settings = facts["settings"]
    assert (settings["set_by"], settings["seed"], settings["cudnn_deterministic"]) == ("xsp", 0, True)
    assert (settings["cudnn_tf32"], settings["cublas_workspace_config"]) == (False, ":4096:8")
    assert facts["warmup_steps"] > 3
    assert facts["recorded_unix_ns"][0] < facts["recorded_unix_ns"][1]
    assert "gpu_before" not in facts
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "M: mlp from our own definition"
    assert lines[-1].startswith("M: step 1 of 1, ")


@pytest.mark.torch
def test_a_script_warms_up_by_time_before_its_counted_steps(tmp_path: Path, kept: Any) -> None:  # noqa: ANN401, ARG001
    (tmp_path / "program.py").write_text(_PROGRAM.replace("range(9)", "range(10**9)"))
    options = ["--script", str(tmp_path / "program.py"), "--steps", "2", "--warmup", "1", "--device", "cpu"]
    for level in ("M", "MLG"):
        arguments = ["--level", level, "--out", str(tmp_path / level), *options, "--warmup-seconds", "0.2"]
        assert torch_levels.main(arguments) == 0
        facts = json.loads((tmp_path / level / "run.json").read_text())
        assert len(facts["step_durations_ns"]) == 2
        assert facts["warmup_steps"] > 1
        assert facts["warmup_ns"] >= 200_000_000
