"""One level of a workload of TensorFlow or JAX, whose profilers leave the same file; what differs is a `Tool`.

Profilers name the file after the host and write into it the host's name, their own messages (which name hosts and
folders) and where each operation stands in the user's sources. All that is left out here. The file is rewritten as
protobuf's wire format, field by field, since JAX comes without the protobuf library; what is not left out is copied
byte for byte.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from xsp_runners.outputs import UNKNOWN_INPUTS, Outputs, StepInputs
from xsp_runners.run_folder import RUN, SCHEMA_VERSION, RunnerError, put, put_json
from xsp_runners.sets.level_process import LEVELS, outputs_of, run_script
from xsp_runners.sets.observed import Observed, ScriptSteps
from xsp_runners.tools.nvtx_ranges import StepRanges, nvtx_calls

__all__ = [
    "TRACE",
    "Cleaned",
    "Session",
    "Tool",
    "XplaneWorkload",
    "capture_run",
    "facts_of",
    "prepare_environment",
    "profile_in",
    "run_level",
    "run_steps",
    "session_of",
    "without_private_data",
    "write_profile",
]

TRACE = "trace.xplane.pb"
"""The file that holds the profile, beside run.json."""
_FOLDERS = re.compile(rb"(?:/[\w.@+-]+)*/(?=[\w.@+-]+\.py\b)")
_LEN = 2  # wire type of texts, bytes and messages
_FIXED = {1: 8, 5: 4}  # wire types of fixed length
_PLANE, _MESSAGES = 1, (2, 3, 4)  # of a space: planes; errors, warnings, host names
_NAME, _EVENT_NAMES, _STAT_NAMES, _STATS = 2, 4, 5, 6  # of a plane
_LINES, _EVENTS = 3, 4  # of a plane, of a line
_BYTES = 6  # a statistic's value that is bytes
_GPU = b"/device:GPU"
_PROGRAMS, _TASK = b"/host:metadata", b"Task Environment"


@dataclass(frozen=True)
class Cleaned:
    """A profile without private data, the names of operations in its programs, and how many events are of GPUs."""

    content: bytes
    operations: list[str] = field(default_factory=list)
    gpu_events: int = 0


def profile_in(folder: Path) -> bytes:
    """The profile of the one session that the log folder holds; RunnerError where the profiler left none."""
    profiles = sorted(folder.glob("plugins/profile/*/*.xplane.pb"))
    if len(profiles) != 1:
        raise RunnerError(f"the profiler left {len(profiles) or 'no'} profiles where one was expected")
    return profiles[0].read_bytes()


def without_private_data(content: bytes) -> Cleaned:
    """The profile without names of hosts and folders; RunnerError where it is no profile, whole."""
    operations: dict[str, None] = {}
    out, gpu_events = bytearray(), 0
    for number, raw, value in _fields(content):
        if number in _MESSAGES:
            continue
        gpu_events += _gpu_events(value) if number == _PLANE and value is not None else 0
        out += _field_bytes(number, _plane(value, operations)) if number == _PLANE and value is not None else raw
    return Cleaned(bytes(out), list(operations), gpu_events)


def _gpu_events(plane: bytes) -> int:
    """How many events the plane has, where it is a GPU's."""
    fields = [(number, value) for number, _, value in _fields(plane) if value is not None]
    if not any(number == _NAME and value.startswith(_GPU) for number, value in fields):
        return 0
    return sum(n == _EVENTS for number, line in fields if number == _LINES for n, _, _ in _fields(line))


def _plane(data: bytes, operations: dict[str, None]) -> bytes:
    name = next((value for number, _, value in _fields(data) if number == _NAME and value is not None), b"")
    out = bytearray()
    for number, raw, value in _fields(data):
        if value is None:
            out += raw
        elif number == _STATS and name == _TASK and any(n == _BYTES for n, _, _ in _fields(value)):
            continue  # the profiler's options, among them the folder it wrote to
        elif number == _EVENT_NAMES:
            out += _field_bytes(number, _event_names(value, operations if name == _PROGRAMS else None))
        elif number == _STAT_NAMES:
            out += _field_bytes(number, _change_fields(value, {2: lambda v: _change_fields(v, {2: _without_folders})}))
        else:
            out += raw
    return bytes(out)


def _event_names(entry: bytes, operations: dict[str, None] | None) -> bytes:
    """An entry of a plane's names; with `operations`, those of the program that it holds are added to them."""

    def program(value: bytes) -> bytes:
        names = operations if operations is not None else {}
        return _change_fields(value, {1: lambda module: _module(module, names)})

    stat = (lambda v: _change_fields(v, {_BYTES: program})) if operations is not None else _same
    texts: Mapping[int, Callable[[bytes], bytes]] = {2: _without_folders, 4: _without_folders, 5: stat}
    return _change_fields(entry, {2: lambda v: _change_fields(v, texts)})


def _module(data: bytes, operations: dict[str, None]) -> bytes:
    """A compiled program without its sources' places; `operations` gets the framework's names of instructions."""
    out = bytearray()
    for number, raw, value in _fields(data):
        if number == 3 and value is not None:  # noqa: PLR2004 (a computation)
            out += _field_bytes(number, _change_fields(value, {2: lambda v: _instruction(v, operations)}))
        elif value is None or not _FOLDERS.search(value):  # else: the table of source files
            out += raw
    return bytes(out)


def _instruction(data: bytes, operations: dict[str, None]) -> bytes:
    def metadata(value: bytes) -> bytes:
        kept = bytearray()
        for n, raw, text in _fields(value):
            if n == 2 and text is not None:  # noqa: PLR2004 (the framework's name for it)
                operations[text.decode(errors="replace")] = None
            kept += b"" if n == 3 else raw  # noqa: PLR2004 (the source file)
        return bytes(kept)

    return _change_fields(data, {7: metadata})


def _without_folders(text: bytes) -> bytes:
    return _FOLDERS.sub(b"", text)


def _same(value: bytes) -> bytes:
    return value


def _change_fields(data: bytes, changes: Mapping[int, Callable[[bytes], bytes]]) -> bytes:
    """The message with the fields of these numbers changed."""
    out = bytearray()
    for number, raw, value in _fields(data):
        out += _field_bytes(number, changes[number](value)) if number in changes and value is not None else raw
    return bytes(out)


def _fields(data: bytes) -> Iterator[tuple[int, bytes, bytes | None]]:
    """The fields of a message: number, the field as it stands, and what it holds (None: a number)."""
    at = 0
    while at < len(data):
        start = at
        key, at = _varint(data, at)
        kind = key & 7
        content = None
        if kind == 0:
            _, at = _varint(data, at)
        elif kind == _LEN:
            size, at = _varint(data, at)
            content = data[at : at + size]
            at += size
        else:
            at += _FIXED.get(kind, len(data))
        if at > len(data):
            raise RunnerError("the profile that was just written is damaged")
        yield key >> 3, data[start:at], content


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004 (no further byte)
            return value, at
    raise RunnerError("the profile that was just written is damaged")


def _field_bytes(number: int, value: bytes) -> bytes:
    """The field with its key and length."""
    return _number(number << 3 | _LEN) + _number(len(value)) + value


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


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
