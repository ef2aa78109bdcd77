"""When the profiler runs and what is timed, with a framework that only writes down what is asked of it."""

from __future__ import annotations

import argparse
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.synth_xplane import Profile
from xsp_runners.run_folder import RunnerError
from xsp_runners.xplane_levels import Work, captured, facts_of, prepared, run_steps
from xsp_runners.xplane_session import Session, write_profile

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Tool:
    """Writes an empty profile where it is told to."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._folder = ""

    def synchronize(self, result: object) -> None:
        self.said.append(f"wait {result}" if result else "wait")

    @contextmanager
    def mark(self, step: int) -> Iterator[None]:
        self.said.append(f"step {step}")
        yield
        self.said.append("end")

    def start(self, folder: str) -> None:
        self.said.append("start")
        self._folder = folder

    def stop(self) -> None:
        self.said.append("stop")
        session = Path(self._folder) / "plugins" / "profile" / "1"
        session.mkdir(parents=True)
        Profile().write(session / "secret-host.xplane.pb")


def _arguments(**changes: object) -> argparse.Namespace:
    known: dict[str, object] = {
        "level": "ML",
        "device": "cpu",
        "execution": "eager",
        "batch_size": 4,
        "script": None,
        "script_args": [],
    }
    return argparse.Namespace(**{**known, **changes})


def test_the_profiler_runs_after_the_warm_up_and_every_step_waits() -> None:
    tool = _Tool()
    session = Session(tool, warmup=1, steps=2)
    run_steps(_arguments(), session, Work("w", "", lambda: "result"))
    assert tool.said == [
        *("wait", "wait result"),
        *("start", "wait", "step 0", "wait result", "end"),
        *("wait", "step 1", "wait result", "end", "stop"),
    ]
    assert len(session.durations_ns) == 2
    assert session.profile == b""


def test_without_a_profiler_nothing_is_marked() -> None:
    tool = _Tool()
    session = Session(tool, warmup=1, steps=1, profiled=False)
    run_steps(_arguments(level="M"), session, Work("w", "", lambda: None))
    assert set(tool.said) == {"wait"}
    assert (len(session.durations_ns), session.profile) == (1, None)


def test_a_step_that_fails_stops_the_profiler_and_leaves_no_profile() -> None:
    tool = _Tool()
    session = Session(tool, warmup=1, steps=3)
    results = iter(["a", "b"])
    with pytest.raises(StopIteration):
        run_steps(_arguments(), session, Work("w", "", lambda: next(results)))
    assert tool.said[-1] == "stop"
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
    run_steps(args, session, None)
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
    facts = facts_of(session, _arguments(level=level), Work("w", "t", lambda: None), on_gpu=on_gpu)
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
        prepared(_arguments(**changes), "JAX")


def test_layers_on_a_gpu_wait_for_each_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    import os  # noqa: PLC0415

    prepared(_arguments(level="MLG", device="cuda"), "JAX")
    assert "CUDA_LAUNCH_BLOCKING" not in os.environ
    prepared(_arguments(level="ML", device="cuda"), "JAX")
    assert os.environ.pop("CUDA_LAUNCH_BLOCKING") == "1"


def test_a_capture_that_ends_early_writes_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(RunnerError, match="ended after 1 of 3 steps"),
        captured(_Tool(), tmp_path, steps=2, warmup=1, facts=lambda _: {}) as session,
    ):
        session.step()
    assert list(tmp_path.iterdir()) == []


def test_no_profile_means_no_file(tmp_path: Path) -> None:
    assert write_profile(Session(_Tool(), 1, 1), tmp_path) is None
    assert list(tmp_path.iterdir()) == []
