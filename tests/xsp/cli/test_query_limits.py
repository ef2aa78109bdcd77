# ruff: noqa: S608 (SQL is what is tested)
"""A query reads its trace and nothing else, and takes neither all time nor all memory."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.helpers.report_trace import small_trace
from xsp.cli.main import main
from xsp_analyze.sql import QueryLimits, check_query, query, within
from xsp_model import Trace, XspError, bundle
from xsp_model.limits import limits, override_limits

if TYPE_CHECKING:
    from pathlib import Path

_MAIN = "import sys; from xsp.cli.main import main; sys.exit(main())"
_CROSS = "select count(*) from " + " cross join ".join(f"spans s{n}" for n in range(8))


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return small_trace(tmp_path)


@pytest.mark.parametrize(
    "from_",
    [
        "read_csv('{file}')",
        "READ_CSV ('{file}')",
        "\"read_csv\"('{file}')",
        "`read_csv`('{file}')",
        "read_csv/* */('{file}')",
        "read_csv--\n('{file}')",
        "read_parquet('{file}')",
        "read_json('{file}')",
        "read_ipc('{file}')",
        "'{file}'",
        '"{file}"',
        "spans as \"'\", read_csv('{file}') as \"'\"",
        "spans where name = E'\\'' union all select * from read_csv('{file}') -- '",
        "$$ $$ read_csv('{file}')",
        "read_csv('file://{file}')",
        "read_csv('http://127.0.0.1:9/{file}')",
        "read_csv('{folder}/*.csv')",
        "/* /* */ ' */ read_csv(--'\n'{file}')",
        "/* /* */ */ read_csv('{file}')",
        "spans -- /*\n, read_csv('{file}') -- */",
        "spans where name = r'\\' union all select * from read_csv('{file}') -- '",
        "spans where name = b'\\' union all select * from read_csv('{file}') -- '",
    ],
)
def test_no_file_is_read_by_whatever_quoting(trace: Trace, tmp_path: Path, from_: str) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("name\nhidden-word\n")
    text = "select * from " + from_.format(file=secret, folder=tmp_path)
    with pytest.raises(XspError) as refused:
        query(trace, text)
    assert "hidden-word" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_only_reads_like_it_is_answered(trace: Trace) -> None:
    for text in (
        "select count(*) as n from spans where name = 'read_csv(''A12'')'",
        'select name as "read csv", \'--\' as "it\'s", 1 as "/*" from spans',
        "select name from spans -- read_csv('x')",
    ):
        assert query(trace, text).width > 0


def test_files_of_a_bundle_are_the_trace_s_own(trace: Trace, tmp_path: Path) -> None:
    bundle.write(trace, tmp_path / "small, with a comma.xsp")
    stored = bundle.read(tmp_path / "small, with a comma.xsp")
    text = "select count(*) as n from spans s join layers l on s.layer_id = l.span_id"
    assert query(stored, text).equals(query(trace, text))


@pytest.mark.parametrize(
    "text",
    [
        " union all ".join(["select 1 as a from spans"] * 1_000),
        "select " + "+".join(["start_ns"] * 5_000) + " as a from spans",
        "select 1 from spans where " + " and ".join(["true"] * 5_000),
        "with " + ", ".join(f"c{n} as (select * from spans)" for n in range(500)) + " select * from c1",
        "select " + "(" * 400 + "1" + ")" * 400 + " from spans",
        "select '" + "x" * 200_000 + "' from spans",
    ],
    ids=["unions", "sum", "conditions", "tables", "parentheses", "long"],
)
def test_depth_has_a_limit(trace: Trace, text: str) -> None:
    with pytest.raises(XspError):
        query(trace, text)


@pytest.mark.parametrize(
    "link", [" is null", " in (1)", " & 1", " xor true", "::bigint", "^ 1", " || 1", " div 2", "\nis null"]
)
def test_a_chain_of_any_operator_has_a_limit(link: str) -> None:
    with pytest.raises(XspError, match="more than 2000 operators"):
        check_query("select span_id" + link * 2_001 + " from spans")


def test_many_columns_with_names_of_their_own_are_no_depth() -> None:
    columns = ", ".join(f"s.start_ns as a{n}" for n in range(400))
    assert "a399" in check_query(f"select {columns} from spans s")


def test_a_list_of_many_values_is_no_depth() -> None:
    assert "spans" in check_query("select * from spans where span_id in (" + ", ".join(map(str, range(20_000))) + ")")


@pytest.mark.usefixtures("trace")
def test_time_has_a_limit(tmp_path: Path) -> None:
    ask = ["query", str(tmp_path / "small.json"), _CROSS, "--timeout", "0.2"]
    done = subprocess.run([sys.executable, "-c", _MAIN, *ask], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout) == (2, "")
    assert "not answered within 0.2 s" in done.stderr
    assert "Traceback" not in done.stderr


_SMALL = """
import sys, xsp
from xsp_analyze.sql import QueryLimits, query
from xsp_model import XspError
try:
    query(xsp.open(sys.argv[1]).trace, sys.argv[2], limits=QueryLimits(None, 1 << 20))
except XspError as error:
    print(error, flush=True)
"""


@pytest.mark.usefixtures("trace")
def test_memory_has_a_limit(tmp_path: Path) -> None:
    """In a process of its own, whose end ends the query too."""
    ask = [str(tmp_path / "small.json"), _CROSS.replace("count(*)", "*")]
    done = subprocess.run(
        [sys.executable, "-c", _SMALL, *ask], capture_output=True, text=True, check=False, timeout=300
    )
    assert "of memory that it may take" in done.stdout, done.stderr


@pytest.mark.usefixtures("trace")
def test_time_may_have_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", str(tmp_path / "small.json"), "select 1 as a", "--timeout", "0", "-f", "csv"]) == 0
    assert os.linesep.join(capsys.readouterr().out.splitlines()) == "a\n1"


def test_a_query_is_computed_with_the_thresholds_of_whoever_asks() -> None:
    with override_limits(pass_rows=7):
        assert within(QueryLimits(), lambda: limits().pass_rows) == 7
