"""Records what a Python program does on the GPU through NVIDIA's package cupti-python, as a dump that XSP reads.

    python -m xsp_runners.cupti --out runs/cupti -- train.py --epochs 1

runs train.py in this process and leaves runs/cupti/cupti.parquet (cupti.jsonl without pyarrow); `record` is a context
manager around code of one's own. The program runs whatever CUPTI refuses; a sentence in the end says what is missing.
Times are those of CUPTI's clock, on Linux Unix time, as those of torch.profiler. No other user of CUPTI can be in the
process: no torch.profiler with CUDA, no nsys and no ncu around it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import runpy
import shlex
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners.run_folder import LEVEL, RunnerError, put_json, read_json
from xsp_runners.tools.cupti_activities import (
    FIELDS,
    Clock,
    CuptiCalls,
    DumpWriter,
    callback_names,
    installed_version,
    record_of,
)
from xsp_runners.tools.nvtx_ranges import STEP, NvtxCalls, providing
from xsp_runners.tools.programs import Parser, add_program, answer

__all__ = ["NAME", "PROBLEM", "Recorder", "main", "record", "wrapped_command"]

NAME = "cupti.jsonl"
"""The file of a recording under way; `.parquet` in the end where pyarrow is installed."""
GRAPHS = ("node", "graph")
"""What of a CUDA graph is recorded: each of its kernels, or the launch as a whole at the least overhead."""

_WORK = ("CONCURRENT_KERNEL", "GRAPH_TRACE")


@dataclass
class _Range:
    name: str
    level: str
    start: int
    thread: int
    ids: Mapping[str, int]


@dataclass
class Recorder:
    """A recording under way; ranges mark steps and layers in it."""

    kernels: int = 0
    """Kernels and graphs recorded so far."""
    _calls: CuptiCalls = field(default_factory=CuptiCalls)
    _clock: Clock | None = None
    _writer: DumpWriter | None = None
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _open: threading.local = field(default_factory=threading.local)
    _waiting: deque[Mapping[str, Any]] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def problem(self) -> str | None:
        """Why there is no recording, or no whole one."""
        return self._calls.problem

    @contextmanager
    def range(self, name: str, level: str = "layer") -> Iterator[None]:
        """The work inside is of this `layer`, step (`model`), `operator` or `library` call."""
        self.push(name, level)
        try:
            yield
        finally:
            self.pop()

    def push(self, name: str, level: str = "layer") -> None:
        """Opens a range of what this thread launches."""
        if self._clock is None:
            return
        number = next(self._ids)
        kind = self._calls.push(number)
        ids = {} if kind is None else {"externalKind": kind, "externalId": number}
        self._stack().append(self._new_range(name, level, ids))

    def pop(self) -> None:
        """Closes the range that this thread opened last."""
        if self._clock is not None:
            each = self._stack().pop()
            self.end(each)
            if each.ids:
                self._calls.pop()

    def start(self, name: str, level: str = "model") -> _Range | None:
        """Opens a range of the process, such as a step, whose work any thread may launch."""
        return None if self._clock is None else self._new_range(name, level, {})

    def end(self, each: _Range | None) -> None:
        """Closes it."""
        if each is not None and self._clock is not None:
            times = {"start": each.start, "end": self._clock.now()}
            thread = {"processId": os.getpid(), "threadId": each.thread}
            self._add(
                {"kind": "FRAMEWORK_OPERATOR", "name": each.name, "level": each.level, **times, **thread, **each.ids}
            )
            self._write_waiting()

    def _new_range(self, name: str, level: str, ids: Mapping[str, int]) -> _Range:
        now = self._clock.now() if self._clock else 0
        return _Range(name, level, now, threading.get_native_id(), ids)

    def _stack(self) -> list[_Range]:
        if not hasattr(self._open, "stack"):
            self._open.stack = []
        stack: list[_Range] = self._open.stack
        return stack

    def _add(self, record: Mapping[str, Any]) -> None:
        self._waiting.append(record)

    def _write_waiting(self, *, to_disk: bool = False, at_the_end: bool = False) -> None:
        """Writes what waits; where a thread is at it, it is that one's: CUPTI may call us while we write."""
        if not self._writer or not self._lock.acquire(blocking=at_the_end):
            return
        try:
            while self._waiting:
                self._writer.add(self._waiting.popleft())
            if to_disk:
                self._writer.flush()
        except Exception as error:  # noqa: BLE001 (as in `begin`)
            self._not_recorded(error)
        finally:
            self._lock.release()

    def _not_recorded(self, error: Exception) -> None:
        why = str(error) if isinstance(error, RunnerError) else f"the recording stopped: {error}"
        self._calls.problem = self._calls.problem or why
        if self._writer:
            self._writer.give_up()
        self._writer = None

    def begin(self, out: Path, *, graph: str) -> None:
        """Starts the recording, where it can be."""
        path = out / NAME
        try:
            for earlier in (path, path.with_suffix(".parquet")):  # so that it is not taken for this one
                earlier.unlink(missing_ok=True)
            self._clock = self._calls.open()
            if self._clock:
                self._calls.start(self._buffer_callback(self._calls.module), graph=graph)
                self._writer = DumpWriter(path, self._header(self._clock))
        except Exception as error:  # noqa: BLE001 (a disk that is full, a package of another age: the program runs)
            self._not_recorded(error)

    def _header(self, clock: Clock) -> dict[str, object]:
        tool = {"tool": "cupti-python", "cupti_version": installed_version()}
        times = {"clock": clock.name, "epoch_ns": clock.epoch_ns, "host_times": clock.read_by}
        return {"pid": os.getpid(), **tool, **times, "refused": list(self._calls.refused)}

    def finish(self) -> None:
        """Ends the recording and its file."""
        if self._clock is None:
            return
        dropped = self._calls.close()
        self._write_waiting(to_disk=True, at_the_end=True)
        self._clock = None
        try:
            if self._writer:
                self._writer.close(dropped=dropped)
        except Exception as error:  # noqa: BLE001 (as in `begin`)
            self._not_recorded(error)

    def _buffer_callback(self, cupti: Any) -> Callable[[Sequence[Any]], None]:
        """What CUPTI calls with the records of a full buffer; they are its own again afterwards, so they are copied."""
        kinds = {int(cupti.ActivityKind[name]): name for name in FIELDS if name in cupti.ActivityKind.__members__}
        domains = {"RUNTIME": cupti.CallbackDomain.RUNTIME_API, "DRIVER": cupti.CallbackDomain.DRIVER_API}
        names = {kind: callback_names(cupti.get_callback_name, int(domain)) for kind, domain in domains.items()}

        def keep(activities: Sequence[Any]) -> None:
            for activity in activities:
                kind = kinds.get(int(activity.kind))
                if kind is None:
                    continue
                record = record_of(kind, activity)
                if kind in names and (name := names[kind](record["cbid"])):
                    record["name"] = name
                self._add(record)
                self.kernels += kind in _WORK
            self._write_waiting(to_disk=True)

        def keep_safely(activities: Sequence[Any]) -> None:
            try:
                keep(activities)
            except Exception as error:  # noqa: BLE001 (on CUPTI's thread it would end the program)
                self._not_recorded(error)

        return keep_safely


@contextmanager
def record(out: str | Path, *, graph: str = "node") -> Iterator[Recorder]:
    """Records all that this process does on the GPU while open, into the folder `out`.

    What stands inside runs whatever CUPTI says. Where there is no recording, or no whole one, a sentence on stderr says
    so in the end, and so does `problem`.
    """
    recorder = Recorder()
    recorder.begin(Path(out), graph=graph)
    try:
        yield recorder
    finally:
        recorder.finish()
        if recorder.problem:
            print(f"cupti: {recorder.problem}", file=sys.stderr)


PROBLEM = "recorder_problem"
"""Where a level process' description says why there is no recording of its run."""
_USER_ERROR = 2
_NO_KERNEL = (
    "CUPTI recorded no kernel of the GPU: the program may have run on the CPU or in another process, or the driver "
    "hands over no activities (as on a vGPU, or a MIG slice without the right to be profiled)"
)
_ENDED = 143  # 128 + SIGTERM, as shells have it


def _ranges_sent_to(recorder: Recorder) -> NvtxCalls:
    """What level processes mark: steps are ranges of the process, layers of a thread."""
    return NvtxCalls(
        lambda name: recorder.push(name, _level_of(name)),
        recorder.pop,
        lambda name: recorder.start(name, "model" if name == STEP else "layer"),
        recorder.end,
    )


def _level_of(name: str) -> str:
    """Modules are layers; in compiled code (`compiled_marks`) operators and calls of graphs are marked."""
    if name.startswith("## "):
        return "application"
    return "operator" if name.startswith("aten::") else "layer"


def wrapped_command(target: Sequence[str], out: Path, *, graph: str = "node") -> list[str]:
    """The command that runs `target`, a command of Python itself (`python FILE ...` or `python -m ...`), recorded."""
    python, *program = target
    return [python, str(Path(__file__).resolve()), "--graph", graph, "--out", str(out), "--", *program]


def _run_program(program: Sequence[str]) -> SystemExit:
    """Runs `FILE ARGS` or `-m MODULE ARGS` as Python would; how it ended."""
    before = sys.argv, [*sys.path]
    try:
        if program[0] == "-m":
            sys.argv = list(program[1:])
            runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(program)
            sys.path.insert(0, str(Path(program[0]).resolve().parent))
            runpy.run_path(program[0], run_name="__main__")
    except SystemExit as ended:
        return ended
    finally:
        sys.argv, sys.path[:] = before
    return SystemExit(0)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "cupti",
        description="Records what a Python program does on the GPU, by CUPTI in its own process.",
        epilog="Exit status: that of the program, or 2 where nothing could be recorded.",
    )
    parser.add_argument("--graph", choices=GRAPHS, default="node", help="record a CUDA graph's kernels, or its launch")
    add_program(parser, program="-- FILE ARGS", what="or -- -m MODULE ARGS")
    return parser


def _checked_program(arguments: Sequence[str]) -> list[str]:
    program = list(arguments[1:] if arguments[:1] == ["--"] else arguments)
    if not program or program == ["-m"]:
        raise RunnerError("what should run? Give a file of Python after --, as in: -- train.py")
    if program[0] != "-m" and not Path(program[0]).is_file():
        raise RunnerError(f"the program {program[0]!r} is not there; it must be a file of Python")
    return program


def _end(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(_ENDED)


def _problem(recorder: Recorder, folder: Path) -> str | None:
    """Why there is no recording, or no whole one, of what a level process says of its run; that is told there, too."""
    description = read_json(folder / LEVEL)
    problem = recorder.problem
    if problem is None and description.get("deepest_level") == "kernel" and not recorder.kernels:
        problem = _NO_KERNEL
        print(f"cupti: {problem}", file=sys.stderr)
    if problem and description:
        put_json(folder / LEVEL, {**description, PROBLEM: problem})
    return problem


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; raises the program's SystemExit, or returns 2 after a sentence on stderr."""
    args = _parser().parse_args(arguments)
    try:
        program = _checked_program(args.program)
    except RunnerError as error:
        print(f"cupti: {error}", file=sys.stderr)
        return _USER_ERROR
    if args.dry_run:
        answer(shlex.join(wrapped_command([sys.executable, *program], args.out, graph=args.graph)))
        return 0
    signal.signal(signal.SIGTERM, _end)  # so that what was recorded is written
    with record(args.out, graph=args.graph) as recorder, providing(_ranges_sent_to(recorder)):
        ended = _run_program(program)
    if not ended.code and _problem(recorder, args.out):
        return _USER_ERROR
    raise ended


if __name__ == "__main__":
    sys.exit(main())
