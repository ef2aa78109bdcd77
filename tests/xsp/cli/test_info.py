"""`xsp info`: what to record for more, and its JSON; findings on the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.helpers.synth import KinetoTrace
from xsp.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def replay(tmp_path: Path) -> Path:
    """One replay of a graph with a kernel of 300 ns, and a kernel of 100 ns that an operator launched."""
    trace = KinetoTrace()
    trace.step(0, 0, 10_000)
    trace.operator("aten::add", 100, 900)
    trace.kernel("add", 2_000, 100, correlation=trace.runtime("cudaLaunchKernel", 200, 50))
    trace.kernel("gemm", 4_000, 300, correlation=trace.runtime("cudaGraphLaunch", 3_000, 50))
    return trace.write(tmp_path / "replay.json")


def _printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main([str(a) for a in arguments]) == 0
    return capsys.readouterr().out


def test_info_says_what_to_record(replay: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = _printed(capsys, "info", replay)
    assert "recording     graph replays: 75.0 % of device time is replays of graphs without layers; record" in text


def test_info_names_captures_that_lie_beside_the_trace(replay: Path, capsys: pytest.CaptureFixture[str]) -> None:
    captures = replay.parent / "capture_traces"
    captures.mkdir()
    advice = f"Give the capture that lies beside the trace: --graph-capture {captures}"
    assert advice in _printed(capsys, "info", replay)
    assert advice in [one["do"] for one in json.loads(_printed(capsys, "findings", replay, "-f", "json"))]


def test_info_as_json_has_what_the_text_has(replay: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(_printed(capsys, "info", replay, "-f", "json"))
    assert [run["source_path"] for run in answer["runs"]] == ["replay.json"]
    assert {one["attribution"]: one["duration_ns"] for one in answer["attributed"]} == {
        "layer": 100,
        "graph_replay": 300,
    }
    assert answer["coverage"] == 0.25
    assert "B09" in answer["not_answered"]["counters"]
    assert [one["topic"] for one in answer["recording"]] == ["graph replays", "Python lines"]
