"""What an analysis is, and what it answers with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from xsp_analyze.frames import coverage
from xsp_analyze.needs import advice_on
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from xsp_analyze.frames.step_frames import StepFrames
    from xsp_analyze.needs import Need

__all__ = ["Analysis", "Column", "FigureSpec", "Result", "Role", "analysis", "run"]


class Role(StrEnum):
    """What a column is for."""

    KEY = "key"
    LABEL = "label"
    MEASURE = "measure"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a result; `header` is what another tool's CSV calls it, where we speak for that tool."""

    name: str
    dtype: pl.DataType
    doc: str
    unit: str = ""
    role: Role = Role.MEASURE
    header: str | None = None
    decimals: int | None = None  # for `header` tables only: how the other tool rounds


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
    function: Callable[[StepFrames], pl.LazyFrame]
    figure: FigureSpec | None = None
    by_step: bool = True  # whether --steps applies; reports of other tools always take the whole trace
    read: str = ""  # how to read its figure and table, in one sentence; empty: the columns say all
    reads: Mapping[str, Sequence[str]] | None = None
    """What of a capture its table is made from, links, layers and steps not being among it; None: anything.

    Sorts of rows (kernels, copies, calls, ranges) with columns of `spans` beside their times.
    """

    @property
    def doc(self) -> str:
        """What one row is and in which order rows come."""
        return (self.function.__doc__ or "").strip()


def analysis(
    id: str,  # noqa: A002 (the field's name)
    title: str,
    *,
    needs: Sequence[Need],
    columns: Sequence[Column],
    figure: FigureSpec | None = None,
    by_step: bool = True,
    read: str = "",
    reads: Mapping[str, Sequence[str]] | None = None,
) -> Callable[[Callable[[StepFrames], pl.LazyFrame]], Analysis]:
    """Turns `name(view) -> LazyFrame` into an Analysis."""

    def wrap(function: Callable[[StepFrames], pl.LazyFrame]) -> Analysis:
        return Analysis(id, title, needs, columns, function, figure, by_step, read, reads)

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
        """The table for people who live in pandas."""
        return self.table.to_pandas()

    def to_arrow(self) -> pa.Table:
        """The table for other programs."""
        return self.table.to_arrow()


def run(wanted: Analysis, view: StepFrames) -> Result:
    """Computes the analysis; XspError in one sentence where the trace lacks a level that it needs."""
    missing = [need for need in wanted.needs if not view.has(need)]
    if missing:
        what, advice = advice_on(missing[0])
        raise XspError(f"{wanted.id} ({wanted.title}) needs {what}, which this trace does not hold", advice=advice)
    table = wanted.function(view).collect()
    # Times are exact Int64 ns over whole steps and Float64 in a mean step: the Result says which it holds.
    types = table.schema
    columns = [replace(c, dtype=types[c.name]) for c in wanted.columns if c.name in types]
    # Tables of kernels, and those that are the same whatever the steps (Nsight's own reports), know no layers.
    beside = ("kernel" in wanted.needs or not wanted.by_step) and not {"layer", "layers"} & set(wanted.needs)

    def about() -> StepFrames:
        return view if wanted.by_step else view.whole

    def ledger() -> pl.DataFrame:
        return coverage.ledger(about(), on_layers=not beside)

    def provenance() -> Mapping[str, object]:
        return coverage.provenance(about(), on_layers=not beside)

    return Result(wanted, table.select(c.name for c in columns), columns, ledger, provenance)
