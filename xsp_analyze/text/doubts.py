"""What to know before any number, in sentences: work not recorded or counted twice, and times that cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.kernels.activities import column_at
from xsp_analyze.text.units import count, count_of, duration
from xsp_model.ledger_kinds import LedgerKind
from xsp_model.vocabulary import Kind, Level, Recorder, formats_by

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace

__all__ = ["double_counting", "first_doubts", "impossible_times", "lost_work", "missing_ranks"]

_KERNEL_LAUNCH = r"(?i)^(?:cuda|cu|hip)(?:Module|Ext|ExtModule|HccModule)?Launch(?:Cooperative)?Kernel"
_MANY_MISSING = 0.1  # of the work that was recorded
_ENOUGH = 20  # operators or launches, of which what lacks says something
_MANY_GAPS = 0.25  # of the operators that were recorded; of real traces none has over 0.06
_MANY_TIMES = 5  # as many operators lack: what only counts by twos is not thinned out
_NAMED = 3  # ranks that several files say they are
_CAPTURE = r"(?i)^(?:cuda|cu|hip)StreamBeginCapture"


def first_doubts(view: TraceView) -> list[str]:
    """Sentences to be told before all numbers; mostly none."""
    doubts = (view.once(each) for each in (lost_work, impossible_times, missing_ranks))
    return [*(sentence for sentences in doubts for sentence in sentences), *double_counting(view.trace)]


def lost_work(view: TraceView) -> list[str]:
    """Launches without one kernel; else steps and processes that launched kernels, none of which was recorded.

    Not where graphs were captured: what is launched then runs later, or never. Also dispatches and operators whose
    numbers are missing, where they are many.
    """
    ledger = view.trace.frame("ledger").filter(pl.col("kind") == LedgerKind.MISSING_DISPATCHES)
    missing = int(ledger["count"].sum())
    if missing and missing >= _MANY_MISSING * view.device_work.height:
        return [f"{count(missing)} dispatches lack between those that were recorded: pauses may be their work."]
    if gaps := _gaps_in_numbers(view):
        return [gaps]
    names = view.span_names.cast(pl.String)
    calls = names.filter(names.str.contains(_KERNEL_LAUNCH))
    if calls.is_empty() or names.str.contains(_CAPTURE).any():
        return []
    spans = view.kernel_runs.scan("spans")
    launches = spans.filter(pl.col("level") == str(Level.RUNTIME), pl.col("name").is_in(calls.implode()))
    launches = launches.select("span_id", "parent_id", "run_id", "process_id", "step", "start_ns").collect().lazy()
    outer = launches.join(launches, left_on="parent_id", right_on="span_id", how="anti")  # of runtime and driver
    kernels = spans.filter(pl.col("kind").is_in([str(Kind.KERNEL), str(Kind.GRAPH)]))
    kernels = kernels.select("parent_id", "run_id", "process_id", "step").collect().lazy()
    launched, recorded = (rows.select(pl.len()).collect().item() for rows in (outer, kernels))
    if launched and not recorded:
        number = count_of(
            launched, "kernel launch was recorded, and no kernel", "kernel launches were recorded, and no kernel"
        )
        return [f"{number}: what the device did is missing from this trace, not nothing."]
    sentences = []
    for unit, of in (("process", ["run_id", "process_id"]), ("step", ["run_id", "step"])):
        launching = outer.drop_nulls(of).select(of).unique()
        having = launching.join(kernels.select(of).unique(), on=of, how="semi")
        expected, had = (rows.select(pl.len()).collect().item() for rows in (launching, having))
        if had < expected:
            units = count_of(
                expected,
                f"{unit} that launched kernels",
                f"{unit}{'es' * (unit == 'process') or 's'} that launched kernels",
            )
            sentences.append(f"Kernels of {count(had)} of {units} were recorded: means are over what has them.")
    without = 0 if launched < _ENOUGH or sentences else _launches_without(launches, outer, kernels)
    if without >= _MANY_MISSING * launched:
        return [
            f"Of {count(launched)} kernel launches {count(without)} have no kernel in the file: pauses may be theirs."
        ]
    return sentences


def _launches_without(launches: pl.LazyFrame, outer: pl.LazyFrame, kernels: pl.LazyFrame) -> int:
    """How many launches have no kernel though a later one of their process has: what ends after the file is no loss."""
    having = launches.join(kernels, left_on="span_id", right_on="parent_id", how="semi").select("parent_id", "span_id")
    own = pl.concat([having.select(pl.col(each).alias("span_id")) for each in ("span_id", "parent_id")])
    last = (
        outer.join(own, on="span_id", how="semi")
        .group_by("run_id", "process_id")
        .agg(pl.col("start_ns").max().alias("last_ns"))
    )
    rest = outer.join(own, on="span_id", how="anti").join(last, on=["run_id", "process_id"], nulls_equal=True)
    return int(rest.filter(pl.col("start_ns") < pl.col("last_ns")).select(pl.len()).collect().item())


def _gaps_in_numbers(view: TraceView) -> str:
    """A sentence where the numbers that PyTorch gives its operators, one by one, have many gaps: events were removed.

    Runs of numbers that lack are few in what a profiler wrote: its own pauses, and operators that it never shows.
    """
    runs = view.kernel_runs.table.filter(pl.col("format").is_in(formats_by(Recorder.TORCH_PROFILER)))["run_id"]
    numbered = view.trace.scan("operators").select("span_id", pl.col("external_id").alias("number")).drop_nulls()
    rows = numbered.collect()
    numbers = rows.with_columns(column_at(view.trace, "run_id", rows["span_id"]))
    numbers = numbers.filter(pl.col("run_id").is_in(runs.implode())).select("run_id", "number").unique()
    after = pl.col("number").diff().over("run_id") - 1
    counted = numbers.sort("run_id", "number").select(
        pl.len(), (after > 0).sum().alias("gaps"), after.clip(0).sum().alias("missing")
    )
    had, gaps, missing = counted.row(0)
    if had < _ENOUGH or gaps < _MANY_GAPS * had or missing < _MANY_TIMES * had:
        return ""
    return (
        f"At least {count(missing)} operators lack between the {count(had)} that were recorded, by the numbers that"
        " they have: the file is thinned out, and pauses of host and device may be what lacks."
    )


def impossible_times(view: TraceView) -> list[str]:
    """What the ledger says of device times that cannot be right, a sentence a kind."""
    ledger = view.trace.frame("ledger").group_by("kind").agg(pl.col("count", "duration_ns").sum())
    by_kind = {kind: (number, time) for kind, number, time in ledger.iter_rows()}
    steps = view.marked_steps.height
    sentences = []
    if number_and_time := by_kind.get(LedgerKind.IMPOSSIBLE_TIME):
        work = count_of(number_and_time[0], "device activity has a time", "device activities have times")
        sentences.append(f"{work} that cannot be ({duration(number_and_time[1])}) and counts for nothing here.")
    if number_and_time := by_kind.get(LedgerKind.STREAM_OVERLAP):
        number, time = number_and_time
        a_step = f", {duration(time / steps)} a step" if steps else ""
        pairs = count_of(number, "device activity overlaps", "device activities overlap")
        sentences.append(
            f"{pairs} the next one of the same stream, by {duration(time)} in all{a_step}: sums over kernels, operators"
            " and layers are that much too long, busy time is not."
        )
    if number_and_time := by_kind.get(LedgerKind.START_BEFORE_LAUNCH):
        work = count_of(number_and_time[0], "device activity starts", "device activities start")
        sentences.append(f"{work} over 100 µs before the launch: idle time and its causes cannot be told.")
    return sentences


def missing_ranks(view: TraceView) -> list[str]:
    """A sentence where several ranks of a job were read, and not all of them."""
    runs = view.trace.frame("runs").select("rank", "world_size").drop_nulls()
    ranks, world = runs["rank"].n_unique(), int(runs["world_size"].max() or 0)  # type: ignore[arg-type]
    if not 1 < ranks < world:
        return []
    return [
        f"Of the {count(world)} ranks of the job {count(ranks)} were read: whom they wait for may be none of these."
    ]


def double_counting(trace: Trace) -> list[str]:
    """Sentences where several files say that they are one rank, or recorded the same: sums hold it more than once."""
    ledger = trace.frame("ledger").select(pl.col("kind").cast(pl.String), "detail").drop_nulls()
    by_kind = {kind: details["detail"].to_list() for (kind,), details in ledger.group_by("kind")}
    sentences = []
    if ranks := [_names_of(LedgerKind.SAME_RANK_AGAIN, each) for each in by_kind.get(LedgerKind.SAME_RANK_AGAIN, ())]:
        more = f"; and {len(ranks) - _NAMED:,} more ranks" if len(ranks) > _NAMED else ""
        sentences.append(
            "Several files say that they are the same rank, so that times summed over ranks count it more than once:"
            f" {'; '.join(ranks[:_NAMED])}{more}."
        )
    if files := [_names_of(LedgerKind.SAME_WORK_AGAIN, each) for each in by_kind.get(LedgerKind.SAME_WORK_AGAIN, ())]:
        sentences.append(
            "Files hold the same work to the nanosecond, so that sums count one recording more than once:"
            f" {'; '.join(files)}."
        )
    return sentences


def _names_of(kind: LedgerKind, detail: str) -> str:
    return detail.removeprefix(f"{kind.sentence}: ")
