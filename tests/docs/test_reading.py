"""The pages that read a trace from top to bottom say what the command says now."""

from __future__ import annotations

import csv
import json
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.docs.commands import ROOT
from xsp.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_PAGES = ROOT / "docs" / "reading"
_UNITS = {
    "ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9, "%": 0.01, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "GB/s": 1e9,
}  # fmt: skip
_NUMBER = re.compile(r"([\d,]*\d(?:\.(\d+))?)(?:\s(\S+))?")
_WITH_UNIT = re.compile(rf"\d[\d,.]*\s(?:{'|'.join(_UNITS)})(?![\w/])")
_ID = re.compile(r"[AB]\d\d$")


@dataclass(frozen=True)
class Figure:
    """One number of a page as it stands there, and where the command has it."""

    text: str
    source: str
    column: str
    row: Mapping[str, str]

    def is_of(self, value: float) -> bool:
        """Whether the text is the value, rounded to the digits that it shows."""
        number = _NUMBER.match(self.text)
        assert number is not None, self.text
        unit = _UNITS.get(number[3] or "", 1.0)
        return abs(float(number[1].replace(",", "")) * unit - value) <= 0.5001 * 10.0 ** -len(number[2] or "") * unit


@dataclass(frozen=True)
class Read:
    """A page's figures of one input."""

    page: str
    input: str
    options: Sequence[str]
    figures: Sequence[Figure]

    @property
    def name(self) -> str:
        return f"{self.page}, {self.input}{' with options' if self.options else ''}"


def _read(entry: Mapping[str, object]) -> Read:
    figures = [Figure(f[0], f[1], f[2], f[3] if len(f) > 3 else {}) for f in entry["figures"]]  # type: ignore[attr-defined]
    return Read(str(entry["page"]), str(entry["input"]), entry.get("options", []), figures)  # type: ignore[arg-type]


_READ = [_read(entry) for entry in tomllib.loads((_PAGES / "figures.toml").read_text(encoding="utf-8"))["read"]]


def _text(page: str) -> str:
    return re.sub(r"\s+", " ", (_PAGES / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "read",
    [pytest.param(r, id=r.name, marks=[pytest.mark.real] if r.input.startswith("real/") else []) for r in _READ],
)
def test_a_page_says_what_the_command_says(
    read: Read, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = request.getfixturevalue("real_dir") if read.input.startswith("real/") else ROOT
    arguments = [
        str(folder / argument.removeprefix("real/")) if "/" in argument else argument
        for argument in (read.input, *read.options)
    ]
    held = [figure for figure in read.figures if figure.source != "otherwise"]
    rows = _rows(arguments, {figure.source for figure in held}, tmp_path, capsys)
    wrong = [f"{f.text}: {f.source}.{f.column} of {f.row} is {v}" for f in held if not f.is_of(v := _value(f, rows))]
    assert wrong == []


@pytest.mark.parametrize("page", sorted(path.name for path in _PAGES.glob("*.md")))
def test_every_figure_of_a_page_is_held(page: str) -> None:
    text = _text(page)
    listed = [figure.text for read in _READ if read.page == page for figure in read.figures]
    assert [figure for figure in listed if figure not in text] == []
    assert set(_WITH_UNIT.findall(text)) - set(listed) == set()


def test_a_figure_is_of_what_it_rounds() -> None:
    figure = Figure("59.4 ms", "B16", "idle_ns", {})
    assert figure.is_of(59_422_000)
    assert not figure.is_of(59_460_000)
    assert Figure("33.4 %", "bar", "share", {}).is_of(0.33401)
    assert Figure("8,192 tokens", "B20", "tokens", {}).is_of(8192)
    assert not Figure("8,192 tokens", "B20", "tokens", {}).is_of(8193)


def _rows(
    arguments: Sequence[str], sources: set[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> Mapping[str, Sequence[Mapping[str, object]]]:
    """What the command prints and writes, by source."""
    rows: dict[str, Sequence[Mapping[str, object]]] = {}
    analyses = sorted(source for source in sources if _ID.match(source))
    options = [argument for analysis in analyses for argument in ("-a", analysis)]
    assert main(["analyze", *arguments, *options, "-f", "csv", "-o", str(folder / "tables")]) == 0
    for path in (folder / "tables").glob("*.csv"):
        rows[path.stem] = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    if "bar" in sources:
        assert main(["report", *arguments, "-o", str(folder / "report.html")]) == 0
        rows["bar"] = _bar((folder / "report.html").read_text(encoding="utf-8"))
    if "finding" in sources:
        capsys.readouterr()
        assert main(["findings", *arguments, "-f", "json"]) == 0
        rows["finding"] = [_finding(finding) for finding in json.loads(capsys.readouterr().out)]
    return rows


def _bar(page: str) -> Sequence[Mapping[str, object]]:
    data = re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert data is not None
    parts: Sequence[Mapping[str, object]] = json.loads(data[1])["first"]["bar"]["parts"]
    return parts


def _finding(finding: Mapping[str, object]) -> Mapping[str, object]:
    """A finding, and the share that its first evidence has of its second one."""
    values = [evidence["value"] for evidence in finding["evidence"]]  # type: ignore[attr-defined]
    return {**finding, "share_of_evidence": values[0] / values[1] if len(values) > 1 and values[1] else None}


def _value(figure: Figure, rows: Mapping[str, Sequence[Mapping[str, object]]]) -> float:
    fitting = [r for r in rows[figure.source] if all(str(r[name]) == value for name, value in figure.row.items())]
    assert len(fitting) == 1, f"{figure.text}: {len(fitting)} rows of {figure.source} are {figure.row}"
    return float(str(fitting[0][figure.column]))
