"""What an analysis is, and what it answers with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from xsp_model import XspError
from xsp_model.vocabulary import LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from xsp_analyze.frames.view import View

__all__ = ["Analysis", "Column", "FigureSpec", "Result", "Role", "analysis", "run", "words_of_need"]


_NEEDS = {  # what is no level: in words, and how to get it
    "metrics": ("hardware counters", "Measure them in a run of their own (ncu --csv) and join it with xsp merge"),
    "communication": ("communication kernels (NCCL, RCCL)", ""),
    "leveled": ("runs at several levels", "Join them with xsp merge"),
    "power": (
        "samples of power",
        "Record them beside the run (the nvml runner), and name their file in the run's run.json",
    ),
}


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
    needs: Sequence[str]
    columns: Sequence[Column]
    function: Callable[[View], pl.LazyFrame]
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
    needs: Sequence[str],
    columns: Sequence[Column],
    figure: FigureSpec | None = None,
    by_step: bool = True,
    read: str = "",
    reads: Mapping[str, Sequence[str]] | None = None,
) -> Callable[[Callable[[View], pl.LazyFrame]], Analysis]:
    """Turns `name(view) -> LazyFrame` into an Analysis."""

    def wrap(function: Callable[[View], pl.LazyFrame]) -> Analysis:
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

    def __str__(self) -> str:
        """As `xsp analyze` prints it."""
        from xsp_analyze.render.terminal import render  # noqa: PLC0415 (renderers import this module)

        return render(self)

    __repr__ = __str__  # what a Python prompt shows

    def _repr_html_(self) -> str:
        """What a notebook shows: the first rows in units for people, and what they do not cover."""
        from xsp_analyze.render.html import result  # noqa: PLC0415 (likewise)

        return result(self)


def words_of_need(need: str) -> str:
    """A level, table or other thing that an analysis needs, in words."""
    return _NEEDS[need][0] if need in _NEEDS else f"{need} level" if need in LEVELS else need


def run(wanted: Analysis, view: View) -> Result:
    """Computes the analysis; XspError in one sentence where the trace lacks a level that it needs."""
    missing = [need for need in wanted.needs if not view.has(need)]
    if missing:
        what, advice = _NEEDS.get(missing[0], (f"the level {' and '.join(missing)}", ""))
        raise XspError(f"{wanted.id} ({wanted.title}) needs {what}, which this trace does not hold", advice=advice)
    table = wanted.function(view).collect()
    # Times are exact Int64 ns over whole steps and Float64 in a mean step: the Result says which it holds.
    types = table.schema
    columns = [replace(c, dtype=types[c.name]) for c in wanted.columns if c.name in types]
    # Tables of kernels, and those that are the same whatever the steps (Nsight's own reports), know no layers.
    beside = ("kernel" in wanted.needs or not wanted.by_step) and not {"layer", "layers"} & set(wanted.needs)

    def about() -> View:
        return view if wanted.by_step else view.whole

    def ledger() -> pl.DataFrame:
        return about().ledger_beside_layers if beside else about().ledger

    def provenance() -> Mapping[str, object]:
        return about().provenance_beside_layers if beside else about().provenance

    return Result(wanted, table.select(c.name for c in columns), columns, ledger, provenance)
