"""The worker of the agents' server: whose call ends when one is given up."""

from __future__ import annotations

import os
import threading
from multiprocessing import resource_tracker
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from xsp.agents.service import Service
from xsp.agents.worker import Reply, Worker, _reply

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def test_giving_up_a_call_that_waits_leaves_the_running_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(Service(()))
    ended: list[str] = []
    monkeypatch.setattr(worker, "end", lambda: ended.append("ended"))
    running, waiting = threading.Event(), threading.Event()
    with worker._lock:
        worker._running = running
        worker.give_up(waiting)
        assert not ended
        worker.give_up(running)
        assert ended == ["ended"]
    assert worker.call("info", {}, waiting).is_error  # its turn came, and nothing was begun
    assert worker._process is None


@pytest.mark.only_on("linux", "darwin", reason="starts a script of the shell")
@pytest.mark.parametrize(
    ("program", "ended"),
    [
        ("exit 3", "it ended with status 3"),
        ("kill -SEGV $$", "it was ended by SIGSEGV"),
        ("kill -KILL $$", "it was ended by SIGKILL, as happens where memory is full"),
    ],
)
def test_a_process_that_never_answers_says_how_it_ended(
    program: str, ended: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\n{program}\n")
    script.chmod(0o755)
    resource_tracker.ensure_running()
    monkeypatch.setattr("multiprocessing.spawn._python_exe", os.fsencode(script))
    worker = Worker(Service(()))
    reply = worker.call("schema", {})
    assert reply.is_error
    assert reply.text.startswith(f"the process that answers could not be started: {ended}. ")
    assert ("memory" in reply.text) == ("memory" in ended)
    assert worker.call("schema", {}).text == reply.text


@pytest.mark.slow
def test_what_cannot_be_imported_is_said_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "polars.py").write_text("raise ImportError('polars was built for another Python')")
    worker = Worker(Service(()))
    with monkeypatch.context() as context:
        context.syspath_prepend(tmp_path)
        reply = worker.call("schema", {})
    assert reply.is_error
    sentence = "the process that answers could not be started (ImportError: polars was built for another Python)"
    assert reply.text == sentence
    assert not worker.call("schema", {}).is_error
    worker.end()


@pytest.mark.slow
def test_a_process_that_dies_during_a_call_says_by_what(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(Service(()))
    assert not worker.call("schema", {}).is_error
    process, exchange = worker._process, worker._exchange
    assert process is not None

    def killed(tool: str, arguments: Mapping[str, object]) -> Reply:
        process.kill()
        return exchange(tool, arguments)

    monkeypatch.setattr(worker, "_exchange", killed)
    text = worker.call("schema", {}).text
    assert text.startswith("the answer was given up: the process that answers was ended by SIGKILL, as happens where")
    monkeypatch.undo()
    assert not worker.call("schema", {}).is_error
    worker.end()


@pytest.mark.parametrize(
    ("error", "sentence"),
    [(MemoryError(), "needs more memory than there is"), (ValueError("none"), "has a bug here")],
)
def test_want_of_memory_is_no_bug(error: Exception, sentence: str) -> None:
    def fail(*_: object) -> None:
        raise error

    reply = _reply(SimpleNamespace(answer=fail), "info", {})
    assert reply.is_error
    assert sentence in reply.text
