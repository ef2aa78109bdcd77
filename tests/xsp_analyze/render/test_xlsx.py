"""Workbooks, read back with openpyxl: what a spreadsheet refuses, cuts or runs is not in them."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import polars as pl
import pytest

from xsp_analyze.core import Analysis, Column, Result, Role
from xsp_analyze.render.xlsx import book, sheet_names
from xsp_model.limits import limits, override_limits

openpyxl = pytest.importorskip("openpyxl")
pytest.importorskip("xlsxwriter")

_COLUMNS = (
    Column("kernel_name", pl.String(), "", role=Role.KEY),
    Column("count", pl.Int64(), ""),
    Column("duration_ns", pl.Int64(), "", "ns"),
    Column("model_share", pl.Float64(), "", "share"),
    Column("is_first", pl.Boolean(), ""),
    Column("shapes", pl.List(pl.Int64()), ""),
)


def _result(table: pl.DataFrame, identity: str = "A10", title: str = "kernels by name") -> Result:
    columns = [c for c in _COLUMNS if c.name in table.columns]
    analysis = Analysis(identity, title, (), columns, lambda _: table.lazy())
    ledger = pl.DataFrame(
        {"severity": ["warning"], "detail": ["=lost"], "count": [3], "duration_ns": [None], "advice": [""]}
    )
    return Result(analysis, table, columns, lambda: ledger, lambda: {"sources": ["a.json"], "steps": "mean"})


def _read(results: list[Result]) -> Any:  # noqa: ANN401 (openpyxl has no types)
    return openpyxl.load_workbook(BytesIO(book(results).content))


def _names(*names: str) -> Result:
    return _result(pl.DataFrame({"kernel_name": list(names)}, {"kernel_name": pl.String}))


def test_numbers_are_numbers_under_headings_with_their_units() -> None:
    table = pl.DataFrame(
        {
            "kernel_name": ["gemm", "copy"],
            "count": [2, None],
            "duration_ns": [1_234_567, 1],
            "model_share": [0.25, None],
            "is_first": [True, False],
            "shapes": [[1, 2], None],
        }
    )
    sheet = _read([_result(table)])["A10 kernels by name"]
    assert [cell.value for cell in sheet[1]] == [
        "kernel name", "count", "duration (\u00b5s)", "model share", "is first", "shapes",
    ]  # fmt: skip
    assert [cell.value for cell in sheet[2]] == ["gemm", 2, 1234.567, 0.25, True, "[1, 2]"]
    assert [cell.value for cell in sheet[3]] == ["copy", None, 0.001, None, False, None]
    assert [cell.data_type for cell in sheet[2]] == ["s", "n", "n", "n", "b", "s"]
    assert (sheet["D2"].number_format, sheet.freeze_panes, sheet.auto_filter.ref) == ("0.0%", "A2", "A1:F3")


@pytest.mark.parametrize("name", ["=1+1", "+1", "-2", "@SUM(A1)", '=HYPERLINK("http://a")', "http://a", "12", "{=1}"])
def test_no_name_becomes_a_formula_a_link_or_a_number(name: str) -> None:
    workbook = _read([_names(name)])
    cell = workbook["A10 kernels by name"]["A2"]
    assert (cell.value, cell.data_type, cell.hyperlink) == (name, "s", None)
    assert cell.quotePrefix is (name[0] in "=+-@")
    assert not any(c.data_type == "f" for sheet in workbook for row in sheet for c in row)


def test_what_acts_in_a_name_is_shown_as_its_code() -> None:
    assert _read([_names("a\x1b[2J\u202eb")])["A10 kernels by name"]["A2"].value == "a\\x1b[2J\\u202eb"


def test_texts_that_no_cell_holds_are_cut_and_it_is_told() -> None:
    made = book([_names("x" * 40_000, "y" * 32_767, "\x1b" * 10_000)])
    sheet = openpyxl.load_workbook(BytesIO(made.content))["A10 kernels by name"]
    assert [len(sheet[f"A{row}"].value) for row in (2, 3, 4)] == [32_767, 32_767, 32_767]
    assert made.notes == ["A10 kernels by name: 2 texts were cut to 32,767 characters, as a cell holds no more"]


def test_rows_that_no_sheet_holds_are_left_out_and_it_is_told() -> None:
    assert limits().sheet_max_rows == 1_048_576
    with override_limits(sheet_max_rows=3):
        workbook = _read([_names("a", "b", "c")])
    assert [row[0].value for row in workbook["A10 kernels by name"].iter_rows()] == ["kernel name", "a", "b"]
    cut = next(row for row in workbook["about"].iter_rows(values_only=True) if row[0] == "cut")
    assert cut[1] == "A10 kernels by name: the first 2 of 3 rows, as a sheet holds no more"


def test_sheets_have_names_that_a_spreadsheet_takes() -> None:
    long = "kernels [of] a: very? long* title/that\\goes on"
    results = [_result(pl.DataFrame(), name, long) for name in ("A10", "a10", "A10")]
    results += [
        _result(pl.DataFrame(), "about", ""),
        _result(pl.DataFrame(), "'History'", ""),
        _result(pl.DataFrame(), "?", ""),
    ]
    names = sheet_names(results)
    assert len({name.lower() for name in names} | {"about", "history"}) == len(names) + 2
    assert all(0 < len(name) <= 31 and not set(name) & set("[]:*?/\\") and name.strip("'") == name for name in names)
    assert names[0] == "A10 kernels  of  a  very  long"
    _read(results)


def test_the_first_sheet_tells_where_numbers_come_from_and_what_is_lost() -> None:
    about = [row[:2] for row in _read([_names("a", "b"), _names("c")])["about"].iter_rows(values_only=True)]
    assert about[:3] == [("sheet", "rows"), ("A10 kernels by name", 2), ("A10 kernels by name~2", 1)]
    assert ("provenance", "sources: a.json; steps: mean") in about
    assert [text for label, text in about if label == "ledger"] == ["warning: =lost (3)."]


def test_whole_numbers_that_a_spreadsheet_would_round_are_text() -> None:
    big = 2**53 + 1
    cell = _read([_result(pl.DataFrame({"count": [big]}))])["A10 kernels by name"]["A2"]
    assert (cell.value, cell.data_type) == (str(big), "s")


def test_the_same_results_are_the_same_bytes() -> None:
    assert book([_names("a")]).content == book([_names("a")]).content
