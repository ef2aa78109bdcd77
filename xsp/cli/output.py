"""Where answers go: a stream, or a file that appears only when it is whole."""

from __future__ import annotations

import glob
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "check_output",
    "in_color",
    "is_stdout",
    "note",
    "print_bytes",
    "print_styled",
    "print_text",
    "thousands",
    "unwritable",
    "write_file",
]

_NO_FOLDER = "which is no folder"


def print_bytes(content: bytes, *, styled: bool = False) -> None:
    """Writes to stdout; what would act on a terminal is shown there as its code, and elsewhere written as it is.

    `styled`: it holds our own codes of colour, and names that are clean already.
    """
    if sys.stdout.isatty() and not styled:
        content = _harmless(content.decode(errors="replace")).encode(errors="backslashreplace")
    _write(content)


def print_styled(text: str) -> None:
    """Writes a line or lines that hold our own codes of colour, and names that are clean already."""
    print_bytes(f"{_for_terminals(text)}\n".encode(errors="backslashreplace"), styled=True)


def _harmless(text: str) -> str:
    from xsp_model.errors import on_terminal  # noqa: PLC0415 (imports the whole model)

    return on_terminal(text)


def _write(content: bytes) -> None:
    """Flushes as well, so that a broken pipe shows here and not at exit."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def print_text(text: str) -> None:
    """Writes a line or lines to stdout, as UTF-8 whatever the locale."""
    print_bytes(f"{_for_terminals(text)}\n".encode(errors="backslashreplace"))


def in_color() -> bool:
    """Whether stdout is a terminal that shows colours, and its user wants them (NO_COLOR, no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def note(line: str) -> None:
    """One line on stderr, for what is not part of the answer; of names that it holds nothing acts."""
    line = _for_terminals(line)
    sys.stderr.write(f"{line if line.isascii() and line.isprintable() else _harmless(line)}\n")


def thousands(number: object) -> str:
    """A number of things on a terminal, as `render.units.count` and plain spaces have it, without what those import."""
    return f"{number:,}".replace(",", " ")


def _for_terminals(text: str) -> str:
    if "\N{NARROW NO-BREAK SPACE}" not in text:
        return text
    from xsp_analyze.text.units import plain_spaces  # noqa: PLC0415 (such a text was made there: it is loaded)

    return plain_spaces(text)


def is_stdout(path: Path) -> bool:
    """Whether an output of this name is standard output, as `-` is to most programs."""
    return str(path) == "-"


def check_output(path: Path, inputs: Iterable[str | Path], *, refuse_stdout: str = "") -> None:
    """XspError, before the work is done in vain, where the path cannot be written or one of the inputs is there.

    `refuse_stdout`: why `-` cannot be the output; a file in a folder of that name never can.
    """
    if is_stdout(path) and not refuse_stdout:
        return
    if path.parts[:1] == ("-",):
        from xsp_model import XspError  # noqa: PLC0415 (imports the whole model)

        why = refuse_stdout or _NO_FOLDER
        raise XspError(f"`-` is standard output, {why}", advice="Choose another name (what is called so is `$PWD/-`)")
    from xsp_model.output_files import check_output as check  # noqa: PLC0415 (imports the whole model)

    check(path, [source for name in inputs for source in _matches(name)])


def _matches(name: str | Path) -> list[Path]:
    """The input; of a pattern all that matches it."""
    if isinstance(name, Path) or Path(name).exists() or not glob.has_magic(name):
        return [Path(name)]
    return [Path(match) for match in glob.glob(name, recursive=True)]  # noqa: PTH207 (Path.glob takes no absolute ones)


def write_file(path: Path, content: bytes) -> None:
    """Writes the whole file, or to standard output where it is named so; XspError where that cannot be done."""
    if is_stdout(path):
        print_bytes(content)
        return
    from xsp_model.output_files import write_file as write  # noqa: PLC0415 (imports the whole model)

    write(path, content)


def unwritable(path: Path, error: OSError) -> Exception:
    """The error for a user whose output could not be written."""
    from xsp_model import output_files  # noqa: PLC0415 (imports the whole model)

    return output_files.unwritable(path, error)
