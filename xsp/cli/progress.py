"""While a command works: a progress display on stderr, and an end when it is asked for one."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

__all__ = ["Progress", "ended_politely"]

# A progress display on stderr for whatever takes longer than a second; nothing where nobody watches.


class Progress:
    """Within `with`, `note(what)` says what is being done; the display appears after a while and leaves no trace."""

    def __init__(self, delay_s: float = 1.0) -> None:
        self._what = "working"
        self._lock = threading.Lock()
        self._display: RichProgress | None = None
        self._task: TaskID | None = None
        self._ended = False
        self._timer = threading.Timer(delay_s, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._display is not None:
                self._display.stop()
        if self._timer.ident is not None:
            self._timer.join()  # a thread that still imports while the interpreter goes down may never let it end

    def note(self, what: str) -> None:
        """What is being done now."""
        with self._lock:
            self._what = what
            if self._display is not None and self._task is not None:
                self._display.update(self._task, description=_plain(what))

    def _show(self) -> None:
        if self._ended:
            return
        from rich.console import Console  # noqa: PLC0415 (most commands end before they need it)
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

        with self._lock:
            if self._ended:
                return
            columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
            self._display = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._display.add_task(_plain(self._what), total=None)
            self._display.start()


def _plain(what: str) -> str:
    """Names of files are in it, and rich passes on what acts on a terminal."""
    from xsp_model.errors import clean  # noqa: PLC0415 (imports the whole model)

    return clean(what)


# How the command ends when it is asked to.


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
