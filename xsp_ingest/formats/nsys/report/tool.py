"""The user's own nsys: where it is, which version it is, and how it exports a report."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["command_elsewhere", "export", "find", "version_of"]

NSYS = "nsys"
"""The key of `Options.extra` that says where nsys is."""

NSYS_TIMEOUT = "nsys_timeout_s"
"""The key of `Options.extra` that says how long an export may take."""

_ENVIRONMENT = "XSP_NSYS"
_TIMEOUT_S = 3600
_VERSION_TIMEOUT_S = 60
_MAX_MESSAGE_CHARACTERS = 200
_VERSION = re.compile(r"version (\d+)\.(\d+)\.(\d+)")


def find(extra: Mapping[str, str]) -> str | None:
    """The nsys that was named with --nsys or $XSP_NSYS, else the one on PATH; XspError where the named one is not."""
    for source, where in (("--nsys", extra.get(NSYS)), (f"${_ENVIRONMENT}", os.environ.get(_ENVIRONMENT))):
        if where:
            program = shutil.which(where)
            if program is None:
                raise XspError(f"{source} names no program", path=where, advice="Give the path of the nsys executable")
            return program
    return shutil.which("nsys")


def command_elsewhere(report: Path) -> str:
    """What to do on a machine that has nsys."""
    return (
        f"Where Nsight Systems is installed, run `nsys export --type sqlite {report.name}` and give the .sqlite file"
        " to xsp, or say where it is with --nsys PATH"
    )


def version_of(nsys: str) -> tuple[int, ...] | None:
    """The program's version; null where it does not say one."""
    try:
        done = _run([nsys, "--version"], _VERSION_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stdout)
    return tuple(int(part) for part in match.groups()) if match else None


def export(nsys: str, report: Path, folder: Path, extra: Mapping[str, str]) -> Path:
    """The SQLite export of a report, made in the folder; XspError where nsys cannot make it."""
    output = folder / "report.sqlite"
    options = ["--type=sqlite", "--lazy=true", "--quiet=true", "--force-overwrite=true", f"--output={output}"]
    timeout_s = float(extra.get(NSYS_TIMEOUT, _TIMEOUT_S))
    try:
        # An absolute path never looks like an option.
        done = _run([nsys, "export", *options, str(report.resolve())], timeout_s)
    except subprocess.TimeoutExpired as error:
        raise XspError(
            f"nsys did not export the report within {timeout_s:g} s", path=report, advice=command_elsewhere(report)
        ) from error
    except OSError as error:
        raise XspError(f"nsys cannot be run ({error.strerror})", path=nsys, advice=command_elsewhere(report)) from error
    if done.returncode or not output.is_file():
        raise XspError(
            f"nsys could not export the report ({_last_words(done)})", path=report, advice=command_elsewhere(report)
        )
    return output


def _run(command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    # Without a shell: names of files are never read as commands.
    return subprocess.run(  # noqa: S603
        list(command),
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        timeout=timeout_s,
    )


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    message = " ".join(f"{done.stderr}\n{done.stdout}".split())
    return message[-_MAX_MESSAGE_CHARACTERS:] or f"it ended with code {done.returncode} and said nothing"
