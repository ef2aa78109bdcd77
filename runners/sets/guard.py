"""Runs a command, and ends it with all that it started when whoever asked for it is gone, were it by SIGKILL.

    python -I -S runners/sets/guard.py FD COMMAND ARGS...

FD is the reading end of a pipe: its other end is the caller's, who writes nothing, so that the pipe ends with the
caller. The guard waits, and costs what runs nothing. It ends as the command does: with its status, or by its signal.
Should the guard itself be killed, Linux kills the command. It is started by its path and imports nothing of ours.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

__all__ = ["main"]

_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36  # of prctl(2)
_GRACE_S = 2.0
_TICK_S = 0.05
_NOT_STARTED = 127  # as shells have it


def _control(option: int, value: int) -> None:
    """prctl(2), where there is one."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def _start(command: Sequence[str], pipe: int) -> int:
    """The process of the command, which is killed when we are."""
    guard = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        _control(_SET_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != guard:  # we were killed before the line above
            os._exit(_NOT_STARTED)
        os.close(pipe)
        os.execvp(command[0], list(command))  # noqa: S606 (our own program or a tool, no shell)
    except OSError as error:
        print(f"{command[0]} cannot be started: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(_NOT_STARTED)


def _descendants() -> list[int]:
    """All that the command started and that still runs; orphans among them come to us, a subreaper."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]  # the name before may hold anything
            if state not in "ZX":
                parents[int(entry.parent.name)] = int(parent)
    descendants: set[int] = set()
    last = {os.getpid()}
    while last:
        last = {pid for pid, parent in parents.items() if parent in last} - descendants
        descendants |= last
    return sorted(descendants)


def _reap(child: int) -> int | None:
    """The wait status of the command, where it has ended; takes note of the end of orphans too."""
    status = None
    with suppress(ChildProcessError):
        while True:
            pid, ended = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            status = ended if pid == child else status
    return status


def _end_all(child: int) -> None:
    """Asks everything to end, and ends it for good; what is started meanwhile, too."""
    deadline = time.monotonic() + _GRACE_S
    sent = signal.SIGTERM
    signalled: set[int] = set()
    while running := _descendants():
        for pid in running:
            if sent == signal.SIGKILL or pid not in signalled:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, sent)
        signalled.update(running)
        time.sleep(_TICK_S)
        _reap(child)
        if time.monotonic() > deadline + _GRACE_S:
            break  # what even SIGKILL does not end waits within the kernel
        if time.monotonic() > deadline:
            sent = signal.SIGKILL
    if not Path("/proc/self/stat").exists():  # no Linux: at least the group, ourselves among it
        os.killpg(0, signal.SIGKILL)


def _end_like(status: int) -> int:
    """Ends by the signal that ended the command; the status to exit with else."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with suppress(ImportError, OSError, ValueError):
            import resource  # noqa: PLC0415 (of POSIX systems only, and of use here only)

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command's own core is enough
        with suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def main(arguments: Sequence[str]) -> int:
    """Runs the command; its exit status."""
    pipe, command = int(arguments[0]), list(arguments[1:])
    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    received: list[int] = []  # to end: the whole group is, and so the command; exec takes our handlers away from it
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda sent, _: received.append(sent))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _control(_SET_SUBREAPER, 1)
    child = _start(command, pipe)
    while (status := _reap(child)) is None:
        ready = select.select([pipe, wake], [], [])[0]
        if pipe in ready:
            _end_all(child)
            return _NOT_STARTED
        os.read(wake, 512)
    if received:
        _end_all(child)  # what the command started in groups of its own
    return _end_like(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
