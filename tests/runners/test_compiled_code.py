"""Compiled models on the CPU, with real torch: their kernels on the layers of the eager run of the same model."""

from __future__ import annotations

import difflib
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import polars as pl
import pytest

from tests.helpers.waiting import HANG_S
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import Trace, integrity

_REPO = Path(__file__).resolve().parents[2]
_ENOUGH = 0.95
_CASES = ["resnet-inference", "resnet-training", "bert-inference", "gpt-training"]
_WITH_PARAMETERS = ("BatchNorm2d", "Conv2d", "Embedding", "LayerNorm", "Linear")
_QUICK_COMPILER = """#!/bin/sh
for a do shift; [ "$a" = -O3 ] && a=-O0; set -- "$@" "$a"; done
exec g++ "$@"
"""

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder a model and mode, each with an eager and a compiled run."""
    pytest.importorskip("torch", reason="torch is not installed")
    if shutil.which("g++") is None:
        pytest.skip("torch.compile needs a C++ compiler: apt-get install g++")
    folder = tmp_path_factory.mktemp("compiled")
    compiler = folder / "cxx"
    compiler.write_text(_QUICK_COMPILER, encoding="utf-8")
    compiler.chmod(0o755)
    environment = {
        **os.environ,
        "CXX": str(compiler),
        "ATEN_CPU_CAPABILITY": "default",  # vector code takes longer to compile
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "PYTHONPATH": str(_REPO),
    }
    program = str(Path(__file__).with_name("compiled_program.py"))
    command = [sys.executable, program, str(folder / "runs")]
    done = subprocess.run(
        command, cwd=_REPO, env=environment, capture_output=True, text=True, check=False, timeout=20 * HANG_S
    )
    assert done.returncode == 0, done.stderr
    return folder / "runs"


def _eager(folder: Path) -> Trace:
    return convert([folder / "eager" / "trace.json.gz"], Options())


def _compiled(folder: Path) -> Trace:
    trace = convert([folder / "compiled"], Options())
    integrity.check(trace)
    return trace


def _layers(trace: Trace) -> set[tuple[str, str, str]]:
    columns = pl.col("layer_name", "layer_type", "path").cast(pl.String)
    return set(trace.frame("layers").select(columns).rows())


def _in_regions(trace: Trace) -> pl.DataFrame:
    """Operators directly in calls of compiled graphs."""
    spans = trace.frame("spans").with_columns(pl.col("name", "level").cast(pl.String))
    regions = spans.filter(pl.col("name").str.contains("CompiledFxGraph"))["span_id"]
    return spans.filter(pl.col("parent_id").is_in(regions.implode()), pl.col("level") == "operator")


@pytest.mark.parametrize("case", _CASES)
def test_time_of_compiled_kernels_is_on_layers_of_the_eager_run(profiles: Path, case: str) -> None:
    eager, compiled = _layers(_eager(profiles / case)), _compiled(profiles / case)
    own = {layer for layer in _layers(compiled) if "OptimizedModule" not in layer[2]}
    assert own <= eager
    attributed = compiled.frame("attributions")["span_id"].unique()
    kernels = _in_regions(compiled)
    generated = kernels.filter(pl.col("name").str.contains("_cpp_fused_"))
    assert generated.height > 0
    assert generated["span_id"].is_in(attributed.implode()).all()
    on_layers = kernels.filter(pl.col("span_id").is_in(attributed.implode()))["duration_ns"].sum()
    assert float(on_layers) >= _ENOUGH * float(kernels["duration_ns"].sum())
    ledger = compiled.frame("ledger")["kind"].cast(pl.String).to_list()
    assert "compiled_code_joined" in ledger
    assert "compiled_code_unmatched" not in ledger


@pytest.mark.parametrize("case", _CASES)
def test_layers_that_work_in_the_eager_run_work_in_the_compiled_one(profiles: Path, case: str) -> None:
    tables = [run(find("A02"), StepView.of(each(profiles / case))).table for each in (_eager, _compiled)]
    eager, compiled = (table.select("layer_name", "layer_type") for table in tables)
    lost = eager.join(compiled, on=["layer_name", "layer_type"], how="anti")
    # What is left of them is a view, which no kernel makes.
    assert set(lost["layer_type"]) <= {"Flatten", "Identity", "Dropout", "Sequential"}


@pytest.mark.parametrize("case", _CASES)
def test_shares_of_fused_kernels_add_up_to_the_ns(profiles: Path, case: str) -> None:
    trace = _compiled(profiles / case)
    table = run(find("A02"), StepView.of(trace, "all")).table
    of_compiled = table.filter(~pl.col("path").str.contains("OptimizedModule"))
    assert int(of_compiled["latency_ns"].sum()) == _shared_by_hand(trace)


def _shared_by_hand(trace: Trace) -> int:
    """Time of compiled kernels but for the model's own part, which is in the time of its call: each to its last ns."""
    durations = dict(trace.frame("spans").select("span_id", "duration_ns").rows())
    called = {span_id for span_id, duration_ns in durations.items() if duration_ns is not None}
    parts: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for span_id, layer_id, weight in trace.frame("attributions").select("span_id", "layer_id", "weight").rows():
        parts[span_id].append((-weight, layer_id))
    total, several = 0, 0
    for span_id, shares in parts.items():
        left, end = durations[span_id], 0.0
        several += len(shares) > 1
        for number, (weight, layer_id) in enumerate(sorted(shares)):
            end -= weight
            until = durations[span_id] if number == len(shares) - 1 else int(durations[span_id] * end)
            part = until - (durations[span_id] - left)
            left -= part
            total += 0 if layer_id in called else part
        assert left == 0
    assert several > 0
    return total


@pytest.mark.parametrize("case", [case for case in _CASES if case.endswith("training")])
def test_backward_kernels_are_of_the_layers_of_the_forward_call(profiles: Path, case: str) -> None:
    trace = _compiled(profiles / case)
    kernels = trace.frame("compiled_kernels").select("span_id", pl.col("direction").cast(pl.String))
    assert set(kernels["direction"]) == {"forward", "backward"}
    shares = trace.frame("attributions").join(kernels, on="span_id")
    layers = trace.frame("layers").select(layer_id="span_id", type=pl.col("layer_type").cast(pl.String))
    called = shares.join(layers, on="layer_id").filter(pl.col("type").is_in(_WITH_PARAMETERS))
    forward, backward = (set(called.filter(direction=each)["layer_id"]) for each in ("forward", "backward"))
    assert forward == backward
    phases = trace.frame("spans").join(kernels.filter(direction="backward"), on="span_id")["phase"].cast(pl.String)
    assert set(phases) == {"backward"}


def test_every_kernel_has_operators_and_lines_of_the_model(profiles: Path) -> None:
    table = run(find("B19"), StepView.of(_compiled(profiles / "gpt-training"))).table
    assert table["operators"].null_count() == 0
    assert table["layers"].null_count() == 0
    assert set(table["sources"].drop_nulls().str.extract_all(r"\w+\.py").explode()) == {"networks.py"}


def test_nothing_in_the_record_names_a_folder_of_the_machine(profiles: Path) -> None:
    for path in profiles.glob("*/compiled/compiled_code.json"):
        assert "/" not in json.dumps(json.loads(path.read_text()))


def test_watching_changes_nothing_but_marks(profiles: Path) -> None:
    plain, watched = ((profiles / name).read_text().splitlines() for name in ("plain.py", "watched.py"))
    changed = [line[2:].strip() for line in difflib.ndiff(_code_of(plain), _code_of(watched)) if line[0] in "+-"]
    marks = ("record_", "RecordFunction", "aoti_runtime/utils.h", "Provenance debug handles")
    assert [line for line in changed if not any(mark in line for mark in marks)] == []


def _code_of(lines: list[str]) -> list[str]:
    """Without the names of files that Inductor keeps kernels in."""
    return [line for line in lines if "AOT ID" not in line and "# kernel path" not in line]
