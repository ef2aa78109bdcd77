"""What SQL and Python see: tables of a trace and of analyses, with columns, types, units and a sentence each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from xsp_analyze.catalog import all_analyses
from xsp_model import XspError
from xsp_model.errors import closest
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from xsp_analyze.core import Analysis, Column
    from xsp_model.schema import TableSpec

__all__ = ["describe_tables", "no_table"]

_TYPES = {pa.int64(): "integer", pa.float64(): "float", pa.bool_(): "boolean"}  # of tables; the others are text
_ANSWERED = {pl.Int64(): "integer", pl.Float64(): "float", pl.Boolean(): "boolean", pl.String(): "text"}


def _type_in_words(column: Column) -> str:
    """The type of an analysis's column in words; what is exact over whole steps is a float in a mean step."""
    dtype = column.type_of(averaged=True)
    return _ANSWERED.get(dtype, str(dtype).lower())


def describe_tables(name: str | None = None) -> list[dict[str, object]]:
    """Every table of a trace, or the one named (an analysis by its id): name, doc, columns (name, type, unit, doc).

    Raises:
        XspError: There is no such table or analysis.
    """
    if name is None:
        return [_table(spec) for spec in TABLES.values()]
    if name.lower() in TABLES:
        return [_table(TABLES[name.lower()])]
    for one in all_analyses():
        if one.id.lower() == name.lower():
            return [_analysis(one)]
    raise no_table(name)


def no_table(name: str) -> XspError:
    """The error for a name that is neither a table's nor an analysis's."""
    near = closest(name, [*TABLES, *(one.id for one in all_analyses())])
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    advice = f"Tables: {', '.join(TABLES)}; or an analysis, as `xsp analyses` lists"
    return XspError(f"there is no table {name!r}", advice=meant + advice)


def _table(spec: TableSpec) -> dict[str, object]:
    columns = [
        {"name": c.name, "type": _TYPES.get(c.type, "text"), "unit": c.unit, "nullable": c.nullable, "doc": c.doc}
        for c in spec.columns
    ]
    return {"name": spec.name, "doc": spec.doc, "columns": columns, "order": list(spec.order)}


def _analysis(one: Analysis) -> dict[str, object]:
    columns = [
        {
            "name": c.name,
            "type": _type_in_words(c),
            "unit": c.unit,
            "nullable": True,
            "doc": c.doc,
        }
        for c in one.columns
    ]
    return {"name": one.id, "doc": " ".join(one.doc.split()), "columns": columns, "order": []}
