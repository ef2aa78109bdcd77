"""`xsp report`: one HTML page about a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xsp_cli.arguments import (
    CacheFolder,
    DeviceFile,
    DeviceIds,
    Format,
    Inputs,
    LayerRanges,
    LayerSource,
    LayerSources,
    ModelRanges,
    NoCache,
    Nsys,
    OsRuntime,
    ProcessIds,
    TimeRange,
)
from xsp_cli.caching.cache import cache_of
from xsp_cli.inputs import Reading, load
from xsp_cli.output import check_writable, note, write_file
from xsp_cli.progress import Progress

__all__ = ["report"]


def report(
    inputs: Inputs,
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file to write.")] = Path("report.html"),
    format: Format = None,  # noqa: A002 (the option's name)
    layer_source: LayerSource = LayerSources.AUTO,
    model_range: ModelRanges = None,
    layer_range: LayerRanges = None,
    nsys: Nsys = None,
    os_runtime: OsRuntime = False,
    range: TimeRange = None,  # noqa: A002 (the option's name)
    pid: ProcessIds = None,
    device_id: DeviceIds = None,
    device: DeviceFile = None,
    no_cache: NoCache = False,
    cache_dir: CacheFolder = None,
) -> None:
    """Write a report that opens in any browser: one HTML file, with nothing to install and no network.

    It says first what could not be attributed, then where the time went: model, layers, kernels, devices.

    Examples: `xsp report trace.json.gz`, `xsp report 'rank*.json.gz' -o job.html`.
    """
    from xsp_analyze.report import render  # noqa: PLC0415 (--help must not wait for polars)

    check_writable(output)
    reading = Reading(
        format,
        layer_source,
        model_range or (),
        layer_range or (),
        nsys=nsys,
        os_runtime=os_runtime,
        device=device,
        cache=cache_of(cache_dir, unwanted=no_cache),
        time_range=range,
        process_ids=pid or (),
        device_ids=device_id or (),
    )
    with Progress() as progress:
        trace = load(inputs, reading, progress.note)
        progress.note("writing the report")
        page = render(trace)
        write_file(output, page.encode())
    note(f"{output}: {len(page) / 1e6:.1f} MB")
