"""`xsp query`: SQL over a trace."""

from __future__ import annotations

import os
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xsp.cache.cache import Cache
from xsp.cli.options import CsvRaw, ServingPhase, reads_input
from xsp.cli.output import check_output, is_stdout, note, print_bytes, thousands, write_file
from xsp.cli.progress import Progress
from xsp.opening import load
from xsp.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from xsp.history.store import Store

__all__ = ["query"]

_ROWS_ON_SCREEN = 50


class QueryFormats(StrEnum):
    """How rows are written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


@reads_input()
def query(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT... SQL",
            help="Profiler files, a folder, a pattern, a .xsp bundle or a history of runs; then one SELECT in quotes.",
            show_default=False,
        ),
    ],
    *,
    output_format: Annotated[
        QueryFormats, typer.Option("-f", "--output-format", help="How rows are written.")
    ] = QueryFormats.TABLE,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A file to write instead of the terminal.", show_default=False)
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            "--steps",
            metavar="all|mean|each|N",
            help="How analyses named in the query see the steps; the trace's own tables always hold all.",
            show_default=False,
        ),
    ] = None,
    serving_phase: ServingPhase = None,
    rows: Annotated[
        int | None,
        typer.Option(
            "--rows",
            min=0,
            help=f"Most rows of a table; 0 for all. On a terminal {_ROWS_ON_SCREEN}, elsewhere all.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="SECONDS", help="How long it may take to answer; 0: any time.")
    ] = 60,
    csv_raw: CsvRaw = False,
    reading: Reading,
    cache: Cache | None,
) -> None:
    """Ask a trace anything in SQL: its tables, and any analysis by its id (`xsp schema` lists both).

    A query reads its trace and nothing else, no file and no URL, and ends with a sentence where it takes longer than
    --timeout or most of the memory that is free.

    Example: xsp query trace.json.gz "select kernel_name, duration_ns from A10 where kernel_name like '%gemm%'"
    """
    from xsp_analyze.sql import QueryLimits  # noqa: PLC0415 (--help must not wait for polars)
    from xsp_analyze.sql import query as answer  # noqa: PLC0415

    *paths, text = inputs
    _check_order(paths, text)
    if output is not None:
        check_output(output, [*paths, *reading.files])
    if (history := _history(paths)) is not None:
        answer_rows = history.query(text, QueryLimits(timeout or None))
        for sentence in history.left_out:
            note(sentence)
        _write(answer_rows, output, output_format, rows, csv_raw=csv_raw)
        return
    with Progress() as progress:
        trace = load(paths, reading, progress.note, cache=cache)
        progress.note("asking")
        answer_rows = answer(trace, text, steps=steps, serving_phase=serving_phase, limits=QueryLimits(timeout or None))
    _write(answer_rows, output, output_format, rows, csv_raw=csv_raw)


def _history(paths: list[str]) -> Store | None:
    """The history of runs that is asked; None where a trace is. What looks like one by its files' names is one."""
    from xsp.batch.locations import is_url  # noqa: PLC0415 (only there)

    if len(paths) != 1 or not (is_url(paths[0]) or any(Path(paths[0]).glob("*Z-*.v*.parquet"))):
        return None
    from xsp.history.store import open as open_store  # noqa: PLC0415 (only there)

    return open_store(paths[0])


def _write(
    answer_rows: pl.DataFrame, output: Path | None, output_format: str, rows: int | None, *, csv_raw: bool
) -> None:
    if output is not None:
        on_screen = is_stdout(output) and sys.stdout.isatty()
        parts = _parts(answer_rows, output_format, None, csv_raw=csv_raw, on_screen=on_screen)
        write_file(output, b"".join(parts))
        note(f"{output}: {thousands(answer_rows.height)} rows")
        return
    for part in _parts(answer_rows, output_format, rows, csv_raw=csv_raw, on_screen=sys.stdout.isatty()):
        print_bytes(part)


def _check_order(paths: list[str], text: str) -> None:
    from xsp_model import XspError  # noqa: PLC0415

    if not paths or os.path.exists(text):  # noqa: PTH110 (Path.exists raises where a query is too long for a name)
        raise XspError(
            "xsp query takes files and then a query in quotes",
            advice='Write: xsp query trace.json.gz "select * from layers"',
        )


def _parts(
    frame: pl.DataFrame, output_format: str, rows: int | None, *, csv_raw: bool, on_screen: bool
) -> Iterator[bytes]:
    from xsp_analyze.render.frame import as_csv, as_json, as_parquet, as_table  # noqa: PLC0415
    from xsp_model import XspError  # noqa: PLC0415

    if output_format == QueryFormats.TABLE:
        width = shutil.get_terminal_size().columns if on_screen else None
        max_rows = _ROWS_ON_SCREEN if on_screen and rows is None else rows or None
        return iter([as_table(frame, width=width, rows=max_rows).encode(errors="backslashreplace")])
    if output_format == QueryFormats.PARQUET and on_screen:
        raise XspError("parquet is not for reading on a terminal", advice="Give a file with -o")
    part = frame if not rows else frame.head(rows)
    if output_format == QueryFormats.CSV:
        return as_csv(part, raw=csv_raw)
    return as_json(part) if output_format == QueryFormats.JSON else as_parquet(part)
