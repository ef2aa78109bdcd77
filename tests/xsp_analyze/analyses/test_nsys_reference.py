"""The reports of nsys on the real files equal what NVIDIA's own nsys 2023.4.4 printed, or prints where it is here."""

from __future__ import annotations

import csv
import gzip
import io
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.nsys_answers import differences, parse
from tests.helpers.nsys_tool import stats
from xsp_analyze.catalog import analyses_in
from xsp_analyze.core import run
from xsp_analyze.needs import holds
from xsp_analyze.render import csv_text
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.formats.nsys.tables.host import OS_RUNTIME
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.core import Analysis

FILES = (
    "cloverleaf.a100.nsys2024_5",
    "h100_fsdp_2gpu.nsys2026_2",
    "h100_mfu_before_2gpu.nsys2026_2",
    "saxpy_mpi.a100.nsys2022_2",
)


@cache
def _view(path: Path) -> StepView:
    return StepView.of(convert([path], Options(extra={OS_RUNTIME: "yes"})))


@cache
def _printed_now(path: Path, reports: tuple[str, ...]) -> Mapping[str, list[list[str]]]:
    with tempfile.TemporaryDirectory() as folder:
        return stats(Path(shutil.copy(path, folder)), reports)


def _theirs(real_dir: Path, name: str, report: Analysis) -> list[list[str]]:
    kept = {each.id: real_dir / "reference" / "nsys_stats" / name / f"{each.id}.csv.gz" for each in analyses_in("nsys")}
    if kept[report.id].is_file():
        rows = parse(gzip.decompress(kept[report.id].read_bytes()).decode())
    else:
        further = tuple(each for each, answer in kept.items() if not answer.is_file())
        rows = _printed_now(real_dir / "nsys" / f"{name}.sqlite", further).get(report.id)
    if rows is None:
        pytest.skip("nsys itself skipped this report, or has no rows in it")
    return rows


@pytest.mark.real
@pytest.mark.parametrize("report", analyses_in("nsys"), ids=lambda r: r.id)
@pytest.mark.parametrize("name", FILES)
def test_the_table_equals_nsys(real_dir: Path, name: str, report: Analysis) -> None:
    theirs = _theirs(real_dir, name, report)
    table = report.function(_view(real_dir / "nsys" / f"{name}.sqlite")).collect()
    assert differences(report, table, theirs) == []


@pytest.mark.real
@pytest.mark.parametrize("report", analyses_in("nsys"), ids=lambda r: r.id)
@pytest.mark.parametrize("name", FILES)
def test_the_csv_equals_nsys_to_the_character(real_dir: Path, name: str, report: Analysis) -> None:
    theirs = _theirs(real_dir, name, report)
    view = _view(real_dir / "nsys" / f"{name}.sqlite")
    if not all(holds(view.of_trace, need) for need in report.needs):
        assert set(theirs[1]) <= {"", "0"}
        pytest.skip("nsys prints a row of nothing where we say that there is nothing")
    printed = csv_text.render(run(report, view), raw=True)
    ours = list(csv.reader(io.StringIO(printed)))
    # One row at a time: what pytest says of two long lists that differ takes hours and all memory.
    assert [(a, b) for a, b in zip(ours, theirs, strict=False) if a != b][:3] == []
    assert len(ours) == len(theirs)
