"""Whether a trace holds what an analysis needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.compiled_kernels import has_compiled_kernels
from xsp_analyze.frames.energy import power_series
from xsp_analyze.frames.expert_parts import has_experts
from xsp_analyze.frames.graph_replays import replayed_work
from xsp_analyze.frames.imported_work import MODELLED
from xsp_analyze.frames.kernel_classes import IS_COMMUNICATION, communication_names
from xsp_analyze.frames.kernel_waves import has_grids
from xsp_analyze.frames.layer_time import layer_calls
from xsp_analyze.frames.library_spans import LIBRARIES, has_library
from xsp_analyze.frames.rank_units import has_ranks
from xsp_analyze.frames.stages import has_stages
from xsp_analyze.frames.system_samples import system_series
from xsp_analyze.needs import AnyOf
from xsp_model import Level
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.needs import Need
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["holds"]


def holds(frames: TraceView, need: Need) -> bool:
    """Whether the trace holds a level, rows in a table, or what `_HOLDS` lists; `layer`: calls with own work."""
    if isinstance(need, AnyOf):
        return any(holds(frames, one) for one in need.needs)
    special = _HOLDS.get(need)
    if special is not None:
        return special(frames)
    return frames.trace.height(need) > 0 if need in TABLES else frames.trace.has_level(need)


def _works(frames: TraceView) -> bool:
    """Whether a device did anything in the runs that kernels are taken from."""
    rows = frames.kernel_runs.scan("spans").filter(pl.col("level") == str(Level.KERNEL))
    return not rows.select("run_id").head(1).collect().is_empty()


def _communicates(frames: TraceView) -> bool:
    by_name = not communication_names(frames.device_work["name"]).is_empty()
    return by_name or not frames.all_activities.filter(IS_COMMUNICATION).is_empty()


def _is_counted(frames: TraceView) -> bool:
    rows = frames.trace.scan("metrics").filter(~pl.col("source").cast(pl.String).str.starts_with(MODELLED))
    return not rows.select("span_id").head(1).collect().is_empty()


def _has_work(frames: TraceView) -> bool:
    """Whether counters were measured, or the shapes of operators recorded, or their work given."""
    if frames.trace.height("metrics"):
        return True
    shapes = frames.trace.scan("operators").filter(pl.col("input_shapes").is_not_null())
    return not shapes.select("span_id").head(1).collect().is_empty()


def _has_modules(frames: TraceView) -> bool:
    modules = frames.trace.scan("layers").filter(pl.col("source") == "module")
    return not modules.head(1).collect().is_empty()


def _replays(frames: TraceView) -> bool:
    return not frames.device_work.is_empty() and bool(replayed_work(frames).height)


def _has_unified_memory(frames: TraceView) -> bool:
    kinds = frames.trace.scan("copies").select(pl.col("copy_kind").unique()).collect().to_series().cast(pl.String)
    return frames.trace.height("page_faults") > 0 or bool(kinds.str.starts_with("Unified").any())


def _has_gpu_metrics(frames: TraceView) -> bool:
    names = frames.trace.scan("counters").select(pl.col("counter").unique()).collect().to_series().cast(pl.String)
    return bool(names.str.contains(r"^(SMs? Active|SM Issue|Tensor Active)$").any())


def _has_calls_of(whose: str) -> Callable[[TraceView], bool]:
    return lambda frames: has_library(frames, whose)


def _has_batch_sizes(frames: TraceView) -> bool:
    own = frames.timed_runs.table.filter(~pl.col("run_id").is_in(frames.counter_runs.ids))
    return own["batch_size"].drop_nulls().n_unique() > 1


_HOLDS: Mapping[str, Callable[[TraceView], bool]] = {
    "kernel": _works,
    "metrics": _is_counted,
    "work": _has_work,
    "communication": _communicates,
    "ranks": has_ranks,
    "graph replay": _replays,
    "grids": lambda frames: has_grids(frames.trace),
    "experts": has_experts,
    "compiled code": has_compiled_kernels,
    "results": lambda frames: any(map(frames.trace.height, ("accuracies", "tensors", "output_distances"))),
    "system": lambda frames: bool(system_series(frames.trace.frame("counters"))),
    "power": lambda frames: bool(power_series(frames.trace.frame("counters"))),
    "stages": has_stages,
    "batch sizes": _has_batch_sizes,
    "leveled": lambda frames: frames.is_leveled,
    "layer": lambda frames: not frames.once(layer_calls).is_empty() or frames.trace.height("attributions") > 0,
    "module": _has_modules,
    "serving": lambda frames: not frames.serving_steps.is_empty(),
    "GPU metrics": _has_gpu_metrics,
    "unified memory": _has_unified_memory,
    **{whose: _has_calls_of(whose) for whose in (*LIBRARIES, "OS runtime")},
}
"""What an analysis may need besides levels and tables."""
