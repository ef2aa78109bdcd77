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
    from collections.abc import Iterator

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


def with_marked_steps(raw: RawTrace, *, by_period: bool = False) -> tuple[RawTrace, list[Finding]]:
    """The run with what marks its iterations as steps, where the names of steps alone do not tell.

    Ranges of the program's that repeat around an engine's own steps go before these. In a process without any steps
    an iteration reaches from the end of one step of its optimizer to the end of the next. Where nothing at all marks a
    step, and `by_period`, what a program repeats to its end is one, see `_repetitions`.
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
    if by_period and not findings and not (spans["kind"].cast(pl.String) == str(Kind.STEP)).any():
        rows, what = _repetitions(spans)
        if rows.height:
            spans = _with_rows(spans, rows)
            detail = f"the program marked no steps; each is one repetition of the same {what}, in the same order"
            findings = [Finding(LedgerKind.STEPS_INFERRED, detail, rows.height, advice=_MARK_STEPS)]
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
    """The steps that no other of them is around on their thread, in order of start."""
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


_MIN_REPEATS = 6  # fewer are soon looked at one by one, and a mean of them says little
_MIN_PART = 0.75  # of all calls, in repetitions: before them a program warms up, behind them it does nothing
_MAX_TRIED = 64  # lengths of a period
_MIN_LAUNCHED = 0.95  # of device work: the rest was launched before the trace
_MIN_OPERATORS = 0.25  # of all, on the thread that has the first: those of the backward pass are on another
_SIMILAR = 2.0  # times as long a repetition may be as another
_TIMES = ("start_ns", "end_ns")


def _repetitions(spans: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """Steps where one process does the same again and again until it ends, as `_iterations` gives them; and of what.

    What it repeats are the outermost operators of the thread that began them, else what one thread launched, else the
    work of one device, or where nothing worked the ranges of the only thread that has any. Layers that are alike repeat
    too, but behind the last of them come others.
    """
    every = spans.select(
        "level", "kind", "name", "start_ns", _END.alias("end_ns"), *_THREAD, "device_id", "correlation_id"
    )
    every = every.drop_nulls(_TIMES)
    for calls, what in _repeatable(every):
        length, first = _period(calls["name"].to_physical().to_numpy())
        bounds = np.arange(first, calls.height + 1, length or 1)
        start = calls["start_ns"].to_numpy()
        if length and (start[bounds[1:-1]] > start[bounds[1:-1] - 1]).all():  # not within one replay of a graph
            steps = _steps_between(every, calls, bounds)
            if steps.height:
                return steps, f"{length} {what}"
    return pl.DataFrame(), ""


def _repeatable(every: pl.DataFrame) -> Iterator[tuple[pl.DataFrame, str]]:
    """What may repeat, in order: calls of one thread with name, start_ns, end_ns; the first that the trace holds."""
    level = pl.col("level").cast(pl.String)
    operators = every.filter(level == str(Level.OPERATOR), pl.col("kind").cast(pl.String) == str(Kind.OPERATOR))
    if operators.height:
        first = operators.filter(pl.col("thread_id").is_not_null()).sort("start_ns").head(1)
        of_thread = operators.join(first.select(_THREAD), on=_THREAD, how="semi", nulls_equal=True)
        if of_thread.height >= _MIN_OPERATORS * operators.height:
            yield _outermost_calls(of_thread), "operators"
        return
    work = every.filter(level == str(Level.KERNEL)).sort("start_ns", maintain_order=True)
    ranges = every.filter(pl.col("kind").cast(pl.String) == str(Kind.RANGE), pl.col("thread_id").is_not_null())
    if not work.height and ranges.select(_THREAD).n_unique() == 1:
        yield _outermost_calls(ranges), "ranges"
    if not work.height or work["process_id"].n_unique() > 1:
        return
    calls = _outermost_calls(every.filter(level == str(Level.RUNTIME))).select("correlation_id", *_TIMES, "thread_id")
    calls = calls.drop_nulls("correlation_id").unique("correlation_id", keep="first", maintain_order=True)
    work_of_calls = work.select("correlation_id", "name", "kind", "process_id")
    launched = work_of_calls.join(calls, on="correlation_id", maintain_order="left").sort(
        "start_ns", maintain_order=True
    )
    if launched.height >= _MIN_LAUNCHED * work.height and launched["thread_id"].n_unique() == 1:
        calls, what = launched, "launches"
    elif not launched.height and work["device_id"].n_unique() == 1:
        calls, what = work.with_columns(thread_id=pl.lit(None, pl.Int64)), "pieces of device work"
    else:
        return
    yield calls, what
    kernels = calls.filter(pl.col("kind").cast(pl.String) == str(Kind.KERNEL))
    if kernels.height < calls.height:
        yield kernels, "kernels"  # copies and fills beside them may vary


def _outermost_calls(spans: pl.DataFrame) -> pl.DataFrame:
    ordered = spans.sort("start_ns", -pl.col("end_ns"), maintain_order=True)
    reach = pl.col("end_ns").cum_max().shift(1).over(_THREAD)
    return ordered.filter(reach.is_null() | (pl.col("start_ns") >= reach))


def _period(names: Ints) -> tuple[int, int]:
    """The shortest length at which the last names repeat, to the end, and where the first repetition begins; else 0, 0.

    Where all names but the last few are of it, the first stands at the very begin; else repetitions end with the last.
    """
    count, back = len(names), names[::-1]
    longest = count // _MIN_REPEATS
    tried = np.arange(2, longest + 1) if count else np.arange(0)
    for at in range(min(longest, _MAX_TRIED)):
        tried = tried[back[tried + at] == back[at]]
    for length in tried[:_MAX_TRIED].tolist():
        differs = back[length:] != back[:-length]
        run = int(np.argmax(differs)) if differs.any() else count - length
        repeated = run + length
        if repeated >= max(_MIN_PART * count, _MIN_REPEATS * length) and len(np.unique(back[:length])) > 1:
            return length, 0 if repeated == count else repeated % length + count - repeated
    return 0, 0


def _steps_between(every: pl.DataFrame, calls: pl.DataFrame, bounds: Ints) -> pl.DataFrame:
    """A step from each bound (a position among the calls) to the next, as rows of spans without `row`.

    One ends when all has that its thread began and ended before what holds the first call of the next. None where
    spans reach across, or times are far apart: what repeats by its names alone is not the same work.
    """
    process, thread = calls.select(_THREAD).row(0)
    same = [pl.col(n).eq_missing(pl.lit(each, pl.Int64)) for n, each in zip(_THREAD, (process, thread), strict=True)]
    begins, ends = (column.to_numpy() for column in every.filter(same).select(_TIMES))
    first = calls["start_ns"].to_numpy()[bounds[:-1]]
    last = np.maximum.accumulate(calls["end_ns"].to_numpy())[bounds[1:] - 1]
    before = np.concatenate(([begins.min(initial=first[0])], last[:-1]))  # when all calls before had ended
    at = np.searchsorted(before, begins, side="right") - 1
    holds = (begins < first[at]) & (ends > first[at]) & (ends <= last[at])
    np.minimum.at(first, at[holds], begins[holds])
    in_order = np.sort(ends)
    cuts = in_order[np.maximum(np.searchsorted(in_order, first[1:], side="right") - 1, 0)]
    cuts = np.clip(cuts, last[:-1], first[1:])
    behind = last[-1] + _SIMILAR * (cuts - last[:-1]).max()  # what waits for the last calls, as it did for those before
    final = max(last[-1], in_order[max(np.searchsorted(in_order, behind, side="right") - 1, 0)])
    cuts = np.concatenate((first[:1], cuts, [final]))
    lengths = np.diff(cuts)
    at = np.searchsorted(cuts, begins, side="right") - 1
    reaches = (begins < cuts[-1]) & (ends > cuts[np.minimum(at + 1, len(lengths))]) & ((at >= 0) | (ends < cuts[-1]))
    low, middle, high = np.quantile(lengths[1:-1], (0.1, 0.5, 0.9), method="nearest")
    if reaches.any() or middle >= _SIMILAR * low or high >= _SIMILAR * middle:
        return pl.DataFrame()
    return pl.DataFrame({"start_ns": cuts[:-1], "duration_ns": lengths}).select(
        pl.lit(str(Level.MODEL)).alias("level"), pl.lit(str(Kind.STEP)).alias("kind"), pl.lit(_ITERATION).alias("name"),
        "start_ns", "duration_ns", process_id=pl.lit(process, pl.Int64), thread_id=pl.lit(thread, pl.Int64),
    )  # fmt: skip


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
    work = true_indices(kinds.is_level(Level.KERNEL))
    if not (step[work] >= 0).any() and spans["thread_id"].gather(top).null_count() == len(top):
        begins = spans["start_ns"].to_numpy()  # repetitions of work that nothing launched
        at = np.searchsorted(begins[top], begins[work], side="right") - 1
        step[work[at >= 0]] = numbers[top[at[at >= 0]]]
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
    _put_in_open_steps(parent, times.drop("duration_ns"), windows, above)
    if early is not None:
        middle = pl.col("start_ns") + pl.col("duration_ns").fill_null(0) // 2
        left = times.filter(pl.Series(early[roots] & (parent[roots] < 0)))
        _put_in_open_steps(parent, left.select("process_id", middle, "root_at").sort("start_ns"), windows, above)
    return parent


def _put_in_open_steps(parent: Positions, times: pl.DataFrame, windows: pl.DataFrame, above: Positions) -> None:
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
