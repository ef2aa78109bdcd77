"""From what Python code names to an open trace.

The one place below the command that knows of it: inputs must mean the same in Python as on the command line.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from xsp_analyze.api.open_trace import OpenTrace

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

__all__ = ["open"]

_LAYER_SOURCES = ("auto", "module", "range", "operator")


def open(  # noqa: A001 (xa.open is what people will type)
    *inputs: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002 (the command's name for it)
    layer_source: str = "auto",
    model_ranges: Sequence[str] = (),
    layer_ranges: Sequence[str] = (),
    nsys: str | None = None,
    os_runtime: bool = False,
    device: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> OpenTrace:
    """The one trace of all inputs: files, folders, patterns (`"rank*.json.gz"`), a bundle, or a run set, merged.

    Args:
        inputs: What `xsp` takes as INPUT; several files are the ranks of one job. `~` is the home folder.
        format: Read the files as this format, whatever they look like.
        layer_source: `auto`, `module`, `range` or `operator`: what counts as a layer.
        model_ranges: Regular expressions; named ranges that match are steps of the model.
        layer_ranges: Likewise, for layers.
        nsys: Path of the nsys that opens `.nsys-rep` files.
        os_runtime: Keep the calls of the operating system's runtime that Nsight Systems traced.
        device: A TOML file with peak rates of devices.
        progress: Called with a few words about what is being read.

    Raises:
        XspError: An input is missing, of no known format, or damaged; one sentence says what to do.
    """
    from xsp_cli.inputs import Reading, load  # noqa: PLC0415 (see above; and it imports only what it needs)
    from xsp_model import XspError  # noqa: PLC0415

    if not inputs:
        raise XspError("nothing to open", advice='Name a file: open("trace.json.gz")')
    if layer_source not in _LAYER_SOURCES:
        raise XspError(f"{layer_source!r} is no source of layers", advice=f"Choose of {', '.join(_LAYER_SOURCES)}")
    texts = [str(Path(one).expanduser()) for one in inputs]
    reading = Reading(
        format,
        layer_source,
        tuple(model_ranges),
        tuple(layer_ranges),
        nsys=nsys,
        os_runtime=os_runtime,
        device=None if device is None else Path(device).expanduser(),
    )
    return OpenTrace(load(texts, reading, progress or (lambda _: None)))
