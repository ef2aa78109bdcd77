"""`xsp what-if`: what a change would gain, by replaying the trace with other times."""

from __future__ import annotations

import json
import shutil
import sys
from enum import StrEnum
from typing import Annotated

import typer

from xsp.cache.cache import Cache
from xsp.cli.options import Inputs, ServingPhase, Steps, reads_input
from xsp.cli.output import print_text
from xsp.cli.progress import Progress
from xsp.opening import load
from xsp.reading import Reading

__all__ = ["what_if"]

_WIDEST = 120
_PANEL = "Changes, one or several"


class Formats(StrEnum):
    """How the answer is written."""

    TEXT = "text"
    JSON = "json"


class Copies(StrEnum):
    """What becomes of copies that hold the host."""

    ASYNC = "async"
    PINNED = "pinned"


def _factor(flag: str, help_text: str) -> object:
    return typer.Option(flag, metavar="FACTOR", min=0.0, help=help_text, show_default=False, rich_help_panel=_PANEL)


@reads_input()
def what_if(
    inputs: Inputs,
    *,
    scale: Annotated[
        list[str] | None,
        typer.Option(
            "--scale",
            metavar="KIND:NAME=FACTOR",
            rich_help_panel=_PANEL,
            help="What is left of the time of a class, layer, operator, kernel, collective or range. May be given"
            " several times.",
        ),
    ] = None,
    graph: Annotated[
        list[str] | None,
        typer.Option(
            "--graph",
            metavar="steps|layers|NAME",
            rich_help_panel=_PANEL,
            help="Replay steps, layers, or the layers of a name as a graph. May be given several times.",
        ),
    ] = None,
    no_sync: Annotated[
        bool, typer.Option("--no-sync", help="Calls that synchronise return at once.", rich_help_panel=_PANEL)
    ] = False,
    copies: Annotated[
        Copies | None,
        typer.Option(
            "--copies",
            help="Copies of pageable memory hold the host no more, or memory is pinned.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None,
    fuse: Annotated[
        bool, typer.Option("--fuse", help="Each chain of elementwise kernels becomes one.", rich_help_panel=_PANEL)
    ] = False,
    input: Annotated[float | None, _factor("--input", "What is left of waiting for input.")] = None,  # noqa: A002
    python: Annotated[
        float | None, _factor("--python", "What is left of the host's time outside of operators.")
    ] = None,
    host: Annotated[float | None, _factor("--host", "What is left of all of the host's time.")] = None,
    compilation: Annotated[
        float | None, _factor("--compilation", "What is left of compiling, capturing and loading code.")
    ] = None,
    communication: Annotated[float | None, _factor("--communication", "What is left of communication.")] = None,
    overlap: Annotated[
        bool, typer.Option("--overlap", help="Nothing on a device waits for communication.", rich_help_panel=_PANEL)
    ] = False,
    balance: Annotated[
        bool, typer.Option("--balance", help="No rank waits for another.", rich_help_panel=_PANEL)
    ] = False,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="DEVICE",
            help="Another device, by its peak rates; needs --host.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None,
    no_recompute: Annotated[
        bool, typer.Option("--no-recompute", help="Nothing is computed again.", rich_help_panel=_PANEL)
    ] = False,
    output_format: Annotated[
        Formats, typer.Option("-f", "--output-format", help="How the answer is written.")
    ] = Formats.TEXT,
    steps: Steps = None,
    serving_phase: ServingPhase = None,
    reading: Reading,
    cache: Cache | None,
) -> None:
    """Say what changes would gain, each alone and together, by replaying the trace with other times.

    A factor is what is left of a time: 0.5 half of it, 0 nothing. Example: xsp what-if t.json.gz --input 0 --host 0.5
    """
    with Progress() as progress:
        trace = load(inputs, reading, progress.note, cache=cache)
        from xsp_analyze.render.what_if import as_text  # noqa: PLC0415 (--help must not wait for polars)
        from xsp_analyze.service import view_of_one  # noqa: PLC0415
        from xsp_analyze.what_if.answer import what_if as answer_to  # noqa: PLC0415
        from xsp_analyze.what_if.changes import changes_of  # noqa: PLC0415

        changes = changes_of(
            scale=scale or (), graph=graph or (), no_sync=no_sync, copies=copies and str(copies), fuse=fuse,
            input=input, python=python, host=host, compilation=compilation, communication=communication,
            overlap=overlap, balance=balance, on=on, no_recompute=no_recompute,
        )  # fmt: skip
        answer = answer_to(view_of_one(trace, serving_phase, steps), changes)
    width = min(shutil.get_terminal_size().columns, _WIDEST) if sys.stdout.isatty() else _WIDEST
    text = json.dumps(answer.document(), indent=1) if output_format is Formats.JSON else as_text(answer, width)
    print_text(text.removesuffix("\n"))
