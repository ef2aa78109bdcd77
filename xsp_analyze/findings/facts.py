"""What rules ask of a trace, computed once: latency, device work, idle time, waits of the host."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.frames.group_ids import positions_in
from xsp_analyze.frames.host_blocks import INPUT_CALLS
from xsp_analyze.frames.launches import SYNC_CALLS, names_like
from xsp_analyze.frames.roles import Roles
from xsp_analyze.frames.step_windows import StepBasis
from xsp_model import Kind, Level, XspError
from xsp_model.arrays import nullable_index
from xsp_model.intervals import intersection, merge, union_length

if TYPE_CHECKING:
    from collections.abc import Callable

    from xsp_analyze.core import Result
    from xsp_analyze.frames.step_frames import StepFrames
    from xsp_model.arrays import Ints

__all__ = ["Facts"]

LAUNCH_CALLS = r"(?i)^(?:cuda|cu|hip)(?:Ext|Module)?Launch"
"""Calls that launch a kernel or a graph."""

_HOST_LEVELS = (Level.APPLICATION, Level.MODEL, Level.LAYER, Level.OPERATOR, Level.LIBRARY)


_NO_CALLS = pl.DataFrame(
    schema={
        "run_id": pl.Int64, "step": pl.Int64, "name": pl.String, "start_ns": pl.Int64, "duration_ns": pl.Int64,
    }
)  # fmt: skip


class Facts:
    """Numbers of steps as rules use them; all times are of one step of one process (of the trace, without steps)."""

    def __init__(self, frames: StepFrames, of: Callable[[str], Result | str] | None = None) -> None:
        """`of` answers analyses by id over these frames, where the caller keeps results; else each is run here."""
        self.frames = frames
        self._answered: dict[str, Result | str] = {}
        self._of = of or self._run

    def _run(self, identity: str) -> Result | str:
        if identity not in self._answered:
            try:
                self._answered[identity] = run(find(identity), self.frames)
            except XspError as error:
                self._answered[identity] = f"{error.what}."
        return self._answered[identity]

    def table(self, identity: str) -> pl.DataFrame | None:
        """The analysis's table; None where the trace cannot answer it."""
        result = self._of(identity)
        return None if isinstance(result, str) or result.table.is_empty() else result.table

    @cached_property
    def latency_ns(self) -> float:
        """Latency of the model; 0 where it is unknown."""
        latencies = self.frames.model_latency["latency_ns"].drop_nulls()
        return float(latencies[0]) if len(latencies) else 0.0

    @cached_property
    def work(self) -> pl.DataFrame:
        """The device activities, with `ns`: what each adds to a step, so that sums of it are times per step.

        `ns` follows the trimmed mean that tables use, in which an activity of an outlying step counts for nothing;
        `even_ns` is the plain mean, for what has to be worked out step by step.
        """
        rows = self.frames.activities
        steps = self.windows.group_by("run_id").agg(pl.len().alias("steps"))
        even = rows["duration_ns"] / steps["steps"].gather(nullable_index(positions_in(steps, rows, ("run_id",))))
        weight = rows["mean_ns" if self.frames.averaged else "duration_ns"].cast(pl.Float64)
        return rows.with_columns(weight.alias("ns"), even.alias("even_ns"))

    def named(self, pattern: str) -> pl.Expr:
        """Whether the name of device work matches; each name is looked at once."""
        names = self.frames.activities["name"].unique()
        return pl.col("name").is_in(names.filter(names.cast(pl.String).str.contains(pattern)).implode())

    @cached_property
    def device_ns(self) -> float:
        """Device time of a step, summed over devices."""
        return float(self.work["ns"].sum())

    @cached_property
    def step_count(self) -> int:
        """Steps (of all runs with device work) that sums over the trace are divided by; 1 where it has none."""
        return max(self.windows.height, 1)

    def per_step(self, column: pl.Series) -> float:
        """The sum over the steps chosen, as a mean over them."""
        return float(column.sum() or 0) / self.step_count

    def longest(self, rows: pl.DataFrame, column: str = "ns") -> float:
        """The column's sum on the device where it is largest: devices work side by side, so a step saves no more."""
        sums = rows.group_by("run_id", "device_id").agg(pl.col(column).sum())[column]
        return float(sums.max() or 0) if len(sums) else 0.0  # type: ignore[arg-type]

    @cached_property
    def devices(self) -> pl.DataFrame:
        """B03 per device, with `waiting_ns`: its idle time in a step, or in the whole trace."""
        table = self.table("B03")
        if table is None:
            return pl.DataFrame(schema={"waiting_ns": pl.Float64, "busy_ns": pl.Float64, "compute_ns": pl.Float64})
        return table.with_columns(pl.col("idle_ns").cast(pl.Float64).alias("waiting_ns"))

    @cached_property
    def idle_ns(self) -> float:
        """Time in which even the busiest device has nothing to do."""
        return float(self.devices["waiting_ns"].min() or 0) if self.devices.height else 0.0  # type: ignore[arg-type]

    @cached_property
    def windows(self) -> pl.DataFrame:
        """run_id, start_ns, end_ns of the time of every step chosen; without steps, of each run that used a device."""
        runs = self.frames.of_trace.roles.kernels
        if self.frames.averaged:
            steps = Roles.of(self.frames.steps, runs).filter(pl.col("basis") != str(StepBasis.TIMED))
            return steps.select("run_id", pl.col("begin_ns").alias("start_ns"), "end_ns")
        worked = self.frames.activities.select("run_id").unique()
        extents = Roles.of(self.frames.of_trace.extents, runs).join(worked, on="run_id", how="semi")
        return extents.rename({"begin_ns": "start_ns"})

    @cached_property
    def gaps(self) -> dict[int, tuple[Ints, Ints]]:
        """Of each run, the stretches inside its windows in which none of its devices worked."""
        return {run_id: self._gaps(run_id) for run_id in self.windows["run_id"].unique().sort().to_list()}

    def _gaps(self, run_id: int) -> tuple[Ints, Ints]:
        rows = Roles.of(self.frames.of_trace.all_activities, [run_id])
        start = rows["start_ns"].to_numpy()
        busy = merge(start, start + rows["duration_ns"].to_numpy())
        windows = self.windows.filter(pl.col("run_id") == run_id)
        inside = merge(windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy())
        if not len(busy[0]):
            return inside
        first = np.concatenate(([min(busy[0][0], inside[0].min(initial=busy[0][0]))], busy[1]))
        last = np.concatenate((busy[0], [max(busy[1][-1], inside[1].max(initial=busy[1][-1]))]))
        return intersection(merge(first, last), inside)

    def _host(self, levels: tuple[Level, ...], pattern: str) -> pl.DataFrame:
        """The host's spans of these levels whose name matches, in the runs of kernels and inside their windows."""
        names = names_like(self.frames.of_trace.span_names, lambda name: name.str.contains(pattern))
        if names.is_empty():
            return _NO_CALLS
        spans = (
            self.frames.trace.scan("spans")
            .filter(
                pl.col("name").is_in(names.implode()),
                pl.col("level").is_in([str(level) for level in levels]),
                pl.col("kind") != str(Kind.SYNC),
                pl.col("run_id").is_in(list(self.frames.of_trace.roles.kernels)),
                pl.col("duration_ns").is_not_null(),
            )
            .select("run_id", "step", pl.col("name").cast(pl.String), "start_ns", "duration_ns")
            .collect()
        )
        return self.frames.chosen(spans) if self.frames.averaged else spans

    @cached_property
    def syncs(self) -> pl.DataFrame:
        """Calls in which the host waited for a device: run_id, step, name, start_ns, duration_ns."""
        return self._host((Level.RUNTIME,), SYNC_CALLS)

    @cached_property
    def launches(self) -> pl.DataFrame:
        """Calls that launched kernels or graphs, likewise."""
        return self._host((Level.RUNTIME,), LAUNCH_CALLS)

    @cached_property
    def data_waits(self) -> pl.DataFrame:
        """Spans in which the host fetched the next batch, likewise."""
        return self._host(_HOST_LEVELS, INPUT_CALLS)

    def idle_within(self, spans: pl.DataFrame) -> float:
        """Idle device time, per step, while one of these host spans was open."""
        return sum(self._overlap(run_id, spans) for run_id in self.gaps) / self.step_count

    def _overlap(self, run_id: int, spans: pl.DataFrame) -> int:
        rows = spans.filter(pl.col("run_id") == run_id)
        start = rows["start_ns"].to_numpy()
        both = intersection(self.gaps[run_id], merge(start, start + rows["duration_ns"].to_numpy()))
        return union_length(*both)

    def idle_after(self, calls: pl.DataFrame) -> float:
        """Idle device time, per step, from the end of such a call to the next device work."""
        total = 0
        for run_id, (first, last) in self.gaps.items():
            rows = calls.filter(pl.col("run_id") == run_id)
            ends = np.sort(rows["start_ns"].to_numpy() + rows["duration_ns"].to_numpy())
            index = np.searchsorted(ends, first)  # the first call that ends within or after each gap
            with_call = np.flatnonzero(index < len(ends))
            end = ends[index[with_call]]
            inside = end < last[with_call]
            total += int((last[with_call][inside] - end[inside]).sum())
        return total / self.step_count

    def share(self, time_ns: float) -> float:
        """The time as a share of model latency; 0 where that is unknown."""
        return time_ns / self.latency_ns if self.latency_ns else 0.0

    def device_share(self, time_ns: float) -> float:
        """The time as a share of all device time."""
        return time_ns / self.device_ns if self.device_ns else 0.0
