"""Users' work models in a trace: what analyses then say, and what the ledger does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.work_metrics import two_operators, with_metrics, work_of
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.frames.operators.users_work import with_work_models
from xsp_analyze.trace.step_view import StepView
from xsp_model import integrity

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_MINE = """
[[model]]
operators = ["my::*"]
operands = { x = 0 }
shapes = { x = "m k" }
flop = "2 * m * k * 7"
read = "bytes(x)"
written = "m * 7 * size(x)"
precision = "bf16"
class = "attention"
"""


def file_of(folder: Path, text: str, name: str = "mine.toml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def notes_of(trace: Trace) -> list[tuple[str, int, str]]:
    ledger = trace.frame("ledger").with_columns(pl.col("kind").cast(pl.String))
    return ledger.filter(pl.col("kind").str.starts_with("work_model")).select("kind", "count", "detail").rows()


def test_an_operator_of_the_users_counts_with_all_inside_it(tmp_path: Path) -> None:
    # my::op takes (2, 5) of four bytes: 2 * 2 * 5 * 7 flop, 40 bytes in and 2 * 7 * 4 out; its kernels took 2 and 8 us.
    trace = with_work_models(two_operators(tmp_path), [file_of(tmp_path, _MINE)])
    integrity.check(trace)
    assert work_of(trace) == [
        ("my::op", 1, 140.0, 96.0, 10_000, 1.0),
        ("aten::mm", 1, 140.0, 4 * (10 + 35 + 14), 4_000, 1.0),
    ]
    assert notes_of(trace) == []
    rows = trace.frame("metrics").select(pl.col("metric", "unit", "source").cast(pl.String), "value").rows()
    source = "modelled by mine.toml as attention"
    assert rows == [
        ("modelled_flop_bf16", "flop", source, 140.0),
        ("modelled_read_bytes", "byte", source, 40.0),
        ("modelled_written_bytes", "byte", source, 56.0),
    ]


def test_class_and_precision_are_those_of_the_row(tmp_path: Path) -> None:
    trace = with_work_models(two_operators(tmp_path), [file_of(tmp_path, _MINE)])
    table = run(find("B23"), StepView.of(trace)).table.filter(pl.col("operator") == "my::op")
    assert table.select("operator_class", "precision").rows() == [("attention", "bf16")]


def test_a_formula_of_ours_counts_for_an_operator_of_the_users(tmp_path: Path) -> None:
    text = (
        '[[model]]\noperators = ["my::op"]\nformula = "streaming"\noperands = { x = 0 }\n'
        'settings = { read = ["x"], written = ["x"] }\n'
    )
    table = work_of(with_work_models(two_operators(tmp_path), [file_of(tmp_path, text)]))
    assert table[0] == ("my::op", 1, 0.0, 80.0, 10_000, 1.0)


def test_a_users_model_goes_before_ours_and_before_what_a_compiler_said(tmp_path: Path) -> None:
    text = '[[model]]\noperators = ["aten::mm"]\nflop = 1000\n'
    before = with_metrics(two_operators(tmp_path), "aten::mm", {"modelled_flop": 7, "modelled_read_bytes": 3})
    trace = with_work_models(before, [file_of(tmp_path, text)])
    assert work_of(trace)[0] == ("aten::mm", 2, 2000.0, None, 12_000, 1.0)
    assert trace.frame("metrics")["metric"].cast(pl.String).unique().to_list() == ["modelled_flop"]


def test_the_first_of_several_files_decides(tmp_path: Path) -> None:
    files = [
        file_of(tmp_path, f'[[model]]\noperators = ["{name}"]\nflop = {flop}\n', f"{flop}.toml")
        for name, flop in (("my::op", 5), ("my::*", 6))
    ]
    assert work_of(with_work_models(two_operators(tmp_path), files))[0][2] == 5.0
    by_pattern = [file_of(tmp_path, '[[model]]\noperators = ["my::*"]\nflop = 8\n', "8.toml"), files[0]]
    assert work_of(with_work_models(two_operators(tmp_path), by_pattern))[0][2] == 5.0  # a name goes before a pattern


def test_names_that_the_trace_does_not_have_are_noted_once(tmp_path: Path) -> None:
    text = '[[model]]\noperators = ["your::*", "aten::mm", "their::op"]\nflop = 1\n'
    file = file_of(tmp_path, text)
    once = with_work_models(two_operators(tmp_path), [file])
    sentence = "names in the user's work models that no operator of the trace has (mine.toml: your::*, their::op)"
    assert notes_of(once) == [("work_model_unused", 2, sentence)]
    assert notes_of(with_work_models(once, [file])) == notes_of(once)


def test_calls_that_a_model_does_not_fit_are_noted_and_counted_as_before(tmp_path: Path) -> None:
    text = '[[model]]\noperators = ["aten::mm", "my::op"]\noperands = { x = 5 }\nread = "bytes(x)"\n'
    trace = with_work_models(two_operators(tmp_path), [file_of(tmp_path, text)])
    assert work_of(trace) == work_of(two_operators(tmp_path))
    sentence = (
        "calls of operators that the user's work models hold for and tell nothing of (mine.toml: aten::mm, my::op)"
    )
    assert notes_of(trace) == [("work_model_unfit", 3, sentence)]


def test_a_trace_without_operators_only_notes(tmp_path: Path) -> None:
    trace = two_operators(tmp_path)
    none = trace.with_tables({"spans": trace.frame("spans").filter(pl.col("level") != "operator")})
    assert [note[0] for note in notes_of(with_work_models(none, [file_of(tmp_path, _MINE)]))] == ["work_model_unused"]


@pytest.mark.parametrize("count", [1, 2])
def test_what_was_modelled_before_of_the_same_operators_gives_way(tmp_path: Path, count: int) -> None:
    trace = two_operators(tmp_path)
    for flop in range(count):
        text = f'[[model]]\noperators = ["my::op"]\nflop = {flop}\n'
        trace = with_work_models(trace, [file_of(tmp_path, text, f"{flop}.toml")])
    assert work_of(trace)[0][2] == float(count - 1)
    assert trace.height("metrics") == 1
