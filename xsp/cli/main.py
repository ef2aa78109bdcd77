"""The command `xsp`: its start, and what becomes of errors."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from xsp.cli import root_help
from xsp.cli.output import ReaderGoneError, note, print_text
from xsp.memory import be_frugal, before_polars

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_USER_ERROR = 2
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_BROKEN_PIPE = 141  # 128 + SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; 0 when it answered, 2 on a user's error (one sentence on stderr), 130 when interrupted."""
    try:
        status = _run(sys.argv[1:] if arguments is None else list(arguments))
    except ReaderGoneError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:
        sentence = _for_users(error)
        if sentence is None:
            raise
        note(f"error: {' '.join(sentence.split())}")
        return _USER_ERROR
    return status if isinstance(status, int) else 0


def _run(arguments: list[str]) -> object:
    help_text = root_help.text(arguments)
    if help_text is not None:
        print_text(help_text)
        return 0
    before_polars()
    be_frugal()
    from xsp.cli.app import run  # noqa: PLC0415 (imports typer, which takes longer than the help does)

    return run(arguments)


def _for_users(error: Exception) -> str | None:
    """What to tell the user; null for errors that are ours.

    XspError is looked up, not imported, as whoever raised it has imported it; errors in arguments are known by
    their method, as typer has them from click or from a copy of its own.
    """
    errors = sys.modules.get("xsp_model.errors")
    if errors is not None and isinstance(error, errors.XspError):
        return str(error)
    about_arguments = getattr(error, "format_message", None)
    if about_arguments is None:
        return None
    context = getattr(error, "ctx", None)
    hint = f" See `{context.command_path} --help`." if context is not None else ""
    sentence = about_arguments().rstrip(".")
    return f"{sentence}{'' if sentence.endswith('?') else '.'}{hint}"
