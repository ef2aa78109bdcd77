"""Files whose names are no UTF-8 or would act on a terminal: read like others, and shown as codes."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import pytest

from tests.helpers.pseudo_terminal import shown_on_terminal
from tests.helpers.synth import KinetoTrace
from xsp.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

_ODD = os.fsdecode(b"tr\xe9\x1b[31m\xe2\x80\xae.json")
_ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    made = KinetoTrace()
    made.step(1, 0, 500_000)
    made.operator("aten::mm", 10_000, 40_000)
    made.launch("gemm", 20_000, 60_000, 100_000)
    folder = tmp_path / "in"
    folder.mkdir()
    return made.write(folder / _ODD)


@pytest.mark.parametrize(
    "command",
    [["info"], ["info", "-f", "json"], ["top"], ["analyze", "-a", "A10", "-f", "csv"], ["query"], ["findings"]],
    ids=" ".join,
)
def test_a_name_that_is_no_utf8_is_read_and_shown_harmless(
    odd: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = ["select source_path from runs", "-f", "csv"] if command[0] == "query" else []
    shown = shown_on_terminal(monkeypatch, command[0], odd, *sql, *command[1:], "--no-cache")
    assert not _ACTS.search(shown)


def test_a_bundle_of_a_name_that_is_no_utf8_is_refused(
    odd: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(odd), "-o", str(tmp_path / os.fsdecode(b"b\xff.xsp"))]) == 2
    assert "b\\udcff.xsp: a bundle's name, or its folder's, is not UTF-8" in capsys.readouterr().err


def test_a_batch_into_a_folder_of_such_a_name_is_refused_before_anything_is_done(
    odd: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / os.fsdecode(b"ob\xff")
    assert main(["batch", str(odd.parent), "-o", str(out)]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert "ob\\udcff: a bundle's name, or its folder's, is not UTF-8. Name it otherwise" in errors
    assert not out.exists()


@pytest.mark.slow
def test_a_batch_takes_such_names_and_says_nothing_of_where_it_lies(odd: Path, tmp_path: Path) -> None:
    (odd.parent / os.fsdecode(b"cut\xff.json")).write_text('{"schemaVersion": 1, "traceEvents": [{"ph"')
    out = tmp_path / "out"
    assert main(["batch", str(odd.parent), "-o", str(out), "--jobs", "1"]) == 1
    document = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    named = sorted(name for row in document["traces"] for name in row["inputs"])
    assert named == ["../in/cut\\xff.json", "../in/tr\\xe9\x1b[31m\u202e.json"]
    written = [file for file in out.rglob("*") if file.is_file()]
    assert not [file for file in written if str(tmp_path).encode() in file.read_bytes()]
    assert main(["batch", str(odd), "-o", str(out), "--jobs", "1"]) == 0
    costs = json.loads((out / "costs.json").read_text(encoding="utf-8"))
    assert costs["counts"]["kept"] == 1


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("x" * 250 + ".json", ["convert", "-o", "out.xsp"]),
        (_ODD, ["cohort", "-o", "out.html"]),
        (" a\nb .json", ["export", "--to", "chrome", "-o", "out"]),
        ("-o.json", ["compare", "--html", "out"]),
    ],
    ids=["of 255 bytes", "no UTF-8", "of two lines", "like an option"],
)
def test_a_file_may_have_any_name(odd: Path, name: str, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(odd.parent)
    odd.rename(name)
    again = [name] if command[0] == "compare" else []
    assert main([*command, "--", name, *again]) == 0
    assert any(odd.parent.glob("out*"))
