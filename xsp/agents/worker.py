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

from xsp.processes import for_own_processes

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from xsp.agents.service import Service

__all__ = ["Reply", "Worker"]

_WORKER = "the process that answers"
_GRACE_S = 5.0  # for a process whose pipe has closed to end


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
        self._is_ready = False
        self._lock = threading.Lock()
        self._running: threading.Event | None = None

    def call(self, tool: str, arguments: Mapping[str, Any], given_up: threading.Event | None = None) -> Reply:
        """What the tool answers; a call whose `given_up` is set before its turn is not begun."""
        with self._lock:
            self._running = given_up
            if given_up is not None and given_up.is_set():
                return Reply("the call was given up before it began", is_error=True)
            try:
                reply = self._begin() or self._exchange(tool, arguments)
            except (EOFError, OSError) as error:
                reply = Reply(self._why(error), is_error=True, is_spent=True)
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

    def _begin(self) -> Reply | None:
        """Why there is no process to ask; null: there is one."""
        process = self._process
        if process is not None and process.is_alive():
            return None
        self._process, self._is_ready = None, False
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self._service), daemon=True)
        with theirs, for_own_processes():
            process.start()
        self._process = process
        refusal: Reply | None = self._pipe.recv()
        self._is_ready = refusal is None
        return refusal

    def _exchange(self, tool: str, arguments: Mapping[str, Any]) -> Reply:
        assert self._pipe is not None  # noqa: S101 (as it has begun)
        self._pipe.send((tool, dict(arguments)))
        reply: Reply = self._pipe.recv()
        return reply

    def _why(self, error: EOFError | OSError) -> str:
        """What became of the process that should answer, as far as its end tells."""
        if self._running is not None and self._running.is_set():
            return "the call was given up"
        process = self._process
        if process is None:
            return f"{_WORKER} could not be started ({error})"
        process.join(_GRACE_S)
        ended = _in_words(process.exitcode)
        if not self._is_ready:
            return f"{_WORKER} could not be started: it {ended}. The server's log may say more"
        return f"the answer was given up: {_WORKER} {ended}. Ask for less; the server's log may say more"


def _in_words(status: int | None) -> str:
    """A verb: how a process came to its end."""
    if status is None or status >= 0:
        return "closed its pipe" if status is None else f"ended with status {status}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    is_of_memory = name in {"SIGKILL", "SIGABRT"}
    return f"was ended by {name}{', as happens where memory is full' if is_of_memory else ''}"


def _serve(pipe: Connection, service: Service) -> None:
    """Answers until the pipe is closed; at first null, or why it cannot."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a Ctrl-C the server hears, and ends this
    try:
        from xsp.agents.answers import ServedAnswers  # noqa: PLC0415 (the server itself must not wait for polars)
        from xsp.memory import be_frugal  # noqa: PLC0415

        be_frugal()
        answers = ServedAnswers(service)
    except Exception as error:  # noqa: BLE001 (who asked is to hear of it)
        traceback.print_exc(file=sys.stderr)
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        pipe.send(Reply(f"{_WORKER} could not be started ({reason})", is_error=True, is_spent=True))
        return
    pipe.send(None)
    while True:
        try:
            tool, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(_reply(answers, tool, arguments))


def _reply(answers: Any, tool: str, arguments: Mapping[str, Any]) -> Reply:  # noqa: ANN401 (imported late)
    from xsp.agents.answers import json_text, plain_sentences  # noqa: PLC0415
    from xsp.memory import ran_out  # noqa: PLC0415
    from xsp_model import XspError  # noqa: PLC0415
    from xsp_model.bundle import fault_sentence  # noqa: PLC0415

    try:
        with fault_sentence():
            return Reply(json_text(answers.answer(tool, arguments)))
    except XspError as error:
        [sentence] = plain_sentences([str(error)])
        return Reply(sentence, is_error=True, is_spent=threading.active_count() > 1)
    except Exception as error:  # noqa: BLE001 (a bug of ours must not end the conversation)
        if ran_out(error):
            return Reply("the answer needs more memory than there is; ask for less", is_error=True, is_spent=True)
        traceback.print_exc(file=sys.stderr)
        return Reply(
            f"xsp has a bug here ({type(error).__name__}): please report it with the server's log", is_error=True
        )
