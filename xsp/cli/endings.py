"""How the command ends when it is asked to."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ended_politely"]


@contextmanager
def ended_politely() -> Iterator[None]:
    """A request to end (SIGTERM) is taken like an interrupt, so that nothing unfinished stays."""
    if threading.current_thread() is not threading.main_thread():  # only that one may say what signals do
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
