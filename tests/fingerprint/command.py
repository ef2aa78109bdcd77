"""Runs the command `xsp` in this process, and keeps what it says."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Outcome", "entry_point", "xsp"]


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and what it wrote to its two streams."""

    code: str
    stdout: str
    stderr: str


def entry_point() -> Callable[[], object]:
    """The function behind the script `xsp`, wherever it lies."""
    (script,) = entry_points(group="console_scripts", name="xsp")
    function: Callable[[], object] = script.load()
    return function


def xsp(arguments: Sequence[str]) -> Outcome:
    """The outcome of `xsp ARGUMENTS`; of a traceback only the last line, as the others name lines of code."""
    sys.argv = ["xsp", *arguments]
    error = ""
    with _captured(1) as stdout, _captured(2) as stderr:
        try:
            code = str(entry_point()() or 0)
        except SystemExit as left:
            code = str(left.code or 0)
        except BaseException as raised:  # noqa: BLE001 (a crash is an outcome too)
            code, error = "traceback", f"{type(raised).__name__}: {raised}\n"
    return Outcome(code, _text(stdout), _text(stderr) + error)


@contextmanager
def _captured(descriptor: int) -> Iterator[IO[bytes]]:
    """A file that gets what is written to the descriptor meanwhile, by Python or not."""
    stream = sys.stdout if descriptor == 1 else sys.stderr
    before = os.dup(descriptor)
    written = tempfile.TemporaryFile()  # noqa: SIM115 (it is read after this context)
    stream.flush()
    os.dup2(written.fileno(), descriptor)
    try:
        yield written
    finally:
        stream.flush()
        os.dup2(before, descriptor)
        os.close(before)


def _text(written: IO[bytes]) -> str:
    with written:
        written.seek(0)
        return written.read().decode("utf-8", "backslashreplace")
