"""Grids of kernels are in blocks, whatever the call took."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.synth import KinetoTrace
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

_EXT = "hipExtModuleLaunchKernel"


@pytest.mark.parametrize(
    ("call", "grid", "expected"),
    [
        (_EXT, (73_728, 4, 1), (288, 2, 1)),  # as Tensile launches products: threads
        ("hipModuleLaunchKernel", (73_728, 4, 1), (73_728, 4, 1)),
        ("hipLaunchKernel", (512, 2, 1), (512, 2, 1)),
        (_EXT, (141, 2, 1), (141, 2, 1)),  # no whole blocks of threads, so it is not in threads
    ],
)
def test_a_grid_that_the_call_took_in_threads_is_counted_in_blocks(
    call: str, grid: tuple[int, ...], expected: tuple[int, ...], tmp_path: Path
) -> None:
    made = KinetoTrace()
    correlation = made.runtime(call, 0, 5_000)
    made.kernel("gemm", 20_000, 10_000, correlation=correlation, grid=grid, block=(256, 2, 1))
    other = made.runtime("hipLaunchKernel", 40_000, 5_000)
    made.kernel("add", 60_000, 10_000, correlation=other, grid=(256, 2, 1), block=(256, 2, 1))
    kernels = convert([made.write(tmp_path / "t.json")], Options()).frame("kernels")
    assert kernels.select("grid_x", "grid_y", "grid_z").rows() == [expected, (256, 2, 1)]


@pytest.mark.real
def test_products_on_an_mi300x_have_as_many_blocks_as_tiles(real_dir: Path) -> None:
    trace = convert([real_dir / "kineto/bert_small.mi300x.json.gz"], Options())
    names = trace.frame("spans").select("span_id", pl.col("name").cast(pl.String))
    kernels = trace.frame("kernels").join(names, on="span_id").filter(pl.col("name").str.starts_with("Cijk_"))
    assert set(kernels["grid_x"]) == {192, 239, 288}  # the file says 49,152, 61,184 and 73,728 threads, 256 a block
