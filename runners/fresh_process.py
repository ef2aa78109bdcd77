"""Starts planned runs, each in a fresh process of its own group, and sees that they end when we are told to end."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

from xsp_runners.run_folder import RunnerError

if TYPE_CHECKING:
    from xsp_runners.planned_run import PlannedRun

__all__ = ["status_in_words", "to_its_end"]

_GRACE_S = 10.0  # for a tool to write what it has, before the processes are ended for good


def to_its_end(run: PlannedRun) -> int:
    """Exit status of the run's command; what interrupts us ends it too, with every process that it started."""
    try:
        process = subprocess.Popen(  # noqa: S603 (our own program, no shell)
            run.command, env={**os.environ, **run.environment}, start_new_session=True
        )
    except OSError as error:
        raise RunnerError(f"{run.command[0]} cannot be started: {error.strerror}") from error
    try:
        return process.wait()
    except BaseException as error:
        _end(process, signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM)
        raise


def _end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """Asks the whole group to end, a tool and the process under it, waits, and ends it for good."""
    for sent in (how, signal.SIGKILL):
        try:
            os.killpg(process.pid, sent)
        except ProcessLookupError:
            break
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def status_in_words(status: int) -> str:
    """Why a process that said nothing is thought to have ended."""
    if status >= 0:
        return f"the run ended with status {status}"
    ended = f"the run was ended by signal {-status}"
    if -status == signal.SIGKILL:
        return f"{ended}, as Linux does where memory is full"
    return f"{ended} ({signal.Signals(-status).name})" if -status in set(signal.Signals) else ended
