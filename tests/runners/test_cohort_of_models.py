"""A cohort of models that our runner captures on this machine's CPU: rows, similarity and page from end to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from xsp.cli.main import main

pytestmark = pytest.mark.torch

_REPO = Path(__file__).parents[2]
_IMAGE = "3x64x64"
_MODELS: dict[str, str | None] = {  # each with the shape of an input; None: its usual one
    "mlp": None, "transformer": None, "alexnet": _IMAGE, "resnet18": _IMAGE, "resnet34": _IMAGE,
    "mobilenet_v2": _IMAGE, "srgan": "3x24x24", "bert_base": "16",
}  # fmt: skip


def _captured(folder: Path, model: str) -> None:
    shape = _MODELS[model]
    command = [
        sys.executable, "-m", "xsp_runners.collect", "--workload", f"zoo:{model}", "--levels", "ML", "--batch", "1",
        "--steps", "3", "--warmup", "1", "--device", "cpu", "--threads", "1", "-o", str(folder / model),
        *(("--input-shape", shape) if shape else ()),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(_REPO)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.fixture(name="batch", scope="module")
def fixture_batch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `xsp batch` writes of all models."""
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    folder = tmp_path_factory.mktemp("cohort")
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda model: _captured(folder / "in", model), _MODELS))
    assert main(["batch", str(folder / "in"), "-o", str(folder / "out")]) == 0
    return folder / "out"


def _tables(batch: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, list[dict[str, Any]]]:
    assert main(["cohort", str(batch), "-f", "json"]) == 0
    return {table["analysis"]: table["rows"] for table in json.loads(capsys.readouterr().out)}


def test_each_model_is_a_row(batch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = _tables(batch, capsys)["B13"]
    assert [row["model"] for row in rows] == sorted(_MODELS)
    assert all(row["latency_ns"] > 0 and row["throughput_per_s"] > 0 and row["batch_size"] == 1 for row in rows)
    assert all(row["gpu_share"] is None for row in rows)  # there is no GPU, which is not a share of 0
    convolutions = {row["model"]: row["convolution_share"] for row in rows}
    assert convolutions["resnet18"] > 0.5
    assert convolutions["bert_base"] == convolutions["mlp"] == 0


def test_models_of_a_kind_are_alike(batch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = {(r["model"], r["other_model"]): r["similarity_share"] for r in _tables(batch, capsys)["B13.similarity"]}
    assert len(pairs) == len(_MODELS) * (len(_MODELS) - 1) // 2
    assert pairs["resnet18", "resnet34"] > 0.9
    assert pairs["resnet18", "resnet34"] > pairs["bert_base", "resnet18"]
    assert pairs["mlp", "resnet18"] < 0.5


def test_the_index_shows_all_of_them(batch: Path) -> None:
    page = (batch / "index.html").read_text()
    assert all(f'"traces/{model}/report.html"' in page for model in _MODELS)
    assert page.count('{"from":') == len(_MODELS) - 1  # the tree's joins
