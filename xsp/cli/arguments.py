"""The arguments that several commands share, declared once."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["CsvRaw", "Inputs", "ServingPhase", "Steps"]

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="Profiler files, a folder of them, a quoted pattern such as 'trace_*.json.gz', or one .xsp bundle.",
        show_default=False,
    ),
]

CsvRaw = Annotated[
    bool,
    typer.Option(
        "--csv-raw",
        help="In CSV leave names that begin like a formula (= + - @) as they are, not behind an apostrophe.",
        show_default=False,
    ),
]

Steps = Annotated[
    str | None,
    typer.Option(
        "--steps",
        metavar="mean|all|N",
        help="mean: the trimmed mean over steps (what you get where the trace has steps); all: the trace as one; N: the"
        " step of that number.",
        show_default=False,
    ),
]

ServingPhase = Annotated[
    str | None,
    typer.Option(
        "--phase",
        metavar="prefill|decode|mixed|diffusion",
        help="Of a server's trace only the steps of this phase, by the names that the engine gave to its steps.",
        show_default=False,
    ),
]
