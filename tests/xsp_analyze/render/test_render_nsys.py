"""CSV of the nsys reports is, byte for byte, what NVIDIA's `nsys stats --format csv` prints."""

from __future__ import annotations

import gzip
import statistics
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from tests.helpers.synth_nsys import NsightFile
from xsp_analyze.analyses.nsys.sources import deviation
from xsp_analyze.catalog import analyses_in, find
from xsp_analyze.core import run
from xsp_analyze.needs import holds
from xsp_analyze.render import render_one
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

_FILES = (
    "cloverleaf.a100.nsys2024_5",
    "h100_fsdp_2gpu.nsys2026_2",
    "h100_mfu_before_2gpu.nsys2026_2",
    "saxpy_mpi.a100.nsys2022_2",
)
_REFUSED = "SKIPPED"  # how nsys says that a file lacks a table that it needs


@pytest.mark.real
@pytest.mark.parametrize("name", _FILES)
def test_reports_are_printed_as_nsys_prints_them(real_dir: Path, name: str) -> None:
    view = StepView.of(convert([real_dir / "nsys" / f"{name}.sqlite"], Options()), "all")
    compared = 0
    for file in sorted((real_dir / "reference" / "nsys_stats" / name).glob("*.csv.gz")):
        expected = gzip.decompress(file.read_bytes()).decode()
        if not expected.startswith(_REFUSED):
            assert render_one(run(find(file.name.removesuffix(".csv.gz")), view), "csv").decode() == expected, file.name
            compared += 1
    assert compared >= 5


def test_five_runs_print_the_same_bytes(tmp_path: Path) -> None:
    chance, file = np.random.default_rng(5), NsightFile()
    for n, (name, duration) in enumerate(chance.integers((0, 1), (3, 9_000_000), size=(6_000, 2)).tolist()):
        start = n * 10_000_000
        file.launch((start, start + 2_000), (start + 3_000, start + 3_000 + duration), f"kernel {name}")
    path = file.write(tmp_path / "many.sqlite")
    reports = [report for report in analyses_in("nsys") if report.id.startswith("cuda")]
    printed = set()
    for _ in range(5):
        view = StepView.of(convert([path], Options()))
        requested = [report for report in reports if all(holds(view.of_trace, need) for need in report.needs)]
        printed.add(b"".join(render_one(run(report, view), form) for report in requested for form in ("csv", "json")))
    assert len(printed) == 1
    assert len(requested) >= 4


def test_the_deviation_is_exact_in_any_order() -> None:
    values = np.random.default_rng(1).integers(10**12, size=20_000)
    orders = (np.random.default_rng(seed).permutation(values) for seed in range(5))
    deviations = {pl.DataFrame({"x": order}).select(deviation(pl.col("x"))).item() for order in orders}
    assert len(deviations) == 1
    assert deviations.pop() == pytest.approx(statistics.stdev(values.tolist()), rel=1e-15)


@pytest.mark.parametrize("values", [[], [7], [None, 7], [None, None]])
def test_a_single_value_has_no_deviation(values: list[int | None]) -> None:
    frame = pl.DataFrame({"x": pl.Series(values, dtype=pl.Int64)})
    assert frame.select(deviation(pl.col("x"))).item() == 0.0
