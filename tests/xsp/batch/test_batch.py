"""`xsp batch` on this machine: what comes of good and bad inputs, of a second run, and of workers that die."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.batches import bytes_below, trace_of
from xsp.batch.discover import discover
from xsp.batch.pool import run_here
from xsp.batch.unit import Kind, Settings, Status, Unit, UnitOutcome, own_version
from xsp.batch.work import process
from xsp.cli.main import main
from xsp.reading import LayerSource, Reading
from xsp_model import XspError, bundle

if TYPE_CHECKING:
    from collections.abc import Callable

_REPO = Path(__file__).parents[3]


@pytest.fixture(name="traces")
def fixture_traces(tmp_path: Path) -> Path:
    """Three good traces, one cut off, and one file of something else, in folders."""
    folder = tmp_path / "in"
    for name, scale in (("a/one", 100), ("a/two", 200), ("three", 300)):
        path = folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(trace_of(scale).to_bytes())
    (folder / "cut.json").write_bytes(trace_of(100).to_bytes()[:60])
    (folder / "notes.md").write_text("# not a trace\n")
    return folder


def _run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, dict[str, Any]]:
    status = main(["batch", *map(str, arguments), "-f", "json"])
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_the_index_shows_each_trace_at_a_glance(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, document = _run(capsys, traces, "-o", tmp_path / "out", "--jobs", "1")
    good = [row for row in document["traces"] if row["status"] == "ok"]
    for row in good:
        bar = row["facts"]["glance"]["bar"]
        assert sum(part["time_ns"] for part in bar["parts"]) == pytest.approx(bar["total_ns"], rel=1e-9)
    (section,) = (s for s in _page_data(tmp_path / "out" / "index.html")["sections"] if s["id"] == "glances")
    (block,) = section["blocks"]
    assert [(row["name"], row["link"]) for row in block["rows"]] == [(row["name"], row["report"]) for row in good]
    assert all(part["tone"].startswith("c-") for row in block["rows"] for part in row["bar"]["parts"])


@pytest.mark.slow
def test_without_reports_the_index_has_no_glances(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _run(capsys, traces, "-o", tmp_path / "out", "--jobs", "1", "--no-reports")
    assert "glances" not in [s["id"] for s in _page_data(tmp_path / "out" / "index.html")["sections"]]


def _page_data(path: Path) -> dict[str, Any]:
    """What the page's script draws it from."""
    text = path.read_text(encoding="utf-8")
    (data,) = re.findall(r'<script[^>]* id="data"[^>]*>(.*?)</script>', text, re.DOTALL)
    return dict(json.loads(data))


@pytest.mark.slow
def test_a_bad_file_does_not_stop_the_rest(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, document = _run(capsys, traces, "-o", tmp_path / "out", "--jobs", "2")
    assert status == 1
    assert [(row["name"], row["status"]) for row in document["traces"]] == [
        ("a-one", "ok"), ("a-two", "ok"), ("cut", "failed"), ("three", "ok")
    ]  # fmt: skip
    cut = document["traces"][2]
    assert "cut.json: the file is cut off" in cut["reason"]
    assert cut["report"] is None
    assert [Path(row["input"]).name for row in document["left_out"]] == ["notes.md"]
    assert document["costs"]["counts"] == {"done": 3, "kept": 0, "failed": 1, "left out": 0}
    one = document["traces"][0]
    assert bundle.read(tmp_path / "out" / one["bundle"]).row_count == one["facts"]["spans"]
    assert "</html>" in (tmp_path / "out" / one["report"]).read_text()
    index = (tmp_path / "out" / "index.html").read_text()
    assert '"traces/a-one/report.html"' in index
    assert "the file is cut off" in index


@pytest.mark.slow
def test_the_numbers_are_those_of_a_report_of_the_one_file(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, document = _run(capsys, traces / "a", "-o", tmp_path / "out", "--jobs", "1")
    facts = {row["name"]: row["facts"] for row in document["traces"]}
    # 100 us (200 us) of kernel in steps of 1.5 ms
    assert facts["one"]["speeds"][0]["latency_ns"] == facts["two"]["speeds"][0]["latency_ns"] == 1_500_000
    assert facts["one"]["gpu_share"] == pytest.approx(100 / 1500)
    assert facts["two"]["gpu_share"] == pytest.approx(200 / 1500)
    assert facts["one"]["mix"]["shares"] == {"linear": 1.0}
    assert main(["report", str(traces / "a" / "one.json"), "-o", str(tmp_path / "one.html")]) == 0
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "out/traces/one/report.html").read_bytes()


@pytest.mark.slow
def test_one_worker_and_many_write_the_same_bytes(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _run(capsys, traces, "-o", tmp_path / "one", "--jobs", "1")
    _run(capsys, traces, "-o", tmp_path / "many", "--jobs", "3")
    assert bytes_below(tmp_path / "one") == bytes_below(tmp_path / "many")


@pytest.mark.slow
def test_a_second_run_keeps_what_is_done(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (traces / "cut.json").unlink()
    out = tmp_path / "out"
    _run(capsys, traces, "-o", out, "--jobs", "1")
    before = bytes_below(out)
    status, document = _run(capsys, traces, "-o", out, "--jobs", "1")
    assert status == 0
    assert document["costs"]["counts"] == {"done": 0, "kept": 3, "failed": 0, "left out": 0}
    assert bytes_below(out) == before


@pytest.mark.slow
def test_what_changed_is_done_again(traces: Path, tmp_path: Path) -> None:
    path = traces / "three.json"
    unit = Unit("three", (str(path),))
    settings = Settings(str(tmp_path / "out"), version=own_version())
    assert process(unit, settings).status is Status.DONE
    assert process(unit, settings).status is Status.KEPT
    times = path.stat()
    path.write_bytes(trace_of(400).to_bytes())  # of the same size
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # and the same age: only its content tells
    assert path.stat().st_size == times.st_size
    outcome = process(unit, settings)
    assert outcome.status is Status.DONE
    assert outcome.facts is not None
    assert outcome.facts["gpu_share"] == pytest.approx(400 / 1500)
    for other in (
        replace(settings, redo=True),
        replace(settings, version="xsp of tomorrow"),
        replace(settings, reading=Reading(layer_source=LayerSource.OPERATOR)),
    ):
        assert process(unit, other).status is Status.DONE


def test_a_fault_of_ours_is_one_failed_trace(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object) -> None:
        raise ValueError("our own")

    monkeypatch.setattr("xsp_model.bundle.write", fault)
    outcome = process(Unit("one", (str(traces / "a/one.json"),)), Settings(str(tmp_path / "out")))
    assert outcome.status is Status.FAILED
    assert "a fault in xsp (ValueError: our own)" in outcome.reason
    assert "Traceback" in outcome.details
    assert not list((tmp_path / "out").rglob("*.parquet"))


def _process_or_die(unit: Unit, settings: Settings) -> UnitOutcome:
    """What a worker does, but that it is killed as the system would, or takes too much memory, where so named."""
    if unit.name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    held: list[bytearray] = []
    while unit.name == "greedy":
        if len(held) < 100:  # 1 GB, should the one who watches be slow
            held.append(bytearray(10_000_000))
        time.sleep(0.01)
    return process(unit, settings)


def _outcomes(
    traces: Path, out: Path, bad: str, monkeypatch: pytest.MonkeyPatch, limit_bytes: int
) -> dict[str, UnitOutcome]:
    monkeypatch.setattr("xsp.batch.pool.process", _process_or_die)
    names = {"one": "a/one.json", bad: "three.json", "two": "a/two.json"}
    units = [Unit(name, (str(traces / file),)) for name, file in names.items()]
    settings = Settings(str(out), version=own_version())
    return {o.unit.name: o for o in run_here(units, settings, jobs=1, limit_bytes=limit_bytes)}


def test_a_worker_that_is_killed_costs_one_trace(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = _outcomes(traces, tmp_path / "out", "killed", monkeypatch, 1 << 34)
    assert [outcomes[n].status for n in ("one", "killed", "two")] == [Status.DONE, Status.FAILED, Status.DONE]
    assert "its worker was killed by the system or died" in outcomes["killed"].reason


@pytest.mark.only_on("linux", reason="elsewhere a process's memory is not looked at")
def test_a_worker_beyond_its_memory_is_ended(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = _outcomes(traces, tmp_path / "out", "greedy", monkeypatch, 600_000_000)
    assert [outcomes[n].status for n in ("one", "greedy", "two")] == [Status.DONE, Status.FAILED, Status.DONE]
    assert "took more than 0.6 GB of memory" in outcomes["greedy"].reason


@pytest.mark.slow
def test_an_interrupt_leaves_nothing_half_done(traces: Path, tmp_path: Path) -> None:
    for n in range(40):
        shutil.copy(traces / "three.json", traces / f"more{n}.json")
    out = tmp_path / "out"
    code = "import sys; from xsp.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "batch", str(traces), "-o", str(out), "--jobs", "1"]
    batch = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(_REPO)}, stderr=subprocess.PIPE, text=True)
    _wait(lambda: len(list(out.glob("traces/*"))) >= 2)
    batch.send_signal(signal.SIGTERM)
    _, errors = batch.communicate(timeout=300)
    assert batch.returncode == 130
    assert "interrupted" in errors
    done = sorted(out.glob("traces/*"))
    assert 2 <= len(done) < 43
    assert all((each / "done.json").is_file() and (each / "report.html").is_file() for each in done)
    assert not list(out.glob(".unfinished-*"))
    assert not (out / "index.html").exists()


def _wait(until: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.only_on("linux", "darwin", reason="elsewhere folders are not locked")
def test_two_batches_do_not_write_into_one_folder(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import fcntl  # noqa: PLC0415

    out = tmp_path / "out"
    out.mkdir()
    with (out / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["batch", str(traces), "-o", str(out)]) == 2
    assert "another xsp batch is writing into this folder" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "there is no such file or folder"),
        ([".", "--memory", "much"], "no size of memory"),
        ([".", "--scheduler", "tcp://127.0.0.1:1", "--jobs", "2"], "--jobs and --memory concern"),
    ],
)
def test_mistakes_are_sentences(
    arguments: list[str], sentence: str, traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(traces / "a")
    assert main(["batch", *arguments, "-o", str(tmp_path / "out")]) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.slow
def test_a_folder_without_traces_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "notes.md").write_text("# nothing\n")
    assert main(["batch", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 2
    assert "no file of a known profiler format is there" in capsys.readouterr().err


@pytest.mark.slow
def test_results_of_an_earlier_batch_are_not_inputs(traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _run(capsys, traces, "-o", traces / "out", "--jobs", "1")
    _, document = _run(capsys, traces, "-o", traces / "out", "--jobs", "1")
    assert [row["name"] for row in document["traces"]] == ["a-one", "a-two", "cut", "three"]


# What is a trace


def _names(folder: Path, *, ranks: bool | None = None) -> list[tuple[str, str | None, int | None]]:
    discovered = discover([str(folder)], "/nowhere", ranks=ranks, format_name=None)
    return [(u.name, u.job, u.rank) for u in discovered.units]


def test_names_that_come_twice_are_numbered(tmp_path: Path) -> None:
    for scale, name in enumerate(("x/t.json", "x-t.json", "X-T.json"), 100):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(trace_of(scale).to_bytes())
    assert [name for name, _, _ in _names(tmp_path)] == ["X-T", "x-t-2", "x-t-3"]


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for scale, name in enumerate(("runs/a/trace.json", "runs/b/trace.json", "runs/b/other.json"), 100):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(trace_of(scale).to_bytes())
    for inputs in (
        [str(tmp_path / "runs/*/*.json")],  # a pattern
        [str(tmp_path / "runs" / folder) for folder in "ab"],  # folders one by one
        sorted(str(path) for path in tmp_path.glob("runs/*/*.json")),  # files one by one
    ):
        discovered = discover(inputs, "/nowhere", ranks=None, format_name=None)
        assert sorted(u.name for u in discovered.units) == ["a-trace", "b-trace", "other"]


def test_the_same_file_twice_is_one_unit(traces: Path) -> None:
    discovered = discover([str(traces / "a"), str(traces / "a" / "one.json")], "/nowhere", ranks=None, format_name=None)
    assert [u.name for u in discovered.units] == ["one", "two"]


@pytest.mark.parametrize("names", [("rank0.json", "rank1.json"), ("rank_00/t.json", "rank_01/t.json")])
def test_ranks_are_known_by_their_names(names: tuple[str, ...], tmp_path: Path) -> None:
    job = tmp_path / "job"
    for scale, name in enumerate(names, 100):
        (job / name).parent.mkdir(parents=True, exist_ok=True)
        (job / name).write_bytes(trace_of(scale).to_bytes())
    assert _names(job) == [("rank-0", "job", 0), ("rank-1", "job", 1)]
    assert {job for _, job, _ in _names(job, ranks=False)} == {None}


def test_ranks_are_known_by_what_their_files_say(tmp_path: Path) -> None:
    for rank in (1, 0):
        head = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}}
        (tmp_path / f"host{1 - rank}.json").write_bytes(trace_of(100, **head).to_bytes())
    assert _names(tmp_path) == [("rank-0", tmp_path.name, 0), ("rank-1", tmp_path.name, 1)]


def test_traces_of_one_rank_are_no_job(tmp_path: Path) -> None:
    head = {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1}}
    for scale, name in enumerate(("a", "b"), 100):
        (tmp_path / f"{name}.json").write_bytes(trace_of(scale, **head).to_bytes())
    assert [job for _, job, _ in _names(tmp_path)] == [None, None]


def test_ranks_that_are_forced_are_numbered_in_order(traces: Path) -> None:
    assert _names(traces / "a", ranks=True) == [("rank-0", "a", 0), ("rank-1", "a", 1)]


def test_a_forced_job_with_a_rank_twice_is_refused(tmp_path: Path) -> None:
    for scale, name in enumerate(("a/rank0.json", "b/rank0.json"), 100):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(trace_of(scale).to_bytes())
    with pytest.raises(XspError, match="two traces are of rank 0"):
        _names(tmp_path, ranks=True)


@pytest.mark.parametrize(
    ("models", "batch_sizes", "names"),
    [(("a", "b"), (1, 1), ["a", "b"]), (("a", "a"), (1, 2), ["set"])],
)
def test_runs_of_different_work_are_no_run_set_and_runs_of_several_batch_sizes_are_one(
    tmp_path: Path, models: tuple[str, ...], batch_sizes: tuple[int, ...], names: list[str]
) -> None:
    for name, model, batch_size in zip(("a", "b"), models, batch_sizes, strict=True):
        folder = tmp_path / "set" / name
        folder.mkdir(parents=True)
        (folder / "trace.json").write_bytes(trace_of(100).to_bytes())
        run = {
            "schema_version": 1, "level": "MLG", "model": {"name": model}, "framework": {"name": "pytorch"},
            "batch_size": batch_size, "device": {"name": "none"}, "steps": 2, "files": [{"path": "trace.json"}],
        }  # fmt: skip
        (folder / "run.json").write_text(json.dumps(run))
    assert [name.rpartition("/")[2] for name, _, _ in _names(tmp_path / "set")] == names


def test_logs_of_one_load_test_are_one_unit() -> None:
    assert [n for n, _, _ in _names(_REPO / "fixtures/loadgen/offline_cpu")] == ["mlperf_log_trace"]


def test_units_of_a_job_are_ranks(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.json").write_bytes(trace_of(100 + rank).to_bytes())
    discovered = discover([str(tmp_path)], "/nowhere", ranks=None, format_name=None)
    assert {u.kind for u in discovered.units} == {Kind.RANK}
