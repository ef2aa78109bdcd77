"""A process of its own that answers: what a query that was given up leaves running ends with it."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from xsp.agents.service import Service

__all__ = ["Reply", "Worker"]


@dataclass(frozen=True, slots=True)
class Reply:
    """JSON, or a sentence on why there is none; `is_spent`: something of it still runs, so the worker has to go."""

    text: str
    is_error: bool = False
    is_spent: bool = False


class Worker:
    """Answers one call at a time; begun when first asked, and anew after it was ended or has died."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._lock = threading.Lock()
        self._running: threading.Event | None = None

    def call(self, tool: str, arguments: Mapping[str, Any], given_up: threading.Event | None = None) -> Reply:
        """What the tool answers; a call whose `given_up` is set before its turn is not begun."""
        with self._lock:
            self._running = given_up
            if given_up is not None and given_up.is_set():
                return Reply("the call was given up before it began", is_error=True)
            try:
                pipe = self._begun()
                pipe.send((tool, dict(arguments)))
                reply: Reply = pipe.recv()
            except (EOFError, OSError):
                self.end()
                sentence = (
                    "the answer was given up: it needed more memory than there is, or was interrupted; ask for less"
                )
                return Reply(sentence, is_error=True)
            if reply.is_spent:
                self.end()
            return reply

    def give_up(self, given_up: threading.Event) -> None:
        """Ends the call of that event; one that waits for its turn leaves alone the one before it."""
        given_up.set()
        if self._running is given_up and self._lock.locked():
            self.end()

    def end(self) -> None:
        """Ends the process, whatever it does; a call that waits for it gets an error."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.join()

    def _begun(self) -> Connection:
        if self._process is None or self._pipe is None or not self._process.is_alive():
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, self._service), daemon=True)
            self._process.start()
            theirs.close()
        return self._pipe


def _serve(pipe: Connection, service: Service) -> None:
    """Answers until the pipe is closed."""
    from xsp.agents.answers import Answers  # noqa: PLC0415 (the server itself must not wait for polars)
    from xsp.memory import be_frugal  # noqa: PLC0415

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a Ctrl-C the server hears, and ends this
    be_frugal()
    answers = Answers(service)
    while True:
        try:
            tool, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(_reply(answers, tool, arguments))


def _reply(answers: Any, tool: str, arguments: Mapping[str, Any]) -> Reply:  # noqa: ANN401 (imported late)
    from xsp.agents.paging import json_text, plain_sentences  # noqa: PLC0415
    from xsp_model import XspError  # noqa: PLC0415
    from xsp_model.bundle_rows import fault_told  # noqa: PLC0415

    try:
        with fault_told():
            return Reply(json_text(answers.answer(tool, arguments)))
    except XspError as error:
        [sentence] = plain_sentences([str(error)])
        return Reply(sentence, is_error=True, is_spent=threading.active_count() > 1)
    except Exception as error:  # noqa: BLE001 (a bug of ours must not end the conversation)
        traceback.print_exc(file=sys.stderr)
        return Reply(
            f"xsp has a bug here ({type(error).__name__}): please report it with the server's log", is_error=True
        )
