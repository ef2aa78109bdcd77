"""The arguments that several commands share, declared once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from xsp.cli.complete import format_names

__all__ = [
    "CacheFolder",
    "DeviceFile",
    "DeviceIds",
    "Format",
    "Inputs",
    "LayerRanges",
    "LayerSource",
    "LayerSources",
    "ModelRanges",
    "NoCache",
    "Nsys",
    "OsRuntime",
    "ProcessIds",
    "TimeRange",
]

_READING = "Reading the input"


class LayerSources(StrEnum):
    """What may count as a layer."""

    AUTO = "auto"
    MODULE = "module"
    RANGE = "range"
    OPERATOR = "operator"


Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="Profiler files, a folder of them, a quoted pattern such as 'trace_*.json.gz', or one .xsp bundle.",
        show_default=False,
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        autocompletion=format_names,
        help="Read the files as this format, whatever they look like (`xsp formats` lists the names).",
        show_default=False,
        rich_help_panel=_READING,
    ),
]
LayerSource = Annotated[
    LayerSources,
    typer.Option(
        "--layer-source",
        help="What counts as a layer: framework modules, named ranges or outermost operators; auto takes the best"
        " that the trace has.",
        rich_help_panel=_READING,
    ),
]
ModelRanges = Annotated[
    list[str] | None,
    typer.Option(
        "--model-range",
        metavar="REGEX",
        help="Named ranges that match are steps of the model. May be given several times.",
        show_default=False,
        rich_help_panel=_READING,
    ),
]
LayerRanges = Annotated[
    list[str] | None,
    typer.Option(
        "--layer-range",
        metavar="REGEX",
        help="Named ranges that match are layers. May be given several times.",
        show_default=False,
        rich_help_panel=_READING,
    ),
]
DeviceFile = Annotated[
    Path | None,
    typer.Option(
        "--device",
        metavar="FILE.toml",
        help="Peak rates of devices; they go before what the files and xsp itself know (see `xsp devices`).",
        show_default=False,
        rich_help_panel=_READING,
    ),
]
Nsys = Annotated[
    str | None,
    typer.Option(
        "--nsys",
        metavar="PATH",
        help="The nsys that opens .nsys-rep files; without it $XSP_NSYS, else the one on PATH.",
        show_default=False,
        rich_help_panel=_READING,
    ),
]
OsRuntime = Annotated[
    bool,
    typer.Option(
        "--os-runtime",
        help="Keep the calls of the operating system's runtime (OSRT) that Nsight Systems traced.",
        rich_help_panel=_READING,
    ),
]
NoCache = Annotated[
    bool,
    typer.Option(
        "--no-cache",
        help="Convert the input anew, and keep nothing of it for the next command.",
        rich_help_panel=_READING,
    ),
]
CacheFolder = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir",
        metavar="DIR",
        help="Where converted traces are kept for the next command; without it $XDG_CACHE_HOME/xsp or ~/.cache/xsp.",
        show_default=False,
        rich_help_panel=_READING,
    ),
]
TimeRange = Annotated[
    str | None,
    typer.Option(
        "--range",
        metavar="FROM..TO",
        help="Read only this time since the first span, such as 10s..20s, 1500ms.. or ..2min: device work that starts"
        " in it, its launches, and what the host did meanwhile.",
        show_default=False,
        rich_help_panel=_READING,
    ),
]
ProcessIds = Annotated[
    list[int] | None,
    typer.Option(
        "--pid",
        metavar="N",
        help="Read only what this process did and launched. May be given several times.",
        show_default=False,
        rich_help_panel=_READING,
    ),
]
DeviceIds = Annotated[
    list[int] | None,
    typer.Option(
        "--device-id",
        metavar="N",
        help="Of device work read only that of this device. May be given several times.",
        show_default=False,
        rich_help_panel=_READING,
    ),
]
