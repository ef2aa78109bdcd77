"""Damage to a SQLite database that SQLite itself finds sound: hostile cells, lost rows, tables and columns."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from fuzz import hostile

if TYPE_CHECKING:
    from random import Random

__all__ = ["damage"]

_BLOB = b"\xff\xfe\x00blob"


def damage(content: bytes, random: Random) -> bytes | None:
    """The database with up to eight changes; None where it is none."""
    try:
        with closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(content)
            for _ in range(random.choice([1, 2, 8])):
                with suppress(sqlite3.Error, OverflowError):
                    _change(database, random)
            database.commit()
            return database.serialize()
    except sqlite3.Error:
        return None


def _change(database: sqlite3.Connection, random: Random) -> None:
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    if not tables:
        return
    filled = [t for t in tables if database.execute(f'SELECT 1 FROM "{t}" LIMIT 1').fetchone()]
    table = random.choice(filled or tables)
    columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
    column = random.choice(columns)
    rows = [row for (row,) in database.execute(f'SELECT rowid FROM "{table}"')]
    chosen = random.sample(rows, min(len(rows), random.choice([1, 1, 3, 1000])))
    marks = ",".join("?" * len(chosen))
    action = random.randrange(12)
    if action == 0:
        database.execute(f'DELETE FROM "{table}" WHERE rowid IN ({marks})', chosen)
    elif action == 1:
        database.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}" WHERE rowid IN ({marks})', chosen)
    elif action == 2:
        database.execute(f'DROP TABLE "{table}"')
    elif action == 3:
        database.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
    elif action == 4:
        database.execute(f'UPDATE "{table}" SET "{column}" = "{random.choice(columns)}"')
    else:
        database.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid IN ({marks})', [_cell(random), *chosen])


def _cell(random: Random) -> object:
    numbers = [n for n in hostile.NUMBERS if -(2**63) <= n < 2**63]
    texts = [hostile.text(random).encode(errors="replace").decode(), hostile.number_text(random)]
    return random.choice([random.choice(numbers), random.choice(numbers), *texts, None, 1e308, 0.5, _BLOB])
