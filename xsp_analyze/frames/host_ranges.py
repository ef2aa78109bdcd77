"""Ranges on the host that say what they are: stages of a prediction, and calls of MPI, OpenMP and their like."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.classification.experts import Stage, stage_of
from xsp_analyze.frames.host_calls import INPUT_CALLS
from xsp_model import Kind, Level
from xsp_model.columns.intervals import intersection, merge
from xsp_model.columns.tree import innermost
from xsp_model.vocabulary import Recorder, formats_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.columns.arrays import Ints

__all__ = [
    "LIBRARIES",
    "RunStages",
    "calls_of_system",
    "has_library",
    "has_stages",
    "host_self_time",
    "library_calls",
    "library_spans",
    "stages_of_runs",
]

# Stages of a prediction: named ranges that say pre-process, inference or post-process, and what ran in them.

_COLUMNS = ("span_id", "run_id", "process_id", "thread_id", "name", "start_ns", "duration_ns", "kind")
_THREAD = ("process_id", "thread_id")
_Union = tuple["Ints", "Ints"]


@dataclass(frozen=True)
class RunStages:
    """The stages of one run.

    `ranges`: one row a range, in order of start: span_id, name, stage, process_id, thread_id, start_ns, end_ns.
    `work`: its device activities with stage; null: launched in none, and `has_launch` says whether that is known.
    """

    run_id: int
    ranges: pl.DataFrame
    work: pl.DataFrame

    @cached_property
    def unions(self) -> Mapping[Stage, _Union]:
        """When each stage was open on any thread; on one thread a range of another stage inside takes its time."""
        pieces: dict[Stage, list[tuple[int, int]]] = {stage: [] for stage in Stage}
        for _, rows in self.ranges.group_by(_THREAD, maintain_order=True):
            for stage, begin, end in _innermost_open(rows):
                pieces[stage].append((begin, end))
        return {stage: merge(*_arrays(times)) for stage, times in pieces.items()}

    @property
    def window(self) -> tuple[int, int]:
        """From the first begin of a stage to the last end of one, or of device work launched in one."""
        ends = [int(end[-1]) for _, end in self.unions.values() if len(end)]
        last = self.work.filter(pl.col("stage").is_not_null()).select(pl.col("start_ns") + pl.col("duration_ns")).max()
        ends += [last.item()] if last.item() is not None else []
        return min(int(begin[0]) for begin, _ in self.unions.values() if len(begin)), max(ends)

    @cached_property
    def several(self) -> _Union:
        """When more than one stage was open, as batches overlap."""
        unions = list(self.unions.values())
        both = [intersection(a, b) for n, a in enumerate(unions) for b in unions[n + 1 :]]
        return merge(np.concatenate([start for start, _ in both]), np.concatenate([end for _, end in both]))


def has_stages(frames: TraceView) -> bool:
    """Whether any range is named as what is done before or behind the model's call: of that alone nothing divides."""
    return any(stage_of(name) in (Stage.PRE_PROCESS, Stage.POST_PROCESS) for name in _range_names(frames))


def stages_of_runs(frames: TraceView) -> list[RunStages]:
    """The stages of each run that kernels are taken from; where these mark none, of those that layers are from."""
    own = frames.deepest(_stage_ranges(frames))
    return [_of_run(frames, run, own.filter(run_id=run)) for run in own["run_id"].unique().sort()]


def _range_names(frames: TraceView) -> Sequence[str]:
    kinds = pl.col("kind").cast(pl.String).is_in([str(Kind.RANGE), str(Kind.STEP)])
    names = frames.own_runs.scan("spans").filter(kinds, pl.col("duration_ns").is_not_null())
    return names.select(pl.col("name").cast(pl.String).unique().sort()).collect()["name"].to_list()


def _stage_ranges(frames: TraceView) -> pl.DataFrame:
    """Every range of a stage; of runs that name no inference their steps are that."""
    named = {name: stage for name in _range_names(frames) if (stage := stage_of(name)) is not None}
    kind, name = pl.col("kind").cast(pl.String), pl.col("name").cast(pl.String)
    is_step = kind == str(Kind.STEP)
    rows = (
        frames.own_runs.scan("spans")
        .filter(is_step | (kind == str(Kind.RANGE)), pl.col("duration_ns").is_not_null())
        .filter(is_step | name.is_in(list(named)))
        .select(*_COLUMNS)
        .with_columns(name, kind, name.replace_strict(named, default=None, return_dtype=pl.String).alias("stage"))
        .collect()
    )
    has_call = (pl.col("stage") == str(Stage.INFERENCE)).any().over("run_id")
    has_stage = pl.col("stage").is_not_null().any().over("run_id")
    is_call = pl.col("stage").is_null() & has_stage & ~has_call
    completed = pl.when(is_call).then(pl.lit(str(Stage.INFERENCE))).otherwise("stage").alias("stage")
    return rows.with_columns(completed).drop_nulls("stage")


def _of_run(frames: TraceView, run: int, rows: pl.DataFrame) -> RunStages:
    ranges = rows.with_columns((pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"))
    ranges = ranges.sort("start_ns", "duration_ns", "span_id", descending=[False, True, False])
    work = frames.all_activities.filter(pl.col("run_id") == run)
    return RunStages(run, ranges, work.with_columns(_stage_of_work(frames, work, ranges)))


def _stage_of_work(frames: TraceView, work: pl.DataFrame, ranges: pl.DataFrame) -> list[pl.Series]:
    """`stage` of each activity by the innermost range that it was launched in, and whether its launch is known."""
    parents = frames.trace.scan("spans").select("parent_id").collect()["parent_id"].fill_null(-1).to_numpy()
    mask = np.zeros(len(parents), dtype=np.bool_)
    mask[ranges["span_id"].to_numpy()] = True
    around = innermost(parents, mask)[work["span_id"].to_numpy()] if work.height else np.empty(0, dtype=np.int64)
    owner = pl.DataFrame({"span_id": np.asarray(around, dtype=np.int64)})
    stage = owner.join(ranges.select("span_id", "stage"), on="span_id", how="left", maintain_order="left")["stage"]
    return [stage, work["parent_id"].is_not_null().alias("has_launch")]


def _innermost_open(rows: pl.DataFrame) -> Iterator[tuple[Stage, int, int]]:
    """Stretches of a thread's time by the stage of the range that was opened last and is still open."""
    stages = [Stage(stage) for stage in rows["stage"]]
    start, end = rows["start_ns"].to_list(), rows["end_ns"].to_list()
    opened: list[int] = []
    since = 0
    for time, kind, row in sorted([*((t, 1, n) for n, t in enumerate(start)), *((t, 0, n) for n, t in enumerate(end))]):
        if opened and time > since:
            yield stages[opened[-1]], since, time
        since = time
        if kind and end[row] > time:
            opened.append(row)
        elif row in opened:
            opened.remove(row)


def _arrays(times: Sequence[tuple[int, int]]) -> _Union:
    pairs = np.asarray(times, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


# Calls on the host told by whose they are: of MPI, UCX, OpenMP, OpenACC and the operating system's runtime.

LIBRARIES: Mapping[str, str] = {
    "MPI": r"^P?MPI_",
    "UCX": r"^uc[pst]_",
    "OpenMP": r"^OpenMP:",
    "OpenACC": r"^OpenACC:",
}
"""By whose call it is: how names of spans at the level of libraries begin."""
_OF_OTHERS = "|".join((*LIBRARIES.values(), r"^(cudnn|cublas|\[unnamed (call|MPI|UCP))"))
_OS_RUNTIME = "OS runtime"
_COMMONEST_THREAD = pl.col("thread_id") == pl.col("thread_id").mode().sort().first().over("run_id", "process_id")


def library_spans(view: TraceView, whose: str) -> pl.LazyFrame:
    """The rows of `spans` that are calls of one of LIBRARIES, or of the "OS runtime", which Nsight alone records.

    Of a profile, whose runs are of the same work, those of the runs that kernels are taken from.
    """
    rows = _rows(view, whose)
    names = rows.select(pl.col("name").unique()).collect().to_series()  # few, and texts are looked at one by one
    texts = names.cast(pl.String)
    fits = ~texts.str.contains(_OF_OTHERS) if whose == _OS_RUNTIME else texts.str.contains(LIBRARIES[whose])
    return rows.filter(pl.col("name").is_in(names.filter(fits).implode()))


def _rows(view: TraceView, whose: str) -> pl.LazyFrame:
    """The spans among which they are."""
    rows = view.kernel_runs.scan("spans").filter(pl.col("level") == str(Level.LIBRARY))
    if whose != _OS_RUNTIME:
        return rows
    of_nsight = pl.col("format").is_in(formats_by(Recorder.NSIGHT_SYSTEMS))
    runs = view.kernel_runs.table.filter(of_nsight)["run_id"].to_list()
    return rows.filter(pl.col("run_id").is_in(runs), pl.col("kind") == str(Kind.CALL))


def library_calls(view: TraceView, whose: str) -> pl.LazyFrame:
    """Calls with a duration that count once: ranges named as calls (MPI's in nsys 2022) where a run has no calls."""
    rows = library_spans(view, whose).filter(pl.col("duration_ns") > 0)
    is_call = pl.col("kind") == str(Kind.CALL)
    return rows.filter(is_call | ~is_call.any().over("run_id"))


def has_library(view: TraceView, whose: str) -> bool:
    """Whether there is any."""
    return not library_spans(view, whose).select("span_id").head(1).collect().is_empty()


def calls_of_system(view: StepView) -> pl.DataFrame:
    """Calls of the operating system's runtime by name: main_count and main_ns, on one thread of each run.

    That is the one with the number of its process, of the process with most calls; where no thread has, the one with
    most calls. Of the steps chosen.
    """
    calls = library_calls(view.of_trace, _OS_RUNTIME)
    columns = ("run_id", "step", "process_id", "thread_id", "duration_ns", pl.col("name").cast(pl.String))
    rows = calls.select(*columns).collect()
    is_main = pl.col("process_id") == pl.col("process_id").mode().sort().first().over("run_id")
    has_first = pl.col("thread_id") == pl.col("process_id")
    is_main &= has_first if rows.select((is_main & has_first).any()).item() else _COMMONEST_THREAD
    main = pl.when(is_main)
    per_step = rows.group_by("run_id", "step", "name").agg(
        main.then(1).otherwise(0).sum().cast(pl.Int64).alias("main_count"),
        main.then("duration_ns").otherwise(0).sum().alias("main_ns"),
    )
    return view.combine(per_step, ("name",), ("main_count", "main_ns"))


def host_self_time(view: StepView) -> pl.DataFrame:
    """What operators and calls of libraries and the runtime take themselves: name, is_operator, count, self_ns.

    Most first. Of the steps chosen, summed over threads. All that is done to fetch input (INPUT_CALLS) is of that.
    """
    spans = view.of_trace.layer_runs.scan("spans").filter(
        pl.col("level") != str(Level.KERNEL), pl.col("duration_ns").is_not_null(), pl.col("kind") != str(Kind.SYNC)
    )
    columns = ("run_id", "step", "span_id", "parent_id", "process_id", "thread_id", "start_ns", "duration_ns")
    rows = spans.select(*columns, "level", pl.col("name").cast(pl.String)).collect()
    is_call = pl.col("level").cast(pl.String).is_in([str(Level.OPERATOR), str(Level.LIBRARY), str(Level.RUNTIME)])
    ends = rows.with_columns(
        (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"),
        pl.col("name").str.contains(INPUT_CALLS).alias("is_input"),
    ).filter(is_call | pl.col("is_input"))
    ends = ends.sort("start_ns", -pl.col("duration_ns"), "span_id")
    input_end = pl.when("is_input").then("end_ns").cum_max().shift().forward_fill().over("process_id", "thread_id")
    kept = ends.filter((pl.col("end_ns") > input_end).fill_null(value=True))
    inside = kept.filter(~pl.col("is_input")).group_by("parent_id").agg(pl.col("duration_ns").sum().alias("inner_ns"))
    own = kept.join(inside, left_on="span_id", right_on="parent_id", how="left").with_columns(
        pl.when("is_input")
        .then("duration_ns")
        .otherwise((pl.col("duration_ns") - pl.col("inner_ns").fill_null(0)).clip(lower_bound=0))
        .alias("self_ns"),
        pl.lit(1, pl.Int64).alias("count"),
        (pl.col("level").cast(pl.String) == str(Level.OPERATOR)).alias("is_operator"),
    )
    keys, measures = ("name", "is_operator"), ("count", "self_ns")
    per_step = own.group_by("run_id", "step", *keys).agg(pl.col(measures).sum())
    return view.combine(per_step, keys, measures).sort(-pl.col("self_ns"), "name")
