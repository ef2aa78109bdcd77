"""How far a level is: on standard error, one line written over on a terminal, and a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Progress"]

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
