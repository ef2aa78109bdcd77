"""Numbers the steps, says in which step each span ran, and hangs other threads' spans under their step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_model import Kind, Level
from xsp_model.tree import innermost, outermost

if TYPE_CHECKING:
    from xsp_model.arrays import Ints

__all__ = ["number"]


def number(spans: pl.DataFrame, parent: Ints) -> tuple[pl.DataFrame, Ints]:
    """The spans with a column `step`, and parents in which a thread's roots hang under the step they ran in.

    A step is an outermost model span. It keeps the number in its name (`ProfilerStep#6`) where all have one of their
    own, else it is counted from 0 in its process.
    """
    is_step = (spans["level"] == str(Level.MODEL)).to_numpy() & (spans["kind"] == str(Kind.STEP)).to_numpy()
    if not is_step.any():
        return spans.with_columns(pl.lit(None, pl.Int64).alias("step")), parent
    top = is_step & (outermost(parent, is_step) == np.arange(spans.height))
    parent = _under_steps(spans, parent, np.flatnonzero(top))
    holder = innermost(parent, top)
    numbers = np.full(spans.height + 1, -1, dtype=np.int64)
    numbers[:-1][top] = _numbers(spans.filter(pl.Series(top)))
    step = pl.Series("step", numbers[holder])  # holder -1 reads the last entry, -1
    return spans.with_columns(pl.when(step >= 0).then(step).alias("step")), parent


def _numbers(steps: pl.DataFrame) -> Ints:
    named = steps["name"].cast(pl.String).str.extract(r"(\d{1,9})\D?$").cast(pl.Int64)
    own = pl.DataFrame({"process": steps["process_id"], "number": named})
    if not named.has_nulls() and not own.is_duplicated().any():
        return named.to_numpy()
    order = pl.struct("start_ns", pl.int_range(pl.len())).rank("ordinal").over("process_id")
    return steps.select(order.cast(pl.Int64) - 1).to_series().to_numpy()


def _under_steps(spans: pl.DataFrame, parent: Ints, steps: Ints) -> Ints:
    """Host spans that nothing on their thread holds: children of the step they began in.

    So are ranges of the application's: what `Optimizer.step` encloses ran in the step around it.
    """
    host = ~spans["level"].is_in([str(Level.MODEL), str(Level.KERNEL)]).to_numpy()
    roots = np.flatnonzero((parent < 0) & host)
    at = spans.select("process_id", "start_ns", (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"))
    windows = at[steps].with_columns(pl.Series("step_at", steps)).sort("start_ns", "step_at")
    inside = (
        at[roots]
        .select("process_id", "start_ns", pl.Series("root_at", roots))
        .sort("start_ns", "root_at")
        .join_asof(windows, on="start_ns", by="process_id", check_sortedness=False)
    )
    starts = spans["start_ns"].to_numpy()
    held = inside.filter(pl.col("step_at").is_not_null())
    child, step = held["root_at"].to_numpy(), held["step_at"].to_numpy()
    ends = held["end_ns"].fill_null(np.iinfo(np.int64).max).to_numpy()
    above = outermost(parent, np.ones(len(parent), dtype=np.bool_))  # a range that holds the step is not held by it
    keep = (starts[child] < ends) & (above[step] != child)
    out = parent.copy()
    out[child[keep]] = step[keep]
    return out
