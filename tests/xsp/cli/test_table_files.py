"""`xsp analyze -f xlsx` and `-f latex`: one workbook of all tables, and what cannot be written is told first."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.helpers.pseudo_terminal import shown_on_terminal
from tests.helpers.report_trace import small_trace
from xsp.cli.main import main
from xsp.cli.output import check_tables_writable
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    small_trace(tmp_path)
    return tmp_path / "small.json"


def _error(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main([str(argument) for argument in arguments]) == 2
    return capsys.readouterr().err


def test_all_answers_are_one_workbook(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    out = tmp_path / "new" / "book.xlsx"
    chosen = ["-a", "A10", "-a", "A02", "-f", "xlsx", "-o", str(out), "--no-cache"]
    assert main(["analyze", str(small), *chosen]) == 0
    assert capsys.readouterr().err == f"{out}: 2 tables\n"
    workbook = openpyxl.load_workbook(out)
    assert workbook.sheetnames == ["about", "A10 kernels by name", "A02 layer information"]
    assert workbook["A02 layer information"]["A1"].value == "layer index"
    assert [path.name for path in out.parent.iterdir()] == ["book.xlsx"]


def test_mistakes_about_workbooks_are_one_sentence(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xlsxwriter")
    error = _error(capsys, "analyze", small, "-f", "xlsx", "-o", tmp_path / "tables")
    assert "is no name of a workbook. End it in .xlsx" in error
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    error = _error(capsys, "analyze", small, "-f", "xlsx", "-o", tmp_path / "book.xlsx")
    assert "workbooks need XlsxWriter, which is not installed" in error
    assert "`pip install '.[xlsx]'` in a checkout of xsp" in error


@pytest.mark.parametrize("output_format", ["xlsx", "parquet"])
def test_a_terminal_gets_no_bytes_of_files(output_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with pytest.raises(XspError, match=f"{output_format} is not for reading on a terminal"):
        check_tables_writable(output_format, None, [])


def test_latex_has_the_rows_that_were_asked_for(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(small), "-a", "A10", "-f", "latex", "--rows", "1", "--no-cache"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = lines[lines.index(r"    \midrule") + 1 : lines.index(r"    \bottomrule")]
    assert len(rows) == 2
    assert rows[1].strip().startswith("and ")


@pytest.mark.parametrize("columns", [80, 120])
def test_latex_on_a_terminal_is_latex(small: Path, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown_on_terminal(monkeypatch, "analyze", small, "-a", "A10", "-f", "latex", "--no-cache", columns=columns)
    assert r"\toprule" in text
