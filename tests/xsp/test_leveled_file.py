"""A file with the same work at several levels is one profile, whichever command takes it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import xsp
from fixtures.make.jaeger import leveled_traces
from xsp.cache.cache import LIMIT_VARIABLE, Cache
from xsp.cli.main import main
from xsp.opening import load
from xsp.reading import Reading

if TYPE_CHECKING:
    from pathlib import Path

    from xsp import OpenTrace


@pytest.fixture(name="file")
def leveled_file(tmp_path: Path) -> Path:
    """Three batches at four levels: 6.01 ms without a profiler, 6.41 with layers, 7.01 with kernels."""
    path = tmp_path / "traces.json"
    path.write_bytes(leveled_traces())
    return path


def _same(first: OpenTrace, second: OpenTrace) -> bool:
    return all(first.table(name).equals(second.table(name)) for name in first.tables)


def test_every_latency_is_of_the_run_that_disturbed_it_least(file: Path) -> None:
    trace = xsp.open(file)
    assert trace.analyze("A01").to_polars()["latency_ns"].to_list() == [6_010_000]
    layers = trace.analyze("A02").to_polars().sort("layer_index")
    assert layers["latency_ns"].to_list() == [3_100_000, 1_000_000, 800_000, 500_000]
    kernels = trace.analyze("A15").to_polars()
    assert kernels.select("kernel_count", "kernel_duration_ns").rows() == [(5.0, 4_050_000.0)]
    counted = trace.analyze("A08").to_polars().sort("flop_count", descending=True, nulls_last=True)
    assert counted.select("duration_ns", "flop_count").row(0) == (2_500_000.0, 62e9)


def test_what_each_level_of_profiling_costs_is_there(file: Path) -> None:
    rows = xsp.open(file).analyze("B02").to_polars()
    model = rows.filter(rows["scope"] == "model").select("level", "baseline_ns", "measured_ns").rows()
    assert model == [
        ("layer", 6_010_000, 6_410_000),
        ("kernel", 6_410_000, 7_010_000),
        ("total", 6_010_000, 7_010_000),
    ]


@pytest.mark.slow
def test_merge_and_convert_give_what_opening_gives(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["merge", str(file), "-o", str(tmp_path / "merged.xsp")]) == 0
    assert "told apart and merged: model (evaluation_trace_level MODEL_TRACE)" in capsys.readouterr().err
    assert main(["convert", str(file), "-o", str(tmp_path / "converted.xsp")]) == 0
    opened = xsp.open(file)
    assert _same(opened, xsp.open(tmp_path / "merged.xsp"))
    assert _same(opened, xsp.open(tmp_path / "converted.xsp"))


@pytest.mark.only_on("linux", "darwin", reason="elsewhere nothing is kept")
def test_what_is_kept_of_the_file_is_the_profile(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LIMIT_VARIABLE, raising=False)
    notes: list[str] = []
    cache = Cache(tmp_path / "cache", worth_bytes=0)
    first = load([str(file)], Reading(), notes.append, cache=cache)
    assert "reading traces.json" in notes
    notes.clear()
    again = load([str(file)], Reading(), notes.append, cache=cache)
    assert notes == []
    assert first.frame("runs")["role"].to_list() == ["model", "layers", "kernels", "counters"]
    assert again.frame("runs").equals(first.frame("runs"))


@pytest.mark.slow
def test_a_batch_takes_it_as_one_input(file: Path, tmp_path: Path) -> None:
    assert main(["batch", str(file), "-o", str(tmp_path / "all")]) == 0
    (bundle,) = (tmp_path / "all").rglob("*.xsp")
    assert _same(xsp.open(file), xsp.open(bundle))


def test_merge_refuses_a_file_of_one_level(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "data": document["data"][:1]}))
    assert main(["merge", str(file), "-o", str(file.with_suffix(".xsp"))]) == 2
    assert "does not hold the same work at several levels. Give a run set" in capsys.readouterr().err


def test_merge_says_why_levels_of_different_batch_sizes_are_not_merged(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(file.read_text())
    first = json.loads(json.dumps(document["data"][0]).replace('"256"', '"8"'))
    file.write_text(json.dumps({**document, "data": [first, *document["data"][1:]]}))
    assert main(["merge", str(file), "-o", str(file.with_suffix(".xsp"))]) == 2
    assert "different batch sizes: 256, 8" in capsys.readouterr().err


def test_merge_takes_the_folder_of_the_file_as_other_commands_do(file: Path, tmp_path: Path) -> None:
    assert main(["merge", str(file.parent), "-o", str(tmp_path / "merged.xsp")]) == 0
    assert _same(xsp.open(file), xsp.open(tmp_path / "merged.xsp"))
