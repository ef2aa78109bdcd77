"""CONTRIBUTING.md's map: what it names is there, and a format and an analysis are added by touching that alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.hand import paper_trace
from xsp_model import bundle

if TYPE_CHECKING:
    from collections.abc import Mapping

_REPO = Path(__file__).resolve().parents[1]
_PACKAGES = ("xsp", "xsp_model", "xsp_ingest", "xsp_analyze")
_HEAD = "| I want to | I touch | and then |"
_PATH = re.compile(r"`([\w./<>-]+/[\w.<>-]*)`")

_REGISTRY = "xsp_ingest/registry.py"
_INGESTER = '''"""Toy traces: a first line that names the tool, then a kernel a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.ingester import Ingester, Match
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import Finding, Kind, LedgerKind, Level

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.ingester import Options

__all__ = ["TOY"]

_MARK = "toy trace 1"


@dataclass(frozen=True, slots=True)
class Toy(Ingester):
    """The ingester of toy traces."""

    name: str = "toy"
    title: str = "Toy traces, version 1"

    def sniff(self, probe: Probe) -> Match:
        """The line that a toy writes first."""
        return Match.exact_if(probe.text.startswith(_MARK.encode()))

    def read(self, path: Path, options: Options) -> RawTrace:
        """One row a line with a name, a start and a duration; other lines are counted."""
        del options
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()[1:]]
        events = [line for line in lines if len(line) == 3]
        spans = pl.DataFrame(
            {
                "row": range(len(events)),
                "level": [str(Level.KERNEL)] * len(events),
                "kind": [str(Kind.KERNEL)] * len(events),
                "name": [name for name, _, _ in events],
                "start_ns": [int(start) for _, start, _ in events],
                "duration_ns": [int(duration) for _, _, duration in events],
                "process_id": [1] * len(events),
                "device_id": [0] * len(events),
                "stream_id": [7] * len(events),
            }
        )
        tables = {name: frame_of(name) for name in RAW_TABLES} | {"spans": frame_of("spans", spans)}
        lost = Finding(LedgerKind.NOT_AN_EVENT, "lines that are no kernels", len(lines) - len(events))
        return RawTrace(tables, RunFacts(profiler="toy"), (lost,) if lost.count else ())


TOY = Toy()
'''
_FORMAT_FILES = {
    "xsp_ingest/formats/toy/__init__.py": _INGESTER,
    "xsp_ingest/formats/toy/README.md": "# Toy traces\n\nDefined here; version 1 was seen.\n",
}
_FORMAT_LINES = (("    Format(", '    Format("toy", "toy:TOY", (("toy", ""),)),'),)

_CATALOG = "xsp_analyze/catalog.py"
_ANALYSIS_FILES = {
    "xsp_analyze/analyses/toys.py": '''"""X01: the device time of each name, for toys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import STEP
from xsp_analyze.core import TIME_NS, Column, Role, analysis
from xsp_analyze.frames.kernels.kernel_means import step_work

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["toy"]


@analysis(
    "X01",
    "toy",
    needs=("kernel",),
    additive=("device_sum_ns",),
    columns=(
        STEP,
        Column("name", pl.String(), "Name of the device activity.", role=Role.KEY),
        Column("device_sum_ns", TIME_NS, "Durations, added up.", "ns"),
    ),
)
def toy(frames: StepView) -> pl.LazyFrame:
    """One row a name, by name."""
    name = pl.col("name").cast(pl.String)
    time = pl.col("work_ns").sum().alias("device_sum_ns")
    return frames.once(step_work).lazy().group_by(*frames.by, name).agg(time).sort(*frames.by, "name")
'''
}
_ANALYSIS_LINES = (('    "B14"', '    "X01": "toys",'),)

_RUNS = """
import sys
from xsp.cli.main import main
for command in sys.argv[1:]:
    assert main(command.split()) == 0
    print(end="\\f")
"""
_TRACE = "toy trace 1\ngemm 0 30\nrelu 40 5\ngemm 50 10\nwhat\n"


@cache
def _map() -> Mapping[str, tuple[list[str], list[str]]]:
    """Of each row of the table: the paths in its second cell and in its third."""
    table = (_REPO / "CONTRIBUTING.md").read_text(encoding="utf-8").partition(_HEAD)[2].partition("\n\n")[0]
    rows = [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {row[0].strip(): (_PATH.findall(row[1]), _PATH.findall(row[2])) for row in rows}


@pytest.fixture(name="checkout", scope="module")
def fixture_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages by themselves, to which a toy format and a toy analysis are added in their tests."""
    folder = tmp_path_factory.mktemp("checkout")
    for package in _PACKAGES:
        shutil.copytree(_REPO / package, folder / package)
    (folder / "trace.toy").write_text(_TRACE, encoding="utf-8")
    return folder


def _contents(checkout: Path) -> dict[str, bytes]:
    files = (file for package in _PACKAGES for file in (checkout / package).rglob("*") if file.suffix != ".pyc")
    return {file.relative_to(checkout).as_posix(): file.read_bytes() for file in files if file.is_file()}


def _add(checkout: Path, files: Mapping[str, str], registry: str, lines: tuple[tuple[str, str], ...]) -> set[str]:
    """Writes the files, puts each line after the last that begins as its pair says; the paths that then differ."""
    before = _contents(checkout)
    for name, content in files.items():
        (checkout / name).parent.mkdir(exist_ok=True)
        (checkout / name).write_text(content, encoding="utf-8")
    text = (checkout / registry).read_text(encoding="utf-8").splitlines()
    for beginning, line in lines:
        last = max(index for index, each in enumerate(text) if each.startswith(beginning))
        text.insert(last + 1, line)
    (checkout / registry).write_text("\n".join(text) + "\n", encoding="utf-8")
    after = _contents(checkout)
    return {name for name in before | after if before.get(name) != after.get(name)}


def _xsp(checkout: Path, *commands: str) -> list[str]:
    """What each command prints in that checkout; one process runs all, as most of its time is spent importing."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(
        [sys.executable, "-c", _RUNS, *commands],
        cwd=checkout, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return done.stdout.split("\f")[:-1]


@pytest.mark.parametrize("row", _map())
def test_what_the_map_names_is_there(row: str) -> None:
    paths = [path for cell in _map()[row] for path in cell if "<" not in path]
    assert [path for path in paths if not (_REPO / path).exists()] == []


@pytest.mark.slow
def test_a_format_is_a_folder_and_its_registration(checkout: Path) -> None:
    touched = _add(checkout, _FORMAT_FILES, _REGISTRY, _FORMAT_LINES)
    assert touched == {path.replace("<name>", "toy") for path in _map()["add a format"][0]}
    assert len(touched) == 3
    commands = (
        "formats toy",
        "convert trace.toy -o toy.xsp",
        "analyze toy.xsp -a A10 -f csv",
        "analyze toy.xsp -a B01",
    )
    about, _, kernels, ledger = _xsp(checkout, *commands)
    assert "Defined here; version 1 was seen." in about
    assert [line.partition(",")[0] for line in kernels.splitlines()[1:]] == ["gemm", "relu"]
    assert "lines that are no kernels" in ledger


def test_an_analysis_is_a_file_and_its_registration(checkout: Path) -> None:
    touched = _add(checkout, _ANALYSIS_FILES, _CATALOG, _ANALYSIS_LINES)
    assert touched == {path.replace("<subject>", "toys") for path in _map()["add an analysis"][0]}
    assert len(touched) == 2
    bundle.write(paper_trace(), checkout / "paper.xsp")
    (answer,) = _xsp(checkout, "analyze paper.xsp -a X01 -f csv")
    assert answer.splitlines() == [
        "name,device_sum_ns",
        "add,20.0",
        "copy,10.0",
        "gemm,200.0",
        "gemm_bw,60.0",
        "replay,5.0",
    ]
