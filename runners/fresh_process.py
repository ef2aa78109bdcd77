"""Starts planned runs, each in a fresh process of its own group, and sees that they end when we do, however we do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from xsp_runners.run_folder import RunnerError

if TYPE_CHECKING:
    from xsp_runners.planned_run import PlannedRun

__all__ = ["status_in_words", "to_its_end"]

_GUARD = Path(__file__).resolve().with_name("guard.py")
_GRACE_S = 10.0  # for a tool to write what it has, before the processes are ended for good


def to_its_end(run: PlannedRun) -> int:
    """Exit status of the run's command; what ends us, were it SIGKILL, ends it with every process that it started."""
    if shutil.which(run.command[0]) is None:
        raise RunnerError(f"{run.command[0]} cannot be started: there is no such program")
    theirs, ours = os.pipe()  # ours is never written to, and ends with us
    command = [sys.executable, "-I", "-S", str(_GUARD), str(theirs), *run.command]
    try:
        process = subprocess.Popen(  # noqa: S603 (our own program, no shell)
            command, env={**os.environ, **run.environment}, start_new_session=True, pass_fds=(theirs,)
        )
    finally:
        os.close(theirs)
    try:
        return process.wait()
    except BaseException as error:
        _ask(process, signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM)
        raise
    finally:
        os.close(ours)
        process.wait()


def _ask(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """Asks the whole group to end, a tool and the process under it, and waits; the guard ends what does not."""
    try:
        os.killpg(process.pid, how)
        process.wait(_GRACE_S)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        return


def status_in_words(status: int) -> str:
    """Why a process that said nothing is thought to have ended."""
    if status >= 0:
        return f"the run ended with status {status}"
    ended = f"the run was ended by signal {-status}"
    if -status == signal.SIGKILL:
        return f"{ended}, as Linux does where memory is full"
    return f"{ended} ({signal.Signals(-status).name})" if -status in set(signal.Signals) else ended
