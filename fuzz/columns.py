"""Damage to Parquet and Arrow files that stay sound: hostile cells, lost columns, columns of another type."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from fuzz import hostile

if TYPE_CHECKING:
    from random import Random

__all__ = ["damage"]

_PARQUET = b"PAR1"
_ARROW_STREAM = b"\xff\xff\xff\xff"


def damage(content: bytes, random: Random) -> bytes | None:
    """The table with one to four changes; None where the content is neither Parquet nor an Arrow stream."""
    try:
        return _damage(content, random)
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError):
        return None


def _damage(content: bytes, random: Random) -> bytes | None:
    if content.startswith(_PARQUET):
        table = pq.read_table(io.BytesIO(content))
        for _ in range(random.choice([1, 2, 4])):
            table = _change(table, random)
        out = io.BytesIO()
        pq.write_table(table, out)
        return out.getvalue()
    if content.startswith(_ARROW_STREAM):
        return _streams(content, random)
    return None


def _streams(content: bytes, random: Random) -> bytes:
    """Several streams may stand one behind the other; one of them is changed."""
    source = pa.BufferReader(content)
    tables = []
    while source.tell() < len(content):
        tables.append(pa.ipc.open_stream(source).read_all())
    chosen = random.randrange(len(tables))
    tables[chosen] = _change(tables[chosen], random)
    out = io.BytesIO()
    for table in tables:
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
    return out.getvalue()


def _change(table: pa.Table, random: Random) -> pa.Table:
    if not table.num_columns:
        return table
    index = random.randrange(table.num_columns)
    name, column = table.column_names[index], table.column(index)
    action = random.randrange(5)
    if action == 0:
        return table.remove_column(index)
    if action == 1:
        return pa.concat_tables([table, table.slice(0, random.choice([1, 5]))])
    if action == 2:
        return table.set_column(index, name, column.cast(pa.string(), safe=False))
    values: list[Any] = column.to_pylist()
    if values:
        values[random.randrange(len(values))] = _cell(column.type, random)
    return table.set_column(index, name, pa.array(values, type=column.type))


def _cell(kind: Any, random: Random) -> object:  # noqa: ANN401 (pyarrow has no types for checkers)
    if pa.types.is_integer(kind):
        return random.choice([*(n for n in hostile.NUMBERS if _fits(n, kind)), None])
    if pa.types.is_floating(kind):
        return random.choice([float("nan"), float("inf"), 1e308, -1.0, None])
    if pa.types.is_string(kind):
        return hostile.text(random).encode(errors="replace").decode()
    return None


def _fits(number: int, kind: Any) -> bool:  # noqa: ANN401
    try:
        pa.scalar(number, type=kind)
    except (pa.ArrowException, OverflowError):
        return False
    return True
