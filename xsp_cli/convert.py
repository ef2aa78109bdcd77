"""`xsp convert`: profiler files to a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xsp_cli.arguments import (
    DeviceFile,
    Format,
    Inputs,
    LayerRanges,
    LayerSource,
    LayerSources,
    ModelRanges,
    Nsys,
    OsRuntime,
)
from xsp_cli.inputs import Reading, load
from xsp_cli.output import check_writable, note, unwritable
from xsp_cli.progress import Progress

__all__ = ["convert"]


def convert(
    inputs: Inputs,
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="The bundle to write: a folder NAME.xsp.")],
    format: Format = None,  # noqa: A002 (the option's name)
    layer_source: LayerSource = LayerSources.AUTO,
    model_range: ModelRanges = None,
    layer_range: LayerRanges = None,
    nsys: Nsys = None,
    os_runtime: OsRuntime = False,
    device: DeviceFile = None,
    keep_private: Annotated[
        bool,
        typer.Option(
            "--keep-private", help="Keep host and user names and environment variables, where files hold any."
        ),
    ] = False,
) -> None:
    """Read profiler files once and keep the joined trace as a bundle, which opens in a moment.

    The files of several ranks given together become one trace.
    """
    from xsp_model import bundle  # noqa: PLC0415 (--help must not wait for polars)

    check_writable(output)
    ranges = (model_range or (), layer_range or ())
    reading = Reading(format, layer_source, *ranges, keep_private, nsys=nsys, os_runtime=os_runtime, device=device)
    with Progress() as progress:
        trace = load(inputs, reading, progress.note)
        progress.note(f"writing {output.name}")
        try:
            bundle.write(trace, output)
        except OSError as error:
            raise unwritable(output, error) from error
    note(f"{output}: {trace.row_count:,} spans")
