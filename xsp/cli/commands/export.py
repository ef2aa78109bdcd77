"""`xsp export`: a trace in other programs' formats."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xsp.cache.cache import Cache
from xsp.cli.arguments import Inputs, ServingPhase
from xsp.cli.output import check_writable, note, unwritable
from xsp.cli.progress import Progress
from xsp.cli.reading_options import reads_input
from xsp.opening import load
from xsp.reading import Reading

if TYPE_CHECKING:
    from xsp_model import Trace

__all__ = ["Targets", "export"]


class Targets(StrEnum):
    """What `--to` takes; a test holds it equal to `xsp_analyze.export.EXPORTERS`."""

    JAEGER = "jaeger"
    CHROME = "chrome"
    SPEEDSCOPE = "speedscope"
    GRAPHML = "graphml"


@reads_input(without=("device",))
def export(
    inputs: Inputs,
    *,
    to: Annotated[
        Targets,
        typer.Option(
            "--to",
            help="jaeger: Jaeger's UI, and xsp again; chrome: Perfetto and chrome://tracing; speedscope: flame graphs;"
            " graphml: graph tools.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="The file to write; compressed where it ends in .gz.",
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
    reading: Reading,
    cache: Cache | None,
) -> None:
    """Write a trace for other programs to open.

    Examples: `xsp export trace.xsp --to chrome -o trace.json.gz`, `xsp export old.json --to speedscope -o s.json`.
    """
    from xsp_analyze.export import export as write  # noqa: PLC0415
    from xsp_analyze.export import find, part_of  # noqa: PLC0415 (--help must not wait for polars)

    check_writable(output)
    step = _step(steps)
    with Progress() as progress:
        trace = load(inputs, reading, progress.note, cache=cache)
        _check_not_an_input(output, trace, inputs)
        kept = [level.strip() for level in levels.split(",")] if levels else []
        part = part_of(trace, step=step, levels=kept, serving_phase=serving_phase)
        progress.note(f"writing {output.name}")
        try:
            write(part, find(str(to)), output)
        except OSError as error:
            raise unwritable(output, error) from error
    note(f"{output}: {part.row_count:,} spans")


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


def _check_not_an_input(output: Path, trace: Trace, inputs: list[str]) -> None:
    from xsp_model import XspError  # noqa: PLC0415

    there = output.resolve()
    if trace.origin == output or any(Path(text).resolve() == there for text in inputs):
        raise XspError("the output is one of the inputs", path=output, advice="Choose another name with -o")
