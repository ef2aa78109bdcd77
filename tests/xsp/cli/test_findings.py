"""`xsp findings` as a user meets it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.helpers.report_trace import small_trace
from xsp.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(name="raw")
def fixture_raw(tmp_path: Path) -> Path:
    small_trace(tmp_path)
    return tmp_path / "small.json"


def test_findings_are_told_with_their_gain(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["findings", str(raw)]) == 0
    text = capsys.readouterr().out
    # Steps of 993.99 us (from the end of the work left over before it) and 1 ms, less 60 and 120 us of work, of which
    # three kernels take 40 or 80 us, each a whole number of ns.
    assert re.search(r"The device waits for the host \(gpu-idle\): at most 907 \u00b5s, 91\.0 %", text)


def test_findings_as_json_are_the_top_ones(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["findings", str(raw), "-f", "json", "--top", "3"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["on_trust"] for row in rows] == [False, False, False]
    assert rows[0]["gain_ns"] == pytest.approx(906_996.5)


def test_findings_go_to_a_file(raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["findings", str(raw), "-f", "md", "-o", str(tmp_path / "found.md")]) == 0
    assert capsys.readouterr().out == ""
    verdict, table = (tmp_path / "found.md").read_text(encoding="utf-8").split("\n\n", 1)
    assert verdict.startswith("Host-bound: of 997")
    assert table.startswith("| finding |")


def test_a_missing_file_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["findings", "nowhere.json"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
