"""`xsp findings`: what in a trace is worth doing next."""

from __future__ import annotations

import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from xsp.cache.cache import Cache
from xsp.cli.options import Inputs, ServingPhase, Steps, reads_input
from xsp.cli.output import check_output, print_text, write_file
from xsp.cli.progress import Progress
from xsp.opening import captures_beside, expand, load
from xsp.reading import Reading

__all__ = ["findings"]

_WIDEST = 120


class FindingFormats(StrEnum):
    """How findings are written."""

    TEXT = "text"
    MD = "md"
    JSON = "json"


@reads_input()
def findings(
    inputs: Inputs,
    *,
    output_format: Annotated[
        FindingFormats, typer.Option("-f", "--output-format", help="How findings are written.")
    ] = FindingFormats.TEXT,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A file to write instead of the terminal.", show_default=False)
    ] = None,
    steps: Steps = None,
    serving_phase: ServingPhase = None,
    top: Annotated[int, typer.Option("--top", min=0, help="Most findings to tell; 0: all.")] = 0,
    reading: Reading,
    cache: Cache | None,
) -> None:
    """Say what is worth doing next: each finding with its evidence and the most it can gain.

    What promises most comes first, doubts about the numbers last. Example: xsp findings trace.json.gz --top 5
    """
    if output is not None:
        check_output(output, [*inputs, *reading.files])
    with Progress() as progress:
        trace = load(inputs, reading, progress.note, cache=cache)
        captures = [str(path) for path in captures_beside(expand(inputs), reading.graph_captures)]
        from xsp_analyze.faults import noting_faults  # noqa: PLC0415 (--help must not wait for polars)
        from xsp_analyze.findings import advise, verdict  # noqa: PLC0415
        from xsp_analyze.render.findings import as_json, as_markdown, as_text  # noqa: PLC0415
        from xsp_analyze.service import view_of_one  # noqa: PLC0415

        with noting_faults() as faults:
            view = view_of_one(trace, serving_phase, steps)
            advice = advise(view, captures=captures)
            bounds = verdict(view, advice)
    head = [bounds.sentence.removesuffix(".")] if bounds else []
    advice = advice[:top] if top else advice
    failed = [str(fault) for fault in faults] if output is not None else []  # else stderr says it beside the answer
    if output_format is FindingFormats.JSON:
        text = as_json(advice)
    else:
        first = [*failed, *head]
        text = as_markdown(advice, first) if output_format is FindingFormats.MD else as_text(advice, _width(), first)
    if output is None:
        print_text(text.removesuffix("\n"))
    else:
        write_file(output, text.encode())


def _width() -> int:
    return min(shutil.get_terminal_size().columns, _WIDEST) if sys.stdout.isatty() else _WIDEST
