"""Computes within limits of time and memory: an answer, or an error in one sentence."""

from __future__ import annotations

import threading
import time
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from xsp_model import XspError
from xsp_model.limits import available_bytes, resident_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["QueryLimits", "within"]

_T = TypeVar("_T")
_WATCH_S = 0.05
_FREE_SHARE = 0.8  # of the memory that is free when a query begins
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What a query may take; null: as long as it takes, or most of the memory that is free."""

    seconds: float | None = 60.0
    memory_bytes: int | None = None


def within(limits: QueryLimits, compute: Callable[[], _T]) -> _T:
    """What the function answers, or raises; XspError where it takes more time or memory than it may.

    It cannot be stopped in the middle of native code: it then goes on in a thread of its own, which the end of the
    process does not wait for.
    """
    answers: list[_T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(compute())
        except BaseException as error:  # noqa: BLE001 (handed to whoever waits, a panic of polars too)
            errors.append(error)

    worker = threading.Thread(target=copy_context().run, args=(work,), daemon=True)
    _watch(worker, limits)
    if errors:
        raise errors[0]
    return answers[0]


def _watch(worker: threading.Thread, limits: QueryLimits) -> None:
    began, before = time.monotonic(), resident_bytes()
    ceiling = limits.memory_bytes or int(available_bytes() * _FREE_SHARE)
    worker.start()
    while worker.is_alive():
        worker.join(_WATCH_S)
        if limits.seconds is not None and time.monotonic() - began > limits.seconds and worker.is_alive():
            raise XspError(
                f"the query was not answered within {limits.seconds:g} s",
                advice="Select less, or give it longer with --timeout (0: as long as it takes)",
            )
        if resident_bytes() - before > ceiling and worker.is_alive():
            raise XspError(
                f"the query needs more than the {ceiling / _GIB:.1f} GiB of memory that it may take",
                advice="Select fewer rows or columns",
            )
