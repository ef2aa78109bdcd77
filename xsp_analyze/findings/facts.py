"""What rules ask of a trace, computed once: where it is from, latency, device work, idle time, waits of the host."""

from __future__ import annotations

from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_analyze.catalog import table
from xsp_analyze.classification import KernelClass
from xsp_analyze.findings import thresholds as limit
from xsp_analyze.formulas import total_of
from xsp_analyze.frames.device_time import IDLE_DETAILS, device_time, device_windows, with_start_up, working_times
from xsp_analyze.frames.group_ids import positions_in
from xsp_analyze.frames.host_calls import BLOCK_CAUSES, COMPILATIONS, host_blocks, outermost_blocks, tried_kernels
from xsp_analyze.frames.idle import CAUSES, DEVICE, idle_by_device, idle_of_run
from xsp_analyze.frames.kernels.activities import column_at
from xsp_analyze.frames.kernels.graphs import compiled_regions, graph_captures
from xsp_analyze.frames.kernels.kernel_classes import IS_COMMUNICATION
from xsp_analyze.frames.kernels.kernel_means import chosen_activities, with_calls
from xsp_analyze.frames.kernels.kernel_waves import launch_configurations, ran_alone
from xsp_analyze.frames.kernels.roofline import known_peaks
from xsp_analyze.frames.model_time import latency_of_model
from xsp_analyze.frames.steps import StepBasis, StepMode
from xsp_analyze.text.doubts import impossible_times, lost_work
from xsp_analyze.text.units import count, count_of, duration
from xsp_model import Attribution, Kind, LayerSource, LedgerKind, Level, Phase
from xsp_model.columns.arrays import nullable_index
from xsp_model.columns.intervals import coverage_before, intersection, merge, union_length

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.frames.idle import Intervals
    from xsp_analyze.frames.kernels.graphs import CompiledRegions
    from xsp_analyze.trace.step_view import StepView

__all__ = ["Context", "Facts", "HostTime"]

# Where findings are: the device, the framework, the phase, and what the trace records.


class Context:
    """Facts on the trace that decide which findings make sense."""

    def __init__(self, frames: StepView) -> None:
        self.frames = frames

    @property
    def work(self) -> pl.DataFrame:
        """Device activities of the whole trace."""
        return self.frames.of_trace.all_activities

    @cached_property
    def runs(self) -> pl.DataFrame:
        """The runs that kernels are taken from."""
        return self.frames.of_trace.kernel_runs.table

    @cached_property
    def framework(self) -> str:
        """`pytorch`, `jax`, `tensorflow`, ...; empty where it is not known or not the same for all."""
        names = {str(name).split()[0] for name in self.runs["framework"].drop_nulls() if str(name).split()}
        if not names and self.work["name"].unique().cast(pl.String).str.contains("at::native", literal=True).any():
            return "pytorch"  # its kernels say so where the file does not
        return names.pop() if len(names) == 1 else ""

    @cached_property
    def is_inference(self) -> bool:
        """Whether phases are known, and no device work is of a backward pass: then no gradients are reduced."""
        phases = {str(phase) for phase in self.work["phase"].drop_nulls().unique()}
        return bool(phases) and str(Phase.BACKWARD) not in phases

    @cached_property
    def modules_recorded(self) -> bool:
        """Whether layers are modules."""
        return str(LayerSource.MODULE) in set(self.frames.of_trace.layer_runs.table["layer_source"].drop_nulls())

    @property
    def peaks(self) -> Mapping[str, float]:
        """Peak rates by quantity, of several devices the least; only what is known of the devices that were used."""
        return self.frames.of_trace.once(known_peaks)

    @property
    def narrow_type(self) -> str:
        """The type of 2 bytes to compute in: BF16 where the device has it in its tensor cores, else FP16."""
        return "BF16" if "bf16_tensor" in self.peaks or not self.peaks else "FP16 with loss scaling"


# What the host did in the steps chosen, and how long devices had nothing to do meanwhile.


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
        """run_id, step, start_ns, end_ns of every step chosen; without steps, of runs.

        Where devices work, of the runs in which they do, from their first work on: what is before it is start-up.
        """
        runs = self.frames.of_trace.kernel_runs
        if self.frames.choice.mode is not StepMode.ALL:
            steps = runs.of(self.frames.steps).filter(pl.col("basis") != str(StepBasis.TIMED))
            return steps.select("run_id", "step", pl.col("begin_ns").alias("start_ns"), "end_ns")
        extents = runs.of(self.frames.of_trace.extents_seen)
        if not self.frames.once(chosen_activities).is_empty():
            first = self.frames.once(chosen_activities).group_by("run_id").agg(pl.col("start_ns").min())
            extents = extents.join(first, on="run_id").with_columns(pl.max_horizontal("begin_ns", "start_ns"))
        none = pl.lit(None, pl.Int64).alias("step")
        return extents.select("run_id", none, pl.col("begin_ns").alias("start_ns"), "end_ns")

    @cached_property
    def gaps(self) -> Mapping[int, Intervals]:
        """Of each run, when none of its devices worked."""
        by_run = self.windows.partition_by("run_id", as_dict=True)
        return {run: idle_of_run(self.frames.of_trace, run, by_run[run,]) for run in self._runs}

    @property
    def _runs(self) -> list[int]:
        return list(self.windows["run_id"].unique().sort())

    @cached_property
    def blocks(self) -> pl.DataFrame:
        """Calls that hold up the host, the outermost of each thread: run_id, step, name, start_ns, duration_ns, cause.

        `cause` is a name of BLOCK_CAUSES; waited_ns says how long the call waited for a device.
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
                "waited_ns",
            )
        )

    def inside(self, spans: pl.DataFrame) -> pl.DataFrame:
        """The spans that begin in a window, or before it and are mostly in it, with its step.

        What begins with a step need not be nested in it, and a step may begin later on the device than on the host.
        """
        windows, columns = self.windows.sort("start_ns"), [name for name in spans.columns if name != "run_id"]
        by_start = spans.with_row_index("row").sort("start_ns")
        held = by_start.join_asof(windows, on="start_ns", by="run_id", strategy="backward", check_sortedness=False)
        held = held.filter(pl.col("start_ns") < pl.col("end_ns"))
        others = by_start.join(held, on="row", how="anti", maintain_order="left")
        ahead = windows.select("run_id", "step", pl.col("start_ns").alias("window_ns"))
        reaching = others.join_asof(
            ahead, left_on="start_ns", right_on="window_ns", by="run_id", strategy="forward", check_sortedness=False
        ).filter(pl.col("window_ns") - pl.col("start_ns") <= pl.col("duration_ns") / 2)
        names = ["run_id", "step", *columns]
        return pl.concat([held.select(names), reaching.select(names)])

    @cached_property
    def waits(self) -> pl.DataFrame:
        """Calls in which the host waited for a device: as `blocks`.

        Those after a run's last device work are left out: profilers make them.
        """
        last = self.frames.of_trace.all_activities.group_by("run_id").agg(pl.col("start_ns").max().alias("last_ns"))
        waits = self.blocks.filter(pl.col("cause") == "sync").join(last, on="run_id", maintain_order="left")
        return waits.filter(pl.col("start_ns") < pl.col("last_ns")).drop("last_ns")

    @cached_property
    def compilations(self) -> pl.DataFrame:
        """Calls in which code was compiled or loaded, likewise."""
        return self.blocks.filter(pl.col("cause") == "initialisation", pl.col("name").str.contains(COMPILATIONS))

    @cached_property
    def recompilations(self) -> pl.DataFrame:
        """The compilations, without what is in each run's first step where steps are averaged."""
        if not self.frames.is_mean:
            return self.compilations
        first = self.frames.of_trace.all_steps.group_by("run_id").agg(pl.col("step").min().alias("first"))
        return self.compilations.join(first, on="run_id", maintain_order="left").filter(
            pl.col("step") > pl.col("first")
        )

    @cached_property
    def recompiling_ns(self) -> float:
        """Idle device time in them, per step."""
        return self.idle_within(self.recompilations)

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
    def updates(self) -> pl.DataFrame:
        """Ranges and operators of the optimizer, the outermost of each thread."""
        return self.inside(self.outermost(pl.col("phase").cast(pl.String) == str(Phase.OPTIMIZER)))

    def outermost(self, which: pl.Expr, shorter_than_ns: float = inf) -> pl.DataFrame:
        """Of such ranges, modules and operators the outermost of each thread: run_id, name, start_ns, duration_ns."""
        levels = [str(level) for level in (Level.APPLICATION, Level.MODEL, Level.LAYER, Level.OPERATOR)]
        spans = self.frames.of_trace.kernel_runs.scan("spans").filter(
            which,
            pl.col("level").cast(pl.String).is_in(levels),
            pl.col("duration_ns") > 0,
            pl.col("duration_ns") < shorter_than_ns,
        )
        name, end = pl.col("name").cast(pl.String), (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
        rows = spans.select("run_id", "process_id", "thread_id", name, "start_ns", "duration_ns", end).collect()
        each = [outermost_blocks(some) for some in rows.partition_by("run_id", maintain_order=True)]
        return pl.concat([rows.clear(), *each]).select("run_id", "name", "start_ns", "duration_ns")

    def open_ns(self, spans: pl.DataFrame) -> float:
        """How long, per step, one of these host spans was open."""
        return sum(union_length(*merge(*_of(spans, run))) for run in self._runs) / self.step_count

    def idle_within(self, spans: pl.DataFrame) -> float:
        """Idle device time, per step, while one of these host spans was open."""
        return sum(
            union_length(*intersection(gaps, merge(*_of(spans, run)))) for run, gaps in self.gaps.items()
        ) / self.step_count  # fmt: skip


def _of(spans: pl.DataFrame, run_id: int) -> Intervals:
    rows = spans.filter(pl.col("run_id") == run_id)
    start = rows["start_ns"].to_numpy()
    return start, start + rows["duration_ns"].to_numpy()


_MIN_SET_UP = 8
_MANY_TRIALS = 8  # kernels of one operator
_OF_MANY_PARAMETERS = r"(?i)multi_?tensor|FusedAdam|foreach|^triton_"
"""Names of kernels that update many parameters at once."""
_FILLING = ("tail_share", "unused_share", "theoretical_occupancy", "limited_by", "registers_per_thread")


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
        """Latency of the model; of a trace taken whole its time without start-up; 0 where it is unknown."""
        latencies = self.frames.once(latency_of_model)["latency_ns"].drop_nulls()
        return max(float(latencies[0]) - self.start_up_ns, 0.0) if len(latencies) else 0.0

    @cached_property
    def start_up_ns(self) -> float:
        """Of a trace taken whole, what the device with least of it is idle for while its process starts up.

        That happens once a process, however long it runs: no finding promises it, and no share is of it.
        """
        return float(self.devices["start_up_ns"].min() or 0) if self.devices.height else 0.0  # type: ignore[arg-type]

    @cached_property
    def start_up_of_trace(self) -> tuple[float, float]:
        """Start-up, and the time that it is a part of: of the trace taken whole, or of what is before its steps."""
        if self._is_whole or not self.frames.is_mean or self.devices.is_empty():
            return self.start_up_ns, self.latency_ns + self.start_up_ns
        of_trace = self.frames.of_trace
        first = dict(of_trace.all_steps.group_by("run_id").agg(pl.col("begin_ns").min()).iter_rows())
        begin, working = dict(of_trace.extents_seen.select("run_id", "begin_ns").iter_rows()), working_times(of_trace)
        before = [
            total_of(
                pl.Series(np.minimum(idle.end, first[run]) - np.maximum(idle.start, begin[run])).clip(lower_bound=0)
            )
            for (run, _), each in of_trace.once(idle_by_device).items()
            if run in first and run in begin
            for every in (with_start_up(each, working.get(run)),)
            for idle in (every.of(every.cause == CAUSES.index("idle_initialisation_ns")),)
        ]
        longest = (of_trace.extents["end_ns"] - of_trace.extents["begin_ns"]).max()
        return min(before, default=0.0), float(longest or 0)  # type: ignore[arg-type]

    def main_calls(self, rows: pl.DataFrame, of_ns: float) -> list[tuple[str, float]]:
        """Of rows of B16 the calls that explain much of the time, with theirs, most first."""
        by_call = rows.drop_nulls("call").group_by("call").agg(pl.col("idle_ns").sum())
        much = by_call.filter(pl.col("idle_ns") >= limit.CALL_SHARE * of_ns)
        return list(much.sort("idle_ns", "call", descending=[True, False]).head(limit.MAX_EVIDENCE).iter_rows())

    @cached_property
    def time_by_attribution(self) -> Mapping[str, float]:
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
        `even_ns` is the plain mean, for what has to be worked out step by step. Without `trials` and `set_up`.
        """
        apart = pl.concat([self.trials["span_id"], self.set_up["span_id"]])
        rows = self.frames.once(chosen_activities).filter(~pl.col("span_id").is_in(apart.implode()))
        steps = self.host.windows.group_by("run_id").agg(pl.len().alias("steps"))
        even = rows["duration_ns"] / steps["steps"].gather(nullable_index(positions_in(steps, rows, ("run_id",))))
        weight = rows["mean_ns" if self.frames.is_mean else "duration_ns"].cast(pl.Float64)
        return rows.with_columns(weight.alias("ns"), even.alias("even_ns"))

    @cached_property
    def trials(self) -> pl.DataFrame:
        """Of a trace taken whole the work in which libraries tried kernels, once a process; see `tried_kernels`."""
        view = self.frames.of_trace
        runs = view.kernel_runs.ids if self._is_whole else ()
        return pl.concat([view.all_activities.clear(), *(view.once(tried_kernels, run) for run in runs)])

    @cached_property
    def set_up(self) -> pl.DataFrame:
        """Of a trace taken whole the copies and fills before the first kernel, of sizes that none behind it has.

        They bring what the program keeps (weights, tables) to the device once. Inputs come again with each round; a few
        may be the input of the one round that there is. Migrations of unified memory are none: nobody asked for them.
        """
        rows = self.frames.of_trace.all_activities
        if not self._is_whole or rows.is_empty() or not self.frames.of_trace.has_starts:
            return rows.clear()
        is_kernel = pl.col("kind").cast(pl.String).is_in([str(Kind.KERNEL), str(Kind.GRAPH)])
        sizes = self.frames.trace.scan("copies").select("span_id", "bytes").collect()
        moved = rows.join(sizes, on="span_id", how="left", maintain_order="left").with_columns(
            (pl.col("start_ns") < pl.col("start_ns").filter(is_kernel).min().over("run_id")).alias("before")
        )
        behind = moved.filter(~pl.col("before")).select("run_id", "kind", "bytes")
        is_migration = pl.col("attribution").cast(pl.String) == str(Attribution.UNIFIED_MEMORY)
        first = moved.filter("before", ~is_kernel, ~is_migration).drop("before")
        once = first.join(behind, on=["run_id", "kind", "bytes"], how="anti", maintain_order="left")
        return once.filter(pl.len().over("run_id") >= _MIN_SET_UP).drop("bytes")

    @cached_property
    def migrations(self) -> pl.DataFrame:
        """Of `work` the migrations of unified memory, with bytes, copy_kind and virtual_address."""
        kind = pl.col("copy_kind").cast(pl.String)
        copies = self.frames.trace.scan("copies").filter(kind.str.starts_with("Unified"))
        columns = ("span_id", "bytes", kind, "virtual_address")
        return self.work.join(copies.select(columns).collect(), on="span_id", maintain_order="left")

    @cached_property
    def migrating(self) -> Mapping[tuple[int, int | None], tuple[float, float, pl.DataFrame]]:
        """By device: how long pages moved or were waited for, how long of that nothing computed, and what waited.

        That is a name and `ns`: kernels as long as migrations and faults ran within them, and fills that either met, as
        these do hardly anything else. Times are of a step.
        """
        faults = self.frames.of_trace.kernel_runs.scan("page_faults").drop_nulls(["device_id", "duration_ns"]).collect()
        faults = faults.rename({"time_ns": "start_ns"})
        steps = dict(self.host.windows.group_by("run_id").len().iter_rows())
        fills, kind, times = str(Kind.MEMSET), pl.col("kind").cast(pl.String), ("start_ns", "duration_ns")
        by_device = {}
        for device in self.migrations.select(DEVICE).unique(maintain_order=True).iter_rows():
            own = [pl.col(key).eq_missing(pl.lit(each, pl.Int64)) for key, each in zip(DEVICE, device, strict=True)]
            paging = pl.concat([rows.filter(own).select("run_id", *times) for rows in (self.migrations, faults)])
            moving = merge(*_of(paging, device[0]))
            work = self.work.filter(own, kind != str(Kind.MEMCPY))
            start, length = work["start_ns"].to_numpy(), work["duration_ns"].to_numpy()
            met = coverage_before(moving, start + length) - coverage_before(moving, start)
            is_fill = (work["kind"].cast(pl.String) == fills).to_numpy()
            lost = np.where(is_fill & (met > 0), length, met)
            waiting = work.select(pl.col("name").cast(pl.String), "run_id", *times).with_columns(
                lost_ns=pl.Series(lost)
            )
            slow = waiting.filter(pl.Series(is_fill & (met > 0)))
            # faults that no work of the steps met are of other moments
            pages = pl.concat([self.migrations.filter(own).select("run_id", *times), slow.select("run_id", *times)])
            within = intersection(moving, merge(start, start + length))
            start, end = (np.concatenate(pair) for pair in zip(_of(pages, device[0]), within, strict=True))
            every, computing = merge(start, end), merge(*_of(waiting.filter(pl.Series(~is_fill)), device[0]))
            total, hidden = (union_length(*each) for each in (every, intersection(every, computing)))
            count = steps.get(device[0], 1)
            names = waiting.filter(pl.col("lost_ns") > 0).group_by("name").agg(pl.col("lost_ns").sum() / count)
            by_device[device] = total / count, (total - hidden) / count, names.sort(-pl.col("lost_ns"), "name")
        return by_device

    @property
    def _is_whole(self) -> bool:
        return self.frames.choice.mode is StepMode.ALL and not self.frames.of_trace.is_leveled

    @cached_property
    def lone_kernels(self) -> pl.DataFrame:
        """Of `work` the kernels, communication aside, beside which no other ran, and how they fill their device."""
        kernels = self.work.filter(pl.col("kind").cast(pl.String) == str(Kind.KERNEL), ~IS_COMMUNICATION)
        alone = kernels.filter(pl.Series(ran_alone(kernels), dtype=pl.Boolean))
        number, configurations = launch_configurations(self.frames.trace, alone)
        return alone.hstack(configurations.select(_FILLING)[number])

    @cached_property
    def kernel_count(self) -> int:
        """Kernels (and replays of whole graphs) of all steps."""
        return self.work.filter(pl.col("kind").cast(pl.String).is_in([str(Kind.KERNEL), str(Kind.GRAPH)])).height

    @cached_property
    def reason_unknown(self) -> str:
        """Why the parts of time tell nothing of what bounds the run, where they do not."""
        view = self.frames.of_trace
        if view.is_one_by_one:
            return "kernels ran one by one, for hardware counters"
        if view.once(lost_work) or view.once(impossible_times):
            return "device work is missing, or its times cannot be"
        kinds = self.frames.trace.frame("ledger")["kind"].cast(pl.String)
        if not view.has_starts or (kinds == str(LedgerKind.AVERAGED_TIMES)).any():
            return "the file holds sums, without times of start"
        if self.is_first_run:
            number, time_ns = self.searches_without_launches
            return (
                f"a first run is recorded: {count_of(number, 'product or convolution', 'products and convolutions')}"
                f" tried many kernels each, for {duration(time_ns)} of {duration(self.latency_ns)}; record a later one"
            )
        captures, time_ns, launches = view.once(graph_captures)
        if captures >= max(launches, 1) and time_ns >= limit.CAPTURING * total_of(
            view.extents["end_ns"] - view.extents["begin_ns"]
        ):
            of = f"{count_of(captures, 'graph was', 'graphs were')} captured, for {duration(time_ns)}"
            return f"the making of graphs is recorded, and no run of them: {of}, and {count(launches)} launched"
        return ""

    @property
    def is_first_run(self) -> bool:
        """Whether most of the time is such a search."""
        return self.searches_without_launches[1] >= limit.EXPLAINED * self.latency_ns > 0

    @cached_property
    def searches_without_launches(self) -> tuple[int, float]:
        """Of a trace without launches the operators in which libraries tried kernels, and how long these were open.

        With launches `kernel_searches` tells them. One product or convolution takes a few kernels, and a trial each.
        """
        work = self.frames.once(chosen_activities)
        if work.is_empty() or work["call_start_ns"].null_count() < work.height:
            return 0, 0.0
        tried = (
            pl.col("kernel_class")
            .cast(pl.String)
            .is_in([str(KernelClass.CONVOLUTION), str(KernelClass.MATRIX_PRODUCT)])
        )
        number = work.filter(tried).drop_nulls("parent_id").group_by("parent_id").len()
        several = number.filter(pl.col("len") >= _MANY_TRIALS)["parent_id"]
        start, lasted = (column_at(self.frames.trace, each, several) for each in ("start_ns", "duration_ns"))
        end = start + lasted.fill_null(0)
        return len(several), float(union_length(*merge(start.to_numpy(), end.to_numpy())))

    @cached_property
    def has_little_work(self) -> bool:
        """Whether devices did next to nothing, and no step says that it repeats: a program's first moments.

        Or whether it is a first run, in which libraries tried kernels.
        """
        if self.devices.is_empty() or self.reason_unknown:
            return self.is_first_run
        busy = float(self.devices["busy_ns"].max() or 0)  # type: ignore[arg-type]
        repeats = not self.frames.of_trace.marked_steps.is_empty() or self.kernel_count >= limit.MANY_KERNELS
        return busy < limit.LITTLE_NS and not repeats

    @cached_property
    def single_updates(self) -> pl.DataFrame:
        """Kernels of the optimizer that are not of many parameters; none where they are few."""
        is_one = pl.col("phase") == str(Phase.OPTIMIZER), pl.col("kind").cast(pl.String) == str(Kind.KERNEL)
        rows = self.work.filter(*is_one, ~self.is_named(_OF_MANY_PARAMETERS))
        return rows if rows.height >= limit.OPTIMIZER_KERNELS * self.step_count else rows.clear()

    def is_named(self, pattern: str) -> pl.Expr:
        """Whether the name of device work matches; each name is looked at once."""
        names = self.frames.once(chosen_activities)["name"].unique()
        return pl.col("name").is_in(names.filter(names.cast(pl.String).str.contains(pattern)).implode())

    @cached_property
    def device_ns(self) -> float:
        """Device time of a step, summed over devices."""
        return total_of(self.work["ns"])

    @cached_property
    def computing_ns(self) -> float:
        """That of kernels and of replays of graphs, communication aside."""
        is_kernel = pl.col("kind").cast(pl.String).is_in([str(Kind.KERNEL), str(Kind.GRAPH)])
        return total_of(self.work.filter(is_kernel, ~IS_COMMUNICATION)["ns"])

    @cached_property
    def host(self) -> HostTime:
        """What the host did in the steps."""
        return HostTime(self.frames)

    @cached_property
    def calls(self) -> pl.DataFrame:
        """span_id and `calls` of each activity of `work`, as `with_calls` counts them."""
        return with_calls(self.frames.of_trace, self.work.select("span_id")).rename({"count": "calls"})

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
        """B03 by device, with IDLE_DETAILS, `start_up_ns` (0 but of a trace taken whole) and `waiting_ns`, the rest.

        Kernels that were tried are start-up, and in none of its parts.
        """
        table = self.table("B03")
        if table is None or not self.frames.of_trace.is_timed:
            return pl.DataFrame(schema={"waiting_ns": pl.Float64, "busy_ns": pl.Float64, "compute_ns": pl.Float64})
        idle = pl.col("idle_initialisation_ns") if self._is_whole else pl.lit(0)
        keys = [*self.frames.by, *DEVICE]
        details = self.frames.once(device_time).parts.select(*keys, *IDLE_DETAILS)
        rows = table.join(details, on=keys, how="left", nulls_equal=True, maintain_order="left")
        waiting = rows.with_columns((pl.col("idle_ns") - idle).cast(pl.Float64).alias("waiting_ns"))
        waiting = waiting.with_columns(idle.alias("start_up_ns"))
        apart = self.trials.select(DEVICE).unique(maintain_order=True)
        if apart.is_empty():
            return waiting
        rest = self.frames.once(chosen_activities).join(self.trials, on="span_id", how="anti", maintain_order="left")
        left = [_busy_times(rest, device) for device in apart.iter_rows()]
        columns = ("left_compute_ns", "left_ns")
        times = pl.DataFrame([(*d, *t) for d, t in zip(apart.iter_rows(), left, strict=True)],
                             {**apart.schema, **dict.fromkeys(columns, pl.Int64)}, orient="row")  # fmt: skip
        waiting = waiting.join(times, on=DEVICE, how="left", nulls_equal=True, maintain_order="left")
        compute = pl.min_horizontal(pl.col("left_compute_ns").fill_null(pl.col("compute_ns")), "compute_ns")
        busy = pl.min_horizontal(pl.col("left_ns").fill_null(pl.col("busy_ns")), "busy_ns")
        memory = (busy - compute - pl.col("exposed_communication_ns")).clip(lower_bound=0)
        return waiting.with_columns(
            compute.alias("compute_ns"),
            busy.alias("busy_ns"),
            pl.when(pl.col("left_ns").is_null()).then("exposed_memory_ns").otherwise(memory).alias("exposed_memory_ns"),
            pl.col("start_up_ns") + pl.col("busy_ns") - busy,
        ).drop(columns)

    @cached_property
    def idle_device(self) -> Mapping[str, Any]:
        """The row of `devices` that is idle least: findings on idle time divide its; empty without devices."""
        rows = self.devices.sort("waiting_ns").head(1).to_dicts()
        return rows[0] if rows else {}

    @property
    def idle_ns(self) -> float:
        """Time in which even the busiest device has nothing to do."""
        return self.idle_of("waiting_ns")

    def idle_of(self, *columns: str) -> float:
        """What the device that is idle least has in these columns of B03, or of IDLE_DETAILS."""
        return float(sum(self.idle_device.get(column) or 0 for column in columns))

    @cached_property
    def idle_in_breaks(self) -> tuple[float, float]:
        """Of idle_host_ns and idle_launch_ns of that device, and of its launching_ns, what lies in `graph_breaks`.

        0 where the rule on them is silent, or cannot say so; without devices all that the host spends in them.
        """
        breaks, device = self.host.graph_breaks, self.idle_device
        if breaks.height < limit.BREAKS * self.step_count or not breaks["from_graph"].all():
            return 0.0, 0.0
        if not device:
            return self.host.idle_within(breaks), 0.0
        windows = self._windows
        inside = merge(windows["begin_ns"].to_numpy(), windows["end_ns"].to_numpy())
        inside = intersection(inside, merge(*_of(breaks, device["run_id"])))
        idle = self.frames.of_trace.once(idle_by_device)[device["run_id"], device["device_id"]]
        idle = idle.of(np.isin(idle.cause, [CAUSES.index(each) for each in ("idle_host_ns", "idle_launch_ns")]))
        times = [
            union_length(*intersection((some.start, some.end), inside)) for some in (idle, idle.of(idle.is_launching))
        ]
        return times[0] / windows.height, times[1] / windows.height

    @cached_property
    def unknown_idle(self) -> Intervals:
        """When that device waited, in the time chosen, for work of which no launch tells why."""
        device, none = self.idle_device, np.empty(0, dtype=np.int64)
        if not device:
            return none, none
        key, view = (device["run_id"], device["device_id"]), self.frames.of_trace
        working = working_times(view).get(key[0]) if self._is_whole else None
        idle = with_start_up(view.once(idle_by_device)[key], working)
        idle = idle.of(idle.cause == CAUSES.index("idle_unknown_ns"))
        windows = (self._windows[each].to_numpy() for each in ("begin_ns", "end_ns"))
        return intersection(merge(idle.start, idle.end), merge(*windows))

    @cached_property
    def _windows(self) -> pl.DataFrame:
        """The windows of that device."""
        same = [pl.col(key).eq_missing(pl.lit(self.idle_device[key], pl.Int64)) for key in DEVICE]
        return device_windows(self.frames).filter(same)

    def unknown_within(self, spans: pl.DataFrame) -> float:
        """How much of that lies, per step, in these host spans."""
        if not self.idle_device or not len(self.unknown_idle[0]):
            return 0.0
        inside = intersection(self.unknown_idle, merge(*_of(spans, self.idle_device["run_id"])))
        return union_length(*inside) / max(self._windows.height, 1)

    @cached_property
    def open_in_unknown(self) -> tuple[pl.DataFrame, float]:
        """What ranges and operators were open on the host in that time, the outermost: name and ns; and how long any.

        Without those that last as long as most of a step, as they say nothing of what is done in it.
        """
        none = pl.DataFrame(schema={"name": pl.String, "ns": pl.Float64})
        if not self.idle_device or not len(self.unknown_idle[0]):
            return none, 0.0
        below_ns = limit.LONG_SHARE * self.idle_window_ns
        spans = self.host.outermost(pl.col("kind").cast(pl.String) != str(Kind.STEP), below_ns)
        spans = spans.filter(pl.col("run_id") == self.idle_device["run_id"])
        start, end = _of(spans, self.idle_device["run_id"])
        met = coverage_before(self.unknown_idle, end) - coverage_before(self.unknown_idle, start)
        names = spans.with_columns(ns=pl.Series(met)).filter(pl.col("ns") > 0)
        by_name = names.group_by("name").agg(pl.col("ns").sum() / max(self._windows.height, 1))
        return by_name.sort(-pl.col("ns"), "name"), self.unknown_within(spans)

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
        """What a step can save of idle time: of a profile of levels what is left without the profiler of kernels."""
        if not self.frames.of_trace.is_leveled or self.devices.is_empty():
            return time_ns
        busy = float(self.devices["busy_ns"].max() or 0)  # type: ignore[arg-type]
        without = max(self.latency_ns - busy, 0.0)
        return time_ns * min(without / self.idle_ns, 1.0) if self.idle_ns else 0.0

    @property
    def of_the_time(self) -> str:
        """What shares are of, in words."""
        return "of the time without start-up" if self.start_up_ns else "of the time"

    def device_share(self, time_ns: float) -> float:
        """The time as a share of all device time."""
        return time_ns / self.device_ns if self.device_ns else 0.0


def _busy_times(work: pl.DataFrame, device: Sequence[int | None]) -> tuple[int, int]:
    """How long the device computed, and worked at all."""
    same = [pl.col(key).eq_missing(pl.lit(each, pl.Int64)) for key, each in zip(DEVICE, device, strict=True)]
    rows = work.filter(same)
    kinds = [str(Kind.KERNEL), str(Kind.GRAPH)]
    computing = rows.filter(pl.col("kind").cast(pl.String).is_in(kinds), ~IS_COMMUNICATION)
    starts = ((some["start_ns"].to_numpy(), some["duration_ns"].to_numpy()) for some in (computing, rows))
    computes, works = (int(union_length(*merge(start, start + length))) for start, length in starts)
    return computes, works


def _coverage(times: Mapping[str, float]) -> float:
    total = sum(times.values())
    return times.get(str(Attribution.LAYER), 0.0) / total if total else 1.0


def _by_attribution(work: pl.DataFrame) -> Mapping[str, float]:
    rows = work.group_by("attribution").agg(pl.col("duration_ns").sum())
    return {str(name): float(time) for name, time in rows.iter_rows()}
