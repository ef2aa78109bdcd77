"""The command `xsp`: its start, and what becomes of errors."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from typing import TYPE_CHECKING

from xsp.cli import limited, root_help
from xsp.cli.output import note, print_styled
from xsp.cli.streams import OutputLostError, ReaderGoneError, check_written, give_up, hold
from xsp.cli.table import COMMANDS
from xsp.memory import be_frugal, be_small, before_polars, limit_of_memory, ran_out

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_OUTPUT_LOST = 1  # as cat has it
_USER_ERROR = 2
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_REFUSALS = {errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
_BROKEN_PIPE = 141  # 128 + SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; 0 when it answered, 2 on a user's error (one sentence on stderr), 130 when interrupted.

    It is 4 where some of what was asked for is answered and some not, 1 where stdout does not take the answer, and 141
    where whoever read it has gone.
    """
    hold()
    command_line = sys.argv[1:] if arguments is None else list(arguments)
    if _is_limited(command_line) and (ended_with := limited.watch()) is not None:
        return ended_with
    try:
        status = _run(command_line)
        check_written()
    except ReaderGoneError:
        give_up()
        return _BROKEN_PIPE
    except OutputLostError as error:
        give_up()
        note(f"error: standard output cannot be written ({error})")
        return _OUTPUT_LOST
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BaseException as error:
        if not _is_explained(error):
            raise
        return _USER_ERROR
    return status if isinstance(status, int) else 0


def _is_explained(error: BaseException) -> bool:
    """Tells the user of it; false where it is ours."""
    try:
        sentence = _for_users(error) or _of_a_bundle(error) or _of_a_file(error)
        if sentence is not None:
            note(f"error: {' '.join(sentence.split())}")
    except MemoryError:
        os.abort()  # there is no room for a sentence: where memory is limited, whoever watches us says it
    return sentence is not None


def _is_limited(command_line: list[str]) -> bool:
    """Whether memory may run out where the machine has more; a command that starts the user's program is left to it."""
    is_others = any(each.passes_on for each in COMMANDS if each.name in command_line[:1])
    return sys.platform == "linux" and limit_of_memory() is not None and not is_others


def _run(arguments: list[str]) -> object:
    help_text = root_help.text(arguments)
    if help_text is not None:
        print_styled(help_text)
        return 0
    before_polars()
    limit = limit_of_memory()
    if limit is not None:
        be_small(limit[1])
    be_frugal()
    # FaultWarning, which commands put into words of their own. Behind all filters that there are.
    warnings.filterwarnings("ignore", message=".*It is a fault of XSP", category=RuntimeWarning, append=True)
    from xsp.cli.app import run  # noqa: PLC0415 (imports typer, which takes longer than the help does)

    return run(arguments)


def _for_users(error: BaseException) -> str | None:
    """What to tell the user; null for errors that are ours.

    XspError is looked up, not imported, as whoever raised it has imported it; errors in arguments are known by
    their method, as typer has them from click or from a copy of its own.
    """
    errors = sys.modules.get("xsp_model.errors")
    if errors is not None and isinstance(error, errors.XspError):
        return str(error)
    if ran_out(error):
        return limited.out_of_memory()
    about_arguments = getattr(error, "format_message", None)
    if about_arguments is None:
        return None
    context = getattr(error, "ctx", None)
    hint = f" See `{context.command_path} --help`." if context is not None else ""
    sentence = about_arguments().rstrip(".")
    return f"{sentence}{'' if sentence.endswith('?') else '.'}{hint}"


def _of_a_file(error: BaseException) -> str | None:
    """What a file system did not let us do with a file or folder, where nobody has said it better; else null."""
    if not isinstance(error, OSError) or error.strerror is None or not (error.filename or error.errno in _REFUSALS):
        return None
    from xsp_model.errors import XspError  # noqa: PLC0415 (--help must not wait for it)

    if not error.filename:
        return str(XspError(f"the system refuses to read or write any more ({error.strerror})"))
    what = f"cannot be read or written ({error.strerror})"
    return str(XspError(what, path=os.fsdecode(error.filename), advice="Check it and the folder that it lies in"))


def _of_a_bundle(error: BaseException) -> str | None:
    """What is wrong with the bundle that was read, which strangers may have written; null where none was."""
    rows = sys.modules.get("xsp_model.bundle")
    fault = rows.fault_behind(error) if rows is not None else None
    return str(fault) if fault is not None else None
