"""SQLite files whose tables lack columns, as other versions of a tool write them: read, or refused in a sentence."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from xsp_ingest.convert import convert
from xsp_ingest.files.sqlite import Database
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Collection

_FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
_DATABASES = [
    file
    for folder in ("cupti_dump", "nsys_sqlite", "nvprof", "rocprofv3")
    for file in sorted((_FIXTURES / folder).rglob("*"))
    if file.is_file() and file.read_bytes().startswith(b"SQLite format 3") and "bad" not in file.parts
]


def _columns(path: Path) -> dict[str, list[str]]:
    with closing(sqlite3.connect(path)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        tables = [name for (name,) in names if not name.startswith("sqlite_")]
        return {t: [row[1] for row in connection.execute(f'PRAGMA table_info("{t}")')] for t in tables}


def _reduce(path: Path, table: str, kept: Collection[str]) -> None:
    """Leaves the table with these columns alone."""
    columns = ", ".join(f'"{column}"' for column in kept)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA legacy_alter_table = ON")  # views of the table stand in nobody's way
        connection.execute(f'CREATE TABLE "reduced" AS SELECT {columns} FROM "{table}"')  # noqa: S608
        connection.execute(f'DROP TABLE "{table}"')
        connection.execute(f'ALTER TABLE "reduced" RENAME TO "{table}"')
        connection.commit()


@pytest.mark.parametrize("lost", [{"id"}, {"type"}, {"id", "absolute_index"}, {"extdata"}, {"name", "product_name"}])
def test_a_rocpd_database_whose_agents_lack_columns_is_read(tmp_path: Path, lost: set[str]) -> None:
    (source,) = (file for file in _DATABASES if file.parts[-2] == "rocpd_synthetic")
    path = tmp_path / "run.db"
    path.write_bytes(source.read_bytes())
    kernels = convert([path], Options()).frame("kernels").height
    ((table, columns),) = ((t, c) for t, c in _columns(path).items() if t.startswith("rocpd_info_agent"))
    _reduce(path, table, [column for column in columns if column not in lost])
    assert convert([path], Options()).frame("kernels").height == kernels > 0


def test_a_table_without_any_of_the_columns_has_its_rows_nevertheless(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE agent (name TEXT)")
        connection.executemany("INSERT INTO agent VALUES (?)", [("one",), ("two",)])
        connection.commit()
    database = Database(path, frozenset({"agent"}))
    rows = database.integers("agent", ["id"]).with_columns(database.texts("agent", "name"))
    assert rows.rows() == [(1, None, "one"), (2, None, "two")]
    assert rows.schema["id"] == pl.Int64


def test_a_row_that_is_not_found_by_its_number_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE agent (name TEXT)")
        connection.execute("INSERT INTO agent VALUES ('one')")
        connection.commit()
    database = Database(path, frozenset({"agent"}))
    assert database.cells("agent", ["name"], [1]) == [("one",)]
    with pytest.raises(XspError, match="rows of agent are not found by their numbers"):
        database.cells("agent", ["name"], [1, 7])


def test_there_are_databases_of_every_reader_of_sqlite() -> None:
    assert {file.relative_to(_FIXTURES).parts[0] for file in _DATABASES} == {"nsys_sqlite", "nvprof", "rocprofv3"}


@pytest.mark.slow
@pytest.mark.parametrize("source", _DATABASES, ids=lambda file: "/".join(file.parts[-3:-1]))
def test_a_table_that_lacks_half_of_its_columns_ends_in_no_other_error(tmp_path: Path, source: Path) -> None:
    for number, (table, columns) in enumerate(_columns(source).items()):
        for first in range(min(2, len(columns))):
            path = tmp_path / f"{number}-{first}.sqlite"
            path.write_bytes(source.read_bytes())
            _reduce(path, table, columns[first::2])
            with suppress(XspError):
                convert([path], Options())
