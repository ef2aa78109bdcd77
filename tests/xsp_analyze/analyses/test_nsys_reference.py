"""The reports of nsys on the real files equal what NVIDIA's own nsys 2023.4.4 printed."""

from __future__ import annotations

import csv
import gzip
import io
from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.helpers.nsys_answers import differences, parse
from xsp_analyze.analyses.nsys import NSYS_REPORTS
from xsp_analyze.core import run
from xsp_analyze.frames.step_frames import StepFrames
from xsp_analyze.render import csv_text
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_analyze.core import Analysis

FILES = (
    "cloverleaf.a100.nsys2024_5",
    "h100_fsdp_2gpu.nsys2026_2",
    "h100_mfu_before_2gpu.nsys2026_2",
    "saxpy_mpi.a100.nsys2022_2",
)


@cache
def _view(path: Path) -> StepFrames:
    return StepFrames.of(convert([path], Options()))


def _theirs(real_dir: Path, name: str, report: Analysis) -> list[list[str]]:
    answer = real_dir / "reference" / "nsys_stats" / name / f"{report.id}.csv.gz"
    rows = parse(gzip.decompress(answer.read_bytes()).decode())
    if rows is None:
        pytest.skip("nsys itself skipped this report")
    return rows


@pytest.mark.real
@pytest.mark.parametrize("report", NSYS_REPORTS, ids=lambda r: r.id)
@pytest.mark.parametrize("name", FILES)
def test_the_table_equals_nsys(real_dir: Path, name: str, report: Analysis) -> None:
    theirs = _theirs(real_dir, name, report)
    table = report.function(_view(real_dir / "nsys" / f"{name}.sqlite")).collect()
    assert differences(report, table, theirs) == []


@pytest.mark.real
@pytest.mark.parametrize("report", NSYS_REPORTS, ids=lambda r: r.id)
@pytest.mark.parametrize("name", FILES)
def test_the_csv_equals_nsys_to_the_character(real_dir: Path, name: str, report: Analysis) -> None:
    theirs = _theirs(real_dir, name, report)
    printed = csv_text.render(run(report, _view(real_dir / "nsys" / f"{name}.sqlite")))
    assert list(csv.reader(io.StringIO(printed))) == theirs
