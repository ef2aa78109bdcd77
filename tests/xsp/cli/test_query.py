"""`xsp query` and `xsp schema` as a user meets them."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path

import polars as pl
import pytest

import xsp
from tests.helpers.report_trace import small_trace
from xsp.cli.main import main
from xsp_analyze.catalog import all_analyses
from xsp_analyze.render.frame import as_csv, as_json, as_table
from xsp_analyze.sql import describe_tables
from xsp_model import XspError
from xsp_model.schema import TABLES

_DOCS = Path(__file__).resolve().parents[3] / "docs"
_EXAMPLE = re.compile(r"```sql\n(.*?)```", re.DOTALL)


@pytest.fixture(name="raw")
def fixture_raw(tmp_path: Path) -> Path:
    small_trace(tmp_path)
    return tmp_path / "small.json"


def test_rows_equal_those_of_the_frame(raw: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    text = "select span_id, name, duration_ns, thread_id from spans where level = 'kernel' order by span_id"
    expected = (
        xsp.open(raw)
        .table("spans")
        .with_columns(pl.col("level", "name").cast(pl.String))
        .filter(pl.col("level") == "kernel")
        .select("span_id", "name", "duration_ns", "thread_id")
    )
    for name, read in (("csv", pl.read_csv), ("parquet", pl.read_parquet), ("json", pl.read_json)):
        assert main(["query", str(raw), text, "-f", name]) == 0
        printed = read(io.BytesIO(capsysbinary.readouterr().out)).cast(expected.schema)
        assert printed.equals(expected), name


def test_a_file_does_not_depend_on_the_terminal_that_it_is_asked_from(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = [
        "query",
        str(raw),
        "select a.span_id, a.name, b.name as other, c.name as third from spans a, spans b, spans c",
    ]
    for name in ("table", "parquet"):
        assert main([*ask, "-f", name, "-o", str(tmp_path / f"{name}.piped")]) == 0
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for name in ("table", "parquet"):
        assert main([*ask, "-f", name, "-o", str(tmp_path / f"{name}.typed")]) == 0
        assert (tmp_path / f"{name}.typed").read_bytes() == (tmp_path / f"{name}.piped").read_bytes()


def test_an_analysis_is_a_table_and_steps_are_its(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["query", str(raw), "select sum(duration_ns) as total from a10", "-f", "json"]
    assert main([*ask, "--steps", "all"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"total": xsp.open(raw).info().device_time_ns}]


def test_words_are_text(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "select distinct upper(level) as l from spans where level like 'ker%'"
    assert main(["query", str(raw), text, "-f", "csv"]) == 0
    assert capsys.readouterr().out == "l\nKERNEL\n"


def test_a_file_holds_all_rows_and_appears_whole(raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", str(raw), "select * from spans", "-o", str(tmp_path / "s.csv"), "-f", "csv"]) == 0
    assert pl.read_csv(tmp_path / "s.csv").height == xsp.open(raw).trace.row_count
    assert capsys.readouterr().out == ""


def test_device_work_is_joined_with_its_layer_operator_and_call(raw: Path) -> None:
    trace = xsp.open(raw)
    spans, layers = trace.table("spans"), trace.table("layers")
    names = dict(spans.select("span_id", pl.col("name").cast(pl.String)).iter_rows())
    of_layers = dict(layers.select("span_id", "layer_name").iter_rows())
    work = spans.filter(pl.col("level").cast(pl.String) == "kernel")
    joined = trace.table("gpu_ops").sort("span_id")
    assert joined.height == work.height > 0
    assert joined["call_name"].cast(pl.String).to_list() == [names.get(parent) for parent in work["parent_id"]]
    assert joined["layer_name"].to_list() == [of_layers.get(layer) for layer in work["layer_id"]]
    assert joined["operator_name"].null_count() < joined.height
    by_query = trace.sql("select sum(duration_ns) as total, sum(waited_ns) as waited from gpu_ops")
    assert by_query.row(0) == (work["duration_ns"].sum(), joined["waited_ns"].sum())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("select nope from spans", "there is no column 'nope' there. What it could be: span_id"),
        ("select durations_ns from kernels", "no column 'durations_ns' there. duration_ns is in spans, gpu_ops"),
        ("select k.layer_name from kernels k", "no column 'layer_name' there. layer_name is in gpu_ops, layers"),
        ("select * from zzz", "there is no table 'zzz'. Tables: runs, spans"),
        ("select * form spans", "the query cannot be answered"),
        ("selec 1", "a query begins with SELECT"),
        ("", "a query begins with SELECT"),
        ("drop table spans", "a query begins with SELECT"),
        ("/* select */ delete from spans", "a query begins with SELECT"),
        ("select 1; select 2", "one statement"),
        ("select * from read_csv('/etc/hostname')", "sees the tables of its trace alone, so read_csv"),
        ("select upper(start_ns) from spans", "the query cannot be answered"),
        ("select * from B14", "B14 (energy) needs"),
        (os.fsdecode(b"select '\xff' from spans"), "the query is no text in UTF-8: its character 9 is '\\udcff'"),
    ],
)
def test_a_bad_query_is_one_sentence(raw: Path, text: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", str(raw), text]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert says.replace("one statement", "one (and only one) statement") in captured.err


def test_half_of_a_character_is_no_query_in_python_either(raw: Path) -> None:
    with pytest.raises(XspError, match="its character 8 is '\\\\ud800'"):
        xsp.open(raw).sql("select \ud800 from spans")


def test_text_in_quotes_is_no_code(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", str(raw), "select count(*) n from spans where name = 'read_csv(''A12'')'", "-f", "csv"]) == 0
    assert capsys.readouterr().out == "n\n0\n"


def test_a_query_before_its_files_is_told(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "select 1", str(raw)]) == 2
    assert "takes files and then a query" in capsys.readouterr().err


def test_null_is_empty_a_dash_and_null() -> None:
    frame = pl.DataFrame({"a": [1, None], "t": ["x", None], "f": [float("nan"), 0.1]})
    assert b"".join(as_csv(frame)) == b"a,t,f\n1,x,\n,,0.1\n"
    assert json.loads(b"".join(as_json(frame))) == [{"a": 1, "t": "x", "f": None}, {"a": None, "t": None, "f": 0.1}]
    assert as_table(frame).splitlines() == ["a  t    f", "─────────", "1  x  nan", "-  -  0.1", "2 rows"]


def test_no_rows_are_still_an_answer() -> None:
    frame = pl.DataFrame({"a": [1]}).clear()
    assert b"".join(as_csv(frame)) == b"a\n"
    assert json.loads(b"".join(as_json(frame))) == []
    assert as_table(frame) == "a\n─\n0 rows\n"


def test_a_table_fits_its_screen_and_says_what_it_leaves_out() -> None:
    frame = pl.DataFrame({"name": ["k" * 300, "\x1b[31m\u202ex"], "n": [1, 2], "long": ["y" * 90] * 2})
    lines = as_table(frame, width=60, rows=1).splitlines()
    assert max(map(len, lines)) <= 60
    assert "1 more rows; --rows 0 shows all." in lines
    narrow = as_table(frame, width=20)
    assert "Too narrow for: long" in " ".join(narrow.split())
    assert "\x1b" not in narrow
    assert "\u202e" not in narrow


def test_many_rows_are_written_piece_by_piece() -> None:
    frame = pl.DataFrame({"n": range(150_000)})
    assert pl.read_csv(b"".join(as_csv(frame))).equals(frame)
    parts = list(as_json(frame))
    assert len(parts) == 5
    assert [row["n"] for row in json.loads(b"".join(parts))] == frame["n"].to_list()


def test_the_schema_lists_every_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "-f", "json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == [*TABLES, "gpu_ops"]
    assert main(["schema"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n{name} " in text for name in TABLES)


def test_a_table_of_the_schema_has_types_and_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "SPANS"]) == 0
    assert re.search(r"^duration_ns +integer +ns +Duration; null", capsys.readouterr().out, re.MULTILINE)
    assert main(["schema", "a10"]) == 0
    assert re.search(r"^duration_ns +float +ns +Sum of the dur", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("identity", [one.id for one in all_analyses()])
def test_every_analysis_has_a_schema(identity: str) -> None:
    (schema,) = describe_tables(identity)
    assert schema["name"] == identity
    assert schema["columns"]


def test_an_unknown_table_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "span"]) == 2
    assert "there is no table 'span'. Did you mean spans" in capsys.readouterr().err


@pytest.mark.parametrize("text", _EXAMPLE.findall((_DOCS / "sql.md").read_text(encoding="utf-8")))
def test_an_example_of_the_docs_has_an_answer(
    text: str, fixtures_dir: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    trace = fixtures_dir / "torch_profiler" / "transformer_train_gpu_synthetic" / "trace.json.gz"
    assert main(["query", str(trace), text, "-f", "parquet"]) == 0
    answer = pl.read_parquet(io.BytesIO(capsysbinary.readouterr().out))
    assert answer.height or "from ledger" in text
    assert [name for name in answer.columns if answer[name].null_count() == answer.height and answer.height] == []
