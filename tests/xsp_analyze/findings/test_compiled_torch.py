"""Recompilations and graph breaks in traces that torch records here, worked out once more from the raw events."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from xsp_analyze.findings import advise
from xsp_analyze.frames.kernels.graphs import compiled_regions
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from xsp_analyze.findings import Advice

pytestmark = pytest.mark.torch

_PROGRAM = Path(__file__).with_name("compiled_program.py")
_BACKENDS = [
    "aot_eager",
    pytest.param("inductor", marks=pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs g++")),
]


@pytest.fixture(scope="module", params=_BACKENDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with breaks.json, recompiles.json and clean.json of the backend, by which it is named."""
    pytest.importorskip("torch", reason="torch is not installed")
    path = tmp_path_factory.mktemp(request.param)
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(path / "cache"), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    command = [sys.executable, str(_PROGRAM), str(path), request.param]
    subprocess.run(command, check=True, env=environment, capture_output=True, timeout=600)
    return path


def _fired(path: Path) -> dict[str, Advice]:
    return {one.rule.id: one for one in advise(StepView.of(convert([path], Options())))}


def _events(path: Path) -> list[dict[str, Any]]:
    """The host's spans that are none of the profiler's, in order of start."""
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("ph") == "X" and e["cat"] != "Trace"]
    return sorted(events, key=lambda e: (e["ts"], -e["dur"]))


def _inside(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
    return bool(
        inner is not outer
        and inner["tid"] == outer["tid"]
        and outer["ts"] <= inner["ts"]
        and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
    )


def _named(events: list[dict[str, Any]], prefix: str) -> list[dict[str, Any]]:
    return [e for e in events if e["name"].startswith(prefix)]


def test_a_graph_break_is_told_with_what_runs_in_it(folder: Path) -> None:
    path = folder / "breaks.json"
    events = _events(path)
    regions, steps = _named(events, "Torch-Compiled Region"), _named(events, "ProfilerStep#")
    nested = [one for one in regions if any(_inside(one, other) for other in regions)]
    assert len(steps) == 5
    assert len(regions) == 10
    assert len(nested) == 5
    fired = _fired(path)
    assert "left in the middle of its compiled code once a step" in fired["graph-breaks"].observation.sentence
    assert "recompilation" not in fired


def test_only_what_inductor_did_not_compile_runs_in_a_break(folder: Path) -> None:
    path = folder / "breaks.json"
    events = _events(path)
    graphs, regions = _named(events, "## Call CompiledFxGraph"), _named(events, "Torch-Compiled Region")
    items = [
        e for e in _named(events, "aten::item")
        if any(_inside(e, r) for r in regions) and not any(_inside(e, g) for g in graphs)
    ]  # fmt: skip
    trace = convert([path], Options())
    frames = StepView.of(trace)
    eager = compiled_regions(trace, frames.of_trace.kernel_runs.ids, frames.of_trace.span_names).eager
    if not graphs:  # aot_eager marks no graphs: what is compiled cannot be told from what is not
        assert eager.is_empty()
        assert _fired(path)["graph-breaks"].gain_ns is None
        return
    assert len(items) == 5
    assert eager["name"].to_list() == ["aten::item"] * 5
    assert int(eager["duration_ns"].sum()) == pytest.approx(1_000 * sum(e["dur"] for e in items), abs=5)


def test_recompilation_costs_what_the_compiling_spans_after_the_first_step_take(folder: Path) -> None:
    path = folder / "recompiles.json"
    events = _events(path)
    steps = _named(events, "ProfilerStep#")
    spans = [e for e in events if e["name"] == "entire_frame_compile"]
    later = [e for e in spans if not _inside(e, steps[0])]
    assert len(later) == 2  # sizes 5 and 6
    one = _fired(path)["recompilation"]
    assert one.observation.gain_ns == pytest.approx(1_000 * sum(e["dur"] for e in later) / len(steps), rel=1e-6)
    assert "in 2 steps" in one.observation.sentence
    assert one.observation.sentence.endswith("1 compiled function ran in 3 versions.")
    assert "graph-breaks" not in _fired(path)


def test_compiled_code_that_does_neither_has_neither_finding(folder: Path) -> None:
    assert not {"graph-breaks", "recompilation"} & set(_fired(folder / "clean.json"))
