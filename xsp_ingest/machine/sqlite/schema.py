"""Where a table's rows are and what its records hold, as SQLite itself tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_ingest.machine.sqlite.layout import CannotRead

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

__all__ = ["Table", "table"]


@dataclass(frozen=True, slots=True)
class Table:
    """`column_indices`: of each column its index in a record; `plain`: those without a default value."""

    root: int
    column_indices: Mapping[str, int]
    plain: frozenset[str]
    rowid: str | None  # the column that is another name of the rowid

    def index_of(self, column: str) -> int:
        """A column's index in a record; CannotRead where there is none of exactly this name."""
        if column not in self.column_indices:
            raise CannotRead
        return self.column_indices[column]


def table(connection: sqlite3.Connection, name: str) -> Table:
    """A plain table; CannotRead where it is none, or where `rowid` means a column of its own."""
    roots = connection.execute(
        "SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ? AND sql NOT LIKE 'CREATE VIRTUAL%'",
        (name,),
    ).fetchall()
    columns = connection.execute("SELECT name, type, dflt_value, pk, hidden FROM pragma_table_xinfo(?)", (name,))
    rows = columns.fetchall()
    if len(roots) != 1 or any(hidden for *_, hidden in rows) or any(column.lower() == "rowid" for column, *_ in rows):
        raise CannotRead
    key = [(column, kind) for column, kind, _, pk, _ in rows if pk]
    indexes = connection.execute("SELECT 1 FROM pragma_index_list(?) WHERE origin = 'pk'", (name,)).fetchall()
    # Else the key is an index, as in a table without rowid, or with the key in descending order.
    is_rowid = len(key) == 1 and key[0][1].upper() == "INTEGER" and not indexes
    return Table(
        int(roots[0][0]),
        {column: offset for offset, (column, *_) in enumerate(rows)},
        frozenset(column for column, _, default, *_ in rows if default is None),
        key[0][0] if is_rowid else None,
    )
