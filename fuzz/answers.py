"""What is asked of a damaged file that could be read: every analysis, the report with its findings, every export."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from xsp_analyze.catalog import all_analyses
from xsp_analyze.core import run
from xsp_analyze.export import EXPORTERS, export
from xsp_analyze.pages.report.page import render
from xsp_analyze.trace.step_view import StepView
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

__all__ = ["ask_everything"]

_STEPS = (None, "all", "each")  # as --steps says it, None being the choice by default


def ask_everything(trace: Trace, folder: Path, number: int) -> None:
    """Raises whatever one of the answers ends in but XspError; exports are written into the folder.

    Analyses are asked directly, as a report leaves out of itself what fails; over which steps, `number` says.
    """
    with suppress(XspError):
        frames = StepView.of(trace, _STEPS[number % len(_STEPS)])
        for one in all_analyses():
            with suppress(XspError):
                run(one, frames)
    with suppress(XspError):
        render(trace)
    for exporter in EXPORTERS:
        with suppress(XspError):
            export(trace, exporter, folder / exporter.name)
