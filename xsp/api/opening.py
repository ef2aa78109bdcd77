"""From what Python code names to an open trace.

The one place below the command that knows of it: inputs must mean the same in Python as on the command line.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from xsp.api.open_trace import OpenTrace

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

__all__ = ["open"]

_LAYER_SOURCES = ("auto", "module", "range", "operator")


def open(  # noqa: A001 (xsp.open is what people will type)
    *inputs: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002 (the command's name for it)
    layer_source: str = "auto",
    model_ranges: Sequence[str] = (),
    layer_ranges: Sequence[str] = (),
    nsys: str | None = None,
    os_runtime: bool = False,
    device: str | os.PathLike[str] | None = None,
    time_range: str | None = None,
    process_ids: Sequence[int] = (),
    device_ids: Sequence[int] = (),
    cache: bool = True,
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
        time_range: Read only this time since the first span, such as `10s..20s`; the ledger says what was left out.
        process_ids: Read only these processes.
        device_ids: Read only these devices.
        cache: Keep what a large file was converted to, for the next time, where the command keeps it.
        progress: Called with a few words about what is being read.

    Raises:
        XspError: An input is missing, of no known format, or damaged; one sentence says what to do.
    """
    from xsp.cache.cache import cache_of  # noqa: PLC0415 (see above; both import only what they need)
    from xsp.opening import Reading, load  # noqa: PLC0415
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
        cache=cache_of(None, unwanted=not cache),
        time_range=time_range,
        process_ids=tuple(process_ids),
        device_ids=tuple(device_ids),
    )
    return OpenTrace(load(texts, reading, progress or (lambda _: None)))
