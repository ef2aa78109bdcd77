"""Results as JSON: columns described, one row a line, numbers at full precision."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from xsp_analyze.core import Result

__all__ = ["column_entries", "plain", "render", "render_many"]

_AS_THEY_ARE = frozenset({str, int, bool, type(None)})  # most values of a page: asked first, and without a call


def render(result: Result) -> str:
    """`{"analysis", "title", "columns", "rows", "ledger", "provenance"}`; null is unknown, and no number is NaN."""
    return _object(result) + "\n"


def render_many(results: Sequence[Result]) -> str:
    """A JSON array of such objects."""
    return "[\n" + ",\n".join(_object(r) for r in results) + "\n]\n"


def _object(result: Result) -> str:
    parts = (
        f'"analysis": {_dump_value(result.analysis.id)}',
        f'"title": {_dump_value(result.analysis.title)}',
        f'"columns": {_lines(column_entries(result))}',
        f'"rows": {_lines(result.table.iter_rows(named=True))}',
        f'"ledger": {_lines(result.ledger.iter_rows(named=True))}',
        f'"provenance": {_dump_value(dict(result.provenance))}',
    )
    return "{" + ",\n ".join(parts) + "}"


def column_entries(result: Result) -> list[dict[str, str]]:
    """The entries under `columns`; the type is the table's own, as means over steps are no integers."""
    types = result.table.schema
    return [
        {"name": c.name, "dtype": str(types[c.name]), "unit": c.unit, "role": str(c.role), "doc": c.doc}
        for c in result.columns
    ]


def _lines(rows: Iterable[object]) -> str:
    inner = ",\n  ".join(_dump_value(row) for row in rows)
    return f"[\n  {inner}\n ]" if inner else "[]"


def _dump_value(value: object) -> str:
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


def plain(value: object) -> object:
    """The value in JSON's own types: NaN and infinities are null, sets are sorted, anything else is its text."""
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(str(item) for item in value)
    if isinstance(value, list | tuple):
        return [item if type(item) in _AS_THEY_ARE else plain(item) for item in value]
    return value if isinstance(value, int) else str(value)
