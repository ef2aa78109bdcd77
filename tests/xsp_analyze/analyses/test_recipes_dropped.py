"""`nsys recipe xsp`: our recipe dropped into NVIDIA's own tool."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.helpers.nsys_recording import record
from tests.helpers.nsys_tool import install_copy, nsys, recipe_python
from tests.helpers.synth_nsys import NsightFile
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import bundle
from xsp_model.schema import TABLES

pytestmark = pytest.mark.nsys

_REPO = Path(__file__).resolve().parents[3]
_RECIPES = _REPO / "recipes"


def _program(path: Path, command: str) -> str:
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which `nsys recipe` finds our recipe, a Python for its own, and xsp."""
    folder = tmp_path_factory.mktemp("tool")
    executable = install_copy(folder)
    python = Path(recipe_python())
    run = "import sys; from xsp.cli.main import main; sys.exit(main())"
    xsp = f'PYTHONPATH={shlex.quote(str(_REPO))} exec {shlex.quote(sys.executable)} -c {shlex.quote(run)} "$@"'
    (folder / "bin").mkdir()
    return {
        **os.environ,
        "PATH": f"{folder / 'bin'}{os.pathsep}{python.parent}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "NSYS_RECIPE_PATH": str(_RECIPES),
        "XSP": _program(folder / "xsp-command", xsp),
        "_NSYS": str(executable),
    }


def _recipe(tool: dict[str, str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [tool["_NSYS"], "recipe", "xsp", *arguments, "--output", str(folder / "out")]
    # nsys passes on what a recipe says of errors as output of its own.
    return subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=tool, cwd=folder
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    command = [nsys(), "profile", "--trace=osrt", "--sample=none", "--cpuctxsw=none", f"--output={folder / 'r'}"]
    made = folder / "r.nsys-rep"
    done = record([*command, "sleep", "0.01"], made=made)
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def test_the_recipe_leaves_tables_page_and_bundle(tool: dict[str, str], report: Path, tmp_path: Path) -> None:
    done = _recipe(tool, tmp_path, "--input", str(report), "--csv")
    assert done.returncode == 0, done.stdout
    out = tmp_path / "out"
    made = {path.name for path in out.iterdir()}
    assert {"report.html", "trace.xsp", "B01.parquet", "B01.csv", "out.nsys-analysis"} <= made
    index = json.loads((out / "out.nsys-analysis").read_text())
    assert index["RecipeName"] == "xsp"
    assert index["InputFiles"] == [str(report)]
    assert "report.html" in index["Outputs"]
    ours = convert([report], Options(extra={"nsys": nsys()}))
    theirs = bundle.read(out / "trace.xsp")
    assert all(ours.table(name).equals(theirs.table(name)) for name in TABLES)


def test_layers_are_attributed_inside_the_tool(tool: dict[str, str], tmp_path: Path) -> None:
    # No GPU ran here: a made export stands for what nsys exports, in an nsys of which only the export is not real.
    file = NsightFile()
    file.gpu()
    for step in range(2):
        at = 1000 * step
        file.range(at, at + 400, f"iteration {step}")
        file.range(at + 10, at + 100, "encoder")
        file.launch((at + 20, at + 30), (at + 50, at + 90), "gemm")
        file.range(at + 110, at + 200, "decoder")
        file.launch((at + 120, at + 130), (at + 150, at + 160), "gemm")
    database = file.write(tmp_path / "made.sqlite")
    report = tmp_path / "made.nsys-rep"
    report.write_bytes(b"NVIDIA Tegra Profiler Report 2023@4@4@54-1v0.")
    copy = f'for a; do case "$a" in --output=*) cp {shlex.quote(str(database))} "${{a#--output=}}";; esac; done'
    stand_in = _program(tmp_path / "stand-in", copy)
    xsp = _program(tmp_path / "xsp", f'exec {shlex.quote(tool["XSP"])} "$@"')
    # The recipe names its own nsys with --nsys; the stand-in takes its place after it.
    only_convert = f'if [ "$1" = convert ]; then exec {shlex.quote(xsp)} "$@" --nsys {shlex.quote(stand_in)}; fi'
    wrapped = _program(tmp_path / "xsp-wrapped", f'{only_convert}\nexec {shlex.quote(xsp)} "$@"')
    done = _recipe(
        {**tool, "XSP": wrapped}, tmp_path, "--input", str(report), "--steps", "all", "--layer-range", "coder"
    )
    assert done.returncode == 0, done.stdout
    layers = pl.read_parquet(tmp_path / "out" / "A11.parquet")
    assert layers.select("layer_name", "kernel_duration_ns").rows() == [("encoder", 80), ("decoder", 20)]


def test_a_report_that_cannot_be_read_ends_in_its_sentence(tool: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bad.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report 2023@4@4@54-1v0.")
    done = _recipe(tool, tmp_path, "--input", str(tmp_path / "bad.nsys-rep"))
    assert done.returncode == 1
    assert "ERROR" in done.stdout
    assert "nsys could not export the report" in done.stdout
    assert "Traceback" not in done.stdout
    assert not (tmp_path / "out").exists()


def test_without_xsp_it_says_how_to_get_it(tool: dict[str, str], report: Path, tmp_path: Path) -> None:
    done = _recipe({**tool, "XSP": "/nowhere/xsp"}, tmp_path, "--input", str(report))
    assert done.returncode == 1
    assert "XSP is not here" in done.stdout
