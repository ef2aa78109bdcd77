"""What pandas and networkx are wanted for says so, and what to type, where they are not installed."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import xsp
from tests.helpers.report_trace import small_trace
from xsp.cli.main import main
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_WITHOUT = """
import sys
for name in ("pandas", "networkx", "numba", "llvmlite", "matplotlib", "xlsxwriter"):
    sys.modules[name] = None
from xsp.cli.main import main
raise SystemExit(main(sys.argv[1:]))
"""


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> xsp.OpenTrace:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "networkx", None)
    return xsp.open(_file(tmp_path), cache=False)


def _file(folder: Path) -> Path:
    small_trace(folder)
    return folder / "small.json"


@pytest.mark.parametrize(
    ("ask", "module"),
    [
        (lambda trace: trace.analyze("A10").to_pandas(), "pandas"),
        (lambda trace: trace.compare(trace).to_pandas(), "pandas"),
        (lambda trace: trace.to_networkx(), "networkx"),
    ],
    ids=["answer", "comparison", "graph"],
)
def test_what_is_not_installed_is_named(
    opened: xsp.OpenTrace, ask: Callable[[xsp.OpenTrace], object], module: str
) -> None:
    with pytest.raises(XspError, match=f"needs {module}, which is not installed") as error:
        ask(opened)
    assert f"pip install '.[{module}]'" in (error.value.advice or "")


def test_graphml_without_networkx_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    target = tmp_path / "graph.xml"
    assert main(["export", str(_file(tmp_path)), "--to", "graphml", "-o", str(target)]) == 2
    assert "GraphML needs networkx, which is not installed" in capsys.readouterr().err
    assert not target.exists()


@pytest.mark.slow
def test_a_report_needs_no_extra(tmp_path: Path) -> None:
    command = ["report", str(_file(tmp_path)), "-o", str(tmp_path / "report.html")]
    subprocess.run([sys.executable, "-c", _WITHOUT, *command], check=True, capture_output=True)
    assert (tmp_path / "report.html").stat().st_size > 0
