"""Which steps of a trace an analysis takes, when each took place, and how values of several steps become one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_analyze.formulas import trimmed_count, trimmed_mean
from xsp_model import Kind, Level, XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_model import Trace
    from xsp_model.columns.arrays import Bools, Ints

__all__ = [
    "MIN_SHARE_IN_STEPS",
    "QUEUED_NS",
    "STEP_COLUMNS",
    "StepBasis",
    "StepChoice",
    "StepFault",
    "StepMode",
    "all_steps",
    "choose_steps",
    "faulty_steps",
    "host_steps",
    "kept_steps",
    "kind_of_mean",
    "marked_steps",
    "mean_over_steps",
    "step_at",
    "step_counts",
    "step_windows",
    "steps_of",
    "unseen_end",
    "without_ramp_up",
]

# When each step took place on its devices, and so how long it took.
#
# A host annotation is no step of asynchronous work: the host runs ahead, and the device is behind by as much as the
# queue holds. A step ends when the last device work launched in it ends, and begins when the work launched before it
# had ended, be it of before the trace. Where work on the side (an asynchronous checkpoint, a prefetched copy) outlasts
# whole steps, the stream that most steps launch on tells for all. Time between two steps in which neither the earlier
# one's range was open nor its work ran is of neither.

MIN_SHARE_IN_STEPS = 0.5
"""Of device time (without a device, of operators): steps that hold less are not what the trace is about."""
QUEUED_NS = 1_000_000
"""A device with nothing to do starts work microseconds after its launch; where it took longer, it was busy."""
_MAX_GAP_SHARE = 0.01  # of the shorter neighbour: marks of profilers leave microseconds between steps that follow on
_NEVER = np.iinfo(np.int64).min


class StepBasis(StrEnum):
    """What the latency of a step is measured by."""

    TIMED = "timed"  # around the model's call, in a run without a profiler
    DEVICE_PERIOD = "device_period"  # from the end of earlier device work to the end of its own
    DEVICE_END = "device_end"  # the first step, or one after a pause: to the end of range and work, from their begin
    HOST = "host"  # the range on the host, as the step launched nothing
    LOAD_TEST = "load_test"  # of a load generator's test as a whole, as it states it itself

    @property
    def sentence(self) -> str:
        """What it is, for people."""
        return _SENTENCES[self]


_SENTENCES = {
    StepBasis.TIMED: "timed around the model's call, without a profiler",
    StepBasis.DEVICE_PERIOD: "from the end of the device work before the step to the end of its own",
    StepBasis.DEVICE_END: "from the step's begin, or the end of earlier device work, to the end of host and device",
    StepBasis.HOST: "from begin to end of the step's range on the host",
    StepBasis.LOAD_TEST: "the mean over queries that the load generator states",
}


def step_windows(steps: pl.DataFrame, activities: pl.DataFrame) -> pl.DataFrame:
    """The steps with `begin_ns` and `end_ns`, whose distance is the step's latency, and `basis`, a `StepBasis`.

    `steps` has one row a process and step: run_id, process_id, step, start_ns, host_ns (duration of its range);
    `activities` run_id, process_id, device_id, stream_id, step, start_ns, duration_ns, call_start_ns and call_end_ns
    (null where no launch is known).
    """
    pieces = [_of_process(rows, activities) for _, rows in steps.group_by("run_id", "process_id", maintain_order=True)]
    if not pieces:
        empty = (pl.lit(0, pl.Int64).alias("begin_ns"), pl.lit(0, pl.Int64).alias("end_ns"), pl.lit("").alias("basis"))
        return steps.with_columns(*empty)
    return pl.concat(pieces)


def _of_process(steps: pl.DataFrame, activities: pl.DataFrame) -> pl.DataFrame:
    steps = steps.sort("start_ns", "step")
    run, process = steps.select("run_id", "process_id").row(0)
    of_process = pl.col("process_id").eq_missing(pl.lit(process, pl.Int64))
    work = activities.filter(pl.col("run_id") == run, of_process)
    own, before = _own_end(steps, work), _end_before(steps, work)
    if ((own != _NEVER) & (own <= before)).any():  # a copy or collective on the side outlasted whole steps
        main = work.filter(_on_main_stream(work))
        own, before = _own_end(steps, main), _end_before(steps, main)
    before = np.where(before == _NEVER, unseen_end(work), before)
    begin, end, bases = _windows(
        steps["start_ns"].to_numpy(), (steps["start_ns"] + steps["host_ns"]).to_numpy(), own, before
    )
    return steps.with_columns(
        pl.Series("begin_ns", begin),
        pl.Series("end_ns", end),
        pl.Series("basis", [str(basis) for basis in bases], dtype=pl.String),
    )


def _on_main_stream(work: pl.DataFrame) -> pl.Expr:
    """Whether work is on the stream that most steps launch on; of several, the one that works longest."""
    stream = ("device_id", "stream_id")
    launched = work.filter(pl.col("step").is_not_null())
    streams = launched.group_by(stream).agg(pl.col("step").n_unique().alias("steps"), pl.col("duration_ns").sum())
    device, main = streams.sort("steps", "duration_ns", *stream, nulls_last=True).select(stream).row(-1)
    return pl.col("device_id").eq_missing(pl.lit(device, pl.Int64)) & pl.col("stream_id").eq_missing(
        pl.lit(main, pl.Int64)
    )


def _own_end(steps: pl.DataFrame, work: pl.DataFrame) -> Ints:
    """When the last device work launched in each step ended; `_NEVER` where it launched none."""
    ends = work.group_by("step").agg((pl.col("start_ns") + pl.col("duration_ns")).max().alias("end"))
    return steps.join(ends, on="step", how="left", maintain_order="left")["end"].fill_null(_NEVER).to_numpy()


def _end_before(steps: pl.DataFrame, work: pl.DataFrame) -> Ints:
    """When the last device work launched before each step began ended; `_NEVER` where none was."""
    launch = _launch_times(work).to_numpy()
    order = np.argsort(launch, kind="stable")
    end = (work["start_ns"] + work["duration_ns"]).to_numpy()[order]
    reach = np.concatenate(([_NEVER], np.maximum.accumulate(end)))
    return np.asarray(reach[np.searchsorted(launch[order], steps["start_ns"].to_numpy(), side="left")], dtype=np.int64)


def unseen_end(work: pl.DataFrame) -> int:
    """When work of before the trace ended, behind which a stream's first stood; `_NEVER` where none stood behind any.

    That began long after its launch, longer than all that the trace holds of before took, and nothing of that ended in
    the meantime. `work` is of one process.
    """
    of_stream = work.sort("start_ns", maintain_order=True).group_by("device_id", "stream_id", maintain_order=True)
    first = of_stream.first().filter(pl.col("start_ns") - pl.col("call_end_ns") > QUEUED_NS)
    start, called = (first[each].to_numpy() for each in ("start_ns", "call_end_ns"))
    ends = (work["start_ns"] + work["duration_ns"]).to_numpy()
    order = np.argsort(ends, kind="stable")
    taken = np.concatenate(([0], np.cumsum(work["duration_ns"].to_numpy()[order])))
    at = np.searchsorted(ends[order], called, side="right")
    alone = np.searchsorted(ends[order], start, side="right") == at
    behind = start[alone & (start - called > taken[at])]
    return int(behind.min()) if len(behind) else _NEVER  # later ones may stand behind what the trace holds


def _launch_times(work: pl.DataFrame) -> pl.Series:
    """When each was launched. A stream is a queue: what no call launched, before what a call did, preceded the trace.

    Where no launch of a stream is known, and for what ran later without one, it is when the work began.
    """
    call, start = pl.col("call_start_ns"), pl.col("start_ns")
    first_called = start.filter(call.is_not_null()).min().over("device_id", "stream_id")
    return work.select(pl.coalesce(call, pl.when(start < first_called).then(_NEVER), start)).to_series()


def _windows(start: Ints, host_end: Ints, own_end: Ints, before: Ints) -> tuple[Ints, Ints, list[StepBasis]]:
    launched = (own_end != _NEVER) & (own_end > before)  # else its range is all that tells of it
    own_end = np.where(launched, own_end, _NEVER)
    period = _follows_on(start, host_end, before) & launched & np.concatenate(([False], launched[:-1]))
    own = ~_beside_others(start, host_end)
    launched, period = launched & own, period & own
    begin = np.where(period, before, np.where(launched, np.maximum(start, before), start))
    end = np.where(period, own_end, np.maximum(own_end, host_end))
    begin = np.minimum(begin, end)
    names = {(True, True): StepBasis.DEVICE_PERIOD, (False, True): StepBasis.DEVICE_END}
    bases = [names.get(pair, StepBasis.HOST) for pair in zip(period.tolist(), launched.tolist(), strict=True)]
    return begin, end, bases


def _beside_others(start: Ints, host_end: Ints) -> Bools:
    """Which steps' ranges begin inside the one before, or hold the begin of the next: each is as long as its range."""
    length = host_end - start
    shared = np.maximum.accumulate(host_end)[:-1] - start[1:] > np.minimum(length[1:], length[:-1]) * _MAX_GAP_SHARE
    return np.concatenate(([False], shared)) | np.concatenate((shared, [False]))


def _follows_on(start: Ints, host_end: Ints, before: Ints) -> Bools:
    """Whether each step but the first follows the one before it without a pause of both host and device."""
    pause = start[1:] - np.maximum(host_end[:-1], before[1:])
    length = host_end - start
    allowed = np.minimum(length[1:], length[:-1]) * _MAX_GAP_SHARE
    return np.concatenate(([False], pause <= allowed))


# Which steps of a trace an analysis takes, and how values of several steps become one.

STEP_COLUMNS = ("run_id", "step", "start_ns", "host_ns", "duration_ns", "begin_ns", "end_ns", "basis")
"""Of `all_steps`: the range on the host begins at `start_ns` and lasts `host_ns`; the step took `duration_ns`, its
latency by its `basis` (see `StepBasis`), from `begin_ns` to `end_ns`."""
_STEP = ["run_id", "step"]
_MAX_NAMED = 8
_MIN_SETTLED = 2  # steps in the later half
_SETTLED_SPREAD = 0.1  # of the median: what steps may differ by and still agree
_SPREADS = 3  # times the spread of later steps: further off is no chance
_MIN_LATER = 3  # steps that one is held against: two may agree by chance
_NEAR = 0.5  # of where steps settled: on a slow way there they are ramp-up, nearer they may be uneven


class StepMode(StrEnum):
    """How steps are treated."""

    ALL = "all"  # the whole trace as one
    MEAN = "mean"  # the mean step
    EACH = "each"  # one answer a step
    ONE = "one"  # a single step


@dataclass(frozen=True, slots=True)
class StepChoice:
    """What `--steps` says; `number` is given exactly for ONE."""

    mode: StepMode
    number: int | None = None

    @classmethod
    def parse(cls, text: str) -> StepChoice:
        """The choice that `all`, `mean`, `each` or a step's number stands for; XspError for anything else."""
        if text in {"all", "mean", "each"}:
            return cls(StepMode(text))
        try:
            return cls(StepMode.ONE, int(text))
        except ValueError:
            raise XspError(
                f"{text!r} is no choice of steps", advice="Choose all, mean, each or the number of a step"
            ) from None

    def __str__(self) -> str:
        return str(self.number) if self.mode is StepMode.ONE else str(self.mode)


def host_steps(trace: Trace) -> pl.DataFrame:
    """One row a run, process and step whose span ended: run_id, process_id, step, start_ns, host_ns (its duration)."""
    return (
        trace.scan("spans")
        .filter(
            pl.col("level") == str(Level.MODEL),
            pl.col("kind") == str(Kind.STEP),
            pl.col("step").is_not_null(),
            pl.col("duration_ns").is_not_null(),
        )
        .group_by("run_id", "process_id", "step")
        .agg(pl.col("start_ns").min(), pl.col("duration_ns").max().alias("host_ns"))
        .sort("run_id", "step", "process_id")
        .collect()
    )


def steps_of(trace: Trace) -> pl.DataFrame:
    """One row a run and step as its range marks it on the host: run_id, step, start_ns, duration_ns, in that order.

    Where several processes of one run ran the step side by side, it lasted as long as the slowest of them.
    """
    by_run = host_steps(trace).group_by("run_id", "step", maintain_order=True)
    return by_run.agg(pl.col("start_ns").min(), pl.col("host_ns").max().alias("duration_ns"))


def step_at(steps: pl.DataFrame, run: int, time_ns: int) -> int | None:
    """The number of the step in whose range on the host the run was then; of several, the one that began last."""
    begun = steps.filter(pl.col("run_id") == run, pl.col("start_ns") <= time_ns)
    inside = begun.sort("start_ns").filter(pl.col("start_ns") + pl.col("host_ns") > time_ns).tail(1)
    return inside["step"].item() if inside.height else None


def marked_steps(trace: Trace) -> pl.DataFrame:
    """run_id and step of every step that a span marks or that was timed, without what it takes to know its latency."""
    timed = trace.frame("step_times").select("run_id", "step")
    spans = steps_of(trace).select("run_id", "step")
    return pl.concat([spans, timed.join(spans, on="run_id", how="anti")]).sort("run_id", "step")


def all_steps(trace: Trace, windows: pl.DataFrame, *, timed_first: Sequence[int] = ()) -> pl.DataFrame:
    """One row a run and step, in order, in STEP_COLUMNS; times are ns.

    `windows` are those of `host_steps`, see `step_windows`; of several processes the slowest tells the latency. Where a
    run has no spans of steps, those timed around the model's call are its steps, and in the runs of `timed_first` these
    go first: they were timed without a profiler. They have no start, and begin at 0.
    """
    latency = pl.col("end_ns") - pl.col("begin_ns")
    spans = windows.group_by("run_id", "step", maintain_order=True).agg(
        pl.col("start_ns").min(),
        pl.col("host_ns").max(),
        latency.max().alias("duration_ns"),
        pl.col("begin_ns", "end_ns").sort_by(latency, maintain_order=True).last(),
        pl.col("basis").sort_by(latency, maintain_order=True).last(),
    )
    took, zero = pl.col("duration_ns"), pl.lit(0, pl.Int64)
    timed = trace.frame("step_times").select(
        *("run_id", "step"),
        *(zero.alias("start_ns"), took.alias("host_ns"), took, zero.alias("begin_ns"), took.alias("end_ns")),
        pl.lit(str(StepBasis.TIMED)).alias("basis"),
    )
    spanned = spans.filter(
        ~pl.col("run_id").is_in(list(timed_first)) | ~pl.col("run_id").is_in(timed["run_id"].implode())
    )
    rest = timed.join(spanned, on="run_id", how="anti")
    return pl.concat([spanned.select(STEP_COLUMNS), rest.select(STEP_COLUMNS)]).sort("run_id", "step")


def choose_steps(requested: StepChoice | str | None, steps: pl.DataFrame, what: str = "step") -> StepChoice:
    """The choice made explicit: `mean` where there are steps and nothing was said; XspError where it cannot be met.

    `what` errors call one of the steps.
    """
    if requested is None:
        return StepChoice(StepMode.ALL if steps.is_empty() else StepMode.MEAN)
    choice = StepChoice.parse(requested) if isinstance(requested, str) else requested
    if choice.mode is StepMode.ALL:
        return choice
    if steps.is_empty():
        raise XspError(
            "the trace has no steps",
            advice="Take it as a whole with --steps all, or name the ranges that are steps with --model-range",
        )
    numbers = steps["step"].unique().sort().to_list()
    if choice.mode is StepMode.ONE and choice.number not in numbers:
        raise XspError(
            f"the trace has no {what} {choice.number}", advice=f"Its {what}s are {_numbers_as_text(numbers)}"
        )
    return choice


def _numbers_as_text(numbers: Sequence[int]) -> str:
    if len(numbers) > _MAX_NAMED:
        return f"{', '.join(map(str, numbers[:_MAX_NAMED]))}, ... {numbers[-1]}"
    return ", ".join(map(str, numbers))


class StepFault(StrEnum):
    """Why a step is none like the others, and left out of means."""

    EMPTY = "empty"  # nothing was recorded in it: profilers open a last step that they close at once
    CUT = "cut"  # at the begin or end of the trace, with less than half of the work of the others
    WAITS = "waits"  # begins with a wait for work of before the trace


def faulty_steps(
    steps: pl.DataFrame, work: pl.DataFrame, first_launches: pl.DataFrame, waits: Callable[[int], pl.DataFrame]
) -> pl.DataFrame:
    """The steps that means leave out, each with its `fault`, a `StepFault`; of the columns of `steps`.

    `steps` has `serving_phase` too: steps of one phase are held against each other. `work` has by run and step the
    `count` of device activities, or (not `on_device`) of operators, `first_launches` the first `call_start_ns`; `waits`
    gives of a run the calls in which the host waited (start_ns, end_ns), and is asked for few.
    """
    sized = steps.join(work.select(*_STEP, "count"), on=_STEP, how="left", maintain_order="left")
    on_device = set(work.filter("on_device")["run_id"])
    cut = [
        rows.with_columns(_size_faults(rows["count"].fill_null(0), on_device=rows["run_id"][0] in on_device))
        for _, rows in sized.group_by("run_id", "serving_phase", maintain_order=True)
    ]
    faults = pl.concat(cut) if cut else sized.with_columns(pl.lit(None, pl.String).alias("fault"))
    late = faults.join(first_launches, on=_STEP, how="inner", maintain_order="left").filter(
        pl.col("fault").is_null(), (pl.col("call_start_ns") - pl.col("begin_ns")) * 2 >= pl.col("duration_ns")
    )
    held_up = [_is_held_up(row, waits(row["run_id"])) for row in late.iter_rows(named=True)]
    waiting = late.filter(pl.Series(held_up, dtype=pl.Boolean)).select(*_STEP, wait=pl.lit(str(StepFault.WAITS)))
    faults = faults.join(waiting, on=_STEP, how="left", maintain_order="left")
    return faults.select(*steps.columns, pl.coalesce("fault", "wait").alias("fault")).drop_nulls("fault")


def _size_faults(counts: pl.Series, *, on_device: bool) -> pl.Series:
    """Of steps in order which are empty or cut: a step is cut only where the trace begins or ends."""
    sizes = counts.filter(counts > 0) if on_device else counts  # a host may well do other things than call operators
    middle = sizes.quantile(0.5, "higher")
    if not middle:
        return pl.Series("fault", [None] * len(counts), dtype=pl.String)
    is_whole = (counts * 2 >= middle) & (counts > 0)
    inside = is_whole.cum_max() & is_whole.cum_max(reverse=True)
    fault = pl.when(counts == 0).then(pl.lit(str(StepFault.EMPTY))).when(~inside).then(pl.lit(str(StepFault.CUT)))
    return pl.select(fault.alias("fault")).to_series()


def _is_held_up(step: Mapping[str, Any], waits: pl.DataFrame) -> bool:
    """Whether it waited for half of its time before it launched anything, so for work of before it."""
    before = waits.filter(
        pl.col("start_ns") < step["call_start_ns"], pl.col("end_ns").is_between(step["begin_ns"], step["call_start_ns"])
    )
    begun = pl.max_horizontal("start_ns", pl.lit(step["begin_ns"], pl.Int64))
    waited = before.select((pl.col("end_ns") - begun).max()).item() or 0
    return bool(waited * 2 >= step["duration_ns"])


def without_ramp_up(steps: pl.DataFrame, by: Sequence[str] = ("run_id",)) -> pl.DataFrame:
    """The steps of each run (or part of it) but for its ramp-up: those before its latency settled (caches, a queue).

    A first step is ramp-up if it is further from the median of those after it than they lie apart, thrice, and 10 % of
    it; likewise the next. So are the steps before the first that comes within half of where the later half of the steps
    has settled, if these agree. Never more than half of the run.
    """
    kept = [rows[_ramp_up_count(rows["duration_ns"]) :] for _, rows in steps.group_by(by, maintain_order=True)]
    return pl.concat(kept).sort("run_id", "step") if kept else steps


def _ramp_up_count(latencies: pl.Series) -> int:
    half = len(latencies) // 2
    if half < _MIN_SETTLED:
        return 0
    return min(max(_apart(latencies), _before_settled(latencies, half)), half)


def _apart(latencies: pl.Series) -> int:
    """How many first steps lie apart from all that follow them."""
    for count in range(len(latencies) - _MIN_LATER):
        later = latencies[count + 1 :]
        middle = float(later.median() or 0)  # type: ignore[arg-type]
        spread = float(later.max() or 0) - float(later.min() or 0)  # type: ignore[arg-type]
        if abs(float(latencies[count]) - middle) <= max(_SETTLED_SPREAD * middle, _SPREADS * spread):
            return count
    return 0


def _before_settled(latencies: pl.Series, half: int) -> int:
    """How many steps come before the first that is near to where the later half of them agrees."""
    later = latencies[-half:]
    middle = float(later.median() or 0)  # type: ignore[arg-type]
    spread = float(later.quantile(0.9) or 0) - float(later.quantile(0.1) or 0)
    if not middle or spread > _SETTLED_SPREAD * middle:
        return 0
    return int(((latencies - middle).abs() <= _NEAR * middle).arg_max() or 0)


def kept_steps(steps: pl.DataFrame) -> pl.DataFrame:
    """The steps that a trimmed mean of latency keeps, of each run: means over these whole steps add up."""
    count = pl.len().over("run_id")
    dropped = trimmed_count(count)
    rank = pl.struct("duration_ns", "step").rank("ordinal").over("run_id").cast(pl.Int64) - 1
    return steps.filter(rank >= dropped, rank < count - dropped)


def step_counts(steps: pl.DataFrame) -> pl.DataFrame:
    """How many steps each run has: run_id, step_count."""
    return steps.group_by("run_id").agg(pl.len().cast(pl.Int64).alias("step_count")).sort("run_id")


def mean_over_steps(
    values: pl.DataFrame, steps: pl.DataFrame, keys: Sequence[str], measures: Sequence[str]
) -> pl.DataFrame:
    """What a mean step holds of each key: per run the trimmed mean over its steps, then the sum over runs.

    `values` has one row a run_id, step and key, in steps of `steps` only. A key present in k of a run's n steps
    counts k / n of its mean, so that sums over keys are what a step holds on average. Measures become Float64.
    """
    present = pl.len() / pl.col("step_count").first()
    return (
        values.join(step_counts(steps), on="run_id", how="inner", maintain_order="left")
        .group_by("run_id", *keys, maintain_order=True)
        .agg((trimmed_mean(pl.col(m)) * present).alias(m) for m in measures)
        .group_by(*keys, maintain_order=True)
        .agg(pl.when(pl.col(m).count() > 0).then(pl.col(m).sum()).alias(m) for m in measures)
    )


def kind_of_mean(step_count: int) -> str:
    """What `trimmed_mean` is of so many steps."""
    dropped = pl.select(trimmed_count(pl.lit(step_count))).item()
    if not dropped:
        return "mean"
    return "median" if step_count - 2 * dropped == 1 else "trimmed mean"
