"""The command `xsp export`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.helpers.exported import small_kineto
from xsp.cli.commands.export import Targets
from xsp.cli.main import main
from xsp_analyze.export import EXPORTERS, Exporter

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return small_kineto().write(tmp_path / "trace.json")


def test_the_option_takes_every_format() -> None:
    assert [str(target) for target in Targets] == [*(exporter.name for exporter in EXPORTERS), "benchmark"]


@pytest.mark.parametrize("target", [e.name for e in EXPORTERS if isinstance(e, Exporter)])
def test_a_file_is_written_and_counted(
    target: str, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out" / "exported.txt"
    assert main(["export", str(trace), "--to", target, "-o", str(out)]) == 0
    assert out.stat().st_size > 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"{out}: 13 spans\n"


def test_tables_are_written_into_a_folder(trace: Path, tmp_path: Path) -> None:
    assert main(["export", str(trace), "--to", "arrow", "-o", str(tmp_path)]) == 0  # beside the input
    assert (tmp_path / "spans.arrows").stat().st_size > 0


def test_a_benchmark_of_an_operator_is_written(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bench.py"
    options = ["--to", "benchmark", "--operator", "aten::linear", "--shape", "[[8,16]]", "-o", str(out)]
    assert main(["export", str(trace), *options]) == 0
    assert "('tensor', 'float32', [8, 16], [16, 1])" in out.read_text()
    assert capsys.readouterr().err == f"{out}: aten::linear\n"


def test_a_step_and_levels_can_be_chosen(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    options = ["--to", "chrome", "--steps", "1", "--levels", "model, kernel", "-o", str(out)]
    assert main(["export", str(trace), *options]) == 0
    events = json.loads(out.read_text())["traceEvents"]
    assert [e["name"] for e in events if e["ph"] == "X"] == ["ProfilerStep#1", "gemm<float>", "gemm_backward"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--to", "chrome", "-o", "{folder}/x", "--steps", "mean"], "'mean' is no choice of steps to export"),
        (["--to", "chrome", "-o", "{folder}/x", "--steps", "9"], "the trace has no step 9"),
        (["--to", "chrome", "-o", "{folder}/x", "--levels", "gpu"], "there is no level 'gpu'"),
        (["--to", "pdf", "-o", "{folder}/x"], "'pdf' is not one of"),
        (["--to", "chrome"], "-o"),
        (["--to", "benchmark", "-o", "{folder}/x"], "a benchmark is of one operator"),
        (["--to", "chrome", "-o", "{folder}/x", "--shape", "[]"], "--operator and --shape are of --to benchmark alone"),
        (["--to", "chrome", "-o", "{folder}/trace.json"], "the output is one of the inputs"),
        (["--to", "chrome", "-o", "{folder}/trace.json/x"], "cannot be written"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_no_file(
    options: list[str], says: str, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = trace.read_bytes()
    assert main(["export", str(trace), *(o.format(folder=tmp_path) for o in options)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert says in error
    assert error.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["trace.json"]
    assert trace.read_bytes() == before


def test_an_old_trace_opens_in_everything(fixtures_dir: Path, tmp_path: Path) -> None:
    old = fixtures_dir / "jaeger" / "mlmodelscope_leveled_synthetic" / "traces.json"
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert main(["export", str(old), "--to", "jaeger", "-o", str(first)]) == 0
    assert main(["export", str(first), "--to", "jaeger", "-o", str(second)]) == 0
    one, two = (json.loads(p.read_text())["data"] for p in (first, second))
    assert [[s["tags"] for s in t["spans"]] for t in one] == [[s["tags"] for s in t["spans"]] for t in two]
