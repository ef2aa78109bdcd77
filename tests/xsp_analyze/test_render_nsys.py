"""CSV of the nsys reports is, byte for byte, what NVIDIA's `nsys stats --format csv` prints."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.render import render_one
from xsp_analyze.view import View
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
    view = View(convert([real_dir / "nsys" / f"{name}.sqlite"], Options()), "all")
    compared = 0
    for file in sorted((real_dir / "reference" / "nsys_stats" / name).glob("*.csv.gz")):
        expected = gzip.decompress(file.read_bytes()).decode()
        if not expected.startswith(_REFUSED):
            assert render_one(run(find(file.name.removesuffix(".csv.gz")), view), "csv").decode() == expected, file.name
            compared += 1
    assert compared >= 5
