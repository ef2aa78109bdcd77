"""The command `xsp`: its start, its help, the watch over its memory, and what becomes of errors."""

from __future__ import annotations

import errno
import os
import re
import select
import signal
import sys
import textwrap
import warnings
from typing import TYPE_CHECKING

from xsp.cache.cache import kept_answer
from xsp.cli.output import (
    OutputLostError,
    ReaderGoneError,
    answer_bytes,
    check_written,
    give_up,
    hold_streams,
    note,
    print_bytes,
    print_styled,
)
from xsp.cli.table import ABOUT, COMMANDS
from xsp.memory import be_frugal, be_small, before_polars, limit_of_memory, ran_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

__all__ = ["help_text", "main", "out_of_memory", "root_help", "run_watched"]

# Under a limit of memory (`ulimit -v`, `ulimit -d`) the command runs in a process that another one watches. Libraries
# of machine code end the process where an allocation fails; whoever watches it then says so in a sentence.

_ENDED_BY = {"SIGABRT", "SIGSEGV", "SIGBUS", "SIGILL", "SIGTRAP"}
_USER_ERROR = 2
_OF_SIGNALS = 128
_PIECE_BYTES = 1 << 16
# What libraries write before they end the process, or go on without: the sentence says it.
_NOISE = re.compile(
    rb"memory allocation of |(?:\d+ )?bytes failed|skipping backtrace|thread '|note: run with|<jemalloc>|mimalloc|"
    rb"terminate called|"
    rb" *what\(\):|OpenBLAS |LLVM ERROR|Fatal Python error|called `Result::unwrap|stack backtrace|"
    rb" *\d+: |Rayon|\s*$|could not allocate|libgomp|Exception ignored"
)

_REASON = b"xsp ran out of memory"


def out_of_memory() -> str:
    """The sentence for users."""
    limit = limit_of_memory()
    if limit is None:
        return "xsp ran out of memory. Read less of the trace with --range, or where there is more memory"
    name, size = limit
    return (
        f"xsp ran out of memory: {size / 1e9:.2f} GB is what `{name}` leaves it. Raise that limit, or read less of the"
        " trace with --range"
    )


def run_watched() -> int | None:
    """Forks: null in the new process, which goes on; in the old one the status of the new, once it has ended."""
    import resource  # noqa: PLC0415 (Linux only)

    sys.stdout.flush()
    sys.stderr.flush()
    ours, its = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(its, 2)
        os.close(ours)
        os.close(its)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        return None
    os.close(its)

    def pass_on(number: int, _: FrameType | None) -> None:
        os.kill(child, number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both
    gave_up, has_reason = _pass_on_lines(ours, child)
    return _exit_status(os.waitpid(child, 0)[1], gave_up=gave_up, has_reason=has_reason)


def _pass_on_lines(source: int, child: int) -> tuple[bool, bool]:
    """Writes what it says to our stderr, less the noise, until it has ended.

    Returns whether there was nothing but noise, and whether it said itself that memory is short. What it started may
    live on, and hold the pipe open.
    """
    ended = os.pidfd_open(child)
    left = b""
    is_noisy = has_output = has_reason = False
    while True:
        ready = select.select([source, ended], [], [])[0]
        piece = os.read(source, _PIECE_BYTES) if source in ready else b""
        *lines, left = (left + piece).split(b"\n")
        if not piece:
            lines.append(left)
        output = b"".join(line + b"\n" for line in lines if not _NOISE.match(line))
        is_noisy |= any(line and _NOISE.match(line) for line in lines)
        if output:
            has_output = True
            has_reason |= _REASON in output
            os.write(2, output)
        if not piece:
            return is_noisy and not has_output, has_reason


def _exit_status(status: int, *, gave_up: bool, has_reason: bool) -> int:
    """Its exit status; where it ended as for want of memory, the sentence is said, unless it has been."""
    if not os.WIFSIGNALED(status):
        if not (gave_up and os.WEXITSTATUS(status) == 1):  # some libraries exit by themselves
            return os.WEXITSTATUS(status)
    elif signal.Signals(os.WTERMSIG(status)).name not in _ENDED_BY:
        return _OF_SIGNALS + os.WTERMSIG(status)
    if not has_reason:  # else it said so and was then ended by a library, while it let go of what it had
        note(f"error: {out_of_memory()}")
    return _USER_ERROR


# What `xsp --help` prints, made of the table of commands: typer and rich take longer to import than it does to read.
#
# It looks as typer has it, which prints the help wherever its look would be another: see `help_text`.

_FORMS: tuple[list[str], ...] = ([], ["-h"], ["--help"])
_OPTIONS = (
    ("--version", "", "Print version and commit and exit."),
    ("--help-reading", "", "Show how files are read (options that commands share), and exit."),
    ("--install-completion", "", "Install completion for the current shell."),
    ("--show-completion", "", "Show completion for the current shell, to copy it or customize the installation."),
    ("--help", "-h", "Show this message and exit."),
)
_MIN_COLUMNS = 61
_DEFAULT_COLUMNS = 80
_CHANGES_LOOK = re.compile(
    r"_?TYPER_|_XSP_COMPLETE|TERMINAL_WIDTH|(GITHUB_ACTIONS|FORCE_COLOR|PY_COLORS|NO_COLOR|JUPYTER_COLUMNS|TTY_\w+)$"
)
_SWITCH = re.compile(r"(?<![-\w])-\w+(?![a-zA-Z0-9])")
_OPTION = re.compile(r"(?<!\w)--[\w-]+(?![a-zA-Z0-9])")
_CODE = re.compile(r"\x1b\[[\d;]*m")
_BOLD, _DIM, _YELLOW, _CYAN, _GREEN = "1", "2", "33", "36", "32"


def help_text(arguments: Sequence[str]) -> str | None:
    """The help, where these arguments ask for it; None where they do not, or typer is to print it.

    Typer prints what a user's variables change, what is for a terminal without colours or other than of UTF-8, and what
    is too narrow for columns beside each other.
    """
    on_screen = sys.stdout.isatty()
    columns = _columns()
    if (
        list(arguments) not in _FORMS
        or columns < _MIN_COLUMNS
        or not (sys.stdout.encoding or "").lower().startswith("utf")
        or any(_CHANGES_LOOK.match(name) and value for name, value in os.environ.items())
        or (on_screen and (sys.platform == "win32" or os.environ.get("TERM", "dumb") in {"dumb", "unknown"}))
    ):
        return None
    return root_help(columns, color=on_screen)


def _columns() -> int:
    columns = 0
    for descriptor in (0, 1, 2):
        try:
            columns = os.get_terminal_size(descriptor).columns
            break
        except (OSError, ValueError):
            continue
    variable = os.environ.get("COLUMNS", "")
    return (int(variable) if variable.isdigit() else columns) or _DEFAULT_COLUMNS


def root_help(columns: int, *, color: bool) -> str:
    """The help for lines of so many columns; each ends as the others do."""
    lines = "".join(f"{line}\n" for line in _lines(columns))
    return lines if color else _CODE.sub("", lines)


def _lines(columns: int) -> Iterator[str]:
    blank = " " * columns
    usage = "xsp [OPTIONS] COMMAND [ARGS]...".ljust(columns - 8)
    yield blank
    yield f" {_style('Usage: ', _BOLD, _YELLOW)}{_style(usage, _BOLD)}"
    yield blank
    for number, paragraph in enumerate(ABOUT.split("\n\n")):
        if number > 0:
            yield blank
        for line in _wrap(paragraph, columns - 2):
            yield f" {_highlight(line, *([_DIM] if number else []))} "
    yield blank
    yield from _panel("Options", columns, list(_option_rows(columns - 4)))
    yield from _panel("Commands", columns, list(_command_rows(columns - 4)))


def _panel(title: str, columns: int, rows: Sequence[str]) -> Iterator[str]:
    yield _style(f"╭─ {title} ".ljust(columns - 1, "─") + "╮", _DIM)
    edge = _style("│", _DIM)
    for row in rows:
        yield f"{edge} {row} {edge}"
    yield _style("╰".ljust(columns - 1, "─") + "╯", _DIM)


def _option_rows(columns: int) -> Iterator[str]:
    width = max(len(name) for name, _, _ in _OPTIONS)
    kind = f"{_style('<', _DIM, _BOLD, _YELLOW)}{_style('bool', _BOLD, _YELLOW)}{_style('>', _DIM, _BOLD, _YELLOW)}"
    for name, switch, what in _OPTIONS:
        head = f"{_style(name.ljust(width), _BOLD, _CYAN)}  {_style(switch.ljust(2), _BOLD, _GREEN)}      {kind}  "
        yield from _beside(head, width + 2 + 2 + 6 + 6 + 2, what, columns)


def _command_rows(columns: int) -> Iterator[str]:
    width = max(len(each.name) for each in COMMANDS)
    for each in COMMANDS:
        yield from _beside(f"{_style(each.name.ljust(width), _BOLD, _CYAN)}  ", width + 2, each.help, columns)


def _beside(head: str, head_columns: int, what: str, columns: int) -> Iterator[str]:
    for number, line in enumerate(_wrap(what, columns - head_columns)):
        yield f"{' ' * head_columns if number else head}{_highlight(line)}"


def _wrap(what: str, columns: int) -> list[str]:
    lines = textwrap.wrap(what, columns, break_on_hyphens=False)
    return [line.ljust(columns) for line in lines]


def _highlight(line: str, *base: str) -> str:
    """The line with its options in colour."""
    parts, end = [], 0
    marks = [(m, _CYAN) for m in _OPTION.finditer(line)] + [(m, _GREEN) for m in _SWITCH.finditer(line)]
    for match, color in sorted(marks, key=lambda mark: mark[0].start()):
        parts += [_style(line[end : match.start()], *base), _style(match[0], _BOLD, *base, color)]
        end = match.end()
    return "".join((*parts, _style(line[end:], *base)))


def _style(piece: str, *attributes: str) -> str:
    return f"\x1b[{';'.join(attributes)}m{piece}\x1b[0m" if piece and attributes else piece


# The command `xsp`: its start, and what becomes of errors.

_OUTPUT_LOST = 1  # as cat has it
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_REFUSALS = {errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
_BROKEN_PIPE = 141  # 128 + SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; 0 when it answered, 2 on a user's error (one sentence on stderr), 130 when interrupted.

    It is 4 where some of what was asked for is answered and some not, 1 where stdout does not take the answer, and 141
    where whoever read it has gone.
    """
    hold_streams()
    command_line = sys.argv[1:] if arguments is None else list(arguments)
    if _is_limited(command_line) and (ended_with := run_watched()) is not None:
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
    text = help_text(arguments)
    if text is not None:
        print_styled(text)
        return 0
    kept = kept_answer(arguments)
    answer = kept.read() if kept is not None else None
    if answer is not None:
        print_bytes(answer, styled=True)
        return 0
    before_polars()
    limit = limit_of_memory()
    if limit is not None:
        be_small(limit[1])
    be_frugal()
    # FaultWarning, which commands put into words of their own. Behind all filters that there are.
    warnings.filterwarnings("ignore", message=".*It is a fault of XSP", category=RuntimeWarning, append=True)
    from xsp.cli.app import run  # noqa: PLC0415 (imports typer, which takes longer than the help does)

    status = run(arguments)
    answer = answer_bytes() if kept is not None and not status else None
    if kept is not None and answer is not None:
        kept.write(answer)
    return status


def _for_users(error: BaseException) -> str | None:
    """What to tell the user; null for errors that are ours.

    XspError is looked up, not imported, as whoever raised it has imported it; errors in arguments are known by
    their method, as typer has them from click or from a copy of its own.
    """
    errors = sys.modules.get("xsp_model.errors")
    if errors is not None and isinstance(error, errors.XspError):
        return str(error)
    if ran_out(error):
        return out_of_memory()
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
