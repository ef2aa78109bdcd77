"""One level of a workload of TensorFlow or JAX: what both have in common of a level process and of a capture."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp_runners.nvtx_calls import nvtx_calls
from xsp_runners.outputs import UNKNOWN_INPUTS, StepInputs
from xsp_runners.own_workload import run_script
from xsp_runners.run_folder import RUN, SCHEMA_VERSION, RunnerError, put_json
from xsp_runners.steps import AllStepsDone
from xsp_runners.torch_ranges import StepRanges
from xsp_runners.xplane_file import TRACE
from xsp_runners.xplane_session import Session, write_profile

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping

    from xsp_runners.observed import Observed
    from xsp_runners.outputs import Outputs
    from xsp_runners.xplane_file import Cleaned
    from xsp_runners.xplane_session import Tool

__all__ = [
    "LEVELS",
    "Level",
    "XplaneWorkload",
    "capture_run",
    "facts_of",
    "prepare_environment",
    "run_steps",
    "session_of",
    "write_recorded",
]

_BLOCKING = "CUDA_LAUNCH_BLOCKING"


@dataclass(frozen=True)
class Level:
    """What a level records beside step times."""

    name: str  # as run.json has it
    profiled: bool = False
    detailed: bool = False  # the device too
    blocking: bool = False  # on a GPU each launch waits for its kernel


LEVELS = {
    "M": Level("M"),
    "ML": Level("ML", profiled=True, blocking=True),
    "MLG": Level("MLG", profiled=True, detailed=True),
    "MLG-serialised": Level("MLG", profiled=True, detailed=True, blocking=True),
}
"""Levels by the names that command lines take."""


@dataclass(frozen=True)
class XplaneWorkload:
    """A step to run again and again, with the name and task of its model."""

    name: str
    task: str
    step: Callable[[], object]
    step_inputs: StepInputs = UNKNOWN_INPUTS


@dataclass
class _ScriptSteps:
    """Steps that a script marks."""

    session: Session
    observed: Observed
    _warming: bool = False

    def begin(self) -> None:
        self._warming = self.observed.warming()
        if not self._warming:
            self.session.begin()

    def end(self, batch_size: int | None) -> None:
        if self._warming:
            self.observed.end_warmup_step()
            return
        ended = self.session.end(batch_size)
        self.observed.end_step()
        if ended:
            raise AllStepsDone


def prepare_environment(args: argparse.Namespace, framework: str) -> None:
    """Sets what must be set before the framework is imported; RunnerError where it cannot do what is asked."""
    if args.execution == "cudagraph":
        raise RunnerError(f"CUDA graphs are not recorded for {framework}: choose --execution eager or compile")
    if args.level == "MLG-serialised" and args.device == "cpu":
        raise RunnerError(f"{args.level} needs a GPU: on the CPU every run is serialised as it is")
    if LEVELS[args.level].blocking and args.device != "cpu":
        os.environ[_BLOCKING] = "1"


def session_of(args: argparse.Namespace, tool: Tool) -> Session:
    """The capture that the arguments ask for; steps, but not layers, are NVTX ranges where they are to be marked."""
    ranges = StepRanges(nvtx_calls(), args.warmup) if args.annotate == "nvtx" else None
    own = LEVELS[args.level].profiled and args.recorder == "own"
    return Session(tool, args.warmup, args.steps, profiled=own, ranges=ranges)


def run_steps(
    args: argparse.Namespace, session: Session, work: XplaneWorkload | None, outputs: Outputs, observed: Observed
) -> None:
    """Runs all steps, of the work or of the script that the arguments name; what came out of the last is kept."""
    try:
        if work is None:
            run_script(args.script, args.script_args, _ScriptSteps(session, observed))
            return
        outputs.note_inputs(work.step_inputs)
        result: object = None
        while observed.warming():
            observed.end_warmup_step(work.step())
        while not session.is_finished:
            session.begin()
            is_kept = outputs.is_enabled and session.is_last
            result = work.step()
            session.end(args.batch_size, result)
            result = result if is_kept else None
            observed.end_step()
        outputs.note_output(result, work.step_inputs, step=observed.step_count - 1)
    finally:
        session.close()


def facts_of(
    session: Session, args: argparse.Namespace, work: XplaneWorkload | None, *, on_gpu: bool
) -> dict[str, object]:
    """What run.json says of the run, whatever the framework."""
    level = LEVELS[args.level]
    name = work.name if work else Path(args.script).stem
    return {
        "serialized": level.blocking or not on_gpu,  # a CPU operator has ended when its call returns
        "model": {"name": name, "task": work.task if work else ""},
        "batch_size": args.batch_size or session.batch_size,
        "step_durations_ns": session.durations_ns,
        "files": _files(session),
        "deepest_level": _deepest(level, profiled=session.profiled, on_gpu=on_gpu),
    }


def write_recorded(session: Session, args: argparse.Namespace, *, on_gpu: bool) -> Cleaned | None:
    """Writes the profile as `write_profile` does; RunnerError where a GPU's work should be in it and is not."""
    cleaned = write_profile(session, args.out)
    if cleaned and on_gpu and LEVELS[args.level].detailed and not cleaned.gpu_events:
        raise RunnerError(
            "the profiler recorded nothing of the GPU. Another profiler may have CUPTI (nsys, ncu, DCGM), or it may"
            " lack the right to it (in a container: --cap-add=SYS_ADMIN) or its library; or the steps ran on the CPU."
            " What the framework printed says more; --kernels nsys records in another way"
        )
    return cleaned


def _files(session: Session) -> list[dict[str, str]]:
    return [{"path": TRACE, "format": "xplane"}] if session.profiled else []


def _deepest(level: Level, *, profiled: bool, on_gpu: bool) -> str:
    """What the run holds at the bottom: on the CPU operators stand in for kernels."""
    if not profiled:
        return "model"
    return "kernel" if level.detailed and on_gpu else "operator"


@contextmanager
def capture_run(
    tool: Tool, out: Path, *, steps: int, warmup: int, facts: Callable[[Cleaned], Mapping[str, Any]]
) -> Iterator[Session]:
    """Profiles the steps run inside and writes the run into the folder when they ended well.

    `facts` are what the framework's own runner knows of the run, once it has ended. RunnerError where the loop ended
    early; nothing is written then.
    """
    session = Session(tool, warmup, steps)
    try:
        session.begin()
        yield session
    finally:
        session.close()
    cleaned = write_profile(session, out)
    if cleaned is None:
        raise session.missing
    run_facts: dict[str, object] = {
        "schema_version": SCHEMA_VERSION,
        "counters": [],
        "warmup_steps": warmup,
        "steps": steps,
        "step_durations_ns": session.durations_ns,
        "files": _files(session),
    }
    put_json(out / RUN, {**run_facts, **facts(cleaned)})
