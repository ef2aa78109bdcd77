"""`xsp figure`: an analysis's figure, for a paper."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from xsp.cache.cache import Cache
from xsp.cli.options import Inputs, ServingPhase, analysis_ids, reads_input
from xsp.cli.output import check_output, note, write_file
from xsp.cli.progress import Progress
from xsp.opening import load
from xsp.reading import Reading

__all__ = ["figure"]

_ENDINGS = re.compile(r"(\.(json|pt|trace|gz|zst|xsp|sqlite|nsys-rep|csv|pb|xplane))+$")


class Scales(StrEnum):
    """What `--over` takes; a test holds it equal to `xsp_analyze.figure.Over`."""

    BATCH_SIZE = "batch-size"
    DEVICES = "devices"


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
    beside: Annotated[
        list[str] | None,
        typer.Option(
            "--beside",
            metavar="TRACE",
            help="Another trace to draw into the same figure: rooflines in one, bars side by side, of A01 boxes of step"
            " times; may be given several times.",
            show_default=False,
        ),
    ] = None,
    over: Annotated[
        Scales | None,
        typer.Option(
            "--over",
            help="Of A01 with --beside: latency and throughput over batch sizes or numbers of devices.",
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
    """Draw an analysis's figure for a paper, as PDF, SVG or PNG; needs matplotlib (`pip install matplotlib`).

    Examples: `xsp figure trace.json.gz -a A10 -o kernels.pdf`, `xsp figure profile.xsp -a A09 -o roofline.svg --width
    double`, `xsp figure h100.json.gz --beside mi300x.json.gz -a B23 -o both.pdf`,
    `xsp figure b1.xsp --beside b8.xsp -a A01 --over batch-size -o scaling.pdf`.
    """
    from xsp_analyze.catalog import find  # noqa: PLC0415 (--help must not wait for polars)
    from xsp_analyze.figure import Look, Over, draw, draw_several, width_inches  # noqa: PLC0415
    from xsp_analyze.figure.look import require_matplotlib, settings  # noqa: PLC0415
    from xsp_analyze.service import Answers  # noqa: PLC0415
    from xsp_model import XspError  # noqa: PLC0415

    if over and not beside:
        raise XspError("--over needs several traces", advice="Give the others with --beside")
    selected, suffix = find(analysis), _suffix(output)
    look = Look(width_inches(width) if width else None, style)
    require_matplotlib()
    settings(style)
    check_output(output, [*inputs, *(beside or ()), *([style] if style else ()), *reading.files])
    with Progress() as progress:
        sources = [inputs, *([text] for text in beside or ())]
        answers = [Answers(load(each, reading, progress.note, cache=cache), serving_phase) for each in sources]
        progress.note(f"drawing {selected.id}")
        if beside:
            named = dict(zip(_names(sources), answers, strict=True))
            drawn = draw_several(named, selected, suffix, look, Over(over) if over else None)
        else:
            drawn = draw(answers[0], selected, suffix, look)
        write_file(output, drawn.content)
    for sentence in drawn.notes:
        note(sentence)


def _names(sources: Sequence[Sequence[str]]) -> list[str]:
    """What each trace is called in the figure: its file's name without endings, with a number where two share one."""
    names = [_ENDINGS.sub("", Path(texts[0]).name) or texts[0] for texts in sources]
    return [name if names.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(names, 1)]


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
