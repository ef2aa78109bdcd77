"""What the host did in the steps chosen, and how long devices had nothing to do meanwhile."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.findings.gaps import gaps_of
from xsp_analyze.frames.compiled_regions import compiled_regions
from xsp_analyze.frames.host_blocks import COMPILATIONS, INPUT_CALLS
from xsp_analyze.frames.launches import SYNC_CALLS, names_like
from xsp_analyze.frames.roles import Roles
from xsp_analyze.frames.step_windows import StepBasis
from xsp_model import Kind, Level

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.findings.gaps import Gaps, Intervals
    from xsp_analyze.frames.compiled_regions import CompiledRegions
    from xsp_analyze.frames.step_frames import StepFrames

__all__ = ["HostTime"]

LAUNCH_CALLS = r"(?i)^(?:cuda|cu|hip)(?:Ext|Module)?Launch"
"""Calls that launch a kernel or a graph."""

_HOST_LEVELS = (Level.APPLICATION, Level.MODEL, Level.LAYER, Level.OPERATOR, Level.LIBRARY)

_NO_CALLS = pl.DataFrame(
    schema={
        "run_id": pl.Int64, "step": pl.Int64, "name": pl.String, "start_ns": pl.Int64, "duration_ns": pl.Int64,
    }
)  # fmt: skip


class HostTime:
    """The host's spans by what they are, and idle device time by these; times in ns, of a step where it says so."""

    def __init__(self, frames: StepFrames) -> None:
        self.frames = frames

    @cached_property
    def step_count(self) -> int:
        """Steps (of all runs with device work) that sums over the trace are divided by; 1 where it has none."""
        return max(self.windows.height, 1)

    @cached_property
    def windows(self) -> pl.DataFrame:
        """run_id, step, start_ns, end_ns of every step chosen; without steps, of runs (with device work, if any)."""
        runs = self.frames.of_trace.roles.kernels
        if self.frames.averaged:
            steps = Roles.of(self.frames.steps, runs).filter(pl.col("basis") != str(StepBasis.TIMED))
            return steps.select("run_id", "step", pl.col("begin_ns").alias("start_ns"), "end_ns")
        extents = Roles.of(self.frames.of_trace.seen, runs)
        if not self.frames.activities.is_empty():
            extents = extents.join(self.frames.activities.select("run_id").unique(), on="run_id", how="semi")
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
        return self.inside(spans)

    def inside(self, spans: pl.DataFrame) -> pl.DataFrame:
        """The spans that begin in a window, with its step: what begins with a step need not be nested in it."""
        windows, columns = self.windows.sort("start_ns"), spans.columns
        return (
            spans.sort("start_ns")
            .join_asof(windows, on="start_ns", by="run_id", strategy="backward", check_sortedness=False)
            .filter(pl.col("start_ns") < pl.col("end_ns"))
            .select("run_id", "step", *(column for column in columns if column != "run_id"))
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
    def regions(self) -> CompiledRegions:
        """Calls of what torch.compile made, in the whole of the runs of kernels; see `compiled_regions`."""
        of_trace = self.frames.of_trace
        return compiled_regions(self.frames.trace, of_trace.roles.kernels, of_trace.span_names)

    @cached_property
    def graph_breaks(self) -> pl.DataFrame:
        """Where compiled code was left in the middle of a function: run_id, step, start_ns, duration_ns, from_graph."""
        length = (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns")
        return self.inside(self.regions.breaks.select("run_id", "start_ns", length, "from_graph"))

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


def _of(spans: pl.DataFrame, run_id: int) -> Intervals:
    rows = spans.filter(pl.col("run_id") == run_id)
    start = rows["start_ns"].to_numpy()
    return start, start + rows["duration_ns"].to_numpy()
