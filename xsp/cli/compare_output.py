"""Comparisons as bytes: for the terminal or a program, and the files that CI reads."""

from __future__ import annotations

import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from xsp.cli.output import write_file
from xsp.comparing.runs import ALONE

if TYPE_CHECKING:
    from xsp_analyze.compare.rules import Several

__all__ = ["Formats", "stdout_bytes", "write"]

_IN_SUMMARY = 5


class Formats(StrEnum):
    """What `-f` takes."""

    TABLE = "table"
    JSON = "json"
    MD = "md"


def write(comparisons: Several, junit: Path | None, markdown: Path | None, html: Path | None) -> None:
    """Writes the files that were asked for."""
    from xsp_analyze.pages.compare.files import render_junit  # noqa: PLC0415

    if junit is not None:
        write_file(junit, render_junit(comparisons.compared))
    if markdown is not None:
        write_file(markdown, _markdown(comparisons, _IN_SUMMARY).encode())
    if html is not None:
        write_file(html, _page(comparisons).encode())


def _page(comparisons: Several) -> str:
    from xsp_analyze.pages.compare.page import page, page_of_several  # noqa: PLC0415

    one = comparisons.compared[0]
    return page_of_several(comparisons) if _is_batch(comparisons) else page(one.comparison, one.outcomes)


def _markdown(comparisons: Several, rows: int | None) -> str:
    from xsp_analyze.pages.compare import text  # noqa: PLC0415

    if _is_batch(comparisons):
        return text.markdown_of_several(comparisons)
    return text.markdown(comparisons.compared[0].comparison, comparisons.compared[0].outcomes, rows=rows)


def _is_batch(comparisons: Several) -> bool:
    return comparisons.compared[0].name != ALONE


def stdout_bytes(comparisons: Several, output_format: str, rows: int | None) -> bytes:
    """What goes to stdout."""
    from xsp_analyze.pages.compare import text  # noqa: PLC0415
    from xsp_analyze.pages.compare.files import render, render_several  # noqa: PLC0415

    if output_format == Formats.MD:
        return _markdown(comparisons, rows).encode()
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    one = comparisons.compared[0]
    if output_format == Formats.JSON:
        content = render_several(comparisons) if _is_batch(comparisons) else render(one.comparison, one.outcomes)
    elif _is_batch(comparisons):
        content = text.terminal_of_several(comparisons, width=width)
    else:
        content = text.terminal(one.comparison, one.outcomes, width=width, rows=rows)
    return content.encode()
