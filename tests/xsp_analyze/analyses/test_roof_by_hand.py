"""Percent of the roof of one operator, as docs/work-models-checked.md works it out with a pocket calculator.

An H100 SXM5 does 989.4 TFLOP/s in BF16 and moves 3350 GB/s: NVIDIA's H100 architecture paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_BF16 = "c10::BFloat16"
_FLOP_PER_NS, _BYTE_PER_NS = 989_400, 3350

_SMALL = "1x141x512, 512x512, 512"
_SMALL_FLOP = 73_924_608  # 2 x 141 x 512 x 512
_SMALL_BYTES = 814_080  # 2 x (141 x 512 + 512 x 512 + 512 + 141 x 512)


def _linear(path: Path, shapes: str) -> dict[str, Any]:
    frames = StepView.of(convert([path], Options()))
    rows = run(find("B23"), frames).table.to_dicts()
    return next(row for row in rows if row["operator"] == "aten::linear" and row["shapes"] == shapes)


def _traced(folder: Path, shapes: Sequence[Sequence[int]], duration_ns: int) -> Path:
    made = KinetoTrace(schemaVersion=1, deviceProperties=[{"id": 0, "name": "NVIDIA H100 80GB HBM3"}])
    made.operator("aten::linear", 0, 50_000, shapes=shapes, dtypes=[_BF16] * 3)
    made.launch("gemm", 20_000, 100_000, duration_ns)
    return made.write(folder / "t.json")


def test_a_small_product_is_held_by_memory(tmp_path: Path) -> None:
    # 74.7 ns at the peak, 243.0 ns at the bandwidth; 243.0 of 5807 is 4.18 %.
    row = _linear(_traced(tmp_path, [[1, 141, 512], [512, 512], [512]], 5_807), _SMALL)
    assert (row["modelled_flop"], row["modelled_bytes"], row["precision"]) == (_SMALL_FLOP, _SMALL_BYTES, "bf16")
    assert row["bound"] == "memory"
    assert row["roof_ns"] == pytest.approx(243.0, abs=0.05)
    assert row["roof_share"] == pytest.approx(0.0418, abs=5e-5)
    assert row["gain_ns"] == pytest.approx(5_564, abs=0.05)
    assert row["modelled_intensity"] == pytest.approx(90.8, abs=0.05)


def test_a_large_product_is_held_by_arithmetic(tmp_path: Path) -> None:
    # 2 x 4096^3 flop: 138.91 us at the peak; 2 x (3 x 4096^2 + 4096) bytes: 30.05 us. 138.91 of 200 is 69.5 %.
    row = _linear(_traced(tmp_path, [[4096, 4096], [4096, 4096], [4096]], 200_000), "4096x4096, 4096x4096, 4096")
    assert (row["modelled_flop"], row["modelled_bytes"]) == (137_438_953_472, 100_671_488)
    assert row["bound"] == "compute"
    assert row["roof_ns"] == pytest.approx(138_911, abs=1)
    assert row["roof_share"] == pytest.approx(0.6946, abs=5e-5)


@pytest.mark.real
def test_the_products_of_bert_on_an_h100(real_dir: Path) -> None:
    row = _linear(real_dir / "kineto" / "bert_small.h100.json.gz", _SMALL)
    assert (row["count"], row["modelled_count"], row["device_sum_ns"]) == (17, 17, 98_718)
    assert (row["modelled_flop"], row["modelled_bytes"]) == (17 * _SMALL_FLOP, 17 * _SMALL_BYTES)
    assert _SMALL_FLOP / _FLOP_PER_NS < _SMALL_BYTES / _BYTE_PER_NS
    assert row["bound"] == "memory"
    assert row["roof_ns"] == pytest.approx(17 * _SMALL_BYTES / _BYTE_PER_NS)
    assert row["roof_share"] == pytest.approx(0.0418, abs=5e-5)


@pytest.mark.real
def test_the_products_of_bert_on_an_mi300x(real_dir: Path) -> None:
    # 5300 GB/s: 153.6 ns a call, which TraceLens's report of this file has too; 17 of them of 85.74 us are 3.05 %.
    row = _linear(real_dir / "kineto" / "bert_small.mi300x.json.gz", _SMALL)
    assert row["roof_ns"] == pytest.approx(17 * 153.6)
    assert row["roof_share"] == pytest.approx(0.0305, abs=5e-5)
