"""Bundles from strangers: whatever is wrong with one is said in a sentence before any of its rows is used."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import xsp
from tests.helpers.model_sample import sample_trace
from xsp import opening
from xsp.cli.main import main
from xsp_analyze.sql import query
from xsp_model import XspError, bundle, integrity
from xsp_model import bundle as bundle_rows
from xsp_model.bundle import MANIFEST, file_entry
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from xsp_model import Trace

_BOMB_ROWS = 30 << 20


@pytest.fixture(name="written", scope="module")
def fixture_written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / "sample.xsp"
    bundle.write(sample_trace(), path)
    return path


@pytest.fixture(name="copy")
def fixture_copy(written: Path, tmp_path: Path) -> Path:
    shutil.copytree(written, tmp_path / "copy.xsp")
    return tmp_path / "copy.xsp"


@pytest.fixture(autouse=True)
def fixture_nothing_waits() -> Iterator[None]:
    """A pipe that is opened would wait for its writer for ever."""
    signal.alarm(300)
    yield
    signal.alarm(0)


def _edited(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    manifest = json.loads((path / MANIFEST).read_text())
    edit(manifest)
    (path / MANIFEST).write_text(json.dumps(manifest))


def _sealed(path: Path) -> None:
    """The manifest says of the files what they are now, as whoever forges a bundle would make it."""

    def seal(manifest: dict[str, Any]) -> None:
        manifest["files"] = {file.name: file_entry(file) for file in path.glob("*.parquet")}
        for file in path.glob("*.parquet"):
            try:
                manifest["rows"][file.stem] = pq.read_metadata(file).num_rows
            except (pa.ArrowException, OSError):
                continue

    _edited(path, seal)


def _with(path: Path, table: str, **columns: pl.Expr | pl.Series) -> None:
    """Columns are replaced, and their types stay."""
    schema = TABLES[table].schema
    frame = pl.DataFrame(pq.read_table(path / f"{table}.parquet")).with_columns(**columns)
    loose = pa.schema([f.with_nullable(True) for f in schema])  # noqa: FBT003 (pyarrow's signature)
    pq.write_table(pa.Table.from_arrays(frame.to_arrow().cast(loose).columns, schema=schema), path / f"{table}.parquet")
    _sealed(path)


def _stored(path: Path, table: str, change: Callable[[pa.Table], pa.Table]) -> None:
    file = path / f"{table}.parquet"
    pq.write_table(change(pq.read_table(file)), file)
    _sealed(path)


def _retyped(table: pa.Table, column: str, kind: pa.DataType) -> pa.Table:
    at = table.schema.get_field_index(column)
    return table.set_column(at, column, table[column].cast(kind))


_SPANS: dict[str, tuple[dict[str, pl.Expr | pl.Series], str]] = {
    "a parent that is no span": ({"parent_id": pl.lit(99)}, "spans.parent_id refers to no span"),
    "a negative parent": ({"parent_id": pl.lit(-1)}, "spans.parent_id refers to no span"),
    "a layer that is no span": ({"layer_id": pl.lit(1 << 40)}, "spans.layer_id refers to no span"),
    "a run that is none": ({"run_id": pl.lit(3)}, "a span belongs to no run"),
    "ids that do not count": ({"span_id": pl.lit(0)}, "spans.span_id does not count the rows"),
    "no order": ({"start_ns": -pl.col("start_ns")}, "spans are not in order of start"),
    "a negative duration": ({"duration_ns": -pl.col("duration_ns")}, "a span has a negative duration"),
    "an end beyond all time": ({"duration_ns": pl.lit((1 << 63) - 1)}, "longer than a computer does"),
    "a start beyond all time": ({"start_ns": pl.lit(1 << 62)}, "longer than a computer does"),
    "its own parent": ({"parent_id": pl.col("span_id")}, "a span is its own parent"),
    "a circle of two": ({"parent_id": pl.Series([1, 0, None, None, None, None])}, "the span tree has a cycle"),
    "a circle of five": ({"parent_id": pl.Series([None, 2, 3, 4, 5, 1])}, "the span tree has a cycle"),
    "another level": ({"level": pl.lit("cellar", pl.Categorical)}, "spans.level holds a word outside"),
    "another kind": ({"kind": pl.lit("thing", pl.Categorical)}, "spans.kind holds a word outside"),
}


@pytest.mark.parametrize("case", _SPANS)
def test_rows_that_no_trace_has_are_named_though_checksums_hold(copy: Path, case: str) -> None:
    columns, sentence = _SPANS[case]
    _with(copy, "spans", **columns)
    _refused(copy, sentence)


@pytest.mark.parametrize(
    ("table", "columns", "sentence"),
    [
        ("operators", {"forward_id": pl.lit(6)}, "operators.forward_id refers to no span"),
        ("operators", {"span_id": pl.lit(2)}, "operators.span_id is not unique"),
        ("operators", {"span_id": pl.Series([5, 2])}, "operators is not in order of span_id"),
        ("kernels", {"span_id": pl.lit(99)}, "kernels.span_id refers to no span"),
        ("kernels", {"captured_in_id": pl.lit(-4)}, "kernels.captured_in_id refers to no span"),
        ("ledger", {"run_id": pl.lit(8)}, "a row of ledger belongs to no run"),
    ],
)
def test_references_of_every_table_are_followed(
    copy: Path, table: str, columns: dict[str, pl.Expr], sentence: str
) -> None:
    _with(copy, table, **columns)
    _refused(copy, sentence)


def _without_rows(path: Path, table: str) -> None:
    _stored(path, table, lambda rows: rows.slice(0, 0))


def _a_deep_manifest(path: Path) -> None:
    (path / MANIFEST).write_text('{"format": ' + "[" * 200_000 + "]" * 200_000 + "}")


def _a_long_manifest(path: Path) -> None:
    with (path / MANIFEST).open("wb") as file:
        file.truncate(1 << 33)


def _a_pipe(path: Path) -> None:
    (path / "spans.parquet").unlink()
    os.mkfifo(path / "spans.parquet")


def _a_device(path: Path) -> None:
    (path / "spans.parquet").unlink()
    (path / "spans.parquet").symlink_to("/dev/zero")


def _a_folder(path: Path) -> None:
    (path / "spans.parquet").unlink()
    (path / "spans.parquet").mkdir()


def _a_link_out(path: Path) -> None:
    (path / "spans.parquet").rename(path.parent / "mine.parquet")
    (path / "spans.parquet").symlink_to(path.parent / "mine.parquet")


def _a_link_to_itself(path: Path) -> None:
    (path / "spans.parquet").unlink()
    (path / "spans.parquet").symlink_to("spans.parquet")


def _a_manifest_elsewhere(path: Path) -> None:
    (path / MANIFEST).rename(path.parent / "theirs.json")
    (path / MANIFEST).symlink_to(path.parent / "theirs.json")


def _of_other_bytes(path: Path) -> None:
    content = bytearray((path / "spans.parquet").read_bytes())
    content[len(content) // 3] ^= 1
    (path / "spans.parquet").write_bytes(content)


def _listed_and_gone(path: Path) -> None:
    _edited(path, lambda manifest: manifest.update(schema_version=4))
    (path / "tensors.parquet").unlink()


def _other_rows_than_listed(path: Path) -> None:
    _edited(path, lambda manifest: manifest["rows"].update(spans=7))


def _texts_that_are_none(path: Path) -> None:
    column = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
    )
    schema = TABLES["runs"].schema
    at = schema.get_field_index("model")
    _stored(path, "runs", lambda rows: rows.set_column(at, schema.field(at), column))


def _a_page_that_is_none(path: Path) -> None:
    """Of a column that no rule is about; polars asks for exabytes then."""
    file = path / "spans.parquet"
    at = TABLES["spans"].schema.get_field_index("stream_id")
    content = bytearray(file.read_bytes())
    page = pq.read_metadata(file).row_group(0).column(at).data_page_offset
    content[page : page + 8] = b"\xff" * 8
    file.write_bytes(content)
    _sealed(path)


def _a_bomb(path: Path) -> None:
    zeros = pa.repeat(pa.scalar(0, pa.int64()), 1 << 20)
    rows = pa.Table.from_arrays([zeros] * 3, schema=TABLES["step_times"].schema)
    with pq.ParquetWriter(path / "step_times.parquet", rows.schema, compression="zstd") as out:
        for _ in range(_BOMB_ROWS >> 20):
            out.write_table(rows)
    _sealed(path)


def _a_bomb_in_one_piece(path: Path) -> None:
    zeros = pa.repeat(pa.scalar(0, pa.int64()), 1 << 21)
    rows = pa.Table.from_arrays([zeros] * 3, schema=TABLES["step_times"].schema)
    pq.write_table(rows, path / "step_times.parquet", row_group_size=1 << 21)
    _sealed(path)


_DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "deep manifest": (_a_deep_manifest, "manifest cannot be read"),
    "long manifest": (_a_long_manifest, "manifest is longer than any is"),
    "manifest of another type": (lambda path: (path / MANIFEST).write_text("[]"), "not of an XSP bundle"),
    "manifest of no text": (lambda path: (path / MANIFEST).write_bytes(b"\xff{}"), "manifest cannot be read"),
    "manifest elsewhere": (_a_manifest_elsewhere, "manifest is no file of its own"),
    "files that are no list": (lambda p: _edited(p, lambda m: m.update(files=3)), "lists no files"),
    "rows that are none": (lambda p: _edited(p, lambda m: m.update(rows=[])), "how many rows"),
    "version that is true": (lambda p: _edited(p, lambda m: m.update(schema_version=True)), "not of an XSP bundle"),
    "version that is huge": (lambda p: _edited(p, lambda m: m.update(schema_version=1 << 90)), "a newer XSP"),
    "version long ago": (lambda p: _edited(p, lambda m: m.update(schema_version=-(10**9))), "Convert the source"),
    "pipe": (_a_pipe, "spans.parquet is no file of the bundle's own"),
    "device": (_a_device, "spans.parquet is no file of the bundle's own"),
    "folder": (_a_folder, "spans.parquet is no file of the bundle's own"),
    "link out": (_a_link_out, "spans.parquet is no file of the bundle's own"),
    "link to itself": (_a_link_to_itself, "spans.parquet is no file of the bundle's own"),
    "one bit": (_of_other_bytes, "spans.parquet is not what was written"),
    "missing table": (lambda path: (path / "spans.parquet").unlink(), "lacks its table spans"),
    "missing file of an earlier version": (_listed_and_gone, "lacks its file tensors.parquet"),
    "other rows": (_other_rows_than_listed, "spans.parquet has not as many rows as the manifest says"),
    "missing column": (
        lambda path: _stored(path, "spans", lambda rows: rows.drop_columns("name")),
        "spans.parquet has other columns",
    ),
    "another type": (
        lambda path: _stored(path, "spans", lambda rows: _retyped(rows, "start_ns", pa.float64())),
        "spans.parquet has other columns",
    ),
    "a time": (
        lambda path: _stored(path, "spans", lambda rows: _retyped(rows, "start_ns", pa.timestamp("ns"))),
        "spans.parquet has other columns",
    ),
    "no runs": (lambda path: _without_rows(path, "runs"), "a span belongs to no run"),
    "no spans": (lambda path: _without_rows(path, "spans"), "refers to no span"),
    "no texts": (_texts_that_are_none, "runs.parquet cannot be read"),
    "no page": (_a_page_that_is_none, "spans.parquet cannot be read"),
    "bomb": (_a_bomb, r"step_times.parquet has 31,457,280 rows in [\d,]+ bytes, which no trace has"),
    "bomb in one piece": (_a_bomb_in_one_piece, "step_times.parquet has 2,097,152 rows in"),
}


@pytest.mark.parametrize("case", _DAMAGE)
def test_whatever_is_wrong_is_said(copy: Path, case: str) -> None:
    damage, sentence = _DAMAGE[case]
    damage(copy)
    _refused(copy, sentence)


def _use(path: Path, *, is_own: bool = False) -> Trace:
    trace = bundle.read(path, is_own=is_own)
    for name in TABLES:
        trace.part(name)
    return trace


def _refused(path: Path, sentence: str) -> None:
    with pytest.raises(XspError, match=sentence) as refusal:
        _use(path)
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).startswith(str(path))


@pytest.mark.parametrize("case", ["no texts", "no number", "nothing known"])
def test_what_no_rule_forbids_ends_in_a_sentence_where_an_answer_fails(
    copy: Path, case: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        message = "two rows\nfor one"
        raise AssertionError(message)

    sentence = "no answer can be made of this bundle (AssertionError in "
    if case == "no texts":
        _texts_that_are_none(copy)
        sentence = "runs.parquet cannot be read"
    elif case == "no number":
        row = {"span_id": 0, "metric": "rate", "value": math.nan, "unit": "1", "source": "measured"}
        _stored(copy, "metrics", lambda rows: pa.Table.from_pylist([row], rows.schema))
        sentence = "the bundle is damaged: metrics.value holds what is no finite number"
    monkeypatch.setattr(bundle_rows, "_in_use", WeakSet())  # other tests may still have some
    monkeypatch.setattr(opening, "with_what_is_given", fails)
    assert main(["info", str(copy)]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_an_error_of_ours_is_not_blamed_on_a_bundle_where_none_is_read(
    monkeypatch: pytest.MonkeyPatch, fixtures_dir: Path
) -> None:
    def fails(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(bundle_rows, "_in_use", WeakSet())  # other tests may still have some
    monkeypatch.setattr(opening, "with_what_is_given", fails)
    with pytest.raises(AssertionError):
        main(["info", str(next(fixtures_dir.glob("torch_profiler/*/trace.json*")))])


def test_columns_that_a_query_does_not_name_are_not_looked_at(copy: Path) -> None:
    _with(copy, "spans", parent_id=pl.lit(99))
    trace = bundle.read(copy)
    assert query(trace, "select count(*) as n from spans where duration_ns > 0")["n"].to_list() == [6]
    for text in (
        "select * from spans",
        "from spans",
        "select max(Parent_ID) from spans",
        'select "parent_id" from spans',
    ):
        with pytest.raises(XspError, match=r"spans\.parent_id refers to no span"):
            query(trace, text)


def test_what_was_checked_before_is_still_compared_with_its_checksums(copy: Path) -> None:
    assert bundle.read(copy, is_own=True).row_count == 6
    _of_other_bytes(copy)
    with pytest.raises(XspError, match=r"spans\.parquet is not what was written"):
        bundle.read(copy, is_own=True)


def test_a_bundle_without_checksums_is_read_and_checked_otherwise(copy: Path) -> None:
    _edited(copy, lambda manifest: manifest.pop("files"))
    assert bundle.read(copy).row_count == 6
    _with(copy, "spans", parent_id=pl.Series([1, 0, None, None, None, None]))
    _edited(copy, lambda manifest: manifest.pop("files"))
    _refused(copy, "the span tree has a cycle")


def test_a_link_within_the_bundle_and_one_to_it_are_followed(copy: Path) -> None:
    (copy / "spans.parquet").rename(copy / "kept.parquet")
    (copy / "spans.parquet").symlink_to("kept.parquet")
    (copy.parent / "link.xsp").symlink_to(copy.name)
    assert bundle.read(copy.parent / "link.xsp").row_count == 6


def test_parents_that_come_after_their_children_are_sound(copy: Path) -> None:
    """As where two clocks differ: a kernel seems to start before its launch."""
    _with(copy, "spans", parent_id=pl.Series([None, 0, 1, 4, None, 0]))
    assert bundle.read(copy).frame("spans")["parent_id"].to_list() == [None, 0, 1, 4, None, 0]


@pytest.mark.parametrize("seed", range(40))
def test_any_damage_gives_the_same_answer_or_a_sentence(copy: Path, seed: int) -> None:
    """Bytes of any file, which the checksums know, or which whoever changed them gave new checksums."""
    chance = random.Random(seed)  # noqa: S311 (no secret)
    for _ in range(6):
        file = chance.choice(sorted(copy.iterdir()))
        file.write_bytes(_mutated(file.read_bytes(), chance))
    forged = chance.random() < 0.6
    if forged:
        with suppress(ValueError, AttributeError, TypeError, KeyError):  # the manifest may be none any more
            _sealed(copy)
    try:
        trace = _use(copy)
        rows = {name: trace.table(name) for name in TABLES}
    except XspError:
        return
    assert list(integrity.broken_rules(trace)) == []
    for name in TABLES:
        assert pl.DataFrame(rows[name]).equals(trace.frame(name))
        assert forged or rows[name].equals(sample_trace().table(name))


def _mutated(content: bytes, chance: random.Random) -> bytes:
    data = bytearray(content or b"\0")
    at = chance.randrange(len(data))
    match chance.randrange(4):
        case 0:
            data[at] ^= 1 << chance.randrange(8)
        case 1:
            data[at] = chance.choice((0, 0x7F, 0x80, 0xFF))
        case 2:
            del data[at:]
        case _:
            data[at : at + chance.randrange(1, 9)] = chance.randbytes(chance.randrange(9))
    return bytes(data)


def test_in_python_what_nobody_foresaw_ends_in_a_sentence_too(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(bundle_rows, "_in_use", WeakSet())
    _with(copy, "spans", name=pl.lit("x"))
    _sealed(copy)
    opened = xsp.open(copy)
    monkeypatch.setattr("xsp.api.open_trace.info_of", fails)
    with pytest.raises(XspError, match=r"no answer can be made of this bundle .AssertionError in "):
        opened.info()
