"""`xsp figure`: an analysis's figure, for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xsp.cache.cache import Cache
from xsp.cli.arguments import Inputs, ServingPhase
from xsp.cli.complete import analysis_ids
from xsp.cli.output import check_writable, note, write_file
from xsp.cli.progress import Progress
from xsp.cli.reading_options import reads_input
from xsp.opening import load
from xsp.reading import Reading

__all__ = ["figure"]


@reads_input()
def figure(
    inputs: Inputs,
    *,
    analysis: Annotated[
        str,
        typer.Option(
            "-a",
            "--analysis",
            metavar="ID",
            autocompletion=analysis_ids,
            help="The analysis, as `xsp analyses` lists them.",
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write: NAME.pdf, NAME.svg or NAME.png.")],
    width: Annotated[
        str | None,
        typer.Option(
            "--width",
            metavar="WIDTH",
            help="single (3.5in, one column of a paper), double (7.16in), or a length such as 89mm.",
            show_default=False,
        ),
    ] = None,
    serving_phase: ServingPhase = None,
    style: Annotated[
        Path | None,
        typer.Option(
            "--style",
            metavar="FILE",
            help="A matplotlib style file; its settings go before the defaults.",
            show_default=False,
        ),
    ] = None,
    reading: Reading,
    cache: Cache | None,
) -> None:
    """Draw an analysis's figure for a paper, as PDF, SVG or PNG; needs matplotlib (pip install 'xsp[figures]').

    Examples: `xsp figure trace.json.gz -a A10 -o kernels.pdf`, `xsp figure profile.xsp -a A09 -o roofline.svg --width
    double`.
    """
    from xsp_analyze.catalog import find  # noqa: PLC0415 (--help must not wait for polars)
    from xsp_analyze.figure import Look, draw, width_inches  # noqa: PLC0415
    from xsp_analyze.figure.look import require_matplotlib, settings  # noqa: PLC0415
    from xsp_analyze.pages.report.answers import Answers  # noqa: PLC0415

    selected, suffix = find(analysis), _suffix(output)
    look = Look(width_inches(width) if width else None, style)
    require_matplotlib()
    settings(style)
    check_writable(output)
    with Progress() as progress:
        trace = load(inputs, reading, progress.note, cache=cache)
        progress.note(f"drawing {selected.id}")
        drawn = draw(Answers(trace, serving_phase), selected, suffix, look)
        write_file(output, drawn.content)
    for sentence in drawn.notes:
        note(sentence)


def _suffix(output: Path) -> str:
    from xsp_analyze.figure import SUFFIXES  # noqa: PLC0415
    from xsp_model import XspError  # noqa: PLC0415

    suffix = output.suffix.lower().removeprefix(".")
    if suffix not in SUFFIXES:
        raise XspError(
            f"a figure cannot be written as {output.suffix or 'a file without an ending'}",
            path=output,
            advice=f"End the name in {', '.join('.' + s for s in SUFFIXES)}",
        )
    return suffix
