"""`xsp batch` with workers and files elsewhere: a Dask cluster of processes, and an S3 of moto on this machine."""

from __future__ import annotations

import gzip
import http.server
import json
import os
import shutil
import signal
import socket
import threading
import urllib.request
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.batches import bytes_below, trace_of
from tests.helpers.run_sets import merged, write_run
from xsp.batch import cluster
from xsp.batch.discover import discover
from xsp.batch.unit import Settings, Status, Unit, UnitOutcome, own_version
from xsp.batch.work import process
from xsp.cli.main import main
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import bundle
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

S3 = Any  # s3fs has no types

pytestmark = [
    pytest.mark.slow,
    # Libraries of others, in processes of theirs: what they leave open when they end is not ours to close.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_BUCKET = "traces"


@pytest.fixture(name="scheduler", scope="module")
def fixture_scheduler() -> Iterator[str]:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed (the extra `cluster`)")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", silence_logs=50
    ) as scheduler:
        yield str(scheduler.scheduler_address)


@pytest.fixture(name="s3")
def fixture_s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A file system of s3fs over a bucket that only this test has; workers started later find it by the environment."""
    server = pytest.importorskip("moto.server", reason="moto is not installed (the extra `test-cluster`)")
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed (the extra `cluster`)")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()
    for name, value in _environment(f"http://{host}:{port}").items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    system = s3fs.S3FileSystem(use_listings_cache=False)
    system.mkdir(_BUCKET)
    yield system
    s3fs.S3FileSystem.clear_instance_cache()
    running.stop()


@pytest.fixture(name="web")
def fixture_web(tmp_path: Path) -> Iterator[str]:
    """The address of a server of the test's folder."""
    for package in ("fsspec", "aiohttp"):
        pytest.importorskip(package, reason=f"{package} is not installed (the extra `cluster`)")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _environment(url: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for n in range(3):
        (folder / f"t{n}.json").write_bytes(trace_of(100 + n).to_bytes())
    (folder / "cut.json").write_bytes(trace_of(100).to_bytes()[:60])
    return folder


# A cluster


def test_a_cluster_writes_what_this_machine_does(
    scheduler: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _folder(tmp_path)
    status = main(["batch", str(folder), "-o", str(tmp_path / "far"), "--scheduler", scheduler, "-f", "json"])
    captured = capsys.readouterr()
    assert status == 1  # one trace is cut off
    assert "dashboard: http://" in captured.err
    assert json.loads(captured.out)["costs"]["counts"]["done"] == 3
    main(["batch", str(folder), "-o", str(tmp_path / "near"), "--jobs", "1"])
    assert bytes_below(tmp_path / "near") == bytes_below(tmp_path / "far")


def _process_or_die(unit: Unit, settings: Settings) -> UnitOutcome:
    if unit.name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return process(unit, settings)


def test_a_trace_that_kills_its_workers_is_one_failed_trace(
    scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _folder(tmp_path)
    monkeypatch.setattr(cluster, "process", _process_or_die)
    units = [Unit(name, (str(folder / "t0.json"),)) for name in ("one", "killed", "two")]
    settings = Settings(str(tmp_path / "out"), version=own_version())
    outcomes = cluster.run_on_cluster(units, settings, scheduler=scheduler, say=lambda _: None)
    by_name = {o.unit.name: o for o in outcomes}
    assert by_name["killed"].status is Status.FAILED
    # Where a result was lost with the other trace's worker, that trace is taken up again, and found to be done.
    assert {by_name[n].status for n in ("one", "two")} <= {Status.DONE, Status.KEPT}
    assert "its worker died or was lost (KilledWorker" in by_name["killed"].reason


@override_limits(cluster_timeout_s=1)
def test_a_scheduler_that_does_not_answer_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("distributed")
    address = f"tcp://127.0.0.1:{_free_port()}"
    assert main(["batch", str(_folder(tmp_path)), "-o", str(tmp_path / "out"), "--scheduler", address]) == 2
    captured = capsys.readouterr()
    assert "the scheduler does not answer" in captured.err
    assert captured.err.count("\n") == 1


def test_workers_of_another_version_are_refused(scheduler: str, tmp_path: Path) -> None:
    settings = Settings(str(tmp_path), version="xsp of tomorrow")
    with pytest.raises(Exception, match="Install the same version on all machines"):
        list(cluster.run_on_cluster([], settings, scheduler=scheduler, say=lambda _: None))


# Files elsewhere


def test_traces_are_read_from_and_written_to_s3(s3: S3, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = _folder(tmp_path)
    s3.put(str(folder), f"{_BUCKET}/in", recursive=True)
    s3.pipe_file(f"{_BUCKET}/in/notes.md", b"# not a trace\n")
    command = ["batch", f"s3://{_BUCKET}/in", "-o", f"s3://{_BUCKET}/out", "--jobs", "1", "-f", "json"]
    assert main(command) == 1
    document = json.loads(capsys.readouterr().out)
    assert {row["name"]: row["status"] for row in document["traces"]} == {
        "cut": "failed", "t0": "ok", "t1": "ok", "t2": "ok"
    }  # fmt: skip
    assert [row["input"] for row in document["left_out"]] == [f"s3://{_BUCKET}/in/notes.md"]
    assert document["traces"][0]["reason"].startswith(f"s3://{_BUCKET}/in/cut.json: the file is cut off")
    s3.get(f"{_BUCKET}/out", str(tmp_path / "far"), recursive=True)
    main(["batch", str(folder), "-o", str(tmp_path / "near"), "--jobs", "1"])
    capsys.readouterr()
    same = ("trace.xsp", "report.html", "facts.json")
    near, far = (bytes_below(tmp_path / side / "traces") for side in ("near", "far"))
    assert {n: d for n, d in near.items() if any(s in n for s in same)} == {
        n: d for n, d in far.items() if any(s in n for s in same)
    }
    # What is done is told by the stamp of the object, which is not fetched again.
    s3.pipe_file(f"{_BUCKET}/in/t1.json", trace_of(777).to_bytes())
    main(command)
    assert json.loads(capsys.readouterr().out)["costs"]["counts"] == {
        "done": 1, "kept": 2, "failed": 1, "left out": 0
    }  # fmt: skip


def test_workers_of_a_cluster_read_and_write_s3_themselves(
    s3: S3, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    distributed = pytest.importorskip("distributed")
    s3.put(str(_folder(tmp_path)), f"{_BUCKET}/in", recursive=True)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", silence_logs=50
    ) as workers:  # started here, so that they find the S3 of this test by its environment
        command = ["batch", f"s3://{_BUCKET}/in", "-o", f"s3://{_BUCKET}/out", "--scheduler", workers.scheduler_address]
        assert main([*command, "-f", "json"]) == 1
        assert json.loads(capsys.readouterr().out)["costs"]["counts"]["done"] == 3
    s3.get(f"{_BUCKET}/out", str(tmp_path / "far"), recursive=True)
    s3.rm(f"{_BUCKET}/out", recursive=True)
    assert main(["batch", f"s3://{_BUCKET}/in", "-o", f"s3://{_BUCKET}/out", "--jobs", "1"]) == 1
    s3.get(f"{_BUCKET}/out", str(tmp_path / "near"), recursive=True)
    assert bytes_below(tmp_path / "far") == bytes_below(tmp_path / "near")


def test_traces_of_a_web_server_are_read(tmp_path: Path, web: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder is a page that lists files; its sizes are unknown. Bundles are folders of it."""
    folder = _folder(tmp_path)
    (folder / "cut.json").unlink()
    source = trace_of(900).write(tmp_path / "kept.json")
    assert main(["convert", str(source), "-o", str(folder / "deep" / "kept.xsp")]) == 0
    assert main(["batch", str(folder), "-o", str(tmp_path / "near"), "--jobs", "1", "-f", "json"]) == 0
    assert main(["batch", f"{web}/in/", "-o", str(tmp_path / "far"), "--jobs", "1", "-f", "json"]) == 0
    assert main(["batch", f"{web}/in/t1.json", "-o", str(tmp_path / "one"), "--jobs", "1", "-f", "json"]) == 0
    capsys.readouterr()
    near, far, one = (bytes_below(tmp_path / side / "traces") for side in ("near", "far", "one"))
    reports = [name for name in near if name.endswith(("report.html", "facts.json"))]
    assert len(reports) == 8
    assert all(far[name] == near[name] for name in reports)
    assert {name: one[name] for name in reports if name in one} == {n: near[n] for n in reports if n.startswith("t1")}


def test_patterns_and_run_sets_of_s3_are_units(s3: S3) -> None:
    for name in ("a/m/run.json", "a/mlg/run.json", "a/mlg/trace.json", "b.xsp/manifest.json", "c/x.json", "c/y.txt"):
        s3.pipe_file(f"{_BUCKET}/{name}", b"{}")
    discovered = discover([f"s3://{_BUCKET}/"], "/nowhere", ranks=None, format_name=None)
    assert [(u.name, u.inputs[0]) for u in discovered.units] == [
        ("a", f"s3://{_BUCKET}/a"),
        ("b", f"s3://{_BUCKET}/b.xsp"),
        ("c-x", f"s3://{_BUCKET}/c/x.json"),
        ("c-y", f"s3://{_BUCKET}/c/y.txt"),
    ]
    discovered = discover([f"s3://{_BUCKET}/c/*.json"], "/nowhere", ranks=None, format_name=None)
    assert [u.name for u in discovered.units] == ["x"]


def test_ranks_on_s3_are_joined_from_their_small_tables(s3: S3, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        s3.pipe_file(f"{_BUCKET}/job/rank{rank}.json", trace_of(100 * (rank + 1)).to_bytes())
    command = ["batch", f"s3://{_BUCKET}/job", "-o", f"s3://{_BUCKET}/out", "--jobs", "1", "-f", "json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["jobs"][0]["name"] == "job"
    tables = json.loads(s3.cat_file(f"{_BUCKET}/out/jobs/job/ranks.json"))
    kernels = next(t for t in tables if t["title"] == "kernels over ranks")
    assert [(r["count"], r["duration_ns"]) for r in kernels["rows"]] == [(4, 600_000)]


def test_a_url_that_cannot_be_reached_is_a_sentence(s3: S3, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert s3 is not None
    for url, sentence in ((f"s3://{_BUCKET}/none", "nothing is there"), ("odd://x/y", "cannot be reached")):
        assert main(["batch", url, "-o", str(tmp_path / "out")]) == 2
        captured = capsys.readouterr()
        assert sentence in captured.err
        assert captured.err.count("\n") == 1


def _write_copies(folder: Path) -> None:
    """Two jobs whose heads say their ranks, one of both; copies and gzip of ranks, traces, a bundle and a run set."""
    for job, scales in (("one", (100, 101)), ("two", (100, 102))):
        (folder / job).mkdir(parents=True)
        for rank, scale in enumerate(scales):
            head = {"distributedInfo": {"rank": rank, "world_size": 2}}
            trace_of(scale, **head).write(folder / job / f"host-{rank}.json")
    packed = gzip.compress((folder / "one" / "host-1.json").read_bytes())
    for name in ("one/host-1.json.gz", "alone.json.gz"):
        (folder / name).write_bytes(packed)
    trace_of(200).write(folder / "b.json")
    shutil.copyfile(folder / "b.json", folder / "c.json")
    bundle.write(convert([folder / "b.json"], Options()), folder / "b.xsp")
    shutil.copytree(folder / "b.xsp", folder / "c.xsp")
    trace_of(201).write(folder / "gone.json")
    bundle.write(convert([folder / "gone.json"], Options()), folder / "d.xsp")
    (folder / "gone.json").unlink()
    shutil.copytree(folder / "d.xsp", folder / "e.xsp")
    write_run(folder / "runs" / "MLG", "MLG", trace_of(300), batch_size=1, device={"name": "GPU"})
    write_run(folder / "runs" / "M", "M", batch_size=1, device={"name": "GPU"}, step_durations_ns=[1_000])
    shutil.copytree(folder / "runs", folder / "runs-again")
    bundle.write(merged(folder / "runs"), folder / "profile.xsp")


def _discovered(where: str, *, ranks: bool | None = None) -> tuple[object, ...]:
    """All of it, by places below where the inputs lie."""
    discovered = discover([where], "/nowhere", ranks=ranks, format_name=None)

    def below(text: str) -> str:
        return text.replace(where, "").replace(where.rstrip("/"), "").strip("/")

    units = [(unit.name, unit.job, unit.rank, [below(name) for name in unit.inputs]) for unit in discovered.units]
    copies = {below(copy): below(of) for copy, of in discovered.copies.items()}
    return units, copies, [below(sentence) for sentence in discovered.same_ranks]


@pytest.mark.parametrize("kind", ["s3", "http"])
def test_copies_and_ranks_elsewhere_are_those_of_a_folder_here(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / "in"
    _write_copies(folder)
    elsewhere = f"s3://{_BUCKET}/in/"
    if kind == "s3":
        request.getfixturevalue("s3").put(str(folder), f"{_BUCKET}/in", recursive=True)
    else:
        elsewhere = f"{request.getfixturevalue('web')}/in/"
    near = _discovered(f"{folder}/")
    assert _discovered(elsewhere) == near
    units, copies, same_ranks = near
    assert units == [
        ("b", None, None, ["b.json"]), ("d", None, None, ["d.xsp"]), ("runs", None, None, ["runs"]),
        ("rank-0", "one", 0, ["one/host-0.json"]), ("rank-1", "one", 1, ["one/host-1.json"]),
        ("rank-0", "two", 0, ["two/host-0.json"]), ("rank-1", "two", 1, ["two/host-1.json"]),
    ]  # fmt: skip
    assert copies == {
        "alone.json.gz": "one/host-1.json", "one/host-1.json.gz": "one/host-1.json", "c.json": "b.json",
        "b.xsp": "b.json", "c.xsp": "b.xsp", "e.xsp": "d.xsp", "runs-again": "runs", "profile.xsp": "runs/M/run.json",
    }  # fmt: skip
    assert len(same_ranks) == 1  # type: ignore[arg-type]


def test_ranks_of_a_job_on_s3_are_not_numbered_where_their_files_say_them(s3: S3) -> None:
    for rank in (1, 0):
        content = trace_of(100, distributedInfo={"rank": rank, "world_size": 2}).to_bytes()
        s3.pipe_file(f"{_BUCKET}/job/{1 - rank}.json", content)
        s3.pipe_file(f"{_BUCKET}/job/{1 - rank}.json.gz", gzip.compress(content))
    for ranks in (None, True):
        units, _, _ = _discovered(f"s3://{_BUCKET}/job/", ranks=ranks)
        assert units == [("rank-0", "job", 0, ["1.json"]), ("rank-1", "job", 1, ["0.json"])]


def test_what_begins_alike_elsewhere_and_goes_on_otherwise_is_no_copy(s3: S3) -> None:
    content = trace_of(100, **{f"padding_{n}": "x" * 1_000 for n in range(100)}).to_bytes()
    for number in range(2):
        s3.pipe_file(f"{_BUCKET}/in/{number}.json", content[:-1] + f',"number": {number}}}'.encode())
    units, copies, _ = _discovered(f"s3://{_BUCKET}/in/")
    assert (len(units), copies) == (2, {})  # type: ignore[arg-type]
