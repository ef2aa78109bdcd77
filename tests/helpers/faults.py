"""Faults at the n-th thing that a command asks of the file system: full disk, failing disk, an input that gets shorter.

By Python's audit events, which tell of every open, rename and new folder before it is done; what compiled libraries
write, a limit on the size of files ends. Run as a program it forks a process for each line of standard input, the
arguments of a command as JSON, which is killed there: forked before any library has threads, that is safe.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import xsp_model.bundle  # noqa: F401 (a process that forks has all of these once)
from xsp.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Fault", "Forker", "Kind", "injected"]

_EVENTS = {"open", "os.mkdir", "os.rename", "os.listdir", "os.scandir", "os.truncate"}
_CHANGES = {"os.mkdir", "os.rename"}


class Kind(StrEnum):
    """What goes wrong."""

    NOTHING = "nothing"
    FULL = "ENOSPC"  # of what would write
    FAILING = "EIO"  # of anything
    SHORTER = "truncation"  # of the input
    KILLED = "SIGKILL"  # of a process of its own
    SIZE = "EFBIG"  # of files from so many bytes on, whoever writes them


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and when: at which event, or for SIZE from which size of a file on in units of 512 bytes."""

    kind: Kind
    number: int = 1


@dataclass(slots=True)
class _Armed:
    fault: Fault
    below: str
    shortened: Path
    left: int


_armed: list[_Armed] = []
_installed: list[bool] = []


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if not _armed or event not in _EVENTS or not arguments:
        return
    armed, path = _armed[0], arguments[0]
    if not isinstance(path, str | os.PathLike) or not os.fspath(path).startswith(armed.below):
        return
    if armed.fault.kind is Kind.FULL and not (event in _CHANGES or _writes(event, arguments)):
        return
    armed.left -= 1
    if armed.left:
        return
    _armed.clear()
    if armed.fault.kind is Kind.KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    if armed.fault.kind is Kind.SHORTER:
        os.truncate(armed.shortened, armed.shortened.stat().st_size // 2)
        return
    code = errno.ENOSPC if armed.fault.kind is Kind.FULL else errno.EIO
    raise OSError(code, os.strerror(code), str(path))


def _writes(event: str, arguments: tuple[object, ...]) -> bool:
    flags = arguments[2] if event == "open" and len(arguments) > 2 else 0
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))


@contextmanager
def injected(fault: Fault, below: Path, shortened: Path) -> Iterator[None]:
    """Within `with`, the fault happens once to what lies below the folder; SHORTER halves the file `shortened`."""
    if not _installed:
        sys.addaudithook(_audit)  # for good: it does nothing while nothing is armed
        _installed.append(True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if fault.kind is Kind.SIZE:
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.number * 512, hard))
    elif fault.kind is not Kind.NOTHING:
        _armed.append(_Armed(fault, str(below), shortened, fault.number))
    try:
        yield
    finally:
        _armed.clear()
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Forker:
    """Runs commands in processes of their own that are killed at an event."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def status(self, command: list[str], number: int, below: Path) -> int:
        """That of a command that is killed at the event of this number, if it comes so far."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("no pipes")
        self._process.stdin.write(json.dumps([command, number, str(below)]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate()


def _serve() -> None:
    for line in sys.stdin:
        command, number, below = json.loads(line)
        process = os.fork()
        if not process:
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            os.dup2(1, 2)
            with injected(Fault(Kind.KILLED, number), Path(below), Path(below)):
                os._exit(main(command))
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)  # noqa: T201


if __name__ == "__main__":
    _serve()
