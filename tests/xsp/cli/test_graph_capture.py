"""`--graph-capture` wherever traces are read, and what it says of files that it is of no use with."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import polars as pl
import pytest

import xsp
from tests.helpers.graph_pairs import Piece, add_capture, add_replay, captured, replayed
from tests.helpers.run_sets import write_run
from tests.helpers.synth import KinetoTrace
from xsp.cache import cache as caching
from xsp.cache.cache import Cache
from xsp.cli.main import main
from xsp.opening import load
from xsp.reading import Reading
from xsp_model import Trace, XspError
from xsp_model.limits import override_limits

GRAPH = (Piece("gemm", "Linear_0", "aten::mm"), Piece("relu", "ReLU_0", "aten::relu"))


@pytest.fixture(name="pair")
def replay_and_capture(tmp_path: Path) -> tuple[str, str]:
    """Files of two replays of a graph, and of its capture."""
    replay = replayed([["gemm", "relu"]] * 2).write(tmp_path / "replay.json")
    return str(replay), str(captured([GRAPH]).write(tmp_path / "capture.json"))


def _layers(trace: Trace) -> list[str]:
    work = trace.frame("spans").filter(pl.col("attribution") == "layer").sort("start_ns")
    layers = trace.frame("layers").select(pl.col("span_id").alias("layer_id"), pl.col("layer_name").cast(pl.String))
    return work.join(layers, on="layer_id", how="left", maintain_order="left")["layer_name"].to_list()


@pytest.mark.parametrize(
    "arguments",
    [
        ["info"],
        ["top"],
        ["findings"],
        ["analyze", "-a", "A11"],
        ["query", "SELECT layer_name FROM layers"],
        ["report", "-o", "{folder}/report.html"],
        ["export", "--to", "chrome", "-o", "{folder}/out.json"],
        ["convert", "-o", "{folder}/out.xsp"],
        ["batch", "-o", "{folder}/all"],
        ["cohort", "-o", "{folder}/cohort"],
        ["compare"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_every_command_that_reads_traces_takes_it(
    arguments: list[str], pair: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replay, capture = pair
    command, *rest = (each.format(folder=tmp_path) for each in arguments)
    files = [replay] * (2 if command in ("compare", "cohort") else 1)
    code = main(
        [
            command,
            *files,
            *rest,
            "--graph-capture",
            capture,
            *(() if command in ("batch", "convert") else ("--no-cache",)),
        ]
    )
    assert code == 0, capsys.readouterr().err


def test_python_takes_paths_or_texts(pair: tuple[str, str], tmp_path: Path) -> None:
    for paths in ([pair[1]], [tmp_path / "capture.json"]):
        assert _layers(xsp.open(pair[0], graph_captures=paths).trace) == ["Linear_0", "ReLU_0"] * 2


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("replay.json", "no graph was captured in what --graph-capture names"),
        ("none.json", "there is no such file"),
        ("empty", "no file of a known profiler format is in the directory"),
    ],
)
def test_what_holds_no_capture_is_one_sentence(
    path: str, says: str, pair: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    other = str(captured([GRAPH]).write(tmp_path / "input.json")) if path == "replay.json" else pair[0]
    assert main(["info", other, "--graph-capture", str(tmp_path / path)]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.startswith(f"error: {tmp_path / path}:") or path in error
    assert len(error.strip().splitlines()) == 1


def test_a_capture_and_what_is_packed_of_it_are_one(pair: tuple[str, str], tmp_path: Path) -> None:
    packed = tmp_path / "capture.json.gz"
    packed.write_bytes(gzip.compress(Path(pair[1]).read_bytes()))
    trace = xsp.open(pair[0], graph_captures=[pair[1], packed]).trace
    assert trace.frame("runs")["source_path"].to_list() == ["replay.json", "capture.json"]
    copy = shutil.copyfile(pair[0], tmp_path / "copy-of-replay.json")
    assert main(["info", pair[0], "--graph-capture", str(copy)]) == 2  # which holds no capture either


def test_a_folder_may_hold_files_without_captures(pair: tuple[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    folder.mkdir()
    captured([GRAPH]).write(folder / "a.json")
    replayed([["gemm"]]).write(folder / "b.json")
    trace = xsp.open(pair[0], graph_captures=[folder]).trace
    assert _layers(trace) == ["Linear_0", "ReLU_0"] * 2
    assert trace.frame("runs")["source_path"].to_list() == ["replay.json", "captures/a.json"]


def test_a_bundle_is_converted_already(pair: tuple[str, str], tmp_path: Path) -> None:
    bundle = str(tmp_path / "trace.xsp")
    assert main(["convert", pair[0], "-o", bundle]) == 0
    with pytest.raises(XspError, match="--graph-capture concerns source files; this bundle is already converted"):
        load([bundle], Reading(graph_captures=(tmp_path / "capture.json",)), lambda _: None)


def test_a_bundle_keeps_what_was_paired(pair: tuple[str, str], tmp_path: Path) -> None:
    bundle = str(tmp_path / "trace.xsp")
    assert main(["convert", pair[0], "--graph-capture", pair[1], "-o", bundle]) == 0
    assert _layers(load([bundle], Reading(), lambda _: None)) == ["Linear_0", "ReLU_0"] * 2


def test_the_input_itself_may_be_named_as_its_capture(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    end = add_capture(kineto, GRAPH, 1_000_000)
    add_replay(kineto, ["gemm", "relu"], end + 1_000_000)
    path = kineto.write(tmp_path / "both.json")
    trace = xsp.open(path, graph_captures=[path]).trace
    assert _layers(trace) == ["Linear_0", "ReLU_0"]
    assert trace.frame("runs").height == 1
    later = xsp.open(path, graph_captures=[path], time_range="500us..").trace  # which leaves the capture out
    assert _layers(later) == ["Linear_0", "ReLU_0"]


def test_a_part_of_the_input_pairs_with_the_capture_as_a_whole(pair: tuple[str, str]) -> None:
    replay, capture = pair
    assert _layers(xsp.open(replay, graph_captures=[capture], time_range="0ms..20us").trace) == ["Linear_0", "ReLU_0"]
    assert _layers(xsp.open(replay, graph_captures=[capture], process_ids=[100]).trace) == ["Linear_0", "ReLU_0"] * 2


def test_runs_of_a_set_pair_with_it(pair: tuple[str, str], tmp_path: Path) -> None:
    write_run(
        tmp_path / "set" / "kernels", "MLG", replayed([["gemm", "relu"]]), batch_size=1, device={"name": "by hand"}
    )
    trace = xsp.open(tmp_path / "set", graph_captures=[pair[1]]).trace
    assert _layers(trace) == ["Linear_0", "ReLU_0"]


@override_limits(settled_after_ns=-3_600_000_000_000)  # as for the other tests of the cache
@pytest.mark.only_on("linux", "darwin", reason="elsewhere nothing is kept")
def test_a_changed_capture_is_converted_anew(
    pair: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(caching.LIMIT_VARIABLE, raising=False)
    reading = Reading(graph_captures=(tmp_path / "capture.json",))
    cache = Cache(tmp_path / "cache", worth_bytes=0)
    first = load([pair[0]], reading, lambda _: None, cache=cache)
    assert len(list((tmp_path / "cache" / "traces").glob("*.xsp"))) == 1
    load([pair[0]], reading, lambda _: None, cache=cache)
    assert len(list((tmp_path / "cache" / "traces").glob("*.xsp"))) == 1
    captured([[Piece("gemm", "Other_0"), Piece("relu", "ReLU_0")]]).write(tmp_path / "capture.json")
    second = load([pair[0]], reading, lambda _: None, cache=cache)
    assert (_layers(first)[0], _layers(second)[0]) == ("Linear_0", "Other_0")


def test_info_says_of_a_capture_that_it_is_one(pair: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", pair[0], "--graph-capture", pair[1]]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split(maxsplit=1) == [
        "captures",
        "capture.json: what replayed graphs belong to; nothing of it is counted",
    ]
    assert any(line.split() == ["device", "time", "layer", "4", "6.00", "µs", "100", "%"] for line in lines), lines


def test_an_answer_names_the_capture_it_rests_on(pair: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", pair[0], "-a", "A11", "--graph-capture", pair[1], "-f", "json"]) == 0
    assert "capture.json" in json.dumps(json.loads(capsys.readouterr().out))
