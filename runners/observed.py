"""What is noted of a run around its steps, whatever the framework: warm-up by time, progress, clocks, settings."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from xsp_runners.gpu_state import GpuStates
from xsp_runners.progress import Progress

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

__all__ = ["Observed"]


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
