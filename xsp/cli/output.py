"""Where answers go: the standard streams, files that appear only when they are whole, and tables as files."""

from __future__ import annotations

import glob
import io
import os
import select
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed import ReadableBuffer

    from xsp_analyze.core import Result

__all__ = [
    "OutputLostError",
    "ReaderGoneError",
    "answer_bytes",
    "check_output",
    "check_tables_writable",
    "check_written",
    "give_up",
    "hold_streams",
    "in_color",
    "is_stdout",
    "note",
    "print_bytes",
    "print_styled",
    "print_text",
    "thousands",
    "unwritable",
    "write_file",
    "write_tables",
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
    _Answers.kept_bytes = 0
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


# The standard streams as `cat` has them: what cannot be written ends the command, and errors need no reader.


class ReaderGoneError(Exception):
    """Whoever read our answer has closed the pipe. No OSError: typer would turn that into a status of its own."""


class OutputLostError(Exception):
    """Standard output cannot be written; its text says why. No OSError, likewise."""


class _Answers(io.FileIO):
    """Standard output; waits where it takes no more for now, and raises one of the errors above where it never will."""

    kept_bytes = 1 << 18
    """So much is remembered of what is written; nothing once something was said beside it."""
    written = b""

    def write(self, content: ReadableBuffer, /) -> int:
        try:
            while (count := super().write(content)) is None:
                select.select((), (self.fileno(),), ())
        except BrokenPipeError:
            raise ReaderGoneError from None
        except OSError as error:
            raise OutputLostError(error.strerror or str(error)) from None
        if len(self.written) <= self.kept_bytes:
            self.written += memoryview(content)[:count]
        return count


class _Notes(io.FileIO):
    """Standard error, which need not be there: what it does not take is lost."""

    def write(self, content: ReadableBuffer, /) -> int:
        if not self.isatty():  # where a display of progress may come and go
            _Answers.kept_bytes = 0
        with suppress(OSError):
            super().write(content)
        return memoryview(content).nbytes


def answer_bytes() -> bytes | None:
    """What went to stdout, where nothing went to stderr and it is no long text; else null."""
    sys.stdout.flush()
    answers = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(answers, _Answers) and 0 < len(answers.written) <= answers.kept_bytes:
        return answers.written
    return None


def hold_streams() -> None:
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


# Tables as files: one an analysis in a folder, or all of them in one workbook.

_BOOK = "xlsx"
_BINARY = (_BOOK, "parquet")


def check_tables_writable(output_format: str, output: Path | None, inputs: Sequence[str | Path]) -> None:
    """Raises XspError, before the work is done, where tables of the format cannot be written there (null: stdout)."""
    from xsp_model import XspError  # noqa: PLC0415 (imports the whole model)

    if output is None and output_format in _BINARY and sys.stdout.isatty():
        target = "a file NAME.xlsx" if output_format == _BOOK else "a folder"
        raise XspError(f"{output_format} is not for reading on a terminal", advice=f"Give {target} with -o")
    if output_format == _BOOK:
        from xsp_analyze.render.xlsx import require_xlsxwriter  # noqa: PLC0415 (an extra)

        require_xlsxwriter()
        if output is not None and output.suffix.lower() != f".{_BOOK}":
            raise XspError("is no name of a workbook", path=output, advice="End it in .xlsx: it holds all tables")
    if output is not None:
        check_output(output if output_format == _BOOK else output / "any", inputs)


def write_tables(
    results: Sequence[Result], output_format: str, output: Path, inputs: Sequence[str | Path], *, csv_raw: bool = False
) -> None:
    """Writes the tables and a line on stderr that says so; XspError, before any is, where one would replace inputs."""
    from xsp_analyze.render import FORMATS, render_one  # noqa: PLC0415 (--help must not wait for polars)

    count = f"{len(results)} {'table' if len(results) == 1 else 'tables'}"
    if output_format == _BOOK:
        _write_book(results, output)
    else:
        suffix = FORMATS[output_format].suffix
        files = {output / f"{result.analysis.id}.{suffix}": result for result in results}
        for file in files:
            check_output(file, inputs)
        for file, result in files.items():
            write_file(file, render_one(result, output_format, csv_raw=csv_raw))
    note(f"{output}: {count}")


def _write_book(results: Sequence[Result], output: Path) -> None:
    from xsp_analyze.render.xlsx import book  # noqa: PLC0415 (an extra)

    made = book(results)
    write_file(output, made.content)
    for sentence in made.notes:
        note(sentence)
