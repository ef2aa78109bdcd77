"""Standard output that cannot be written ends a runner as it ends `cat`: in silence or a sentence, never as success."""

from __future__ import annotations

import argparse
import errno
import os
import sys

__all__ = ["Parser", "answer"]

_FAILED = 1
_READER_GONE = 141  # 128 + SIGPIPE, as shells have it


class Parser(argparse.ArgumentParser):
    """A parser whose help ends with status 0 only where it was written: argparse itself says nothing of that."""

    def print_help(self, file: object = None) -> None:  # noqa: ARG002 (of argparse)
        answer(self.format_help(), end="")


def answer(text: object, *, end: str = "\n") -> None:
    """Prints the text at once; ends the process where standard output does not take it."""
    reason = None
    try:
        if sys.stdout is None:
            reason = os.strerror(errno.EBADF)
        else:
            print(text, end=end, flush=True)
    except BrokenPipeError:
        _give_up()
        sys.exit(_READER_GONE)
    except OSError as error:
        _give_up()
        reason = error.strerror
    if reason:
        print(f"error: standard output cannot be written ({reason})", file=sys.stderr)
        sys.exit(_FAILED)


def _give_up() -> None:
    """Has the end of the process not try once more what could not be written."""
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, sys.stdout.fileno())
    os.close(null_device)
