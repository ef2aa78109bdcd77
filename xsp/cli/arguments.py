"""The arguments that several commands share, declared once."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["Inputs"]

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="Profiler files, a folder of them, a quoted pattern such as 'trace_*.json.gz', or one .xsp bundle.",
        show_default=False,
    ),
]
