"""The fixture `xsp_capture` in a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import polars as pl
import pytest

from xsp.gating.gate import folder_of, keep, open_captures, record

_ROOT = Path(__file__).resolve().parents[3]
_CAPTURES = Path(__file__).parent / "captures"
_CONFTEST = f"""
import os
from pathlib import Path
import pytest
from tests.helpers.stretched import stretched

@pytest.fixture
def xsp_recorder():
    def recorded(region, folder, captures, steps):
        region()
        first, factor = int(os.environ["FIRST"]), float(os.environ["FACTOR"])
        sources = sorted(Path({str(_CAPTURES)!r}).glob("*.json.gz"))[first::2][:captures]
        return [stretched(each, factor, folder / each.name) for each in sources]
    return recorded
"""
_TEST = """
def test_speed(xsp_capture):
    xsp_capture(lambda: None)
"""


def _pytest(folder: Path, *options: str, first: int = 0, factor: float = 1.0, test: str = _TEST) -> tuple[int, str]:
    (folder / "test_it.py").write_text(test, encoding="utf-8")
    environment = {
        **os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(_ROOT), "FIRST": str(first),
        "FACTOR": str(factor), "PYTEST_ADDOPTS": "",
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-q", "-p", "xsp.gating.plugin", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_region_is_held_against_the_baseline_that_was_stored(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(_CONFTEST, encoding="utf-8")
    status, text = _pytest(tmp_path)
    assert status == 1
    assert "run once with --xsp-update-baseline" in text
    assert _pytest(tmp_path, "--xsp-update-baseline")[0] == 0
    assert len(list((tmp_path / "xsp-baselines").glob("*/capture*.json.gz"))) == 5
    assert _pytest(tmp_path, first=1)[0] == 0
    status, text = _pytest(tmp_path, first=1, factor=1.05)
    assert status == 1
    assert "xsp: regressed" in text
    assert "Traceback" not in text


@pytest.mark.slow
def test_what_is_open_fails_only_where_that_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(_CONFTEST, encoding="utf-8")
    for test in ("test_it.py::test_speed", "test_it.py::test_speed::again"):
        keep(sorted(_CAPTURES.glob("*.json.gz"))[:10:2], folder_of(tmp_path / "xsp-baselines", test))
    test = """
import pytest

def test_speed(xsp_capture):
    assert xsp_capture(lambda: None, fail_on_inconclusive=False).verdict == "inconclusive"
    with pytest.raises(pytest.fail.Exception, match="several regions of one test need names"):
        xsp_capture(lambda: None)
    xsp_capture(lambda: None, name="again")
"""
    options = ("--xsp-fail-on-inconclusive", "--xsp-fail-on", "model.latency > +0.2%")
    status, text = _pytest(tmp_path, *options, first=1, test=test)
    assert status == 1
    assert "xsp: inconclusive" in text


@pytest.mark.torch
def test_a_region_is_recorded_by_the_profiler_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(8, 8)
    [trace, _] = open_captures(record(lambda: x @ x, tmp_path, captures=2, steps=3))
    names = trace.frame("spans").filter(pl.col("level") == "operator")["name"].cast(pl.String)
    assert names.to_list().count("aten::matmul") == 3


def test_pytest_finds_the_plugin_where_xsp_is_installed() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert hasattr(import_module(project["entry-points"]["pytest11"]["xsp"]), "xsp_capture")


def test_the_plugin_imports_nothing_that_takes_time() -> None:
    code = (
        "import sys; import xsp.gating.plugin; print(any(n in sys.modules for n in ('polars', 'torch', 'xsp_model')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=_ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.slow
def test_a_region_is_held_against_its_history(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(_CONFTEST, encoding="utf-8")
    history = ("--xsp-history", str(tmp_path / "store"))
    assert _pytest(tmp_path, *history, "--xsp-update-baseline")[0] == 0
    assert len(list((tmp_path / "store").glob("*.parquet"))) == 5
    assert _pytest(tmp_path, *history, first=1)[0] == 0
    status, text = _pytest(tmp_path, *history, first=1, factor=1.1)
    assert status == 1
    assert "held against 5 earlier runs of its series" in text
