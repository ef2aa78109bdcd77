"""`xsp report`: one HTML page about a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xsp.cache.cache import Cache
from xsp.cli.options import Inputs, ServingPhase, Steps, reads_input
from xsp.cli.output import check_output, note, write_file
from xsp.cli.progress import Progress
from xsp.opening import load
from xsp.reading import Reading

__all__ = ["report"]


@reads_input()
def report(
    inputs: Inputs,
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file to write.")] = Path("report.html"),
    steps: Steps = None,
    serving_phase: ServingPhase = None,
    reading: Reading,
    cache: Cache | None,
) -> None:
    """Write a report that opens in any browser: one HTML file, with nothing to install and no network.

    It says first what could not be attributed, then where the time went: model, layers, kernels, devices.

    Examples: `xsp report trace.json.gz`, `xsp report 'rank*.json.gz' -o job.html`.
    """
    from xsp_analyze.pages.report.page import render  # noqa: PLC0415 (--help must not wait for polars)

    check_output(output, [*inputs, *reading.files])
    with Progress() as progress:
        trace = load(inputs, reading, progress.note, cache=cache)
        progress.note("writing the report")
        page = render(trace, serving_phase, steps)
        write_file(output, page.encode())
    note(f"{output}: {len(page) / 1e6:.1f} MB")
