"""Whether a trace holds what an analysis needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.compiled_kernels import has_compiled_kernels
from xsp_analyze.frames.energy import power_series
from xsp_analyze.frames.expert_parts import has_experts
from xsp_analyze.frames.graph_replays import replayed_work
from xsp_analyze.frames.kernel_classes import IS_COMMUNICATION, communication_names
from xsp_analyze.needs import AnyOf
from xsp_model import Level
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.frames.trace_frames import TraceFrames
    from xsp_analyze.needs import Need

__all__ = ["holds"]


def holds(frames: TraceFrames, need: Need) -> bool:
    """Whether the trace holds a level, rows in a table, or what `_HOLDS` lists; `layer`: calls with own work."""
    if isinstance(need, AnyOf):
        return any(holds(frames, one) for one in need.needs)
    special = _HOLDS.get(need)
    if special is not None:
        return special(frames)
    return frames.trace.height(need) > 0 if need in TABLES else frames.trace.has_level(need)


def _works(frames: TraceFrames) -> bool:
    """Whether a device did anything in the runs that kernels are taken from."""
    of_runs = pl.col("run_id").is_in(list(frames.roles.kernels))
    rows = frames.trace.scan("spans").filter(pl.col("level") == str(Level.KERNEL), of_runs)
    return not rows.select("run_id").head(1).collect().is_empty()


def _communicates(frames: TraceFrames) -> bool:
    by_name = not communication_names(frames.device_work["name"]).is_empty()
    return by_name or not frames.all_activities.filter(IS_COMMUNICATION).is_empty()


def _has_modules(frames: TraceFrames) -> bool:
    modules = frames.trace.scan("layers").filter(pl.col("source") == "module")
    return not modules.head(1).collect().is_empty()


def _replays(frames: TraceFrames) -> bool:
    return not frames.device_work.is_empty() and bool(replayed_work(frames).height)


_HOLDS: Mapping[str, Callable[[TraceFrames], bool]] = {
    "kernel": _works,
    "communication": _communicates,
    "graph replay": _replays,
    "experts": has_experts,
    "compiled code": has_compiled_kernels,
    "power": lambda frames: bool(power_series(frames.trace.frame("counters"))),
    "leveled": lambda frames: frames.roles.leveled,
    "layer": lambda frames: not frames.layer_calls.is_empty() or frames.trace.height("attributions") > 0,
    "module": _has_modules,
    "serving": lambda frames: not frames.serving_steps.is_empty(),
}
"""What an analysis may need besides levels and tables."""
