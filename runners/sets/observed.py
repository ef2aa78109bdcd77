"""What is noted of a run around its steps, whatever the framework: warm-up by time, progress, clocks, settings."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from xsp_runners.nvml import Reader, open_reader
from xsp_runners.run_folder import RunnerError
from xsp_runners.steps import AllStepsDone

__all__ = ["GpuStates", "Observed", "Progress", "ScriptSteps"]

_TERMINAL_S, _PLAIN_S = 0.2, 5.0  # between lines
_OVER = "\r\x1b[K"


@dataclass
class Progress:
    """Steps of a level: it is told after each, outside of what is timed."""

    level: str
    warmup: int
    steps: int
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    clock: Callable[[], float] = time.monotonic
    _begun: float = 0.0
    _shown: float = 0.0

    def __post_init__(self) -> None:
        self._begun = self._shown = self.clock()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._write(f"{_OVER if self._terminal else ''}{self.level}: {text}\n")

    def warming(self, count: int, seconds: float) -> None:
        """So many steps of a warm-up by time, of so many seconds, have run."""
        self._show(f"warm-up, {count} steps in {self._elapsed_text} of {seconds:g} s")

    def end_step(self, done: int) -> None:
        """So many steps have run, warm-up among them; the last one is always said."""
        if done >= self.warmup + self.steps:
            self.say(f"step {self.steps} of {self.steps}, {self._elapsed_text}")
        elif done <= self.warmup:
            self._show(f"warm-up {done} of {self.warmup}, {self._elapsed_text}")
        else:
            self._show(f"step {done - self.warmup} of {self.steps}, {self._elapsed_text}")

    @property
    def _elapsed_text(self) -> str:
        return f"{self.clock() - self._begun:.1f} s"

    @property
    def _terminal(self) -> bool:
        return self.stream.isatty()

    def _show(self, text: str) -> None:
        now = self.clock()
        if now - self._shown < (_TERMINAL_S if self._terminal else _PLAIN_S):
            return
        self._shown = now
        if self._terminal:
            self._write(f"{_OVER}{self.level}: {text}")
        else:
            self.say(text)

    def _write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):  # whoever read it is gone: the run is worth more
            return


@dataclass
class GpuStates:
    """Moments of the GPUs that this process may see; empty where the driver does not answer."""

    _reader: Reader | None = None
    _refused: bool = False

    def now(self) -> list[dict[str, Any]]:
        """Power, clocks, temperature and throttle reasons of each GPU, with the Unix time in ns."""
        try:
            if self._refused:
                return []
            self._reader = self._reader or open_reader()
            time_ns, samples = self._reader.once()
        except Exception as error:  # noqa: BLE001 (a driver in trouble must not end the user's run)
            self._refused = True
            if not isinstance(error, RunnerError):
                self._reader = None
            return []
        return [{"time_ns": time_ns, **sample} for sample in samples]

    def close(self) -> None:
        """Lets go of the driver."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


@dataclass
class Observed:
    """It is asked before each step and told after it, outside of what is timed.

    `settings` says what is in force, and is asked when the last step has ended, inside of what the program set.
    """

    args: argparse.Namespace
    on_gpu: bool
    synchronize: Callable[[object], object]  # waits for the device, given what the step returned
    settings: Callable[[], Mapping[str, object]]
    clock: Callable[[], float] = field(default_factory=lambda: time.monotonic)
    progress: Progress = field(init=False)
    _states: GpuStates = field(default_factory=GpuStates)
    _facts: dict[str, object] = field(default_factory=dict)
    _begun: float | None = None
    _timed: int = 0
    _done: int = 0
    _recorded_from_ns: int = 0

    def __post_init__(self) -> None:
        of_rank = f", rank {self.args.rank.rank}" if self.args.rank is not None else ""
        self.progress = Progress(f"{self.args.level}{of_rank}", self.args.warmup, self.args.steps)

    def warming(self) -> bool:
        """Whether the step that is to begin belongs to the warm-up by time, which comes before that by count."""
        if self._begun is None:
            self._begun = self.clock()
        if self._done == 0 and self.clock() - self._begun < self.args.warmup_seconds:
            return True
        if self._done == 0 and self.args.warmup == 1:
            self._note_gpus("gpu_before")
        return False

    def end_warmup_step(self, result: object = None) -> None:
        """A step of the warm-up by time ended."""
        self.synchronize(result)
        self._timed += 1
        self.progress.warming(self._timed, self.args.warmup_seconds)

    def end_step(self) -> None:
        """A step ended that the session counts."""
        self._done += 1
        if self._done == self.args.warmup - 1:  # a step goes before those that are timed, as asking takes a while
            self._note_gpus("gpu_before")
        if self._done == self.args.warmup:
            self._facts["warmup_ns"] = round(1e9 * (self.clock() - (self._begun or 0)))
            self._recorded_from_ns = time.time_ns()
        if self._done == self.args.warmup + self.args.steps:
            self._facts["recorded_unix_ns"] = [self._recorded_from_ns, time.time_ns()]
            self._note_gpus("gpu_after")
            self._states.close()
            self._facts["settings"] = dict(self.settings())
        self.progress.end_step(self._done)

    def say_model(self, facts: Mapping[str, object]) -> None:
        """Says what is about to run, as far as the facts of the work tell it, and where a model of the zoo is from."""
        model = facts.get("model")
        if isinstance(model, dict) and model.get("source"):
            version = f" {model['source_version']}" if model.get("source_version") else ""
            source = "our own definition" if model["source"] == "own" else f"{model['source']}{version}"
            self.progress.say(f"{model['name']} from {source}")

    @property
    def step_count(self) -> int:
        """Steps that have run, warm-up among them."""
        return self._timed + self._done

    @property
    def facts(self) -> Mapping[str, object]:
        """What run.json says of it, once all steps have ended."""
        return {"warmup_steps": self._timed + self.args.warmup, **self._facts}

    def _note_gpus(self, key: str) -> None:
        states = self._states.now() if self.on_gpu else []
        if states:
            self._facts[key] = states


@dataclass
class ScriptSteps:
    """Steps that a script marks, in the hands of a session; those of the warm-up by time come first."""

    observed: Observed
    begin_step: Callable[[], object]
    end_step: Callable[[int | None], bool]  # whether it was the last one
    batch_size: int | None = None
    _warming: bool = False

    def begin(self) -> None:
        self._warming = self.observed.warming()
        if not self._warming:
            self.begin_step()

    def end(self, batch_size: int | None) -> None:
        self.batch_size = batch_size or self.batch_size
        if self._warming:
            self.observed.end_warmup_step()
        elif self.end_step(batch_size):
            raise AllStepsDone
