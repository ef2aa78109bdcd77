"""What the host did in the steps chosen, and how long devices had nothing to do meanwhile."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.host_calls import BLOCK_CAUSES, COMPILATIONS, SYNC_CALLS, host_blocks
from xsp_analyze.frames.idle import idle_of_run
from xsp_analyze.frames.kernels.activities import column_at
from xsp_analyze.frames.kernels.graphs import compiled_regions
from xsp_analyze.frames.kernels.kernel_means import chosen_activities
from xsp_analyze.frames.steps import StepBasis

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.frames.idle import Intervals, RunIdle
    from xsp_analyze.frames.kernels.graphs import CompiledRegions
    from xsp_analyze.trace.step_view import StepView

__all__ = ["HostTime"]


class HostTime:
    """The host's spans by what they are, and idle device time by these; times in ns, of a step where it says so."""

    def __init__(self, frames: StepView) -> None:
        self.frames = frames

    @cached_property
    def step_count(self) -> int:
        """Steps (of all runs with device work) that sums over the trace are divided by; 1 where it has none."""
        return max(self.windows.height, 1)

    @cached_property
    def windows(self) -> pl.DataFrame:
        """run_id, step, start_ns, end_ns of every step chosen; without steps, of runs (with device work, if any)."""
        runs = self.frames.of_trace.kernel_runs
        if self.frames.averaged:
            steps = runs.of(self.frames.steps).filter(pl.col("basis") != str(StepBasis.TIMED))
            return steps.select("run_id", "step", pl.col("begin_ns").alias("start_ns"), "end_ns")
        extents = runs.of(self.frames.of_trace.seen)
        if not self.frames.once(chosen_activities).is_empty():
            extents = extents.join(
                self.frames.once(chosen_activities).select("run_id").unique(), on="run_id", how="semi"
            )
        none = pl.lit(None, pl.Int64).alias("step")
        return extents.select("run_id", none, pl.col("begin_ns").alias("start_ns"), "end_ns")

    @cached_property
    def gaps(self) -> Mapping[int, RunIdle]:
        """Of each run, when none of its devices worked."""
        by_run = self.windows.partition_by("run_id", as_dict=True)
        return {run: idle_of_run(self.frames.of_trace, run, by_run[run,]) for run in self._runs}

    @property
    def _runs(self) -> list[int]:
        return list(self.windows["run_id"].unique().sort())

    @cached_property
    def blocks(self) -> pl.DataFrame:
        """Calls that hold up the host, the outermost of each thread: run_id, step, name, start_ns, duration_ns, cause.

        `cause` is a name of BLOCK_CAUSES.
        """
        of_trace = self.frames.of_trace
        runs = self._runs or [-1]  # of no run there are none, in the same columns
        rows = pl.concat(of_trace.once(host_blocks, run).with_columns(run_id=pl.lit(run, pl.Int64)) for run in runs)
        causes = pl.Series(BLOCK_CAUSES, dtype=pl.String)
        return self.inside(
            rows.select(
                "run_id",
                column_at(self.frames.trace, "name", rows["call"]).cast(pl.String).alias("name"),
                "start_ns",
                (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"),
                causes.gather(rows["cause"]).alias("cause"),
            )
        )

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
        """Calls in which the host waited for a device: as `blocks`.

        Those before a run's first device work or after its last are left out: profilers make them.
        """
        first, last = pl.col("start_ns").min(), (pl.col("start_ns") + pl.col("duration_ns")).max()
        work = self.frames.of_trace.all_activities.group_by("run_id").agg(
            first.alias("first_ns"), last.alias("last_ns")
        )
        end = pl.col("start_ns") + pl.col("duration_ns")
        return (
            self.blocks.filter(pl.col("cause") == "sync", pl.col("name").str.contains(SYNC_CALLS))
            .join(work, on="run_id", maintain_order="left")
            .filter(end > pl.col("first_ns"), pl.col("start_ns") < pl.col("last_ns"))
            .drop("first_ns", "last_ns")
        )

    @cached_property
    def compilations(self) -> pl.DataFrame:
        """Calls in which code was compiled or loaded, likewise."""
        return self.blocks.filter(pl.col("cause") == "initialisation", pl.col("name").str.contains(COMPILATIONS))

    @cached_property
    def regions(self) -> CompiledRegions:
        """Calls of what torch.compile made, in the whole of the runs of kernels; see `compiled_regions`."""
        of_trace = self.frames.of_trace
        return compiled_regions(self.frames.trace, of_trace.kernel_runs.ids, of_trace.span_names)

    @cached_property
    def graph_breaks(self) -> pl.DataFrame:
        """Where compiled code was left in the middle of a function: run_id, step, start_ns, duration_ns, from_graph."""
        length = (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns")
        return self.inside(self.regions.breaks.select("run_id", "start_ns", length, "from_graph"))

    @cached_property
    def data_waits(self) -> pl.DataFrame:
        """Calls in which the host fetched the next batch, likewise."""
        return self.blocks.filter(pl.col("cause") == "input")

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
