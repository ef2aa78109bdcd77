"""B11: flops and bytes from shapes, counted once however operators nest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.frames.step_frames import StepFrames
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path


def test_nested_operators_count_once_and_their_work_is_the_outermost_known_ones(tmp_path: Path) -> None:
    # linear (8 x 4 times 3 x 4) holds addmm, which launches 10 us; a custom operator launches 2 us itself and holds
    # mm (2 x 5 times 5 x 7), which launches 4 us.
    made = KinetoTrace()
    made.operator("aten::linear", 0, 100_000, shapes=[[8, 4], [3, 4], [3]])
    made.operator("aten::addmm", 10_000, 50_000, shapes=[[3], [8, 4], [4, 3]])
    made.launch("gemm", 20_000, 200_000, 10_000)
    made.operator("my::op", 110_000, 80_000, shapes=[[2, 5]])
    made.launch("mine", 112_000, 220_000, 2_000)
    made.operator("aten::mm", 120_000, 40_000, shapes=[[2, 5], [5, 7]])
    made.launch("gemm", 130_000, 230_000, 4_000)
    table = run(find("B11"), StepFrames.of(convert([made.write(tmp_path / "t.json")], Options()))).table
    columns = ["operator", "count", "modelled_count", "modelled_flop", "modelled_bytes", "device_sum_ns"]
    linear_bytes = 4 * (8 * 4 + 3 * 4 + 3 + 8 * 3)
    assert table.select(columns).rows() == [
        ("aten::linear", 1, 1, 2 * 8 * 4 * 3, linear_bytes, 10_000),
        ("aten::mm", 1, 1, 2 * 2 * 5 * 7, 4 * (10 + 35 + 14), 4_000),
        ("my::op", 1, 0, None, None, 2_000),
    ]
    shares = table.select("modelled_share", "modelled_flop_per_s", "modelled_intensity").rows()
    assert shares[0] == (1.0, 192 / 10e-6, 192 / linear_bytes)
    assert shares[2] == (0.0, None, None)
