"""Numbers the steps, says in which step each span ran, and hangs other threads' spans under their step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.climb import innermost, outermost
from xsp_model import Kind, Level
from xsp_model.columns import scratch
from xsp_model.columns.arrays import true_indices
from xsp_model.step_annotations import is_serving_step, parse_step_annotation

if TYPE_CHECKING:
    from xsp_ingest.link.spans import SpanKinds
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = ["number"]


def number(spans: pl.DataFrame, kinds: SpanKinds, parent: Positions) -> tuple[pl.DataFrame, Positions]:
    """The spans with a column `step`, and parents in which a thread's roots hang under the step they ran in.

    A step is an outermost model span; of a serving engine see `_of_engines`. It keeps the number in its name
    (`ProfilerStep#6`) where all have one of their own, else it is counted from 0 in its process.
    """
    is_step = _of_engines(spans, parent, kinds.is_level(Level.MODEL) & kinds.is_kind(Kind.STEP))
    if not is_step.any():
        return spans.with_columns(pl.lit(None, pl.Int32).alias("step")), parent
    top = np.flatnonzero(is_step)
    top = top[outermost(parent, is_step)[top] == top]
    parent = _under_steps(spans, kinds, parent, top)
    is_top = np.zeros(spans.height, dtype=np.bool_)
    is_top[top] = True
    holder = innermost(parent, is_top)
    numbers = np.full(spans.height + 1, -1, dtype=np.int32)
    numbers[top] = _numbers(spans[top])
    step: Positions = scratch.empty(spans.height, np.int32)
    for piece in scratch.pieces(spans.height):
        step[piece] = numbers[holder[piece]]  # holder -1 reads the last entry, -1
    return spans.with_columns(scratch.series("step", step, step >= 0)), parent


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


def _under_steps(spans: pl.DataFrame, kinds: SpanKinds, parent: Positions, steps: Ints) -> Positions:
    """The parents, changed: host spans that nothing on their thread holds are children of the step they began in.

    So are ranges of the application's: what `Optimizer.step` encloses ran in the step around it.
    """
    roots = true_indices((parent < 0) & ~kinds.is_level(Level.MODEL) & ~kinds.is_level(Level.KERNEL))
    at = spans.select("process_id", "start_ns", "duration_ns")
    end = (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    windows = at[steps].select("process_id", "start_ns", end, pl.Series("step_at", steps))
    inside = (
        scratch.gather_rows(at.select("process_id", "start_ns"), roots)
        .with_columns(pl.Series("root_at", roots))
        .join_asof(windows, on="start_ns", by="process_id", check_sortedness=False)
    )
    starts = spans["start_ns"].to_numpy()
    held = inside.filter(pl.col("step_at").is_not_null())
    child, step = held["root_at"].to_numpy(), held["step_at"].to_numpy()
    ends = held["end_ns"].fill_null(np.iinfo(np.int64).max).to_numpy()
    above = np.full(len(parent) + 1, -1, dtype=parent.dtype)  # a range that holds the step is not held by it
    above[steps] = _roots(parent, steps)
    keep = (starts[child] < ends) & (above[step] != child)
    parent[child[keep]] = step[keep]
    return parent


def _roots(parent: Positions, at: Ints) -> Ints:
    """The outermost span above each of the few at these positions."""
    up = at.copy()
    for _ in range(len(parent)):
        higher = parent[up]
        if not (higher >= 0).any():
            break
        up = np.where(higher >= 0, higher, up)
    return up
