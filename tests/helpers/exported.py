"""Traces that the export tests share, and short ways to write one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tests.helpers.synth import KinetoTrace
from xsp_analyze.export import export, find
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

__all__ = ["ENGINE", "small", "small_kineto", "with_texts", "written"]

ENGINE = 200


def small_kineto() -> KinetoTrace:
    """Two steps; the first has a module with a gemm and its backward, the second a copy; a kernel without a launch."""
    kineto = KinetoTrace(
        baseTimeNanoseconds=1_700_000_000_123_456_789,
        deviceProperties=[{"id": 0, "name": 'Device "0"', "numSms": 10, "totalGlobalMem": 1 << 30}],
    )
    kineto.step(1, 1_000_000_000_000_001, 900_000)
    base = 1_000_000_000_000_001
    kineto.module("Net_0", base + 10_000, 200_000)
    kineto.module("Linear_0", base + 20_000, 100_000)
    kineto.operator("aten::linear", base + 30_000, 80_000, shapes=[[8, 16]], sequence_number=5)
    kineto.launch("gemm<float>", base + 40_000, base + 150_003, 70_007, grid=(4, 2, 1), block=(128, 1, 1))
    kineto.memory(base + 35_000, 4096, allocated=4096, reserved=8192)
    kineto.operator(
        "autograd::engine::evaluate_function: AddmmBackward0",
        base + 300_000,
        90_000,
        thread_id=ENGINE,
        sequence_number=5,
        forward_thread_id=kineto.thread_id,
    )
    kineto.backward_flow(base + 30_000, base + 300_000, backward_thread=ENGINE)
    kineto.launch("gemm_backward", base + 310_000, base + 400_000, 50_000, thread_id=ENGINE)
    kineto.step(2, base + 1_000_000, 500_000)
    kineto.copy("HtoD", base + 1_100_000, base + 1_200_000, 9_001, size=4096)
    kineto.kernel("from nowhere", base + 1_300_000, 11, correlation=99_999)
    return kineto


def small(folder: Path) -> Trace:
    """The linked trace of `small_kineto`."""
    return convert([small_kineto().write(folder / "small.json")], Options())


def written(trace: Trace, target: str, folder: Path) -> Path:
    """The trace exported into the folder."""
    path = folder / f"exported.{target}"
    export(trace, find(target), path)
    return path


def with_texts(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with categories as text, to compare over traces."""
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))
