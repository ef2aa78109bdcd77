"""How runners take and answer command lines; finds a profiler's binary, asks it what it can, and runs it."""

from __future__ import annotations

import argparse
import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from xsp_runners.run_folder import RunnerError

__all__ = ["Parser", "answer", "find_gpu", "find_tool", "output_of", "program_of", "run", "version_of"]

_VERSION = re.compile(r"(?<![\d.])(\d{4})\.(\d+)(?:\.(\d+))?")


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


def program_of(arguments: list[str]) -> list[str]:
    """The program to profile with its arguments, without the `--` in front; RunnerError where there is none."""
    program = arguments[1:] if arguments[:1] == ["--"] else arguments
    if not program:
        raise RunnerError("what should run? Give the program after --, as in: -- python train.py")
    if shutil.which(program[0]) is None and not Path(program[0]).is_file():
        raise RunnerError(f"the program {program[0]!r} is not there")
    return program


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
    for fields in ("name,compute_cap", "name"):  # drivers before 2021 do not tell the capability
        status, text = output_of([smi, *selection, f"--query-gpu={fields}", "--format=csv,noheader"])
        first = next(iter(text.strip().splitlines()), "")
        if status == 0 and first:
            name, _, capability = (part.strip() for part in first.partition(","))
            return name, capability or None
    raise RunnerError("nvidia-smi names no GPU here: name the chip (--chip)")


# Standard output that cannot be written ends a runner as it ends `cat`: in silence or a sentence, never as success.

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
