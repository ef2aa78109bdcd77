"""`xsp cohort`: from what a batch wrote, or from traces themselves, to tables and a page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import xsp
from tests.helpers.batches import trace_of
from tests.helpers.synth import KinetoTrace
from xsp.cli.commands.cohort import _with_distinct_names
from xsp.cli.main import main
from xsp_analyze.cohort.cohort import Member
from xsp_analyze.cohort.facts import facts_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(name="traces")
def fixture_traces(tmp_path: Path) -> Path:
    """Two traces of different work, and one that is cut off."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name, scale in (("one", 100), ("two", 200)):
        (folder / f"{name}.json").write_bytes(trace_of(scale).to_bytes())
    (folder / "cut.json").write_bytes(trace_of(100).to_bytes()[:60])
    return folder


@pytest.mark.slow
def test_a_batch_and_its_traces_give_the_same_tables(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["batch", str(traces), "-o", str(tmp_path / "out"), "--jobs", "1"]) == 1
    capsys.readouterr()
    assert main(["cohort", str(tmp_path / "out"), "-f", "json"]) == 0
    of_batch = capsys.readouterr()
    assert main(["cohort", str(traces), "-f", "json"]) == 0
    of_traces = capsys.readouterr()
    assert of_batch.out == of_traces.out
    assert "1 trace failed and are not in the cohort" in of_batch.err or "1 trace failed" in of_batch.err
    assert "cut.json: the file is cut off" in of_traces.err
    models = json.loads(of_batch.out)[0]
    assert [(r["model"], r["gpu_share"]) for r in models["rows"]] == [
        ("one", pytest.approx(100 / 1500)),
        ("two", pytest.approx(200 / 1500)),
    ]


@pytest.mark.slow
def test_files_of_one_name_in_several_inputs_are_a_row_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, scale in (("a", 100), ("b", 200)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "trace.json").write_bytes(trace_of(scale).to_bytes())
        assert main(["batch", str(tmp_path / folder), "-o", str(tmp_path / "out" / folder), "--jobs", "1"]) == 0
    capsys.readouterr()
    for inputs in ([tmp_path / "a", tmp_path / "b"], [tmp_path / "out" / "a", tmp_path / "out" / "b"]):
        assert main(["cohort", *map(str, inputs), "-f", "json"]) == 0
        rows = json.loads(capsys.readouterr().out)[0]["rows"]
        assert [r["gpu_share"] for r in rows] == [pytest.approx(100 / 1500), pytest.approx(200 / 1500)]
        assert [r["model"] for r in rows] == ["a-trace", "b-trace"]
        assert [r["device_count"] for r in rows] == [1, 1]


def test_one_recording_in_two_files_is_said(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The copy differs in a byte."""
    file = traces / "one.json"
    (tmp_path / "again.json").write_bytes(file.read_bytes() + b"\n")
    assert main(["cohort", str(file), str(tmp_path / "again.json"), "--no-cache"]) == 0
    printed = capsys.readouterr().err
    assert "took the same times to the nanosecond" in printed
    assert "again" in printed
    assert main(["cohort", str(traces), "--no-cache"]) == 0
    assert "took the same times" not in capsys.readouterr().err


def test_nothing_is_said_of_folders_above_those_that_tell_names_apart(traces: Path, tmp_path: Path) -> None:
    members = [
        Member("one", facts_of(xsp.open(traces / "one.json").trace, "one"), path=str(tmp_path / side / "run" / "one"))
        for side in ("a", "b")
    ]
    assert [member.name for member in _with_distinct_names(members)] == ["a/run/one", "b/run/one"]


@pytest.mark.slow
def test_the_page_links_to_reports_from_where_it_lies(traces: Path, tmp_path: Path) -> None:
    main(["batch", str(traces), "-o", str(tmp_path / "out"), "--jobs", "1"])
    page = tmp_path / "pages" / "cohort.html"
    page.parent.mkdir()
    assert main(["cohort", str(tmp_path / "out"), "-o", str(page)]) == 0
    assert '"../out/traces/one/report.html"' in page.read_text()


def test_tables_go_into_a_folder(traces: Path, tmp_path: Path) -> None:
    assert main(["cohort", str(traces), "-f", "csv", "-o", str(tmp_path / "tables")]) == 0
    assert (tmp_path / "tables" / "B13.csv").read_text().startswith("model,")


def test_a_summary_of_something_else_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "summary.json").write_text("[1]")
    assert main(["cohort", str(tmp_path)]) == 2
    assert "the summary of the batch cannot be read" in capsys.readouterr().err


def test_json_is_an_array_however_many_tables_have_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = KinetoTrace()
    made.runtime("cudaLaunchKernel", 1_000, 500)  # without a kernel, a layer or an operator
    assert main(["cohort", str(made.write(tmp_path / "trace.json")), "-f", "json"]) == 0
    assert [one["analysis"] for one in json.loads(capsys.readouterr().out)] == ["B13"]
