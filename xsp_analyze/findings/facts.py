"""What rules ask of a trace, computed once: latency, device work, idle time, waits of the host."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.findings import thresholds as least
from xsp_analyze.findings.context import Context
from xsp_analyze.findings.gaps import gaps_of
from xsp_analyze.frames.group_ids import positions_in
from xsp_analyze.frames.host_blocks import INPUT_CALLS
from xsp_analyze.frames.launches import SYNC_CALLS, names_like
from xsp_analyze.frames.roles import Roles
from xsp_analyze.frames.step_windows import StepBasis
from xsp_analyze.frames.timeline import COMMUNICATION
from xsp_model import Attribution, Kind, Level, XspError
from xsp_model.arrays import nullable_index

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.core import Result
    from xsp_analyze.findings.gaps import Gaps, Intervals
    from xsp_analyze.frames.step_frames import StepFrames

__all__ = ["Facts"]

LAUNCH_CALLS = r"(?i)^(?:cuda|cu|hip)(?:Ext|Module)?Launch"
"""Calls that launch a kernel or a graph."""

COMPILATIONS = (
    r"(?i)^_compile\.compile_inner|compile_fx|fw_compiler_base|Graph(?:Node)?\.record|^(?:nv|hip)rtcCompile|"
    r"XlaCompile|backend_compile|PjRt.*Compile|triton.*compile|^(?:cu|hip)(?:Module|Library)Load|^cudaLibraryLoad"
)
"""Spans in which code is made or loaded for the device: TorchDynamo, Inductor, capture of graphs, NVRTC, HIPRTC, XLA,
Triton, and the driver's loading of the result."""

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
    def context(self) -> Context:
        """Where this trace is from, and what it records."""
        return Context(self.frames)

    @cached_property
    def latency_ns(self) -> float:
        """Latency of the model; 0 where it is unknown."""
        latencies = self.frames.model_latency["latency_ns"].drop_nulls()
        return float(latencies[0]) if len(latencies) else 0.0

    @cached_property
    def attributed(self) -> Mapping[str, float]:
        """Device time of the whole trace by attribution."""
        return _by_attribution(self.frames.of_trace.all_activities)

    @cached_property
    def layer_coverage(self) -> float:
        """The part of device time, other than communication, that is in a layer; 1 where there is none."""
        work = self.frames.of_trace.all_activities
        times = _by_attribution(work.filter(~named(work, COMMUNICATION)))
        total = sum(times.values())
        return times.get(str(Attribution.LAYER), 0.0) / total if total else 1.0

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
        return named(self.frames.activities, pattern)

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
        """B03 per device, with `waiting_ns`: its idle time in a step, or in the whole trace, as far as it is known."""
        table = self.table("B03")
        if table is None:
            return pl.DataFrame(schema={"waiting_ns": pl.Float64, "busy_ns": pl.Float64, "compute_ns": pl.Float64})
        waiting = pl.col("idle_ns").cast(pl.Float64) - pl.col("queued_ns").fill_null(0)
        return (
            table.join(self._queued_at_first, on=["run_id", "device_id"], how="left", nulls_equal=True)
            .with_columns(waiting.clip(lower_bound=0).alias("waiting_ns"))
            .drop("queued_ns")
        )

    @cached_property
    def _queued_at_first(self) -> pl.DataFrame:
        """run_id, device_id, queued_ns: in a trace without steps, how long the first work of a device stood in a queue.

        Nothing takes milliseconds to start on a device with nothing to do: work from before the trace, which it does
        not hold, was running.
        """
        device = ["run_id", "device_id"]
        work = self.frames.activities.select(*device, "start_ns", "call_end_ns").drop_nulls()
        first = work.sort("start_ns").unique(device, keep="first", maintain_order=True)
        begin = self.windows.select("run_id", pl.col("start_ns").alias("begin_ns"))
        queued = pl.col("start_ns") - pl.max_horizontal("call_end_ns", "begin_ns")
        rows = first.join(begin.unique("run_id"), on="run_id").select(*device, queued.alias("queued_ns"))
        return rows.filter(pl.col("queued_ns") >= least.QUEUED_NS) if not self.frames.averaged else rows.clear()

    @cached_property
    def idle_ns(self) -> float:
        """Time in which even the busiest device has nothing to do."""
        return float(self.devices["waiting_ns"].min() or 0) if self.devices.height else 0.0  # type: ignore[arg-type]

    @cached_property
    def windows(self) -> pl.DataFrame:
        """run_id, step, start_ns, end_ns of the time of every step chosen; without steps, of runs with device work."""
        runs = self.frames.of_trace.roles.kernels
        if self.frames.averaged:
            steps = Roles.of(self.frames.steps, runs).filter(pl.col("basis") != str(StepBasis.TIMED))
            return steps.select("run_id", "step", pl.col("begin_ns").alias("start_ns"), "end_ns")
        worked = self.frames.activities.select("run_id").unique()
        extents = Roles.of(self.frames.of_trace.extents, runs).join(worked, on="run_id", how="semi")
        none = pl.lit(None, pl.Int64).alias("step")
        return extents.select("run_id", none, pl.col("begin_ns").alias("start_ns"), "end_ns")

    @cached_property
    def gaps(self) -> Mapping[int, Gaps]:
        """Of each run, when none of its devices worked."""
        work = self.frames.of_trace.all_activities
        return {run_id: gaps_of(work, self.windows, run_id) for run_id in self.windows["run_id"].unique().sort()}

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
            .select("run_id", pl.col("name").cast(pl.String), "start_ns", "duration_ns")
            .collect()
        )
        return self._inside(spans)

    def _inside(self, spans: pl.DataFrame) -> pl.DataFrame:
        """The spans that begin in a window, with its step: what begins with a step need not be nested in it."""
        windows = self.windows.sort("start_ns")
        return (
            spans.sort("start_ns")
            .join_asof(windows, on="start_ns", by="run_id", strategy="backward", check_sortedness=False)
            .filter(pl.col("start_ns") < pl.col("end_ns"))
            .select("run_id", "step", "name", "start_ns", "duration_ns")
        )

    @cached_property
    def syncs(self) -> pl.DataFrame:
        """Calls in which the host waited for a device: run_id, step, name, start_ns, duration_ns.

        Those before a run's first device work or after its last are left out: profilers make them.
        """
        first, last = pl.col("start_ns").min(), (pl.col("start_ns") + pl.col("duration_ns")).max()
        work = self.frames.of_trace.all_activities.group_by("run_id").agg(
            first.alias("first_ns"), last.alias("last_ns")
        )
        end = pl.col("start_ns") + pl.col("duration_ns")
        return (
            self._host((Level.RUNTIME,), SYNC_CALLS)
            .join(work, on="run_id", maintain_order="left")
            .filter(end > pl.col("first_ns"), pl.col("start_ns") < pl.col("last_ns"))
            .drop("first_ns", "last_ns")
        )

    @cached_property
    def launches(self) -> pl.DataFrame:
        """Calls that launched kernels or graphs, likewise."""
        return self._host((Level.RUNTIME,), LAUNCH_CALLS)

    @cached_property
    def compilations(self) -> pl.DataFrame:
        """Spans in which code was compiled or loaded, likewise."""
        return self._host((*_HOST_LEVELS, Level.RUNTIME), COMPILATIONS)

    @cached_property
    def data_waits(self) -> pl.DataFrame:
        """Spans in which the host fetched the next batch, likewise."""
        return self._host(_HOST_LEVELS, INPUT_CALLS)

    @cached_property
    def interruptions(self) -> pl.DataFrame:
        """Spans in which the host did what is told by itself: it fetched input, or compiled."""
        return pl.concat([self.data_waits, self.compilations])

    def idle_within(self, spans: pl.DataFrame) -> float:
        """Idle device time, per step, while one of these host spans was open."""
        return sum(gaps.within(_of(spans, run)) for run, gaps in self.gaps.items()) / self.step_count

    def idle_after(self, calls: pl.DataFrame) -> float:
        """Idle device time, per step, from the end of such a call to the next device work, without interruptions."""
        return sum(
            gaps.after(_of(calls, run), without=_of(self.interruptions, run)) for run, gaps in self.gaps.items()
        ) / self.step_count  # fmt: skip

    def idle_between(self, longest_ns: int) -> float:
        """Idle device time, per step, in gaps no longer than that in which the host was not held up by anything."""
        held_up = pl.concat([self.syncs, self.interruptions])
        return sum(gaps.short(longest_ns, _of(held_up, run)) for run, gaps in self.gaps.items()) / self.step_count

    def share(self, time_ns: float) -> float:
        """The time as a share of model latency; 0 where that is unknown."""
        return time_ns / self.latency_ns if self.latency_ns else 0.0

    def device_share(self, time_ns: float) -> float:
        """The time as a share of all device time."""
        return time_ns / self.device_ns if self.device_ns else 0.0


def named(work: pl.DataFrame, pattern: str) -> pl.Expr:
    """Whether the name of a row of the work matches; each name is looked at once."""
    names = work["name"].unique()
    return pl.col("name").is_in(names.filter(names.cast(pl.String).str.contains(pattern)).implode())


def _by_attribution(work: pl.DataFrame) -> Mapping[str, float]:
    rows = work.group_by("attribution").agg(pl.col("duration_ns").sum())
    return {str(name): float(time) for name, time in rows.iter_rows()}


def _of(spans: pl.DataFrame, run_id: int) -> Intervals:
    rows = spans.filter(pl.col("run_id") == run_id)
    start = rows["start_ns"].to_numpy()
    return start, start + rows["duration_ns"].to_numpy()
