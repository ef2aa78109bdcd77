"""Leveled run sets of a simulated GPU, through the runners' own command line, and what XSP says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.runners.async_device import AsyncDevice
from tests.runners.async_device_torch import simulated
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.merge.merge import merge
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.ingester import Options
from xsp_ingest.run_set import read_run_set
from xsp_runners import torch_levels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from xsp_model import Trace

__all__ = ["analysed", "collected", "merged"]


def collected(
    out: Path, levels: Sequence[str], *options: str, durations_ns: Mapping[str, int] | None = None
) -> Mapping[str, AsyncDevice]:
    """Runs each level on a device of its own; the devices, by level. The run set is in `out`."""
    devices = {}
    for level in levels:
        with simulated(AsyncDevice(durations_ns or {})) as device:
            status = torch_levels.main(["--level", level, *options, "--out", str(out / level.lower())])
        assert status == 0, (out / level.lower() / "error.json").read_text()
        devices[level] = device
    return devices


def merged(out: Path) -> Trace:
    """The profile that `xsp merge` makes of the run set."""
    return merge(read_run_set(out, Options()))


def analysed(out: Path, analysis: str) -> pl.DataFrame:
    """The table that this analysis gives of it."""
    return run(find(analysis), StepView.of(merged(out))).table
