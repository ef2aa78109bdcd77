"""The progress display appears only where somebody watches, and only when it takes long."""

from __future__ import annotations

import io
import sys
import threading
import time
from typing import TYPE_CHECKING

from tests.helpers.waiting import wait_until
from xsp.cli.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, *, delay_s: float, work: Callable[[], None]) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with Progress(delay_s) as display:
        display.note("reading [bold]a.json")
        work()
    return stream.getvalue()


def test_what_takes_long_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = _Terminal()

    def work() -> None:
        wait_until(lambda: "reading [bold]a.json" in stream.getvalue())

    _shown(monkeypatch, stream, delay_s=0.01, work=work)


def test_what_is_quick_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _shown(monkeypatch, _Terminal(), delay_s=threading.TIMEOUT_MAX, work=lambda: None) == ""


def test_nothing_is_shown_where_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _shown(monkeypatch, io.StringIO(), delay_s=0, work=lambda: time.sleep(0.2)) == ""


def test_nothing_of_it_runs_on_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is still importing when the interpreter ends can keep it from ending."""
    monkeypatch.setattr(sys, "stderr", _Terminal())
    for wait_s in (0, 0.001, 0.002, 0.01) * 5:
        with Progress(delay_s=0.001):
            time.sleep(wait_s)
        assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
