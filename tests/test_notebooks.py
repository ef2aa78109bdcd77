"""The tutorial notebooks run from top to bottom, and what their text says is what their cells give."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_REPO = Path(__file__).resolve().parents[1]
_FOLDER = _REPO / "docs" / "notebooks"
_NOTEBOOKS = sorted(_FOLDER.glob("*.ipynb"))
_SECONDS = 300  # of a cell, on a busy machine

_STATEMENTS = {  # what the text of each builds on, and where a reader finds it in the outputs
    "1-slow-training-step": (
        "60.5\u202f% in a layer",
        "idle: 28.4%",
        "communication: 60%",
        "ncclDevKernel_AllReduce",
        "26.0\u202f%",
    ),
    "2-leveled-characterisation": ("127", "72.3", "6.5", "15.9", "compute bound: 65%", "memory bound: 35%"),
    "3-two-gpus-compared": (
        "comparable: True",
        "so 1.63 times as fast",
        "Attention",
        "0.28",
        "3.1",
        "at most 5% of a step",
        "at most 26% of a step",
    ),
}


def _named(path: Path) -> str:
    return path.stem


def _texts(cell: Mapping[str, Any]) -> Sequence[str]:
    return [
        str(output.get("text") or output.get("data", {}).get("text/html") or output.get("data", {}).get("text/plain"))
        for output in cell.get("outputs", ())
    ]


@pytest.mark.notebook
@pytest.mark.filterwarnings("default")  # of the machinery of notebooks, not ours
@pytest.mark.parametrize("path", _NOTEBOOKS, ids=_named)
def test_a_notebook_runs_and_shows_what_its_text_says(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat", reason="no nbformat: the extra `test-notebooks`")
    nbclient = pytest.importorskip("nbclient", reason="no nbclient: the extra `test-notebooks`")
    pytest.importorskip("ipykernel", reason="no ipykernel: the extra `test-notebooks`")
    monkeypatch.setenv("PYTHONPATH", str(_REPO))
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=_SECONDS, resources={"metadata": {"path": str(_FOLDER)}})
    client.execute()
    shown = "\n".join(text for cell in notebook.cells for text in _texts(cell))
    assert [statement for statement in _STATEMENTS[path.stem] if statement not in shown] == []


def test_every_notebook_is_told_of() -> None:
    assert [path.stem for path in _NOTEBOOKS] == sorted(_STATEMENTS)
    assert set(re.findall(r"\((notebooks/[^)]+)\)", (_REPO / "docs" / "python.md").read_text(encoding="utf-8"))) == {
        f"notebooks/{path.name}" for path in _NOTEBOOKS
    }


@pytest.mark.parametrize("path", _NOTEBOOKS, ids=_named)
def test_a_notebook_is_kept_without_outputs_and_says_that_its_times_are_invented(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert "times are invented" in "".join(cells[0]["source"]) + "".join(cells[1]["source"])
