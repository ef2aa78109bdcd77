"""When the profiler runs and what is timed, with a framework that only writes down what is asked of it."""

from __future__ import annotations

import argparse
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.synth_xplane import Profile
from xsp_runners.frameworks.xplane import (
    Session,
    XplaneWorkload,
    capture_run,
    facts_of,
    prepare_environment,
    run_steps,
    write_profile,
    write_recorded,
)
from xsp_runners.outputs import Outputs
from xsp_runners.run_folder import RunnerError
from xsp_runners.sets.observed import Observed

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Tool:
    """Writes an empty profile where it is told to."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._folder = ""

    def synchronize(self, result: object) -> None:
        self.calls.append(f"wait {result}" if result else "wait")

    @contextmanager
    def mark(self, step: int) -> Iterator[None]:
        self.calls.append(f"step {step}")
        yield
        self.calls.append("end")

    def start(self, folder: str) -> None:
        self.calls.append("start")
        self._folder = folder

    def stop(self) -> None:
        self.calls.append("stop")
        session = Path(self._folder) / "plugins" / "profile" / "1"
        session.mkdir(parents=True)
        Profile().write(session / "secret-host.xplane.pb")


def _arguments(**changes: object) -> argparse.Namespace:
    usual: dict[str, object] = {
        "level": "ML",
        "device": "cpu",
        "execution": "eager",
        "batch_size": 4,
        "script": None,
        "script_args": [],
    }
    return argparse.Namespace(**{**usual, **changes})


def _run_steps(args: argparse.Namespace, session: Session, work: XplaneWorkload | None) -> None:
    counts = {"warmup": session.warmup, "steps": session.steps, "warmup_seconds": 0.0, "rank": None}
    noted = argparse.Namespace(**{**vars(args), **counts})
    observed = Observed(noted, on_gpu=False, synchronize=session.tool.synchronize, settings=dict)
    run_steps(args, session, work, Outputs(Path(), "none"), observed)


def test_the_profiler_runs_after_the_warm_up_and_every_step_waits() -> None:
    tool = _Tool()
    session = Session(tool, warmup=1, steps=2)
    _run_steps(_arguments(), session, XplaneWorkload("w", "", lambda: "result"))
    assert tool.calls == [
        *("wait", "wait result"),
        *("start", "wait", "step 0", "wait result", "end"),
        *("wait", "step 1", "wait result", "end", "stop"),
    ]
    assert len(session.durations_ns) == 2
    assert session.profile == b""


def test_without_a_profiler_nothing_is_marked() -> None:
    tool = _Tool()
    session = Session(tool, warmup=1, steps=1, profiled=False)
    _run_steps(_arguments(level="M"), session, XplaneWorkload("w", "", lambda: None))
    assert set(tool.calls) == {"wait"}
    assert (len(session.durations_ns), session.profile) == (1, None)


def test_a_step_that_fails_stops_the_profiler_and_leaves_no_profile() -> None:
    tool = _Tool()
    session = Session(tool, warmup=1, steps=3)
    results = iter(["a", "b"])
    with pytest.raises(StopIteration):
        _run_steps(_arguments(), session, XplaneWorkload("w", "", lambda: next(results)))
    assert tool.calls[-1] == "stop"
    assert session.profile is None


def test_a_script_marks_its_steps(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from xsp_runners.steps import xsp_step\n"
        "for _ in range(9):\n"
        "    with xsp_step(batch_size=7):\n"
        "        pass\n"
        "raise SystemExit('never')\n"
    )
    session = Session(_Tool(), warmup=1, steps=2)
    args = _arguments(script=str(script), batch_size=None)
    _run_steps(args, session, None)
    facts = facts_of(session, args, None, on_gpu=False)
    assert (facts["batch_size"], facts["model"]) == (7, {"name": "train", "task": ""})


@pytest.mark.parametrize(
    ("level", "on_gpu", "deepest", "serialised"),
    [
        ("M", False, "model", True),
        ("ML", False, "operator", True),
        ("MLG", False, "operator", True),
        ("MLG", True, "kernel", False),
        ("ML", True, "operator", True),
        ("MLG-serialised", True, "kernel", True),
    ],
)
def test_a_run_says_how_deep_it_goes(level: str, on_gpu: bool, deepest: str, serialised: bool) -> None:  # noqa: FBT001
    session = Session(_Tool(), 1, 1, profiled=level != "M")
    facts = facts_of(session, _arguments(level=level), XplaneWorkload("w", "t", lambda: None), on_gpu=on_gpu)
    assert (facts["deepest_level"], facts["serialized"]) == (deepest, serialised)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"execution": "cudagraph"}, "CUDA graphs are not recorded for JAX"),
        ({"level": "MLG-serialised"}, "needs a GPU"),
    ],
)
def test_what_cannot_be_done_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RunnerError, match=sentence):
        prepare_environment(_arguments(**changes), "JAX")


def test_layers_on_a_gpu_wait_for_each_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    import os  # noqa: PLC0415

    prepare_environment(_arguments(level="MLG", device="cuda"), "JAX")
    assert "CUDA_LAUNCH_BLOCKING" not in os.environ
    prepare_environment(_arguments(level="ML", device="cuda"), "JAX")
    assert os.environ.pop("CUDA_LAUNCH_BLOCKING") == "1"


def test_a_capture_that_ends_early_writes_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(RunnerError, match="ended after 1 of 3 steps"),
        capture_run(_Tool(), tmp_path, steps=2, warmup=1, facts=lambda _: {}) as session,
    ):
        session.step()
    assert list(tmp_path.iterdir()) == []


def test_no_profile_means_no_file(tmp_path: Path) -> None:
    assert write_profile(Session(_Tool(), 1, 1), tmp_path) is None
    assert list(tmp_path.iterdir()) == []


class _OnGpu(_Tool):
    """Leaves a profile with a kernel."""

    def stop(self) -> None:
        super().stop()
        (path,) = Path(self._folder).rglob("*.xplane.pb")
        profile = Profile()
        device = profile.plane("/device:GPU:0")
        device.event(device.line(7, "Stream #7"), "gemm", 10, 20)
        profile.write(path)


@pytest.mark.parametrize(
    ("tool", "level", "on_gpu", "fails"),
    [
        (_Tool(), "MLG", True, True),
        (_Tool(), "MLG-serialised", True, True),
        (_OnGpu(), "MLG", True, False),
        (_Tool(), "MLG", False, False),
        (_Tool(), "ML", True, False),
    ],
)
def test_a_gpu_of_which_nothing_was_recorded_fails_the_run(
    tmp_path: Path, tool: _Tool, level: str, *, on_gpu: bool, fails: bool
) -> None:
    session = Session(tool, 1, 1)
    for _ in range(2):
        session.begin()
        session.end()
    with pytest.raises(RunnerError, match="nothing of the GPU") if fails else nullcontext():
        write_recorded(session, _arguments(level=level, out=tmp_path), on_gpu=on_gpu)
