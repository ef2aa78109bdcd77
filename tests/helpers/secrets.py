"""Secrets planted into every text of a file, each of its own number, so that an output tells where it has one from."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from fuzz import wire

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["Planter"]

_NUMBER = re.compile(r"\s*[-+]?(0x[0-9a-fA-F]+|\d[\d.,:eE+-]*)\s*")
_SECRET = re.compile(r"zq(\d{4})zq")
_NVPROF = re.compile(r"==\d+== ")
_OPEN = ("", "traceEvents", "args", "nodes", "spans", "devices")  # what a reader takes from these, it takes by its name
_PRIVATE = ("hostname", "user", "cwd", "command_line", "argv", "file")
_TABLES = ("META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV")  # of Nsight Systems: command lines, environments, users
_LENGTH_DELIMITED = 2  # wire type
_PLANE = b"/host:"  # how names of an XSpace's planes begin
_HOST_NAMES = 4  # of an XSpace
_ARROW_STREAM = b"\xff\xff\xff\xff"


@dataclass
class Planter:
    """Appends `zqNNNNzq` to texts; NNNN is of where they stand: keys, columns or field numbers from the outermost."""

    spared: Collection[str] = ()  # needed to recognise or read the file
    origins: list[str] = field(default_factory=list)

    def planted(self, content: bytes) -> bytes:
        """The file with every text changed that is neither a number nor spared."""
        if content.startswith(b"\x1f\x8b"):
            return gzip.compress(self.planted(gzip.decompress(content)), 1, mtime=0)
        if content.startswith(b"SQLite format 3\0"):
            return self._database(content)
        if content.startswith((b"PAR1", _ARROW_STREAM)):
            return self._columns(content)
        try:
            text = content.decode()
        except UnicodeDecodeError:
            text = "\0"
        if "\0" not in text:
            return self._text(text).encode()
        host = wire.field_bytes((_HOST_NAMES, _LENGTH_DELIMITED, self.secret(f"/+{_HOST_NAMES}").encode()))
        return self._message(content, "") + (host if _PLANE in content else b"")

    def sources(self, outputs: Iterable[str]) -> list[str]:
        """Where the secrets in these texts had been planted."""
        numbers = {int(number) for text in outputs for number in _SECRET.findall(text)}
        return sorted(self.origins[number] for number in numbers)

    def secret(self, origin: str) -> str:
        if origin not in self.origins:
            self.origins.append(origin)
        return f"zq{self.origins.index(origin):04}zq"

    def _value(self, text: str, origin: str) -> str:
        if not text or origin in self.spared or _NUMBER.fullmatch(text):
            return text
        return text + self.secret(origin)

    def _tree(self, node: Any, origin: str) -> Any:  # noqa: ANN401 (JSON)
        if isinstance(node, str):
            return self._value(node, origin)
        if isinstance(node, list):
            return [self._tree(each, origin) for each in node]
        if isinstance(node, dict):
            added = (
                self._added(node, origin)
                if origin.rpartition("/")[2] in _OPEN and not origin.startswith("line")
                else {}
            )
            return {key: self._tree(each, f"{origin}/{key}") for key, each in node.items()} | added
        return node

    def _added(self, node: Collection[str], origin: str) -> dict[str, Any]:
        """What a profiler's next version may write besides: no reader takes it up by itself."""
        secrets: dict[str, Any] = {key: self.secret(f"{origin}/+{key}") for key in _PRIVATE if key not in node}
        if "environment" not in node:
            secrets["environment"] = {"TOKEN": self.secret(f"{origin}/+environment")}
        return secrets

    def _text(self, text: str) -> str:
        try:
            return json.dumps(self._tree(json.loads(text), ""))
        except ValueError:
            pass
        lines = text.splitlines()
        if any("{" in line and line.rstrip(", ").endswith("}") for line in lines[:3]):
            return "\n".join(map(self._json_line, lines)) + "\n"
        return self._table(lines) if any("," in line for line in lines) else text

    def _json_line(self, line: str) -> str:
        head, brace, rest = line.partition("{")
        body = rest.rstrip().removesuffix(",")
        try:
            return head + json.dumps(self._tree(json.loads(brace + body), "line")) + rest[len(body) :]
        except ValueError:
            return line

    def _table(self, lines: list[str]) -> str:
        header: list[str] = []
        written = []
        for line in lines:
            row = next(csv.reader([line]), [])
            if _NVPROF.match(line):
                written.append(line + self.secret("nvprof's own lines"))
                continue
            if len(row) > 1 and len(row) != len(header):
                header = row
            written.append(self._row(line, row, header))
        return "\n".join(written) + "\n"

    def _row(self, line: str, row: list[str], header: list[str]) -> str:
        if len(row) < 2 or row == header:
            return line
        cells = [self._value(cell, column) for cell, column in zip(row, header, strict=True)]
        out = io.StringIO()
        csv.writer(out, quoting=csv.QUOTE_ALL if '"' in line else csv.QUOTE_MINIMAL).writerow(cells)
        return out.getvalue().rstrip() if cells != row else line

    def _database(self, content: bytes) -> bytes:
        with closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(content)
            database.text_factory = lambda text: text.decode(errors="replace")
            query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            for (table,) in database.execute(query).fetchall():
                for row in database.execute(f'PRAGMA table_info("{table}")').fetchall():
                    self._cells(database, table, row[1])
            for table in _TABLES:
                database.execute(f"CREATE TABLE IF NOT EXISTS {table} (name TEXT, value TEXT)")
                database.execute(f"INSERT INTO {table} (name, value) VALUES (?, ?)", [self.secret(f"+{table}")] * 2)  # noqa: S608
            database.commit()
            return database.serialize()

    def _cells(self, database: sqlite3.Connection, table: str, column: str) -> None:
        texts = database.execute(
            f'SELECT DISTINCT "{column}" FROM "{table}" WHERE typeof("{column}") = \'text\''  # noqa: S608 (of a fixture)
        )
        for (text,) in texts.fetchall():
            if (new := self._value(text, f"{table}.{column}")) != text:
                with suppress(sqlite3.IntegrityError):  # of a closed set of words
                    database.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE "{column}" = ?', (new, text))  # noqa: S608

    def _columns(self, content: bytes) -> bytes:
        if content.startswith(b"PAR1"):
            out = io.BytesIO()
            pq.write_table(self._of_arrow(pq.read_table(io.BytesIO(content))), out)
            return out.getvalue()
        source, out = pa.BufferReader(content), io.BytesIO()
        while source.tell() < len(content):
            table = self._of_arrow(pa.ipc.open_stream(source).read_all())
            with pa.ipc.new_stream(out, table.schema) as writer:
                writer.write_table(table)
        return out.getvalue()

    def _of_arrow(self, table: Any) -> Any:  # noqa: ANN401 (pyarrow has no types for checkers)
        for index, name in enumerate(table.column_names):
            column = table.column(index)
            if pa.types.is_string(column.type):
                texts = [text and self._value(text, name) for text in column.to_pylist()]
                table = table.set_column(index, name, pa.array(texts, type=column.type))
        return table

    def _message(self, content: bytes, origin: str) -> bytes:
        return b"".join(
            wire.field_bytes((number, kind, self._field(value, f"{origin}/{number}")))
            for number, kind, value in wire.wire_fields(content) or ()
        )

    def _field(self, value: int | bytes, origin: str) -> int | bytes:
        if not isinstance(value, bytes) or not value:
            return value
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = "\0"
        if text.isprintable():
            return self._value(text, origin).encode()
        return self._message(value, origin) if wire.wire_fields(value) else value
