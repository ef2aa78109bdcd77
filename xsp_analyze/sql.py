"""SQL over a trace: its tables, and the analyses that a query names, as polars frames."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.catalog import ANALYSES
from xsp_analyze.core import run
from xsp_analyze.frames.step_frames import StepFrames
from xsp_analyze.schema import no_table
from xsp_model import XspError
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from xsp_model import Trace

__all__ = ["query"]

_SET_ASIDE = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)  # text and comments: nothing in them counts
_IDENTIFIER = re.compile(r"\w+")
_READS_A_FILE = re.compile(r"\bread_\w+(?=\s*\()", re.IGNORECASE)
_STARTS = {"select", "with", "from"}
_UNKNOWN_TABLE = re.compile(r"relation '(.*?)' was not found")
_UNKNOWN_COLUMN = re.compile(r"unable to find column \"(.*?)\"(?:; valid columns: \[(.*?)\])?", re.DOTALL)
_MAX_COLUMNS = 30


def query(trace: Trace, text: str, *, steps: str | None = None, serving_phase: str | None = None) -> pl.DataFrame:
    """The answer to one SELECT over the tables of `schema.TABLES` and over analyses by their id (`A10`).

    Words such as `level` are text, times int64 ns, unknown is null. `steps` and `serving_phase` are how analyses see
    the trace. XspError in one sentence where the query is no SELECT, names what is not there, or cannot be computed.
    """
    bare = _checked(text)
    identifiers = {identifier.lower() for identifier in _IDENTIFIER.findall(bare)}
    tables = {name: _plain(trace.scan(name)) for name in TABLES if name in identifiers}
    analyses = [one for one in ANALYSES if one.id.lower() in identifiers]
    frames = StepFrames.of(trace, steps, serving_phase)
    tables |= {one.id: _plain(run(one, frames).table.lazy()) for one in analyses}
    try:
        return pl.SQLContext(tables).execute(text, eager=True)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _for_users(error) from error


def _checked(text: str) -> str:
    """The query without text and comments; XspError where it does anything but select from the trace."""
    bare = _SET_ASIDE.sub(" ", text)
    first = _IDENTIFIER.search(bare)
    if first is None or first.group().lower() not in _STARTS:
        raise XspError("a query begins with SELECT (or WITH, or FROM)", advice=_LOOK)
    if reads := _READS_A_FILE.search(bare):
        raise XspError(f"a query sees the tables of its trace alone, so {reads.group()} is not for it", advice=_LOOK)
    return bare


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
    return XspError(f"the query cannot be answered: {first.removeprefix('sql parser error: ')}", advice=_LOOK)


def _columns(listed: str | None) -> str:
    names = [name.strip().strip('"') for name in listed.split(",")] if listed else []
    if not names or len(names) > _MAX_COLUMNS:
        return _LOOK
    return f"What it could be: {', '.join(names)}"


_LOOK = "`xsp schema` lists tables and columns"
