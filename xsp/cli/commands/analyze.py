"""`xsp analyze`: answers as tables."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xsp.cache.cache import Cache
from xsp.cli.options import IN_PART, CsvRaw, Inputs, ServingPhase, analysis_ids, reads_input
from xsp.cli.output import check_tables_writable, in_color, note, print_bytes, write_tables
from xsp.cli.progress import Progress
from xsp.opening import load
from xsp.reading import Reading

if TYPE_CHECKING:
    from xsp_analyze.core import Analysis, Result
    from xsp_analyze.render import Screen
    from xsp_analyze.trace.step_view import StepView
    from xsp_model import XspError

__all__ = ["Formats", "analyze", "screen_of"]

_ROWS_ON_SCREEN = 30
_TEXT_IN_PIPE = 120


class Formats(StrEnum):
    """What `-f` takes; a test holds it equal to `xsp_analyze.render.FORMATS`."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MD = "md"
    LATEX = "latex"
    XLSX = "xlsx"
    PARQUET = "parquet"


@reads_input()
def analyze(
    inputs: Inputs,
    *,
    analyses: Annotated[
        list[str] | None,
        typer.Option(
            "-a",
            "--analysis",
            metavar="ID",
            autocompletion=analysis_ids,
            help="An analysis, as `xsp analyses` lists them; may be given several times. Without it: all that the"
            " trace allows.",
            show_default=False,
        ),
    ] = None,
    output_format: Annotated[Formats, typer.Option("-f", "--output-format", help="How answers are written.")] = (
        Formats.TABLE
    ),
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR|FILE.xlsx",
            help="Write one file an analysis into this folder; with -f xlsx one workbook of all of them.",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            "--steps",
            metavar="all|mean|each|N",
            help="all: the trace as one; mean: the trimmed mean over steps (what you get where the trace has steps);"
            " each: every step by itself; N: the step of that number.",
            show_default=False,
        ),
    ] = None,
    serving_phase: ServingPhase = None,
    rows: Annotated[
        int | None,
        typer.Option(
            "--rows",
            min=0,
            help=f"Most rows of a table, the others in sum; 0 for all. On a terminal {_ROWS_ON_SCREEN}, elsewhere all.",
            show_default=False,
        ),
    ] = None,
    all_rows: Annotated[bool, typer.Option("--all", help="Every row, on a terminal too.")] = False,
    csv_raw: CsvRaw = False,
    reading: Reading,
    cache: Cache | None,
) -> int:
    """Answer questions about a trace as tables: times per layer, per kernel, per device, ...

    Examples: `xsp analyze trace.json.gz -a A10`, `xsp analyze out.xsp -f csv -o tables/`.
    """
    from xsp_analyze.trace.step_view import StepView  # noqa: PLC0415 (--help must not wait for polars)

    selected = _find(analyses or ())
    sources: list[str | Path] = [*inputs, *reading.files]
    check_tables_writable(output_format, output, sources)
    with Progress() as progress:
        only = _reads(selected, steps or serving_phase) if output_format is Formats.CSV else None
        frames = StepView.of(load(inputs, reading, progress.note, cache=cache, only=only), steps, serving_phase)
        results, failures = _run(selected, frames, progress) if selected else _run_all(frames, progress)
        if failures and not results:
            _say(failures[:-1])
            raise failures[-1]
        if output is not None:
            write_tables(results, output_format, output, sources, csv_raw=csv_raw)
    if output is None:
        screen = screen_of(0 if all_rows else rows)
        content = _stream(results, output_format, screen, csv_raw=csv_raw, is_list=len(selected) != 1)
        print_bytes(content, styled=output_format is Formats.TABLE)
    _say(failures)
    return IN_PART if failures else 0


def _find(ids: Sequence[str]) -> list[Analysis]:
    from xsp_analyze.catalog import find  # noqa: PLC0415

    return list({one.id: one for one in map(find, ids)}.values())


def _reads(selected: Sequence[Analysis], steps: str | None) -> Mapping[str, Sequence[str]] | None:
    """What of a capture these answers are made from, nothing being said beside them of what they cover."""
    if not selected or steps is not None:
        return None
    merged: dict[str, dict[str, None]] = {}
    for one in selected:
        if one.reads is None:
            return None
        for kind, columns in one.reads.items():
            merged.setdefault(kind, {}).update(dict.fromkeys(columns))
    return {kind: tuple(columns) for kind, columns in merged.items()}


def _run(selected: Sequence[Analysis], frames: StepView, progress: Progress) -> tuple[list[Result], list[XspError]]:
    """The answers that can be given, and for each of the others why it cannot."""
    from xsp_analyze.catalog import outcome  # noqa: PLC0415
    from xsp_model import XspError  # noqa: PLC0415

    results, failures = [], []
    for one in selected:
        progress.note(f"{one.id} {one.title}")
        answer = outcome(frames, one.id)
        if isinstance(answer, XspError):
            failures.append(answer)
        else:
            results.append(answer)
    return results, failures


def _run_all(frames: StepView, progress: Progress) -> tuple[list[Result], list[XspError]]:
    """Every analysis whose levels the trace holds, and those that failed; one line says which were left out."""
    from xsp_analyze.catalog import all_analyses  # noqa: PLC0415
    from xsp_analyze.faults import FaultError  # noqa: PLC0415
    from xsp_analyze.needs import holds  # noqa: PLC0415

    results: list[Result] = []
    failures: list[XspError] = []
    skipped = []
    for one in all_analyses():
        missing = [str(need) for need in one.needs if not holds(frames.of_trace, need)]
        answered, failed = ([], []) if missing else _run([one], frames, progress)
        results += answered
        failures += [error for error in failed if isinstance(error, FaultError)]
        missing += [str(error) for error in failed if not isinstance(error, FaultError)]
        if missing:
            skipped.append(f"{one.id} (no {', '.join(missing)})")
    if skipped:
        note(f"skipped: {'; '.join(skipped)}")
    return results, failures


def _say(failures: Sequence[XspError]) -> None:
    """Why analyses are not answered that a trace cannot answer: of faults `reads_input` tells."""
    from xsp_analyze.faults import FaultError  # noqa: PLC0415

    for error in failures:
        if not isinstance(error, FaultError):
            note(f"error: {error}")


def screen_of(rows: int | None) -> Screen:
    """How much of tables is shown: on a terminal as many rows as are given, or a screen of them; elsewhere all."""
    from xsp_analyze.render import Screen  # noqa: PLC0415

    if not sys.stdout.isatty():
        return Screen(rows=rows or None, text=_TEXT_IN_PIPE)
    return Screen(
        shutil.get_terminal_size().columns, color=in_color(), rows=_ROWS_ON_SCREEN if rows is None else rows or None
    )


def _stream(results: Sequence[Result], output_format: str, screen: Screen, *, csv_raw: bool, is_list: bool) -> bytes:
    from xsp_analyze.render import render  # noqa: PLC0415

    return render(results, str(output_format), screen, csv_raw=csv_raw, is_list=is_list)
