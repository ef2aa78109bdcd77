"""The command lines of runners, and the programs that they run: found, asked what they can, run to their end."""

from __future__ import annotations

import argparse
import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from xsp_runners.run_folder import RunnerError

__all__ = [
    "Parser",
    "add_program",
    "answer",
    "exit_status",
    "find_gpu",
    "find_tool",
    "locate_or",
    "output_of",
    "program_of",
    "run",
    "smi_rows",
    "text_of",
    "version_of",
]

_FAILED = 1
_USER_ERROR = 2
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_READER_GONE = 141  # 128 + SIGPIPE
_VERSION = re.compile(r"(?<![\d.])(\d{4})\.(\d+)(?:\.(\d+))?")

_Tool = TypeVar("_Tool")


class Parser(argparse.ArgumentParser):
    """A parser whose help ends with status 0 only where it was written: argparse itself says nothing of that."""

    def print_help(self, file: object = None) -> None:  # noqa: ARG002 (of argparse)
        answer(self.format_help(), end="")


def add_program(
    parser: argparse.ArgumentParser,
    *,
    out: str = "folder for the recording",
    program: str = "-- PROGRAM ARGS",
    what: str = "what to run",
) -> None:
    """The options of what runs a program and records it: where to, and which."""
    parser.add_argument("--dry-run", action="store_true", help="print the commands and run nothing")
    parser.add_argument("-o", "--out", type=Path, required=True, help=out)
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar=program, help=what)


def exit_status(name: str, work: Callable[[], int]) -> int:
    """What the runner's work returns; 2 after a sentence on stderr where it raises RunnerError, 130 interrupted."""
    try:
        return work()
    except RunnerError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return _USER_ERROR
    except KeyboardInterrupt:
        return _INTERRUPTED


def answer(text: object, *, end: str = "\n") -> None:
    """Prints the text at once. Where standard output does not take it, the process ends as `cat` would.

    That is in silence or with a sentence, and never as success.
    """
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


def find_tool(name: str, *, variable: str, chosen: str | None = None) -> str:
    """The path of the tool: `chosen`, or what the environment variable says, or the first on PATH.

    RunnerError where there is none.
    """
    requested = chosen or os.environ.get(variable) or name
    path = shutil.which(requested)
    if path is None:
        where = f"at {requested}" if requested != name else "on the PATH"
        raise RunnerError(f"{name} is not {where}: install it, or say where it is with ${variable}")
    return path


def locate_or(locate: Callable[[], _Tool], otherwise: _Tool, *, note: str | None = None) -> _Tool:
    """The tool, or `otherwise` where it is not here; the reason is then said on stderr with the note, if one is given.

    A dry run goes without the tool whose command it prints.
    """
    try:
        return locate()
    except RunnerError as error:
        if note is not None:
            print(note.format(error), file=sys.stderr)
        return otherwise


def output_of(command: list[str], *, seconds: float = 120) -> tuple[int, str]:
    """Exit status and all that a tool printed; RunnerError where it cannot be started or does not come back."""
    try:
        done = subprocess.run(  # noqa: S603 (a tool that the user named, no shell)
            command, check=False, capture_output=True, timeout=seconds, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise RunnerError(f"{command[0]} cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise RunnerError(f"{command[0]} did not answer within {seconds:.0f} s") from error
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


def run(command: list[str]) -> int:
    """Runs the command to its end, its output being the user's to see; its exit status."""
    try:
        return subprocess.run(command, check=False).returncode  # noqa: S603 (the user's own command, no shell)
    except OSError as error:
        raise RunnerError(f"{command[0]} cannot be started: {error.strerror}") from error


def version_of(text: str) -> tuple[int, ...] | None:
    """The first version in what a tool printed, as in `2023.4.4`; None where there is none."""
    match = _VERSION.search(text)
    return tuple(int(part) for part in match.groups() if part) if match else None


def text_of(path: Path) -> str:
    """What the file says; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def program_of(arguments: list[str]) -> list[str]:
    """The program to profile with its arguments, without the `--` in front; RunnerError where there is none."""
    program = arguments[1:] if arguments[:1] == ["--"] else arguments
    if not program:
        raise RunnerError("what should run? Give the program after --, as in: -- python train.py")
    if shutil.which(program[0]) is None and not Path(program[0]).is_file():
        raise RunnerError(f"the program {program[0]!r} is not there")
    return program


def smi_rows(smi: str, fields: Sequence[str], selection: Sequence[str] = ()) -> list[list[str]]:
    """These fields of each GPU as nvidia-smi prints them, without units; empty where it does not tell one of them."""
    query = f"--query-gpu={','.join(fields)}"
    status, text = output_of([smi, *selection, query, "--format=csv,noheader,nounits"])
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [] if status else [row for row in rows if len(row) == len(fields)]


def find_gpu() -> tuple[str | None, str | None]:
    """Name and compute capability of the first GPU that CUDA programs see here, as nvidia-smi tells them.

    RunnerError where there is none.
    """
    smi = shutil.which("nvidia-smi")
    if smi is None:
        raise RunnerError("no GPU is known here, as nvidia-smi is not there: name the chip (--chip)")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    first_visible = None if visible is None else visible.split(",")[0].strip()
    if first_visible in ("", "-1"):
        raise RunnerError("CUDA_VISIBLE_DEVICES hides every GPU: name the chip (--chip)")
    selection = [] if first_visible is None else [f"--id={first_visible}"]
    for fields in (("name", "compute_cap"), ("name",)):  # drivers before 2021 do not tell the capability
        if rows := smi_rows(smi, fields, selection):
            name, *capability = rows[0]
            return name, next(filter(None, capability), None)
    raise RunnerError("nvidia-smi names no GPU here: name the chip (--chip)")
