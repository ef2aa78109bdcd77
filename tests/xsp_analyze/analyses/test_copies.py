"""B07: copies by direction and memory, and the share of their link."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.hand import Hand
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

# H100 SXM5 by the table of devices: PCI Express 5.0 63 GB/s, memory 3,350 GB/s.
_H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132, "computeMajor": 9}


def test_rates_are_held_against_the_link_that_was_taken(tmp_path: Path) -> None:
    made = KinetoTrace(deviceProperties=[_H100])
    made.copy("HtoD", 0, 10_000, 1_000_000, size=31_500_000, memory=("Pinned", "Device"))  # 31.5 GB/s
    made.copy("HtoD", 0, 2_000_000, 1_000_000, size=6_300_000, memory=("Pageable", "Device"))  # 6.3 GB/s
    made.copy("DtoD", 0, 4_000_000, 100_000, size=83_750_000, memory=("Device", "Device"))  # 837.5 GB/s
    made.memset(0, 5_000_000, 100_000, size=335_000)
    trace = convert([made.write(tmp_path / "copies.json")], Options())
    table = run(find("B07"), StepView.of(trace)).table
    columns = ["direction", "source_kind", "count", "bytes", "duration_ns", "peak_byte_per_s"]
    assert table.select(columns).rows() == [
        ("Host-to-Device", "Pageable", 1, 6_300_000, 1_000_000, 63e9),
        ("Host-to-Device", "Pinned", 1, 31_500_000, 1_000_000, 63e9),
        ("Device-to-Device", "Device", 1, 83_750_000, 100_000, 1675e9),
        ("fill", None, 1, 335_000, 100_000, 3350e9),
    ]
    assert table["peak_share"].to_list() == pytest.approx([0.1, 0.5, 0.5, 0.001])
    moved = run(find("A10"), StepView.of(trace)).table["duration_ns"].to_list()
    assert sum(table["duration_ns"].to_list()) == sum(moved)


def test_unknown_bytes_and_unknown_peaks_are_null() -> None:
    hand = Hand()
    hand.run(0)
    hand.work("Memcpy HtoD", 0, 10, kind="memcpy")
    copy = hand.work("Memcpy HtoD", 20, 10, kind="memcpy")
    hand.extra["copies"] = [{"span_id": copy, "bytes": 50, "copy_kind": "Host-to-Device"}]
    rows = (
        run(find("B07"), StepView.of(hand.build()))
        .table.select("direction", "count", "known_count", "byte_per_s")
        .rows()
    )
    assert rows == [("Host-to-Device", 1, 1, 5e9), (None, 1, 0, None)]


def test_a_trace_without_copies_is_answered_in_a_sentence() -> None:
    hand = Hand()
    hand.run(0)
    hand.work("k", 0, 10)
    with pytest.raises(XspError, match="B07"):
        run(find("B07"), StepView.of(hand.build()))
