"""What rules ask of a trace, computed once: latency, device work, idle time, waits of the host."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.catalog import table
from xsp_analyze.findings.context import Context
from xsp_analyze.findings.host_time import HostTime
from xsp_analyze.formulas import total_of
from xsp_analyze.frames.group_ids import positions_in
from xsp_analyze.frames.kernels.kernel_classes import IS_COMMUNICATION
from xsp_analyze.frames.kernels.kernel_means import chosen_activities
from xsp_analyze.frames.kernels.kernel_waves import launch_configurations, ran_alone
from xsp_analyze.frames.model_time import latency_of_model
from xsp_model import Attribution, Kind
from xsp_model.arrays import nullable_index

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.trace.step_view import StepView

__all__ = ["Facts"]


class Facts:
    """Numbers of steps as rules use them; all times are of one step of one process (of the trace, without steps)."""

    def __init__(self, frames: StepView, captures: Sequence[str] = ()) -> None:
        """`captures` are paths beside the trace that look like traces of graphs' capture."""
        self.frames = frames
        self.captures = captures

    def table(self, identity: str) -> pl.DataFrame | None:
        """The analysis's table; None where it has no rows, or the trace cannot answer it."""
        rows = table(self.frames, identity)
        return None if rows is None or rows.is_empty() else rows

    @cached_property
    def context(self) -> Context:
        """Where this trace is from, and what it records."""
        return Context(self.frames)

    @cached_property
    def latency_ns(self) -> float:
        """Latency of the model; 0 where it is unknown."""
        latencies = self.frames.once(latency_of_model)["latency_ns"].drop_nulls()
        return float(latencies[0]) if len(latencies) else 0.0

    @cached_property
    def attributed(self) -> Mapping[str, float]:
        """Device time of the whole trace by attribution."""
        return _by_attribution(self.frames.of_trace.all_activities)

    @cached_property
    def layer_coverage(self) -> float:
        """The part of device time, other than communication, that is in a layer; 1 where there is none."""
        return _coverage(self._computing)

    @cached_property
    def layer_coverage_beside_replays(self) -> float:
        """The same without replays of graphs, which are a matter of their own."""
        return _coverage({name: ns for name, ns in self._computing.items() if name != Attribution.GRAPH_REPLAY})

    @cached_property
    def _computing(self) -> Mapping[str, float]:
        return _by_attribution(self.frames.of_trace.all_activities.filter(~IS_COMMUNICATION))

    @cached_property
    def work(self) -> pl.DataFrame:
        """The device activities, with `ns`: what each adds to a step, so that sums of it are times per step.

        `ns` follows the trimmed mean that tables use, in which an activity of an outlying step counts for nothing;
        `even_ns` is the plain mean, for what has to be worked out step by step.
        """
        rows = self.frames.once(chosen_activities)
        steps = self.host.windows.group_by("run_id").agg(pl.len().alias("steps"))
        even = rows["duration_ns"] / steps["steps"].gather(nullable_index(positions_in(steps, rows, ("run_id",))))
        weight = rows["mean_ns" if self.frames.averaged else "duration_ns"].cast(pl.Float64)
        return rows.with_columns(weight.alias("ns"), even.alias("even_ns"))

    @cached_property
    def lone_kernels(self) -> pl.DataFrame:
        """Of `work` the kernels, communication aside, beside which no other ran, and how they fill their device."""
        kernels = self.work.filter(pl.col("kind").cast(pl.String) == str(Kind.KERNEL), ~IS_COMMUNICATION)
        alone = kernels.filter(pl.Series(ran_alone(kernels), dtype=pl.Boolean))
        number, configurations = launch_configurations(self.frames.trace, alone)
        return alone.hstack(configurations.select("tail_share", "unused_share")[number])

    def named(self, pattern: str) -> pl.Expr:
        """Whether the name of device work matches; each name is looked at once."""
        names = self.frames.once(chosen_activities)["name"].unique()
        return pl.col("name").is_in(names.filter(names.cast(pl.String).str.contains(pattern)).implode())

    @cached_property
    def device_ns(self) -> float:
        """Device time of a step, summed over devices."""
        return total_of(self.work["ns"])

    @cached_property
    def host(self) -> HostTime:
        """What the host did in the steps."""
        return HostTime(self.frames)

    @property
    def step_count(self) -> int:
        """Steps (of all runs with device work) that sums over the trace are divided by; 1 where it has none."""
        return self.host.step_count

    def per_step(self, column: pl.Series) -> float:
        """The sum over the steps chosen, as a mean over them."""
        return total_of(column) / self.step_count

    def longest(self, rows: pl.DataFrame, column: str = "ns") -> float:
        """The column's sum on the device where it is largest: devices work side by side, so a step saves no more.

        Nor than the time in which a device was busy, as streams work side by side too.
        """
        sums = rows.group_by("run_id", "device_id").agg(pl.col(column).sum())[column]
        longest = float(sums.max() or 0) if len(sums) else 0.0  # type: ignore[arg-type]
        busy = self.devices["busy_ns"].max() if self.devices.height else None
        return longest if busy is None else min(longest, float(busy))  # type: ignore[arg-type]

    @cached_property
    def devices(self) -> pl.DataFrame:
        """B03 per device, with `waiting_ns`: its idle time in a step, or in the whole trace, as far as it is known."""
        table = self.table("B03")
        if table is None or not self.frames.of_trace.is_timed:
            return pl.DataFrame(schema={"waiting_ns": pl.Float64, "busy_ns": pl.Float64, "compute_ns": pl.Float64})
        return table.with_columns(pl.col("idle_ns").cast(pl.Float64).alias("waiting_ns"))

    @cached_property
    def idle_ns(self) -> float:
        """Time in which even the busiest device has nothing to do."""
        return float(self.devices["waiting_ns"].min() or 0) if self.devices.height else 0.0  # type: ignore[arg-type]

    def share(self, time_ns: float) -> float:
        """The time as a share of model latency; 0 where that is unknown."""
        return time_ns / self.latency_ns if self.latency_ns else 0.0

    @cached_property
    def idle_window_ns(self) -> float:
        """What idle time is a part of: the latency; in a profile of levels the step of the run with kernels.

        The profiler made that step longer than the model's latency, and idle time with it.
        """
        if not self.frames.of_trace.is_leveled or self.devices.is_empty():
            return self.latency_ns
        return float(self.devices["window_ns"].max() or 0)  # type: ignore[arg-type]

    def idle_share(self, time_ns: float) -> float:
        """Idle time as a share of what it is a part of; 0 where that is unknown."""
        return time_ns / self.idle_window_ns if self.idle_window_ns else 0.0

    def idle_gain_ns(self, time_ns: float) -> float:
        """What a step can save of idle time: no more than it has without the profiler of kernels."""
        if not self.frames.of_trace.is_leveled or self.devices.is_empty():
            return time_ns
        busy = float(self.devices["busy_ns"].max() or 0)  # type: ignore[arg-type]
        return max(min(time_ns, self.latency_ns - busy), 0.0)

    def device_share(self, time_ns: float) -> float:
        """The time as a share of all device time."""
        return time_ns / self.device_ns if self.device_ns else 0.0


def _coverage(times: Mapping[str, float]) -> float:
    total = sum(times.values())
    return times.get(str(Attribution.LAYER), 0.0) / total if total else 1.0


def _by_attribution(work: pl.DataFrame) -> Mapping[str, float]:
    rows = work.group_by("attribution").agg(pl.col("duration_ns").sum())
    return {str(name): float(time) for name, time in rows.iter_rows()}
