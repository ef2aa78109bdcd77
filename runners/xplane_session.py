"""Steps timed and recorded by the profiler that TensorFlow and JAX share; what differs between them is a `Tool`."""

from __future__ import annotations

import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from xsp_runners.run_folder import RunnerError, put
from xsp_runners.xplane_file import TRACE, Cleaned, profile_in, without_private_data

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from xsp_runners.torch_ranges import StepRanges

__all__ = ["Session", "Tool", "write_profile"]


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
