"""`xsp export`: a trace in other programs' formats."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from xsp.cache.cache import Cache
from xsp.cli.options import Inputs, ServingPhase, reads_input
from xsp.cli.output import check_output, is_stdout, note, thousands
from xsp.cli.progress import Progress
from xsp.opening import load
from xsp.reading import Reading

__all__ = ["Targets", "export"]


class Targets(StrEnum):
    """What `--to` takes; a test holds it equal to `xsp_analyze.export.EXPORTERS` and `benchmark`."""

    JAEGER = "jaeger"
    OTLP = "otlp"
    CHROME = "chrome"
    PERFETTO = "perfetto"
    SPEEDSCOPE = "speedscope"
    GRAPHML = "graphml"
    ARROW = "arrow"
    BENCHMARK = "benchmark"


@reads_input(without=("device",))
def export(
    inputs: Inputs,
    *,
    to: Annotated[
        Targets,
        typer.Option(
            "--to",
            help="jaeger: Jaeger's UI, and xsp again; otlp: OpenTelemetry's collectors, and xsp again; chrome:"
            " chrome://tracing and tools for PyTorch's traces; perfetto: ui.perfetto.dev and trace_processor;"
            " speedscope: flame graphs; graphml: graph tools; arrow: every table as an Arrow IPC stream, into a folder;"
            " benchmark: a script that runs one operator of torch alone.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="The file to write, compressed where it ends in .gz; of arrow the folder.",
            show_default=False,
        ),
    ],
    steps: Annotated[
        str, typer.Option("--steps", metavar="all|N", help="Every step, or the step of that number alone.")
    ] = "all",
    serving_phase: ServingPhase = None,
    levels: Annotated[
        str | None,
        typer.Option(
            "--levels",
            metavar="LEVEL,...",
            help="Only spans of these levels, each under its nearest ancestor among them: application, model, layer,"
            " operator, library, runtime, kernel.",
            show_default=False,
        ),
    ] = None,
    operator: Annotated[
        str | None,
        typer.Option("--operator", metavar="NAME", help="Of benchmark: the operator, `aten::mm`.", show_default=False),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            "--shape",
            metavar="JSON",
            help="Of benchmark: the shapes of its inputs, `[[8, 16], [16, 4]]`; else those that took most time.",
            show_default=False,
        ),
    ] = None,
    reading: Reading,
    cache: Cache | None,
) -> None:
    """Write a trace for other programs to open.

    Examples: `xsp export trace.xsp --to chrome -o trace.json.gz`, `xsp export old.json --to speedscope -o s.json`.
    """
    from xsp_analyze.export import FolderExporter, benchmark_of, find, part_of  # noqa: PLC0415 (--help must not wait for polars)
    from xsp_analyze.export import export as write  # noqa: PLC0415
    from xsp_model import XspError  # noqa: PLC0415
    from xsp_model.schema import TABLES  # noqa: PLC0415

    for file in (output / f"{table}.arrows" for table in TABLES) if to is Targets.ARROW else (output,):
        check_output(file, [*inputs, *reading.files])
    if is_stdout(output) and sys.stdout.isatty():
        raise XspError("a trace is not for reading on a terminal", advice="Give a file with -o, or pipe it on")
    _check_operator(to, operator, shape)
    step = _step(steps)
    with Progress() as progress:
        trace = load(inputs, reading, progress.note, cache=cache)
        kept = [level.strip() for level in levels.split(",")] if levels else []
        part = part_of(trace, step=step, levels=kept, serving_phase=serving_phase)
        exporter = find(str(to)) if operator is None else benchmark_of(operator, shape)
        progress.note(f"writing {output.name}")
        if is_stdout(output) and not isinstance(exporter, FolderExporter):
            exporter.write(part, sys.stdout.buffer)
        else:
            write(part, exporter, output)
    note(f"{output}: {thousands(part.row_count)} spans" if operator is None else f"{output}: {operator}")


def _check_operator(to: Targets, operator: str | None, shape: str | None) -> None:
    from xsp_model import XspError  # noqa: PLC0415

    if to is Targets.BENCHMARK and operator is None:
        raise XspError("a benchmark is of one operator", advice="Name it with --operator, as in --operator aten::mm")
    if to is not Targets.BENCHMARK and (operator is not None or shape is not None):
        raise XspError("--operator and --shape are of --to benchmark alone", advice="Leave them out")


def _step(text: str) -> int | None:
    from xsp_model import XspError  # noqa: PLC0415

    if text == "all":
        return None
    try:
        return int(text)
    except ValueError:
        raise XspError(
            f"{text!r} is no choice of steps to export", advice="Choose all or the number of a step"
        ) from None
