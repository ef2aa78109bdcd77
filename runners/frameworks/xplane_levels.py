"""One level of a workload of TensorFlow or JAX: what both have in common of a level process and of a capture."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from xsp_runners.frameworks.xplane_file import TRACE, Cleaned, profile_in, without_private_data
from xsp_runners.outputs import UNKNOWN_INPUTS, Outputs, StepInputs
from xsp_runners.run_folder import RUN, SCHEMA_VERSION, RunnerError, put, put_json
from xsp_runners.sets.level_process import LEVELS, outputs_of, run_script
from xsp_runners.sets.observed import Observed, ScriptSteps
from xsp_runners.tools.nvtx_ranges import StepRanges, nvtx_calls

__all__ = [
    "Session",
    "Tool",
    "XplaneWorkload",
    "capture_run",
    "facts_of",
    "prepare_environment",
    "run_level",
    "run_steps",
    "session_of",
    "write_profile",
]


class Tool(Protocol):
    """A framework with its profiler."""

    def synchronize(self, result: object) -> None:
        """Waits until the device has nothing left to do; `result` is what the step returned, where it is known."""

    def mark(self, step: int) -> AbstractContextManager[object]:
        """Marks what runs inside as this step, for the profiler."""

    def start(self, folder: str) -> None:
        """Starts the profiler, which is to write into the folder."""

    def stop(self) -> None:
        """Stops the profiler, which writes what it has."""


@dataclass
class Session:
    """A capture under way: each step stands between `begin` and `end`, or `step` is called after each; warm-up first.

    The profiler (where `profiled`) starts after the warm-up and stops with the last step; neither is timed.
    """

    tool: Tool
    warmup: int
    steps: int
    profiled: bool = True
    ranges: StepRanges | None = None  # for a tool that records from outside
    durations_ns: list[int] = field(default_factory=list)
    batch_size: int | None = None
    profile: bytes | None = None
    _done: int = 0
    _begun_ns: int = 0
    _mark: AbstractContextManager[object] = field(default_factory=nullcontext)
    _folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def is_finished(self) -> bool:
        """Whether all steps asked for have run."""
        return self._done >= self.warmup + self.steps

    @property
    def is_last(self) -> bool:
        """Whether the step under way is the last one."""
        return self._done + 1 >= self.warmup + self.steps

    @property
    def missing(self) -> RunnerError:
        """What is to be said where the work ended too early."""
        return RunnerError(
            f"the loop ended after {self._done} of {self.warmup + self.steps} steps, so nothing was written"
        )

    def begin(self) -> None:
        """The step begins; the profiler too, where it is the first to record."""
        if self.is_finished:
            return
        recorded = self._done - self.warmup
        if recorded == 0 and self.profiled and self._folder is None:
            self._folder = tempfile.TemporaryDirectory()
            self.tool.start(self._folder.name)
        self.tool.synchronize(None)
        if self.ranges:
            self.ranges.open()
        self._begun_ns = time.perf_counter_ns()
        self._mark = self.tool.mark(recorded) if self.profiled and recorded >= 0 else nullcontext()  # begins here
        self._mark.__enter__()

    def end(self, batch_size: int | None = None, result: object = None) -> bool:
        """The step ended, once the device is done with it; True where the capture has all it needs."""
        if self.is_finished:
            return True
        self.tool.synchronize(result)
        self._mark.__exit__(None, None, None)
        now = time.perf_counter_ns()
        if self.ranges:
            self.ranges.close()
        if self._done >= self.warmup:
            self.durations_ns.append(now - self._begun_ns)
        self.batch_size = batch_size or self.batch_size
        self._done += 1
        if self.is_finished:
            self.close()
        return self.is_finished

    def step(self, result: object = None) -> bool:
        """Closes a step and opens the next; True once the capture has all it needs."""
        if not self.end(result=result):
            self.begin()
        return self.is_finished

    def close(self) -> None:
        """Stops the profiler where it runs; `profile` is what it wrote of a capture that has all its steps."""
        folder, self._folder = self._folder, None
        if folder is None:
            return
        with folder as path:
            self.tool.stop()
            if self.is_finished:
                self.profile = profile_in(Path(path))


def write_profile(session: Session, out: Path) -> Cleaned | None:
    """Writes what the profiler recorded into the folder, without private data; None where it was not asked to."""
    if session.profile is None:
        return None
    cleaned = without_private_data(session.profile)
    put(out / TRACE, cleaned.content)
    return cleaned


_BLOCKING = "CUDA_LAUNCH_BLOCKING"


@dataclass(frozen=True)
class XplaneWorkload:
    """A step to run again and again, with the name and task of its model."""

    name: str
    task: str
    step: Callable[[], object]
    step_inputs: StepInputs = UNKNOWN_INPUTS


def prepare_environment(args: argparse.Namespace, framework: str) -> None:
    """Sets what must be set before the framework is imported; RunnerError where it cannot do what is asked."""
    if args.execution == "cudagraph":
        raise RunnerError(f"CUDA graphs are not recorded for {framework}: choose --execution eager or compile")
    if args.level == "MLG-serialised" and args.device == "cpu":
        raise RunnerError(f"{args.level} needs a GPU: on the CPU every run is serialised as it is")
    if _is_blocking(args) and args.device != "cpu":
        os.environ[_BLOCKING] = "1"


def _is_blocking(args: argparse.Namespace) -> bool:
    """Whether each launch on a GPU waits for its kernel: at ML too, whose rows are of the host alone."""
    return args.level == "ML" or LEVELS[args.level].blocking


def run_level(
    args: argparse.Namespace,
    tool: Tool,
    build_work: Callable[[], XplaneWorkload],
    *,
    on_gpu: bool,
    settings: Callable[[], Mapping[str, object]],
    own_facts: Mapping[str, object],
) -> tuple[dict[str, object], Cleaned | None]:
    """Runs the level and writes its profile; what run.json says of it, with what the framework's runner knows."""
    if args.level == "MLG-serialised" and not on_gpu:
        raise RunnerError(f"{args.level} needs a GPU: on the CPU every run is serialised as it is")
    work = None if args.script else build_work()
    session = session_of(args, tool)
    observed = Observed(args, on_gpu, tool.synchronize, settings)
    outputs = outputs_of(args)
    run_steps(args, session, work, outputs, observed)
    cleaned = write_recorded(session, args, on_gpu=on_gpu)
    facts = facts_of(session, args, work, on_gpu=on_gpu)
    return {**facts, **outputs.facts, **own_facts, **observed.facts}, cleaned


def session_of(args: argparse.Namespace, tool: Tool) -> Session:
    """The capture that the arguments ask for; steps, but not layers, are NVTX ranges where they are to be marked."""
    ranges = StepRanges(nvtx_calls(), args.warmup) if args.annotate == "nvtx" else None
    own = LEVELS[args.level].profiled and args.recorder == "own"
    return Session(tool, args.warmup, args.steps, profiled=own, ranges=ranges)


def run_steps(
    args: argparse.Namespace, session: Session, work: XplaneWorkload | None, outputs: Outputs, observed: Observed
) -> None:
    """Runs all steps, of the work or of the script that the arguments name; what came out of the last is kept."""

    def end(batch_size: int | None) -> bool:
        ended = session.end(batch_size)
        observed.end_step()
        return ended

    try:
        if work is None:
            run_script(args.script, args.script_args, ScriptSteps(observed, session.begin, end))
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
    name = work.name if work else Path(args.script).stem
    return {
        "serialized": _is_blocking(args) or not on_gpu,  # a CPU operator has ended when its call returns
        "model": {"name": name, "task": work.task if work else ""},
        "batch_size": args.batch_size or session.batch_size,
        "step_durations_ns": session.durations_ns,
        "files": _files(session),
        "deepest_level": LEVELS[args.level].deepest(profiled=session.profiled, on_gpu=on_gpu),
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
