"""The standard streams as `cat` has them: what cannot be written ends the command, and errors need no reader."""

from __future__ import annotations

import io
import os
import select
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["OutputLostError", "ReaderGoneError", "check_written", "give_up", "hold"]


class ReaderGoneError(Exception):
    """Whoever read our answer has closed the pipe. No OSError: typer would turn that into a status of its own."""


class OutputLostError(Exception):
    """Standard output cannot be written; its text says why. No OSError, likewise."""


class _Answers(io.FileIO):
    """Standard output; waits where it takes no more for now, and raises one of the errors above where it never will."""

    def write(self, content: ReadableBuffer, /) -> int:
        try:
            while (count := super().write(content)) is None:
                select.select((), (self.fileno(),), ())
        except BrokenPipeError:
            raise ReaderGoneError from None
        except OSError as error:
            raise OutputLostError(error.strerror or str(error)) from None
        return count


class _Notes(io.FileIO):
    """Standard error, which need not be there: what it does not take is lost."""

    def write(self, content: ReadableBuffer, /) -> int:
        with suppress(OSError):
            super().write(content)
        return memoryview(content).nbytes


def hold() -> None:
    """Has stdout and stderr behave so; a program or a test that put streams of its own in their place keeps those.

    A stream that was closed is taken up by what is open the wrong way around, so that no file of ours comes to have its
    number, and writing there still fails.
    """
    for descriptor, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        _fill(descriptor, mode)
    if sys.stdout is sys.__stdout__ and not isinstance(_raw(sys.stdout), _Answers):
        answers = _text(_Answers(1, "w", closefd=False), sys.stdout)
        sys.stdout = sys.__stdout__ = answers  # type: ignore[misc]
    if sys.stderr is sys.__stderr__ and not isinstance(_raw(sys.stderr), _Notes):
        notes = _text(_Notes(2, "w", closefd=False), sys.stderr, by_line=True)
        sys.stderr = sys.__stderr__ = notes  # type: ignore[misc]


def _fill(descriptor: int, mode: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        opened = os.open(os.devnull, mode)
        if opened != descriptor:
            os.dup2(opened, descriptor)
            os.close(opened)


def _raw(stream: io.TextIOBase | None) -> object:
    return getattr(getattr(stream, "buffer", None), "raw", None)


def _text(raw: io.FileIO, before: io.TextIOBase | None, *, by_line: bool = False) -> io.TextIOWrapper:
    """A stream as it was before, where it was one: of its encoding, and what becomes of what that lacks."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(before, "encoding", None) or "utf-8",
        errors=getattr(before, "errors", None) or "backslashreplace",
        line_buffering=by_line or raw.isatty(),
    )


def check_written() -> None:
    """Raises one of the errors where something that was to go to stdout cannot be written."""
    sys.stdout.flush()


def give_up() -> None:
    """Has the end of the process not try once more what could not be written."""
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, sys.stdout.fileno())
    os.close(null_device)
