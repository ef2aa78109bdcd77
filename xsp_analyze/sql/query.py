"""SQL over a trace: its tables, and the analyses that a query names, as polars frames."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.catalog import ANALYSES
from xsp_analyze.core import run
from xsp_analyze.schema import no_table
from xsp_analyze.sql.query_limits import QueryLimits, within
from xsp_analyze.sql.text import LOOK, checked, columns_in, without_comments
from xsp_analyze.trace.step_view import StepView
from xsp_model import XspError
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_model import Trace

__all__ = ["query"]

_DEFAULTS = QueryLimits()
_SCAN = re.compile(r"\bSCAN \[([^\]]*)")
_UNKNOWN_TABLE = re.compile(r"relation '(.*?)' was not found")
_UNKNOWN_COLUMN = re.compile(r"unable to find column \"(.*?)\"(?:; valid columns: \[(.*?)\])?", re.DOTALL)
_MAX_COLUMNS = 30


def query(
    trace: Trace,
    text: str,
    *,
    steps: str | None = None,
    serving_phase: str | None = None,
    limits: QueryLimits = _DEFAULTS,
) -> pl.DataFrame:
    """The answer to one SELECT over the tables of `schema.TABLES` and over analyses by their id (`A10`).

    Words such as `level` are text, times int64 ns, unknown is null. `steps` and `serving_phase` are how analyses see
    the trace. XspError in one sentence where the query is no SELECT, names what is not there, cannot be computed, or
    takes more time or memory than it may.
    """
    text = without_comments(text)
    identifiers = checked(text)
    columns = columns_in(text)
    tables = {name: _plain(trace.scan(name, columns)) for name in TABLES if name in identifiers}
    analyses = [one for one in ANALYSES if one.id.lower() in identifiers]
    frames = StepView.of(trace, steps, serving_phase)
    tables |= {one.id: _plain(run(one, frames).table.lazy()) for one in analyses}
    try:
        return within(limits, lambda: _answer(tables, text))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _for_users(error) from error


def _answer(tables: Mapping[str, pl.LazyFrame], text: str) -> pl.DataFrame:
    planned = pl.SQLContext(tables).execute(text, eager=False)
    own = {path for table in tables.values() for path in _scanned(table)}
    if foreign := [path for path in _scanned(planned) if path not in own]:
        raise XspError(f"a query sees the tables of its trace alone, and not {foreign[0]}", advice=LOOK)
    return planned.collect()


def _scanned(plan: pl.LazyFrame) -> list[str]:
    """The files that the plan reads."""
    return [name.strip() for names in _SCAN.findall(plan.explain(optimized=False)) for name in names.split(",")]


def _plain(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Words as text: LIKE and functions of text take no categories."""
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


def _for_users(error: BaseException) -> XspError:
    message = str(error)
    if match := _UNKNOWN_TABLE.search(message):
        return no_table(match[1])
    if match := _UNKNOWN_COLUMN.search(message):
        return XspError(f"there is no column {match[1]!r}", advice=_columns(match[2]))
    first = message.strip().partition("\n")[0] or type(error).__name__
    return XspError(f"the query cannot be answered: {first.removeprefix('sql parser error: ')}", advice=LOOK)


def _columns(listed: str | None) -> str:
    names = [name.strip().strip('"') for name in listed.split(",")] if listed else []
    if not names or len(names) > _MAX_COLUMNS:
        return LOOK
    return f"What it could be: {', '.join(names)}"
