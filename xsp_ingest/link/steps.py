"""Finds and numbers the steps, says in which step each span ran, and hangs other threads' spans under their step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.range_rules import ENGINE_STEP
from xsp_ingest.link.spans import innermost, matches, outermost
from xsp_model import Finding, Kind, LedgerKind, Level
from xsp_model.columns import arrays
from xsp_model.columns.arrays import true_indices
from xsp_model.step_annotations import is_serving_step, parse_step_annotation

if TYPE_CHECKING:
    from xsp_ingest.link.spans import SpanKinds
    from xsp_ingest.staging.raw import RawTrace
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = ["number", "with_marked_steps"]

# Marks of steps that take more than one name to read: ranges around an engine's calls, ends of an optimizer's step.

_OPTIMIZER_STEP = r"^Optimizer\.step#"
_ITERATION = "iteration"
_THREAD = ["process_id", "thread_id"]
_MIN_MARKS = 2  # of fewer nothing repeats
_HALF = 0.5
_END = pl.col("start_ns") + pl.col("duration_ns")


def with_marked_steps(raw: RawTrace) -> tuple[RawTrace, list[Finding]]:
    """The run with what marks its iterations as steps, where the names of steps alone do not tell.

    Ranges of the program's that repeat around an engine's own steps go before these. In a process without any steps
    an iteration reaches from the end of one step of its optimizer to the end of the next.
    """
    spans = raw.tables["spans"]
    engine, optimizer = (matches(spans["name"], pattern) for pattern in (ENGINE_STEP, _OPTIMIZER_STEP))
    if engine.any():
        spans = _with_ranges_around(spans, engine)
    findings = []
    if optimizer.any():
        stepped = spans.filter(pl.col("kind").cast(pl.String) == str(Kind.STEP))["process_id"].unique()
        marks = spans.filter(
            pl.Series(optimizer),
            pl.col("kind").cast(pl.String) == str(Kind.RANGE),
            ~pl.col("process_id").is_in(stepped.implode(), nulls_equal=True),
        )
        iterations = [
            _iterations(spans, rows.drop_nulls("duration_ns"))
            for _, rows in marks.group_by("process_id", maintain_order=True)
        ]
        if count := sum(rows.height for rows in iterations):
            spans = _with_rows(spans, pl.concat(iterations))
            findings = [Finding(LedgerKind.STEPS_INFERRED, _BY_OPTIMIZER, count, advice=_MARK_STEPS)]
    return replace(raw, tables={**raw.tables, "spans": spans}), findings


_BY_OPTIMIZER = (
    "the program marked no steps; each reaches from the end of one call of Optimizer.step to that of the next, the"
    " first from the range that the others begin with"
)
_MARK_STEPS = "Mark steps with profiler.step(), or name the range of a step with --model-range"


def _with_ranges_around(spans: pl.DataFrame, engine: Bools) -> pl.DataFrame:
    """The spans, as steps the outermost repeating ranges that hold most of an engine's steps; these are then none."""
    kind = pl.col("kind").cast(pl.String)
    calls = spans.filter(pl.Series(engine), kind == str(Kind.STEP))
    ranges = spans.filter(kind == str(Kind.RANGE), pl.col("duration_ns").is_not_null())
    ranges = ranges.join(calls.select(_THREAD).unique(), on=_THREAD, how="semi", nulls_equal=True)
    ranges = _outermost(ranges.filter(pl.len().over("process_id", "name") >= _MIN_MARKS))
    held = _in_ranges(calls, ranges.with_columns(_END.alias("end_ns")))
    counts = held.group_by("process_id", "name_right").agg(pl.len().alias("calls"), pl.col("row_right").n_unique())
    counts = counts.join(calls.group_by("process_id").len(), on="process_id", nulls_equal=True)
    around = counts.filter(pl.col("calls") > _HALF * pl.col("len"), pl.col("row_right") >= _MIN_MARKS)
    if around.is_empty():
        return spans
    chosen = held.join(around, on=["process_id", "name_right"], how="semi", nulls_equal=True)["row_right"]
    gone = calls.join(around, on="process_id", how="semi", nulls_equal=True)["row"]
    row = pl.col("row")
    meanings = {"level": (Level.MODEL, Level.LIBRARY), "kind": (Kind.STEP, Kind.RANGE)}
    return spans.with_columns(
        pl.when(row.is_in(chosen.implode()))
        .then(pl.lit(str(step)))
        .when(row.is_in(gone.implode()))
        .then(pl.lit(str(library)))
        .otherwise(pl.col(name).cast(pl.String))
        .cast(pl.Categorical)
        .alias(name)
        for name, (step, library) in meanings.items()
    )


def _outermost(ranges: pl.DataFrame) -> pl.DataFrame:
    """Those that no other of them is around on their thread, in order of start."""
    ordered = ranges.sort("start_ns", -pl.col("duration_ns"), maintain_order=True)
    reach = _END.cum_max().shift(1).over(_THREAD)
    return ordered.filter(reach.is_null() | (pl.col("start_ns") >= reach))


def _in_ranges(spans: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """The spans that begin in one of the ranges of their thread, each with its columns (`_right`) and `end_ns`."""
    ranges = ranges.select(*_THREAD, "row", "name", "start_ns", "end_ns").with_columns(range_start=pl.col("start_ns"))
    inside = spans.sort("start_ns").join_asof(ranges, on="start_ns", by=_THREAD, check_sortedness=False)
    return inside.filter(pl.col("start_ns") < pl.col("end_ns"))


def _iterations(spans: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """The iterations of a process by the calls of its optimizer's step, as rows of spans without `row`.

    Of several optimizers the one that steps least often, and of these the last one, ends an iteration. Steps within
    operators are of parameters, while gradients are computed. The first iteration begins where the range first does
    that most others begin with; where the trace begins later, it is not whole and none.
    """
    kind, process = pl.col("kind").cast(pl.String), marks["process_id"][0]
    threads = spans.filter(pl.col("process_id").eq_missing(pl.lit(process, pl.Int64))).join(
        marks.select(_THREAD).unique(), on=_THREAD, how="semi", nulls_equal=True
    )
    operators = _outermost(threads.filter(kind == str(Kind.OPERATOR), pl.col("duration_ns").is_not_null()))
    inner = _in_ranges(marks, operators.with_columns(_END.alias("end_ns")))["row"]
    marks = _outermost(marks.filter(~pl.col("row").is_in(inner.implode())))
    by_name = marks.group_by("thread_id", "name").agg(pl.len(), _END.max().alias("last"))
    by_name = by_name.filter(pl.col("len") >= _MIN_MARKS).sort("len", -pl.col("last"), "thread_id")
    if by_name.is_empty():
        return marks.clear().drop("row")
    marks = marks.join(by_name.head(1), on=["thread_id", "name"], how="semi", nulls_equal=True)
    ends = marks.select(_END.alias("end_ns"))
    ranges = threads.filter(kind == str(Kind.RANGE), pl.col("thread_id").eq_missing(marks["thread_id"].first()))
    nexts = ends.head(-1).join_asof(
        ranges.sort("start_ns").select("start_ns", pl.col("name").cast(pl.String)),
        left_on="end_ns", right_on="start_ns", strategy="forward",
    )  # fmt: skip
    usual = nexts["name"].drop_nulls().mode(maintain_order=True).head(1)
    first = ranges.filter(
        pl.col("name").cast(pl.String).is_in(usual.implode()), pl.col("start_ns") < marks["start_ns"][0]
    )["start_ns"].min()
    begins = pl.Series([first, *ends["end_ns"].head(-1)], dtype=pl.Int64)
    return marks.select(
        pl.lit(str(Level.MODEL)).alias("level"), pl.lit(str(Kind.STEP)).alias("kind"), pl.lit(_ITERATION).alias("name"),
        begins.alias("start_ns"), (ends["end_ns"] - begins).alias("duration_ns"), *_THREAD,
    ).drop_nulls("start_ns")  # fmt: skip


def _with_rows(spans: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The spans and further ones, numbered after them; words of large tables, an Enum, take in those of the new."""
    number = pl.int_range(pl.len(), dtype=pl.Int64) + (spans["row"].max() or 0) + 1
    rows = rows.with_columns(number.alias("row"))
    for name, type_ in spans.schema.items():
        if isinstance(type_, pl.Enum):
            wider = pl.Enum(list(dict.fromkeys([*type_.categories, *(rows[name] if name in rows.columns else ())])))
            physical = spans[name].to_physical().cast(pl.Series([], dtype=wider).to_physical().dtype)
            spans = spans.with_columns(physical.cat.to(wider).alias(name))
    added = rows.select(
        pl.col(name).cast(type_) if name in rows.columns else pl.lit(None, type_).alias(name)
        for name, type_ in spans.schema.items()
    )
    return pl.concat([spans, added])


# In which step each span ran.


def number(
    spans: pl.DataFrame, kinds: SpanKinds, parent: Positions, *, layers_begin_early: bool = False
) -> tuple[pl.DataFrame, Positions]:
    """The spans with a column `step`, and parents in which a thread's roots hang under the step they ran in.

    A step is an outermost model span; of a serving engine see `_of_engines`. It keeps the number in its name
    (`ProfilerStep#6`) where all have one of their own, else it is counted from 0 in its process.
    """
    is_step = _of_engines(spans, parent, kinds.is_level(Level.MODEL) & kinds.is_kind(Kind.STEP))
    if not is_step.any():
        return spans.with_columns(pl.lit(None, pl.Int32).alias("step")), parent
    top = np.flatnonzero(is_step)
    top = top[outermost(parent, is_step)[top] == top]
    early = kinds.is_level(Level.LAYER) if layers_begin_early else None
    parent = _under_steps(spans, kinds, parent, top, early)
    is_top = np.zeros(spans.height, dtype=np.bool_)
    is_top[top] = True
    holder = innermost(parent, is_top)
    numbers = np.full(spans.height + 1, -1, dtype=np.int32)
    numbers[top] = _numbers(spans[top])
    step: Positions = arrays.empty(spans.height, np.int32)
    for piece in arrays.pieces(spans.height):
        step[piece] = numbers[holder[piece]]  # holder -1 reads the last entry, -1
    return spans.with_columns(arrays.series("step", step, step >= 0)), parent


def _of_engines(spans: pl.DataFrame, parent: Positions, is_step: Bools) -> Bools:
    """The steps, but where those of a serving engine lie several in another one those alone, in all of the process.

    A profiler's step around one batch is that batch's, with what the engine did before and after it; around many it is
    no more than how long the profiler was on.
    """
    steps = np.flatnonzero(is_step)
    engines = steps[
        np.array([_is_engine(name) for name in spans["name"].gather(steps).cast(pl.String)], dtype=np.bool_)
    ]
    if len(engines) in {0, len(steps)}:
        return is_step
    is_engine = np.zeros(spans.height, dtype=np.bool_)
    is_engine[engines] = True
    engines = engines[outermost(parent, is_engine)[engines] == engines]
    around = innermost(parent, is_step & ~is_engine)[engines]
    holders, held = np.unique(around[around >= 0], return_counts=True)
    processes = spans["process_id"].gather(holders[held > 1]).unique()
    gives_way = spans["process_id"].is_in(processes.implode(), nulls_equal=True).to_numpy()
    kept: Bools = is_step & (is_engine | ~gives_way)
    return kept


def _is_engine(name: str | None) -> bool:
    return name is not None and is_serving_step(name)


def _numbers(steps: pl.DataFrame) -> Ints:
    """Of a serving engine's step the iteration that its name says: other numbers in it are counts."""
    names = steps["name"].cast(pl.String)
    last = names.str.extract(r"(\d{1,9})\D?$").cast(pl.Int64, strict=False)
    read = [None if name is None else parse_step_annotation(name) for name in names]
    iterations = pl.Series([one and one.iteration for one in read], dtype=pl.Int64)
    named = iterations.zip_with(pl.Series([one is not None for one in read], dtype=pl.Boolean), last)
    own = pl.DataFrame({"process": steps["process_id"], "number": named})
    if not named.has_nulls() and not own.is_duplicated().any():
        return named.to_numpy()
    order = pl.struct("start_ns", pl.int_range(pl.len())).rank("ordinal").over("process_id")
    return steps.select(order.cast(pl.Int64) - 1).to_series().to_numpy()


def _under_steps(
    spans: pl.DataFrame, kinds: SpanKinds, parent: Positions, steps: Ints, early: Bools | None
) -> Positions:
    """The parents, changed: host spans that nothing on their thread holds are children of the step they began in.

    So are ranges of the application's: what `Optimizer.step` encloses ran in the step around it. Of `early` spans that
    began in none the middle counts: an engine's thread may begin before the call that waits for it.
    """
    roots = true_indices((parent < 0) & ~kinds.is_level(Level.MODEL) & ~kinds.is_level(Level.KERNEL))
    at = spans.select("process_id", "start_ns", "duration_ns")
    end = (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    windows = at[steps].select("process_id", "start_ns", end, pl.Series("step_at", steps))
    above = np.full(len(parent) + 1, -1, dtype=parent.dtype)  # a range that holds the step is not held by it
    above[steps] = _roots(parent, steps)
    times = arrays.gather_rows(at, roots).with_columns(pl.Series("root_at", roots))
    _hang(parent, times.drop("duration_ns"), windows, above)
    if early is not None:
        middle = pl.col("start_ns") + pl.col("duration_ns").fill_null(0) // 2
        left = times.filter(pl.Series(early[roots] & (parent[roots] < 0)))
        _hang(parent, left.select("process_id", middle, "root_at").sort("start_ns"), windows, above)
    return parent


def _hang(parent: Positions, times: pl.DataFrame, windows: pl.DataFrame, above: Positions) -> None:
    """Makes each of the rows, in order of time, a child of the step that was open then in its process."""
    inside = times.join_asof(windows, on="start_ns", by="process_id", check_sortedness=False)
    held = inside.filter(pl.col("step_at").is_not_null(), (pl.col("start_ns") < pl.col("end_ns")).fill_null(value=True))
    child, step = held["root_at"].to_numpy(), held["step_at"].to_numpy()
    keep = above[step] != child
    parent[child[keep]] = step[keep]


def _roots(parent: Positions, at: Ints) -> Ints:
    """The outermost span above each of the few at these positions."""
    up = at.copy()
    for _ in range(len(parent)):
        higher = parent[up]
        if not (higher >= 0).any():
            break
        up = np.where(higher >= 0, higher, up)
    return up
