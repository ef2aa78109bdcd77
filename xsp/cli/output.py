"""Where answers go: a stream, or a file that appears only when it is whole."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "ReaderGoneError",
    "check_writable",
    "in_color",
    "note",
    "print_bytes",
    "print_text",
    "unwritable",
    "write_file",
]


class ReaderGoneError(Exception):
    """Whoever read our answer has closed the pipe. No OSError: typer would turn that into a status of its own."""


def print_bytes(content: bytes) -> None:
    """Writes to stdout and flushes, so that a broken pipe shows here and not at exit."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise ReaderGoneError from None


def print_text(text: str) -> None:
    """Writes a line or lines to stdout, as UTF-8 whatever the locale."""
    print_bytes(f"{text}\n".encode(errors="backslashreplace"))


def in_color() -> bool:
    """Whether stdout is a terminal that shows colours, and its user wants them (NO_COLOR, no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def note(line: str) -> None:
    """One line on stderr, for what is not part of the answer."""
    sys.stderr.write(f"{line}\n")


def check_writable(path: Path) -> None:
    """Raises XspError where a file or folder at the path could not be made, before the work is done in vain."""
    parent = next(p for p in path.absolute().parents if p.exists())
    if not parent.is_dir():
        raise unwritable(path, NotADirectoryError(0, f"{parent.name} is not a folder"))
    if not os.access(parent, os.W_OK):
        raise unwritable(path, PermissionError(0, "no permission"))


def write_file(path: Path, content: bytes) -> None:
    """Writes the file beside its place and renames it into it; XspError where that cannot be done."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("xb") as file:
            file.write(content)
        unfinished.replace(path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        unfinished.unlink(missing_ok=True)


def unwritable(path: Path, error: OSError) -> Exception:
    """The error for a user whose output could not be written."""
    from xsp_model import XspError  # noqa: PLC0415 (imports the whole model)

    return XspError(f"cannot be written ({error.strerror or error})", path=path, advice="Choose another place with -o")
