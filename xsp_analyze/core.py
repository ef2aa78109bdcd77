"""What an analysis is, and what it answers with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames import coverage
from xsp_analyze.frames.model_time import load_tests
from xsp_analyze.needs import advice_on, holds
from xsp_model import XspError
from xsp_model.errors import require

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd
    import pyarrow as pa

    from xsp_analyze.needs import Need
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = [
    "AMOUNT",
    "LATENCY_NS",
    "TIME_NS",
    "Analysis",
    "Column",
    "ContractError",
    "FigureSpec",
    "Result",
    "Role",
    "SummedType",
    "analysis",
    "run",
]


class Role(StrEnum):
    """What a column is for."""

    KEY = "key"
    LABEL = "label"
    MEASURE = "measure"


class ContractError(AssertionError):
    """An analysis answered otherwise than it declares: a bug of ours, whatever the trace."""


@dataclass(frozen=True, slots=True)
class SummedType:
    """The type of what is summed over steps or averaged: exact Int64 over whole steps, Float64 in a mean step."""

    over_runs: bool = False  # whether it is also the mean over runs, Float64 where there are several

    def of(self, *, averaged: bool) -> pl.DataType:
        """The one or the other."""
        return pl.Float64() if averaged else pl.Int64()


TIME_NS = SummedType()
"""The type of times in ns."""

LATENCY_NS = SummedType(over_runs=True)
"""The type of the latency of a model, of which runs side by side have a mean."""

AMOUNT = SummedType()
"""The type of counts and bytes."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a result; `header` is what another tool's CSV calls it, where we speak for that tool."""

    name: str
    dtype: pl.DataType | SummedType
    doc: str
    unit: str = ""
    role: Role = Role.MEASURE
    header: str | None = None
    decimals: int | None = None  # for `header` tables only: how the other tool rounds
    optional: bool = False  # whether a table may lack it: a key that would be the same in all rows

    def type_of(self, *, averaged: bool) -> pl.DataType:
        """What the values are, over whole steps or in a mean step."""
        return self.dtype.of(averaged=averaged) if isinstance(self.dtype, SummedType) else self.dtype

    def admits(self, dtype: pl.DataType, *, averaged: bool) -> bool:
        """Whether values may be of the type."""
        is_mean = isinstance(self.dtype, SummedType) and self.dtype.over_runs
        return dtype == self.type_of(averaged=averaged) or (is_mean and dtype == pl.Float64())


@dataclass(frozen=True, slots=True)
class FigureSpec:
    """A figure as data: columns on its axes, most rows shown; a roofline has two logarithmic axes.

    `kind` is bars, stacked_bars, scatter, roofline or icicle.
    """

    kind: str
    x: str
    y: Sequence[str]
    title: str = ""
    color: str | None = None
    top: int | None = None
    spread: Sequence[str] = ()  # of the first y: its least, first quartile, third quartile and most


@dataclass(frozen=True, slots=True)
class Analysis:
    """One analysis; `needs` are the levels (or tables) without which it has nothing to say."""

    id: str
    title: str
    needs: Sequence[Need]
    columns: Sequence[Column]
    function: Callable[[StepView], pl.LazyFrame]
    figure: FigureSpec | None = None
    key: Sequence[str] | None = None  # what tells rows apart, where it is not the columns in the role of keys
    additive: Sequence[str] = ()  # columns whose values no two rows count twice: no means, peaks, or what nests
    section: str = ""  # the section of the report that shows its rows; empty: the one of all analyses
    about_layers: bool = False  # whether what the ledger has on tables over layers concerns it
    by_step: bool = True  # whether --steps applies; reports of other tools always take the whole trace
    each_step: bool = False  # whether it is of single steps even where a mean, or all of them, was asked for
    read: str = ""  # how to read its figure and table, in one sentence; empty: the columns say all
    reads: Mapping[str, Sequence[str]] | None = None
    """What of a capture its table is made from, links, layers and steps not being among it; None: anything.

    Sorts of rows (kernels, copies, calls, ranges) with columns of `spans` beside their times.
    """

    @property
    def doc(self) -> str:
        """What one row is and in which order rows come."""
        return (self.function.__doc__ or "").strip()

    def key_of(self, present: Sequence[Column]) -> Sequence[str]:
        """Which of the columns that a table has tell its rows apart."""
        if self.key is None:
            return [c.name for c in present if c.role is Role.KEY]
        return [c.name for c in present if c.name in self.key or (c.optional and self.key)]


def analysis(
    id: str,  # noqa: A002 (the field's name)
    title: str,
    *,
    needs: Sequence[Need],
    columns: Sequence[Column],
    key: Sequence[str] | None = None,
    additive: Sequence[str] = (),
    section: str = "",
    about_layers: bool = False,
    figure: FigureSpec | None = None,
    by_step: bool = True,
    each_step: bool = False,
    read: str = "",
    reads: Mapping[str, Sequence[str]] | None = None,
) -> Callable[[Callable[[StepView], pl.LazyFrame]], Analysis]:
    """Turns `name(frames) -> LazyFrame` into an Analysis."""

    def wrap(function: Callable[[StepView], pl.LazyFrame]) -> Analysis:
        return Analysis(
            id,
            title,
            needs,
            columns,
            function,
            figure=figure,
            key=key,
            additive=additive,
            section=section,
            about_layers=about_layers,
            by_step=by_step,
            each_step=each_step,
            read=read,
            reads=reads,
        )

    return wrap


@dataclass(frozen=True, repr=False)
class Result:
    """An analysis's answer: the table with its columns, where it comes from, and what it does not cover."""

    analysis: Analysis
    table: pl.DataFrame
    columns: Sequence[Column]
    ledger_of: Callable[[], pl.DataFrame]
    provenance_of: Callable[[], Mapping[str, object]] = dict

    @cached_property
    def ledger(self) -> pl.DataFrame:
        """What the table does not cover: worked out when first asked for, as CSV, say, has no place for it."""
        return self.ledger_of()

    @cached_property
    def provenance(self) -> Mapping[str, object]:
        """Where the numbers come from, likewise."""
        return self.provenance_of()

    def to_polars(self) -> pl.DataFrame:
        """The table: times in ns, sizes in bytes, shares in 0..1, unknown is null."""
        return self.table

    def to_pandas(self) -> pd.DataFrame:
        """The table for people who live in pandas; XspError where it is not installed."""
        require("pandas", purpose="to_pandas()", extra="pandas")
        return self.table.to_pandas()

    def to_arrow(self) -> pa.Table:
        """The table for other programs."""
        return self.table.to_arrow()


def run(analysis: Analysis, frames: StepView) -> Result:
    """Computes the analysis; XspError in one sentence where the trace lacks a level that it needs.

    Raises:
        ContractError: The answer is not what the analysis declares, which is a bug of it.
    """
    missing = [need for need in analysis.needs if not holds(frames.of_trace, need)]
    if missing:
        what, advice = advice_on(missing[0])
        raise XspError(f"{analysis.id} ({analysis.title}) needs {what}, which this trace does not hold", advice=advice)
    table = _select_declared(analysis, analysis.function(frames)).collect()
    if not _knows_times(frames.of_trace):
        table = _without_times(table, analysis.columns)
    _check(analysis, table, averaged=analysis.by_step and frames.is_mean)
    columns = [replace(c, dtype=table.schema[c.name]) for c in analysis.columns if c.name in table.columns]

    def about() -> StepView:
        if not analysis.by_step:
            return frames.of_all_steps
        return frames.of_each_step if analysis.each_step and frames.choice.number is None else frames

    def ledger() -> pl.DataFrame:
        on_work = not {"operators", "work"}.isdisjoint(map(str, analysis.needs))
        return coverage.ledger(about(), on_layers=analysis.about_layers, on_work=on_work)

    def provenance() -> Mapping[str, object]:
        return coverage.provenance(about(), on_layers=analysis.about_layers)

    return Result(analysis, table, columns, ledger, provenance)


def _select_declared(analysis: Analysis, answer: pl.LazyFrame) -> pl.LazyFrame:
    """The declared columns in their order: what else an analysis worked with is no part of its answer, nor computed."""
    names = set(answer.collect_schema().names())
    return answer.select(c.name for c in analysis.columns if c.name in names)


def _knows_times(view: TraceView) -> bool:
    """Whether it says when anything was: a record of memory alone does, and nothing in it lasts.

    Steps, samples and results of a run without spans have times, too, and a load test's summary of all its queries.
    """
    tables = ("allocations", "step_times", "counters", "accuracies")
    return view.is_timed or any(map(view.trace.height, tables)) or bool(view.once(load_tests))


def _without_times(table: pl.DataFrame, columns: Sequence[Column]) -> pl.DataFrame:
    """The table with all times unknown: sums over activities of which none has a duration would be 0."""
    times = {c.name for c in columns if c.unit == "ns" and c.role is not Role.KEY}
    return table.with_columns(pl.lit(None, kind).alias(n) for n, kind in table.schema.items() if n in times)


def _check(analysis: Analysis, table: pl.DataFrame, *, averaged: bool) -> None:
    """ContractError where the table, which has declared columns alone, is not what the analysis declares."""
    missing = [c.name for c in analysis.columns if not c.optional and c.name not in table.columns]
    if missing:
        raise ContractError(f"{analysis.id} answers without {', '.join(missing)}")
    unknown = {*(analysis.key or ()), *analysis.additive} - {c.name for c in analysis.columns}
    if unknown:
        raise ContractError(f"{analysis.id} has keys or sums that are no columns: {', '.join(sorted(unknown))}")
    present = [c for c in analysis.columns if c.name in table.columns]
    for column in present:
        _check_values(analysis, column, table[column.name], averaged=averaged)
    _check_keys(analysis, present, table)


def _check_values(analysis: Analysis, column: Column, values: pl.Series, *, averaged: bool) -> None:
    if not column.admits(values.dtype, averaged=averaged):
        declared = column.type_of(averaged=averaged)
        raise ContractError(f"{analysis.id}.{column.name} is {values.dtype}, declared is {declared}")
    if values.dtype.is_float() and not values.is_finite().all():
        raise ContractError(f"{analysis.id}.{column.name} holds NaN or an infinity; what is unknown is null")


def _check_keys(analysis: Analysis, present: Sequence[Column], table: pl.DataFrame) -> None:
    names = analysis.key_of(present)
    if names and table.select(names).is_duplicated().any():
        raise ContractError(f"{analysis.id} has several rows of one {', '.join(names)}")
