"""Marks the steps of a program of one's own, for `xsp collect --script train.py`.

    from xsp_runners.steps import xsp_step

    for batch in batches:
        with xsp_step(batch_size=len(batch)):
            train(batch)

Under `xsp collect` each `with` is a step: warm-up first, then the recorded ones, then the program is ended. In any
other run it does nothing, at the cost of a call. It imports nothing but the standard library.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["AllStepsDone", "Recorder", "recording", "xsp_step"]


class Recorder(Protocol):
    """What a level process does around each step."""

    def begin(self) -> None:
        """The step begins."""

    def end(self, batch_size: int | None) -> None:
        """The step ended well; AllStepsDone where it was the last one wanted."""


class AllStepsDone(BaseException):
    """Ends the program once all steps are recorded; no Exception, so that a program's own handlers let it pass."""


_recorders: list[Recorder] = []


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Steps marked inside are the recorder's."""
    _recorders.append(recorder)
    try:
        yield
    finally:
        _recorders.pop()


@contextmanager
def xsp_step(batch_size: int | None = None) -> Iterator[None]:
    """The body is one step, of that many inputs where the number is known."""
    if not _recorders:
        yield
        return
    recorder = _recorders[-1]
    recorder.begin()
    yield
    recorder.end(batch_size)
