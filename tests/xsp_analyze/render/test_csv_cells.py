"""CSV that a spreadsheet opens: no name is run as a formula, no number becomes a text."""

from __future__ import annotations

import csv
import io
import unicodedata
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.synth import KinetoTrace
from xsp.cli.main import main
from xsp_analyze.render.csv_text import guard_texts, write_csv
from xsp_analyze.render.frame import as_csv

if TYPE_CHECKING:
    from pathlib import Path

_ACTS = (
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\uff1d1",
    " =1+1",
    "\u00a0=1",
    "\ufeff=1",
    "\u200b@SUM(A1)",
    "\x00=1",
    "=",
    "-",
    "-x",
    "+1e5x",
    "-1,5",
)
_ACTS_BEHIND = {
    "\t=1": "'\t'=1",
    "\r=1": "'\r'=1",
    "\n=1": "'\n'=1",
    "\x0b=1": "'\x0b'=1",
    ";=1+1": ";'=1+1",
    "a;=1;b": "a;'=1;b",
    'a; "@SUM(A1)': "a; \"'@SUM(A1)",
    "a\t=1": "a\t'=1",
    "a;\t \uff1d1": "a;\t '\uff1d1",
    "=1;=2": "'=1;'=2",
    "a\n+cmd|' /C calc'!A0": "a\n'+cmd|' /C calc'!A0",
}
_HARMLESS = (
    "a; b\tc\nd",
    "a =1, -2",
    "gemm",
    "void f<-1>()",
    "1-2",
    "-1",
    "+1",
    "-1.5e-3",
    "-.5",
    "-12%",
    "",
    "'=1",
    "a=b",
    "[memory]",
    "<lambda>",
)


def _cells(text: str) -> list[str]:
    return [row[0] if row else "" for row in csv.reader(io.StringIO(text, newline=""))]


def test_what_acts_stands_behind_an_apostrophe() -> None:
    assert _cells(write_csv([pl.Series("name", _ACTS)], raw=False)) == ["name", *(f"'{text}" for text in _ACTS)]


def test_what_acts_where_cells_are_split_at_semicolons_or_tabs_stands_behind_one_too() -> None:
    assert _cells(write_csv([pl.Series("name", list(_ACTS_BEHIND))], raw=False)) == ["name", *_ACTS_BEHIND.values()]


_UNSEEN_CATEGORIES = ("Zs", "Zl", "Zp", "Cc", "Cf")
_ENDS_OF_LINES = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_OTHERS = "\ue000\ufdd0\U0010fffd\u034f\u115f\u1160\u17b4\u2800\u3164\ufe0f\uffa0\U000e0100"


@pytest.mark.parametrize("sign", "=+-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b")
def test_nothing_that_is_unseen_hides_what_acts(sign: str) -> None:
    characters = map(chr, range(0xE_0100))  # behind which no other is of these categories
    unseen = [code for code in characters if unicodedata.category(code) in _UNSEEN_CATEGORIES] + list(_OTHERS)
    texts = pl.Series([f"{code}{sign}1" for code in unseen] + [f"a;{code}{sign}1" for code in unseen])
    shown = [f"'{code}{sign}1" for code in unseen] + [f"a;{code}'{sign}1" for code in unseen]
    ends = set(_ENDS_OF_LINES) | {"\t"}
    shown = [f"'{text[1]}'{text[2:]}" if text[0] == "'" and text[1] in ends else text for text in shown]
    assert [pair for pair in zip(guard_texts(texts), shown, strict=True) if pair[0] != pair[1]] == []


@pytest.mark.parametrize("end", _ENDS_OF_LINES)
def test_what_acts_behind_the_end_of_a_line_stands_behind_an_apostrophe(end: str) -> None:
    assert guard_texts(pl.Series([f"a{end}=1", f"{end}a"])).to_list() == [f"a{end}'=1", f"'{end}a"]


def test_what_does_not_act_is_as_it_was() -> None:
    for series in (pl.Series("name", _HARMLESS), pl.Series("n", [-1, 2]), pl.Series("x", [-1.5, None])):
        assert write_csv([series], raw=False) == write_csv([series], raw=True) == series.to_frame().write_csv()


def test_raw_leaves_all() -> None:
    assert _cells(write_csv([pl.Series("=name", _ACTS)], raw=True)) == ["=name", *_ACTS]


def test_headings_and_enumerations_are_texts() -> None:
    rows = pl.DataFrame({"=cmd()": pl.Series(["=a", "b"], dtype=pl.Enum(["=a", "b"]))})
    assert b"".join(as_csv(rows)) == b"'=cmd()\n'=a\nb\n"
    assert b"".join(as_csv(rows, raw=True)) == b"=cmd()\n=a\nb\n"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = KinetoTrace()
    made.step(1, 0, 500_000)
    made.operator("@op", 10_000, 40_000)
    made.launch('=HYPERLINK("http://evil")', 20_000, 60_000, 100_000)
    return made.write(tmp_path_factory.mktemp("formulas") / "trace.json")


@pytest.mark.parametrize(
    "command",
    [
        ["analyze", "TRACE", "-a", "A10", "-f", "csv"],
        ["analyze", "TRACE", "-a", "A10", "-a", "A15", "-f", "csv"],
        ["analyze", "TRACE", "-a", "cuda_gpu_kern_sum", "-f", "csv"],
        ["analyze", "TRACE", "-f", "csv", "-o", "OUT"],
        ["top", "TRACE", "-f", "csv"],
        ["query", "TRACE", "select name from spans", "-f", "csv"],
        ["cohort", "TRACE", "-f", "csv"],
    ],
    ids=" ".join,
)
def test_every_command_guards(
    trace: Path, tmp_path: Path, command: list[str], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    def texts(*options: str) -> str:
        names = {"TRACE": str(trace), "OUT": str(tmp_path)}
        assert main([*(names.get(part, part) for part in command), "--no-cache", *options]) == 0
        files = [file.read_bytes() for file in sorted(tmp_path.iterdir())]
        return b"\n".join([capsysbinary.readouterr().out, *files]).decode()

    cells = [cell for row in csv.reader(io.StringIO(texts(), newline="")) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "@"))]
    if command[0] != "cohort":
        assert any(cell.startswith("'=HYPERLINK") for cell in cells)
        raw = [cell for row in csv.reader(io.StringIO(texts("--csv-raw"), newline="")) for cell in row]
        assert any(cell.startswith("=HYPERLINK") for cell in raw)
