"""Records of CUPTI about this process, through NVIDIA's package cupti-python: a context manager that leaves a dump.

Whatever CUPTI refuses, the program inside runs to its end; `problem` then says why there is no recording, or no whole
one.
CUPTI takes its time stamps itself, from a clock that this program can read as well: no Python runs while it does.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp_runners.cupti_calls import Clock, CuptiCalls
from xsp_runners.cupti_dump import FIELDS, DumpWriter, callback_names, record_of
from xsp_runners.cupti_version import installed_version
from xsp_runners.run_folder import RunnerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["GRAPHS", "NAME", "Recorder", "record"]

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

    def _buffer_callback(self, cupti: Any) -> Callable[[Sequence[Any]], None]:  # noqa: ANN401
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
