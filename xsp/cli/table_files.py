"""Tables as files: one an analysis in a folder, or all of them in one workbook."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xsp.cli.output import check_output, note, write_file

if TYPE_CHECKING:
    from xsp_analyze.core import Result

__all__ = ["check_tables_writable", "write_tables"]

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
