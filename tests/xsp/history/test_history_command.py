"""`xsp history` as a user meets it, and where batches, queries and Python use a history."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import xsp
from tests.helpers.batches import trace_of
from tests.helpers.history_runs import write_store
from xsp.cli.main import main
from xsp_analyze.history import changes

_LABELS = ["--label", "model=net", "--label", "branch=main"]


def _trace(folder: Path, scale: int) -> Path:
    """Steps of 1.5 ms; kernels of so many microseconds."""
    folder.mkdir(parents=True, exist_ok=True)
    return trace_of(scale).write(folder / f"trace{scale}.json")


def _text(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.replace("\N{NARROW NO-BREAK SPACE}", " ")


def test_a_run_is_added_once_and_a_second_time_it_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, trace = tmp_path / "store", _trace(tmp_path, 100)
    for sentence in ("trace100.json: added", "trace100.json: is in the history already, and is not added again"):
        assert main(["history", "add", str(store), str(trace), *_LABELS, "--time", "2026-11-27T02:00"]) == 0
        assert sentence in capsys.readouterr().err
    (row,) = xsp.history.open(store).facts().iter_rows(named=True)
    assert (row["model"], row["branch"], row["label.branch"]) == ("net", "main", "main")
    assert row["latency_ns"] == pytest.approx(1_500_000, rel=0.1)
    assert f"{row['time']:%Y-%m-%dT%H:%M}" == "2026-11-27T02:00"
    assert row["device_time_ns"] == 100_000
    assert row["xsp"].startswith(("0.", "1."))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["add", "store", "trace.json", "--label", "commit"], "'commit' is no label. Write it as commit=1a2b3c"),
        (["add", "store", "trace.json", "--label", "a=1", "--label", "a=2"], "the label 'a' is given twice"),
        (["add", "store", "trace.json", "--time", "yesterday"], "'yesterday' is no time"),
        (["add", "store"], "xsp history add takes a store and runs"),
        (["show", "store", "trace.json"], "xsp history show takes a store and no runs"),
        (["show", "store"], "store: holds no history of runs. Add runs with `xsp history add STORE TRACE`"),
        (["gate", "store", "trace.json", "--fail-on", "step.speed > 3%"], "a model has no 'speed'"),
        (["add", "store", "missing.json"], "missing.json"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    _trace(tmp_path, 100).rename("trace.json")
    assert main(["history", *arguments]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1
    assert not Path("store").exists()


def test_show_writes_text_json_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = write_store(
        tmp_path / "store",
        [10e6 + number % 3 * 1e4 for number in range(20)] + [11e6 + number % 3 * 1e4 for number in range(8)],
    )
    assert main(["history", "show", str(store)]) == 0
    assert "Step time rose by 9.9" in _text(capsys)
    assert main(["history", "show", str(store), "-f", "json"]) == 0
    (series,) = json.loads(_text(capsys))["series"]
    assert series["changes"][0]["causes"][0]["name"] == "softmax"
    assert main(["history", "show", str(store), "-o", str(tmp_path / "page.html")]) == 0
    assert '"type":"trend"' in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_show_says_how_to_get_the_library_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ruptures", None)
    store = write_store(tmp_path / "store", [10e6] * 10)
    assert main(["history", "show", str(store)]) == 2
    assert "finding where a history changed needs ruptures, which is not installed" in capsys.readouterr().err
    assert changes.MIN_SIDE == 4


@pytest.mark.parametrize(("scale", "status", "verdict"), [(100, 0, "passed"), (400, 1, "regressed")])
def test_gate_holds_a_run_against_its_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scale: int, status: int, verdict: str
) -> None:
    store = tmp_path / "store"
    for number in range(8):
        trace = _trace(tmp_path / "runs", 99 + number % 3 + number * 1_000 // 999)
        main(["history", "add", str(store), str(trace), *_LABELS, "--time", f"2026-11-{number + 1:02}"])
    rule = ["--fail-on", "model.device_time > +20%"]
    assert main(["history", "gate", str(store), str(_trace(tmp_path, scale)), *_LABELS, *rule]) == status
    assert f"**{verdict}**, held against" in _text(capsys)


def test_gate_without_a_history_is_inconclusive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["history", "gate", str(tmp_path / "store"), str(_trace(tmp_path, 100))]
    assert main(arguments) == 0
    assert "**inconclusive**: the history holds no run yet" in _text(capsys)
    assert main([*arguments, "--fail-on-inconclusive", "-f", "json"]) == 3
    assert json.loads(_text(capsys))["verdict"] == "inconclusive"


def test_gate_says_which_label_was_forgotten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, trace = str(tmp_path / "store"), str(_trace(tmp_path, 100))
    main(["history", "add", store, trace, *_LABELS])
    other = str(_trace(tmp_path, 101))
    assert main(["history", "gate", store, other, "--label", "model=net"]) == 0
    assert (
        "of 1 series in the history none is of this run. Of the nearest it differs in that branch is not known and"
        in (_text(capsys))
    )
    assert main(["history", "gate", store, trace, *_LABELS]) == 0
    assert "the history holds no other run of this series" in _text(capsys)


def test_a_batch_adds_what_it_converts_and_what_it_had(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for scale in (100, 200):
        _trace(tmp_path / "in", scale)
    batch = ["batch", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--jobs", "1"]
    assert main(batch) == 0
    store = tmp_path / "store"
    assert main([*batch, "--history", str(store), "--label", "commit=abc"]) == 0
    facts = xsp.history.open(store).facts()
    assert facts["device_time_ns"].sort().to_list() == [100_000, 200_000]
    assert set(facts["label.commit"]) == {"abc"}
    assert all(Path(report).is_file() for report in facts["report"])
    assert main(["history", "add", str(store), str(tmp_path / "out")]) == 0
    assert capsys.readouterr().err.count("is in the history already") == 2


def test_labels_of_a_batch_need_a_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batch", str(_trace(tmp_path, 100)), "-o", str(tmp_path / "out"), "--label", "commit=abc"]) == 2
    assert "labels are for a history of runs" in capsys.readouterr().err


def test_a_batch_into_what_is_no_history_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = _trace(tmp_path, 100)
    assert main(["batch", str(trace), "-o", str(tmp_path / "out"), "--history", str(trace), "--label", "a=1"]) == 2
    assert "trace100.json: is a file, and a history is a folder" in capsys.readouterr().err
    assert [file for file in (tmp_path / "out").rglob("*") if file.is_file()] == []


def test_sql_over_a_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = write_store(tmp_path / "store", [10e6, 11e6])
    text = """select r."label.commit" as c, f.value from facts f join runs r on f.run = r.run where f.name = 'gemm'"""
    assert main(["query", str(store), text, "-f", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert sorted((row["c"], round(row["value"])) for row in rows) == [("c000", 6_000_000), ("c001", 6_000_000)]
    assert xsp.history.open(store).query("select count(*) as n from runs")["n"].to_list() == [2]
    assert isinstance(xsp.history.open(store).facts(), pl.DataFrame)


def test_sql_over_a_history_says_what_it_leaves_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = write_store(tmp_path / "store", [10e6, 11e6])
    torn = min(store.iterdir())
    torn.write_bytes(torn.read_bytes()[:100])
    assert main(["query", str(store), "select count(*) as n from runs", "-f", "csv"]) == 0
    answer = capsys.readouterr()
    assert answer.out.split() == ["n", "1"]
    assert f"{torn.name} is left out" in answer.err


def test_sql_over_a_history_at_a_url(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("fsspec")
    store = "memory://history-that-is-asked"
    assert main(["history", "add", store, str(_trace(tmp_path, 100)), *_LABELS]) == 0
    assert main(["query", store, "select model from runs", "-f", "csv"]) == 0
    assert capsys.readouterr().out.split() == ["model", "net"]
