"""What a trace holds, in a few numbers: for `xsp info` and the head of the report.

Of a profile, whose runs are of the same work, device work is that of the kernels run and layers are the layers run's;
spans are counted as they are stored, but for those of captures of graphs, in which nothing was timed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.text.units import FULL_COVERAGE, share
from xsp_analyze.trace.trace_view import TraceView
from xsp_model.vocabulary import LEVELS, Attribution

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_model import Trace

__all__ = ["AttributedTime", "Summary", "summarise"]


@dataclass(frozen=True, slots=True)
class AttributedTime:
    """One way device time was attributed: how many activities, and the sum of their durations, null if all unknown."""

    attribution: str
    count: int
    duration_ns: int | None


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts and extents of a trace; times in ns, null where the trace has nothing of the kind."""

    runs: Sequence[Mapping[str, Any]]
    captures: Sequence[Mapping[str, Any]]  # runs that only hold how graphs were captured
    view: TraceView
    counts: Mapping[str, int]  # spans per level, outermost first
    steps: Sequence[int]
    layer_count: int
    layer_call_count: int
    devices: Sequence[Mapping[str, Any]]
    window_ns: int | None  # first start to last end of anything
    device_window_ns: int | None  # the same of device work
    attributed: Sequence[AttributedTime]
    findings: Sequence[Mapping[str, Any]]

    @property
    def device_time_ns(self) -> int | None:
        """Sum of the durations of all device activities; null where activities have none at all."""
        durations = [a.duration_ns for a in self.attributed if a.duration_ns is not None]
        return sum(durations) if durations or not self.attributed else None

    @property
    def coverage(self) -> float | None:
        """Share of device time that was attributed to a layer."""
        total = self.device_time_ns
        layers = sum(a.duration_ns or 0 for a in self.attributed if a.attribution == Attribution.LAYER)
        return layers / total if total else None

    @property
    def layer_caveat(self) -> str:
        """How much of device time layers hold, as a clause; empty where that is nearly all, or no device worked."""
        if self.coverage is None or self.coverage >= FULL_COVERAGE:
            return ""
        return f"only {share(self.coverage)} of device time is tied to a layer"

    @property
    def layer_sources(self) -> Sequence[str]:
        """What the layers were taken from, over all runs."""
        runs = (run for run in self.runs if not self.view.is_leveled or run["run_id"] in self.view.layer_runs)
        return sorted({str(run["layer_source"]) for run in runs if run["layer_source"]})


def summarise(trace: Trace) -> Summary:
    """Reads the trace once over, a few columns at a time."""
    view = TraceView(trace)
    spans = view.timed_runs.scan("spans")
    device = view.kernel_runs.scan("spans").filter(pl.col("attribution").is_not_null())
    device = device.select("attribution", "run_id", "device_id", "start_ns", "duration_ns").collect().lazy()
    layers = trace.scan("layers").filter(pl.col("layer_index").is_not_null())
    called = layers
    if not view.layer_runs.are_all:
        called = layers.join(view.layer_runs.scan("spans").select("span_id"), on="span_id", how="semi")
        replayed = layers.join(
            trace.scan("attributions").select("layer_id"), left_on="span_id", right_on="layer_id", how="semi"
        )
        layers = pl.concat([called, replayed])
    return Summary(
        runs=view.timed_runs.table.to_dicts(),
        captures=trace.frame("runs").filter(~pl.col("run_id").is_in(view.timed_runs.ids)).to_dicts(),
        view=view,
        counts=_counts(spans),
        steps=spans.select(pl.col("step").drop_nulls().unique().sort()).collect()["step"].to_list(),
        layer_count=layers.select(pl.col("layer_index").n_unique()).collect().item(),
        layer_call_count=called.select(pl.len()).collect().item(),
        devices=_devices(trace, device),
        window_ns=_extent((view.kernel_runs or view.layer_runs).scan("spans")),
        device_window_ns=_extent(device),
        attributed=_time_by_attribution(device),
        findings=trace.frame("ledger").to_dicts(),
    )


def _counts(spans: pl.LazyFrame) -> dict[str, int]:
    rows = spans.group_by("level").len().collect().iter_rows()
    counts: dict[str, int] = dict(rows)
    return {str(level): counts[level] for level in LEVELS if level in counts}


def _extent(spans: pl.LazyFrame) -> int | None:
    end = (pl.col("start_ns") + pl.col("duration_ns").fill_null(0)).max()
    timed = pl.col("duration_ns").count() > 0
    extent: int | None = spans.select(pl.when(timed).then(end - pl.col("start_ns").min())).collect().item()
    return extent


def _time_by_attribution(device: pl.LazyFrame) -> list[AttributedTime]:
    rows = device.group_by("attribution").agg(pl.len(), _sum_of_known()).collect().iter_rows()
    by_name = {name: AttributedTime(name, count, duration) for name, count, duration in rows}
    return [by_name[a] for a in Attribution if a in by_name]


def _sum_of_known() -> pl.Expr:
    return pl.when(pl.col("duration_ns").count() > 0).then(pl.col("duration_ns").sum()).alias("duration_ns")


def _devices(trace: Trace, device: pl.LazyFrame) -> list[Mapping[str, Any]]:
    """One entry a device that did work, named where the trace names it."""
    worked = device.group_by("run_id", "device_id").agg(pl.len().alias("activities"), _sum_of_known())
    described = (
        trace.scan("devices")
        .unique(["run_id", "device_id"], keep="first", maintain_order=True)
        .select("run_id", "device_id", "name", "multiprocessor_count", "compute_capability", "memory_bytes")
    )
    joined = worked.join(described, on=["run_id", "device_id"], how="left", nulls_equal=True)
    return list(joined.sort("run_id", "device_id", nulls_last=True).collect().to_dicts())
