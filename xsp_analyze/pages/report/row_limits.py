"""Tables cut to what a page can hold: the rows with most, in their order, and a sentence on the others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.analyses.kernels import kernel_information, list_of_kernels, order_of_list
from xsp_analyze.core import Role, run
from xsp_analyze.formulas import total_of
from xsp_analyze.frames.kernels.kernel_means import kernel_executions
from xsp_analyze.text.shown import heading
from xsp_analyze.text.units import count, share

if TYPE_CHECKING:
    from xsp_analyze.core import Column, Result
    from xsp_analyze.trace.step_view import StepView

__all__ = ["MAX_ROWS", "cut", "cut_executions"]

MAX_ROWS = 1_000


def cut(result: Result, by: str | None = None, max_rows: int = MAX_ROWS) -> tuple[Result, str | None]:
    """The `max_rows` rows that hold most of `by` (else of the first time, else of the first measure), in their order.

    The sentence says how many there are and which part of the column the kept ones hold; None where all are kept.
    """
    height = result.table.height
    if height <= max_rows:
        return result, None
    rank = next((c for c in result.columns if c.name == by), None) or _weightiest(result)
    if rank is None:
        first = _with_table(result, result.table.head(max_rows))
        return first, f"The first {count(max_rows)} of {count(height)} rows. {_where(result)}"
    table = result.table.filter(_longest(result.table[rank.name], max_rows)).head(max_rows)
    return _with_table(result, table), _sentence(_with_table(result, table), rank, result.table[rank.name], max_rows)


def cut_executions(frames: StepView, max_rows: int = MAX_ROWS) -> tuple[Result, str]:
    """As `cut` of A08, where there are more rows than that: the others, which may be millions, are not described."""
    order = order_of_list(frames)
    duration = frames.once(kernel_executions)["duration_ns"].gather(order)
    kept = np.flatnonzero(_longest(duration, max_rows).to_numpy())[:max_rows]
    result = run(
        replace(
            kernel_information,
            function=lambda frames: list_of_kernels(frames, frames.once(kernel_executions)[order[kept]], kept),
        ),
        frames,
    )
    rank = next(c for c in result.columns if c.name == "duration_ns")
    return result, _sentence(result, rank, duration, max_rows)


def _longest(values: pl.Series, max_rows: int) -> pl.Series:
    """Whether each value is one of the largest."""
    order = pl.col(values.name).rank("ordinal", descending=True).fill_null(len(values) + 1)
    return values.to_frame().select(order <= max_rows).to_series()


def _sentence(kept: Result, rank: Column, values: pl.Series, max_rows: int) -> str:
    total, held = total_of(values), total_of(kept.table[rank.name])
    part = f", {share(held / total)} of all {heading(rank)}" if total else ""
    return f"The {count(max_rows)} rows of {count(len(values))} with most {heading(rank)}{part}. {_where(kept)}"


def _with_table(result: Result, table: pl.DataFrame) -> Result:
    return replace(result, table=table)


def _where(result: Result) -> str:
    return f"xsp analyze INPUT -a {result.analysis.id} -f csv writes them all."


def _weightiest(result: Result) -> Column | None:
    measures = [c for c in result.columns if c.role is Role.MEASURE and result.table[c.name].dtype.is_numeric()]
    times = [c for c in measures if c.unit == "ns"]
    return next(iter([*times, *measures]), None)
