"""Columns taken from a SQLite file's pages: what SQLite itself answers, on any table, or no answer."""

from __future__ import annotations

import math
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.guarded import guarded_memory
from fuzz.sqlite_pages import stacked_cells, varint
from tests.helpers import checked_machine
from tests.helpers.examples import examples
from xsp_ingest.files.sqlite import BYTES, INTEGER, NUMBER, Database, read_pages, select_list, table_names
from xsp_ingest.files.values import Among
from xsp_ingest.formats.nsys.sqlite import NSYS_SQLITE
from xsp_ingest.ingester import Options
from xsp_ingest.machine.sqlite import CannotRead, Values, read, reader
from xsp_ingest.machine.sqlite.reader import Room, RowRange
from xsp_model import XspError
from xsp_model.limits import limits, override_limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_ingest.files.sqlite import Take

pytestmark = pytest.mark.only_on("linux", reason="elsewhere SQLite reads pages itself")

# Of every length that SQLite stores numbers in, both ends.
_NUMBERS = sorted(
    {sign * (1 << bits) + more for bits in (0, 7, 15, 23, 31, 47, 63) for sign in (-1, 1) for more in (-1, 0)}
)
_NUMBERS = [n for n in _NUMBERS if -(1 << 63) <= n < 1 << 63]
_REALS = [0.0, -0.0, 0.5, -1.5, 3.0, 1e300, -1e-300, math.inf, -math.inf, math.nan, 9.3e18, float(1 << 53)]
_TEXTS = ["", "a", "12", "-7.5e3x", "ünï", "x" * 57, "y" * 300]
_BLOBS = [b"", b"\xff\x00", b"99", bytes(70)]


@pytest.fixture(autouse=True)
def _any_size() -> Iterator[None]:
    with override_limits(page_reader_min_bytes=0, page_reader_compile_min_bytes=0):
        yield


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)


def _by_pages(path: Path, table: str, takes: Mapping[str, Take], where: Among | None = None) -> list[tuple[Any, ...]]:
    with closing(_open(path)) as connection:
        return read_pages(path, connection, table, takes, where).rows()


def _by_sqlite(path: Path, table: str, takes: Mapping[str, Take], where: Among | None = None) -> list[tuple[Any, ...]]:
    clause = f"WHERE {where.sql}" if where else ""
    with closing(_open(path)) as connection:
        return connection.execute(f'SELECT {select_list(takes)} FROM "{table}" {clause} ORDER BY rowid').fetchall()  # noqa: S608


def _columns(path: Path, table: str) -> list[str]:
    with closing(_open(path)) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]


def _keys(path: Path, table: str) -> list[str]:
    """Columns that may be another name of the rowid, which nobody wants as text."""
    with closing(_open(path)) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?) WHERE pk", (table,))]


def _check(path: Path, table: str, columns: Sequence[str] | None = None) -> None:
    """All ways of taking the columns, one by one and together, give what SQLite gives."""
    columns = _columns(path, table) if columns is None else columns
    for take in (INTEGER, NUMBER, BYTES):
        chosen = [column for column in columns if take != BYTES or column not in _keys(path, table)]
        for takes in [dict.fromkeys(chosen, take)] + [{column: take} for column in chosen]:
            assert _by_pages(path, table, takes) == _by_sqlite(path, table, takes), (table, take, list(takes))


def _make(path: Path, script: str, rows: Sequence[Sequence[object]] = (), *, page: int = 4096) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"PRAGMA page_size = {page}; {script}")
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO t VALUES ({marks})", rows)  # noqa: S608
        connection.commit()
    return path


def _mixed(count: int, seed: int = 0) -> list[tuple[object, ...]]:
    random = Random(seed)  # noqa: S311
    anything = [None, *_NUMBERS, *_REALS, *_TEXTS, *_BLOBS]
    return [
        (random.choice(_NUMBERS), random.choice([*_REALS, 5]), random.choice([*_TEXTS, None]), random.choice(anything))
        for _ in range(count)
    ]


_MIXED = "CREATE TABLE t (i INT, r REAL, s TEXT, any)"


@pytest.mark.parametrize("page", [512, 1024, 4096, 8192, 32768, 65536])
def test_every_type_of_value_on_pages_of_every_size(tmp_path: Path, page: int) -> None:
    _check(_make(tmp_path / "t.db", _MIXED, _mixed(700), page=page), "t")


def test_every_load_and_store_stays_within_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_fill", checked_machine.fill)
    _check(_make(tmp_path / "t.db", _MIXED, _mixed(300), page=512), "t")


def test_rowids_of_any_size_with_gaps_and_below_zero(tmp_path: Path) -> None:
    rowids = [-(1 << 63) + 1, -(1 << 40), -129, -1, 0, 1, 5, 200, 1 << 14, 1 << 35, (1 << 63) - 2, (1 << 63) - 1]
    more = range(1000, 9000, 7)
    path = _make(
        tmp_path / "t.db", "CREATE TABLE t (k INTEGER PRIMARY KEY, v INT)", [(k, k) for k in (*rowids, *more)], page=512
    )
    _check(path, "t", ["v"])
    takes = {"k": INTEGER, "v": INTEGER}
    assert _by_pages(path, "t", takes) == [(k, k, k) for k in sorted((*rowids, *more))]


def test_the_smallest_rowid_of_all_is_left_to_sqlite(tmp_path: Path) -> None:
    path = _make(tmp_path / "t.db", "CREATE TABLE t (k INTEGER PRIMARY KEY, v INT)", [(-(1 << 63), 1), (0, 2)])
    with pytest.raises(CannotRead):
        _by_pages(path, "t", {"v": INTEGER})


def test_deleted_and_changed_rows_leave_holes_in_pages(tmp_path: Path) -> None:
    path = _make(tmp_path / "t.db", _MIXED, _mixed(3000), page=1024)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM t WHERE rowid % 3 = 0 OR rowid BETWEEN 500 AND 1200")
        connection.execute("UPDATE t SET s = 'another, longer text', i = rowid WHERE rowid % 5 = 1")
        connection.commit()
        _check(path, "t")
        connection.execute("VACUUM")
    _check(path, "t")


def test_tables_whose_pages_alternate(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        connection.executescript(
            "PRAGMA page_size = 512; CREATE TABLE t (a INT, b TEXT); CREATE TABLE u (a INT, b TEXT)"
        )
        for n in range(3000):
            connection.execute(f"INSERT INTO {'tu'[n % 2 or n % 11 < 8]} VALUES (?, ?)", (n, "z" * (n % 60)))  # noqa: S608
        connection.commit()
    for table in "tu":
        _check(tmp_path / "t.db", table)


@pytest.mark.parametrize("spread", [1, 3])
def test_pages_that_lie_far_apart_are_read_one_by_one(tmp_path: Path, spread: int) -> None:
    path = tmp_path / "t.db"
    rows = [(Random(n).randrange(1 << 40), n) for n in range(4000)]  # noqa: S311
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("PRAGMA page_size = 512; CREATE TABLE t (k INTEGER PRIMARY KEY, n INT)")
        connection.executemany("INSERT OR IGNORE INTO t VALUES (?, ?)", rows)  # pages split all over the file
        connection.commit()
    with override_limits(page_reader_piece_bytes=2048, page_reader_max_spread=spread):
        _check(path, "t", ["n"])


def test_threads_that_read_have_the_limits_of_whoever_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill, pieces = reader._fill, []

    def noted(*arguments: Any) -> None:  # noqa: ANN401 (as they are)
        pieces.append(limits().page_reader_piece_bytes)
        fill(*arguments)

    monkeypatch.setattr(reader, "_fill", noted)
    path = _make(tmp_path / "t.db", _MIXED, _mixed(100), page=512)
    with override_limits(page_reader_piece_bytes=2048):
        _by_pages(path, "t", {"i": INTEGER})
    assert set(pieces) == {2048}


def test_columns_added_later_are_null_or_have_their_default(tmp_path: Path) -> None:
    path = _make(tmp_path / "t.db", "CREATE TABLE t (a INT)", [(n,) for n in range(500)], page=512)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("ALTER TABLE t ADD COLUMN b INT; ALTER TABLE t ADD COLUMN c INT DEFAULT 7")
        connection.execute("ALTER TABLE t ADD COLUMN d TEXT DEFAULT 'ten'")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", [(n, n, None, None) for n in range(500, 900)])
        connection.commit()
    _check(path, "t")


def test_texts_that_go_on_on_other_pages(tmp_path: Path) -> None:
    lengths = [*range(430, 530), 5000, 100_000, *[3] * 300]
    rows = [("é" * n, n, None if n % 2 else n) for n in lengths]
    path = _make(tmp_path / "t.db", "CREATE TABLE t (s TEXT, a INT, b INT)", rows, page=512)
    _check(path, "t")


@override_limits(page_reader_max_deferred_rows=10)
def test_too_many_rows_to_ask_for_are_left_to_sqlite(tmp_path: Path) -> None:
    path = _make(tmp_path / "t.db", "CREATE TABLE t (a)", [("text",)] * 40)
    with pytest.raises(CannotRead):
        _by_pages(path, "t", {"a": INTEGER})
    assert _by_pages(path, "t", {"a": BYTES}) == [(n, b"text") for n in range(1, 41)]


def test_only_rows_among_those_asked_for(tmp_path: Path) -> None:
    path = _make(
        tmp_path / "t.db",
        "CREATE TABLE t (kind, a INT)",
        [(k, n) for n, k in enumerate([1, 2, "2", 2.0, 2.5, None] * 90)],
    )
    for where in (Among("kind", (2,)), Among("kind", (1, 3)), Among("kind", ()), Among("a", (7, 8))):
        takes = {"a": INTEGER}
        assert _by_pages(path, "t", takes, where) == _by_sqlite(path, "t", takes, where)


@pytest.mark.parametrize("vacuum", ["NONE", "FULL", "INCREMENTAL"])
def test_files_with_maps_of_pointers(tmp_path: Path, vacuum: str) -> None:
    _check(_make(tmp_path / "t.db", f"PRAGMA auto_vacuum = {vacuum}; VACUUM; {_MIXED}", _mixed(900), page=512), "t")


def test_pages_with_room_kept_for_others(tmp_path: Path) -> None:
    path = _make(tmp_path / "t.db", "VACUUM")
    content = bytearray(path.read_bytes())
    content[20] = 48  # bytes of each page that are not SQLite's
    content[105:107] = struct.pack(">H", 4096 - 48)
    path.write_bytes(content)
    _check(_make(path, _MIXED, _mixed(900)), "t")
    assert path.read_bytes()[20] == 48


def test_an_empty_table_is_left_to_sqlite(tmp_path: Path) -> None:
    path = _make(tmp_path / "t.db", _MIXED)
    with pytest.raises(CannotRead):
        _by_pages(path, "t", {"i": INTEGER})


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE t (a INT PRIMARY KEY, b INT) WITHOUT ROWID; INSERT INTO t VALUES (1, 2)",
        "CREATE TABLE u (a INT, b INT); INSERT INTO u VALUES (1, 2); CREATE VIEW t AS SELECT * FROM u",
        "CREATE TABLE t (b INT, a INT AS (b + 1)); INSERT INTO t VALUES (2)",
        "CREATE TABLE t (a INT, RowId INT); INSERT INTO t VALUES (2, 3)",
        "PRAGMA encoding = 'UTF-16'; CREATE TABLE t (a INT); INSERT INTO t VALUES (2)",
    ],
    ids=["without rowid", "view", "generated", "a column called rowid", "UTF-16"],
)  # fmt: skip
def test_tables_of_other_kinds_are_left_to_sqlite(tmp_path: Path, script: str) -> None:
    path = _make(tmp_path / "t.db", script)
    with pytest.raises(CannotRead):
        _by_pages(path, "t", {"a": INTEGER})


def test_a_key_in_descending_order_is_not_the_rowid(tmp_path: Path) -> None:
    script = "CREATE TABLE t (a INTEGER PRIMARY KEY DESC, b INT); INSERT INTO t VALUES (50, 1), (40, 2)"
    path = _make(tmp_path / "t.db", script)
    assert _by_pages(path, "t", {"a": INTEGER}) == [(1, 50), (2, 40)]


@pytest.mark.parametrize("suffix", ["-journal", "-wal"])
def test_a_file_that_is_being_written_is_left_to_sqlite(tmp_path: Path, suffix: str) -> None:
    path = _make(tmp_path / "t.db", _MIXED, _mixed(5))
    assert _by_pages(path, "t", {"i": INTEGER})
    Path(f"{path}{suffix}").write_bytes(b"x")
    with pytest.raises(CannotRead):
        _by_pages(path, "t", {"i": INTEGER})


def test_a_file_whose_log_was_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"PRAGMA journal_mode = WAL; {_MIXED}")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", _mixed(100))
        connection.commit()
    _check(path, "t")


@override_limits(page_reader_min_bytes=1 << 20)
def test_small_tables_are_left_to_sqlite(tmp_path: Path) -> None:
    path = _make(tmp_path / "t.db", _MIXED, _mixed(100))
    with pytest.raises(CannotRead):
        _by_pages(path, "t", {"i": INTEGER})


@override_limits(page_reader_compile_min_bytes=1 << 20)
def test_nothing_is_compiled_for_a_table_of_medium_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _make(tmp_path / "t.db", _MIXED, _mixed(100))
    monkeypatch.setattr(reader, "is_at_hand", lambda *_: False)
    monkeypatch.setattr(reader, "is_ready", lambda *_: False)
    with pytest.raises(CannotRead):
        _by_pages(path, "t", {"i": INTEGER})


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(data=st.data())
def test_any_history_of_a_table(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("history") / "t.db"
    value = st.one_of(st.none(), st.sampled_from(_NUMBERS), st.integers(-300, 300), st.sampled_from(_REALS),
                      st.text(max_size=90), st.binary(max_size=700))  # fmt: skip
    page = data.draw(st.sampled_from([512, 1024, 4096]))
    kinds = data.draw(
        st.lists(st.sampled_from(["INT", "INTEGER", "REAL", "TEXT", "BLOB", "NUMERIC", ""]), min_size=1, max_size=6)
    )
    columns = [f"c{n}" for n in range(len(kinds))]
    key = data.draw(st.sampled_from(["", "k INTEGER PRIMARY KEY, ", "k INTEGER PRIMARY KEY DESC, "]))
    listed_columns = ", ".join(f"{name} {kind}" for name, kind in zip(columns, kinds, strict=True))
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"PRAGMA page_size = {page}; CREATE TABLE t ({key}{listed_columns})")
        for _ in range(data.draw(st.integers(1, 5))):
            rows = data.draw(st.lists(st.tuples(*[value] * len(columns)), max_size=40))
            times = data.draw(st.sampled_from([1, 1, 7]))
            names, marks = ", ".join(columns), ", ".join("?" * len(columns))
            connection.executemany(f"INSERT INTO t ({names}) VALUES ({marks})", rows * times)  # noqa: S608
            what = data.draw(st.sampled_from(["nothing", "delete", "update", "add", "vacuum"]))
            connection.commit()
            if what == "delete":
                connection.execute("DELETE FROM t WHERE rowid % 2 = ?", (data.draw(st.integers(0, 1)),))
            elif what == "update":
                connection.execute("UPDATE t SET c0 = ? WHERE rowid % 4 = 0", (data.draw(value),))
            elif what == "add":
                columns.append(f"c{len(columns)}")
                connection.execute(
                    f"ALTER TABLE t ADD COLUMN {columns[-1]} {data.draw(st.sampled_from(['', 'DEFAULT 3']))}"
                )
            elif what == "vacuum":
                connection.execute("VACUUM")
            connection.commit()
        (count,) = connection.execute("SELECT count(*) FROM t").fetchone()
    if count:
        _check(path, "t")


def _damaged(content: bytes, random: Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(random.choice([1, 1, 2, 5])):
        at = random.randrange(100 if random.random() < 0.9 else 0, len(damaged))
        what = random.randrange(4)
        if what == 0:
            damaged[at] ^= 1 << random.randrange(8)
        elif what == 1:
            damaged[at] = random.choice([0, 1, 2, 5, 13, 127, 128, 255])
        elif what == 2:
            length = random.choice([2, 4, 8, 64])
            damaged[at : at + length] = random.randbytes(min(length, len(damaged) - at))
        else:
            page = at // 512 * 512
            other = random.randrange(len(damaged) // 512) * 512
            damaged[page : page + 512] = damaged[other : other + 512]
    return bytes(damaged)


@pytest.mark.parametrize("seed", range(8))
def test_damage_never_reaches_beyond_the_memory_nor_changes_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(reader, "_fill", checked_machine.fill)
    rows = [*_mixed(60, seed), (1, 1.0, "long" * 300, 2), *_mixed(30, seed + 1)]
    content = _make(tmp_path / "t.db", _MIXED, rows, page=512).read_bytes()
    random = Random(seed)  # noqa: S311
    answers = 0
    for _ in range(60):
        path = tmp_path / "damaged.db"
        path.write_bytes(_damaged(content, random))
        kinds = random.choice([[INTEGER] * 3, [NUMBER, NUMBER, BYTES], [BYTES] * 4])
        takes = dict(zip(["i", "r", "s", "any"], kinds, strict=False))
        try:
            ours = _by_pages(path, "t", takes)
        except (CannotRead, XspError, sqlite3.Error, UnicodeDecodeError):
            continue
        answers += 1
        assert repr(ours) == repr(_by_sqlite(path, "t", takes))
    assert answers > 5


def _with_leaves(path: Path, cells: int) -> Path:
    """A table whose leaves, but the last, have so many cells that lie on each other, all of one text."""
    rows = [(2000 * n, None, "x" * 4000) for n in range(1, 200)]
    content = bytearray(_make(path, "CREATE TABLE t (k INTEGER PRIMARY KEY, a INT, s TEXT)", rows).read_bytes())
    for start in range(4096, len(content), 4096):
        for rowid, *_ in rows:
            if content[start] == 13 and varint(rowid) + b"\5\0\0" in content[start : start + 4096]:
                content[start : start + 4096] = stacked_cells(4096, cells, rowid, 2)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("cells", [2, 3, 100])
@pytest.mark.parametrize("way", ["checked", "guarded"])
def test_cells_that_overlap_are_refused_before_their_texts_exceed_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cells: int, way: str
) -> None:
    path = _with_leaves(tmp_path / "t.db", cells)
    assert _by_sqlite(path, "t", {"s": BYTES})
    if way == "checked":
        monkeypatch.setattr(reader, "_fill", checked_machine.fill)
    with guarded_memory(), pytest.raises(XspError, match=r"damaged \(cells of a page overlap\)"):
        _by_pages(path, "t", {"s": BYTES})


@pytest.mark.parametrize("moved", [{5: 4}, {5: 6, 6: 5}, dict.fromkeys(range(20), 3)], ids=["twice", "swapped", "one"])
@pytest.mark.parametrize("min_bytes", [0, 1 << 40], ids=["by pages", "by SQLite"])
def test_cells_that_point_into_each_other_are_no_rows(tmp_path: Path, moved: dict[int, int], min_bytes: int) -> None:
    path = _make(tmp_path / "t.db", "CREATE TABLE t (k INTEGER PRIMARY KEY, a INT)", [(n, 100) for n in range(1, 21)])
    content = bytearray(path.read_bytes())
    pointers = [bytes(content[4104 + 2 * n : 4106 + 2 * n]) for n in range(20)]  # of the second page's cells
    for cell, other in moved.items():
        content[4104 + 2 * cell : 4106 + 2 * cell] = pointers[other]
    path.write_bytes(content)
    assert len(_by_sqlite(path, "t", {"a": INTEGER})) == 20  # which takes them for rows
    with (
        override_limits(page_reader_min_bytes=min_bytes),
        pytest.raises(XspError, match=r"damaged \(rows of t are there twice, or out of order\)"),
    ):
        Database(path, frozenset({"t"})).integers("t", ["a"])


def test_a_cell_that_goes_on_to_the_end_of_its_page_overlaps_none(tmp_path: Path) -> None:
    _check(_with_leaves(tmp_path / "t.db", 1), "t", ["a", "s"])


def test_no_text_is_copied_where_there_is_no_room_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _make(tmp_path / "t.db", "CREATE TABLE t (s TEXT)", [("x" * 50,)] * 40)

    def narrow(room: Room, first: int, max_rows: int, text_bytes: int) -> RowRange:
        return RowRange(room, first, max_rows, text_bytes // 8)

    monkeypatch.setattr(reader, "RowRange", narrow)
    with guarded_memory(), pytest.raises(CannotRead):
        _by_pages(path, "t", {"s": BYTES})


@override_limits(page_reader_piece_bytes=512, page_reader_max_spread=1)
def test_a_record_at_the_end_of_a_page_is_not_compared_beyond_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = ", ".join(f"c{n} INT" for n in range(110))
    rows = [[rowid, *[None] * 110] for rowid in (3, 1, 2)]
    path = _make(tmp_path / "t.db", f"CREATE TABLE t (k INTEGER PRIMARY KEY, {columns})", rows, page=512)
    content = bytearray(path.read_bytes())
    content[1020:1024] = bytes([1, 3, 112, 0])  # the third: a byte alone, which says how long the head is
    content[512 + 12 : 512 + 14] = (512 - 4).to_bytes(2, "big")
    path.write_bytes(content)
    monkeypatch.setattr(reader, "_fill", checked_machine.fill)
    with pytest.raises(CannotRead):
        _by_pages(path, "t", {"c0": INTEGER, "c109": INTEGER})


def test_a_cycle_of_pages_ends(tmp_path: Path) -> None:
    path = _make(tmp_path / "t.db", "CREATE TABLE t (a INT)", [(n,) for n in range(3000)], page=512)
    content = bytearray(path.read_bytes())
    root = 512  # page 2
    assert content[root] == 5
    content[root + 8 : root + 12] = struct.pack(">I", 2)
    path.write_bytes(content)
    with pytest.raises(CannotRead):
        _by_pages(path, "t", {"a": INTEGER})


def test_a_file_cut_off_is_left_to_sqlite(tmp_path: Path) -> None:
    path = _make(tmp_path / "t.db", "CREATE TABLE t (a INT)", [(n,) for n in range(3000)], page=512)
    content = path.read_bytes()
    for length in (0, 50, 99, 512, 513, len(content) - 512, len(content) - 1):
        path.write_bytes(content[:length])
        with closing(_open(path)) as connection, pytest.raises((CannotRead, sqlite3.Error)):
            read_pages(path, connection, "t", {"a": INTEGER}, None)


def test_the_reader_of_nsight_files_counts_foreign_bytes_alike(tmp_path: Path) -> None:
    path = _make(tmp_path / "t.db", "CREATE TABLE t (s TEXT)", [("fine",), (None,)])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO t VALUES (CAST(x'61ff62' AS TEXT))")
        connection.commit()
    fast = Database(path, table_names(path))
    texts = fast.texts("t", "s").to_list()
    slow = Database(path, table_names(path))
    with override_limits(page_reader_min_bytes=1 << 30):
        assert texts == slow.texts("t", "s").to_list() == ["fine", None, "a�b"]
    assert fast.unreadable_texts == slow.unreadable_texts == 1


def _all_tables(path: Path) -> None:
    compared = 0
    for table in sorted(table_names(path)):
        try:
            _check(path, table)
            compared += 1
        except CannotRead:
            assert not _by_sqlite(path, table, {}), table
    assert compared


@pytest.fixture
def _anything_may_be_asked() -> Iterator[None]:
    with override_limits(page_reader_max_deferred_rows=1 << 20):
        yield


@pytest.mark.usefixtures("_anything_may_be_asked")
@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(Path("fixtures").rglob("*.sqlite")), ids=lambda path: path.parent.name)
def test_every_cell_of_the_fixtures(path: Path) -> None:
    _all_tables(path)


_SOUND = [path for path in sorted(Path("fixtures").rglob("*.sqlite")) if "bad" not in path.parts]


def _same_traces(path: Path) -> None:
    ours = NSYS_SQLITE.read(path, Options())
    with override_limits(page_reader_min_bytes=1 << 60):
        theirs = NSYS_SQLITE.read(path, Options())
    assert ours.findings == theirs.findings
    for name, frame in ours.tables.items():
        assert frame.equals(theirs.tables[name]), name


@pytest.mark.slow
@pytest.mark.parametrize("path", _SOUND, ids=lambda path: path.parent.name)
def test_traces_of_the_fixtures_are_the_same_either_way(path: Path) -> None:
    _same_traces(path)


@pytest.mark.real
def test_traces_of_real_files_are_the_same_either_way(real_dir: Path) -> None:
    for path in sorted((real_dir / "nsys").glob("*.sqlite")):
        _same_traces(path)


@pytest.mark.real
@pytest.mark.usefixtures("_anything_may_be_asked")
def test_every_cell_of_real_files(real_dir: Path) -> None:
    for path in sorted(real_dir.rglob("*.sqlite")):
        _all_tables(path)


def test_rows_of_two_threads_meet_in_order(tmp_path: Path) -> None:
    path = _make(tmp_path / "t.db", "CREATE TABLE t (a INT)", [(n,) for n in range(20_000)], page=512)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM t WHERE rowid BETWEEN 3000 AND 17500")
        connection.commit()
    with closing(_open(path)) as connection:
        frame = read(path, connection, "t", {"a": Values.INTEGER}).frame
    expected = np.array([*range(1, 3000), *range(17_501, 20_001)])
    assert frame.equals(pl.DataFrame({"rowid": expected, "a": expected - 1}))
