"""Times of device work that cannot be: which are set aside, which are only said, and which are sound. Times in ns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.linked import converted, ledger_counts
from tests.helpers.synth import KinetoTrace

if TYPE_CHECKING:
    from pathlib import Path

_KINDS = ("impossible_time", "stream_overlap", "start_before_launch")


def _doubts(kineto: KinetoTrace, folder: Path) -> dict[str, tuple[int, int | None]]:
    """Count and duration by kind."""
    ledger = converted(kineto, folder).frame("ledger").to_dicts()
    return {row["kind"]: (row["count"], row["duration_ns"]) for row in ledger if row["kind"] in _KINDS}


def _durations(kineto: KinetoTrace, folder: Path) -> list[int]:
    """Of the kernels, in order of start."""
    spans = converted(kineto, folder).frame("spans").filter(pl.col("kind") == "kernel")
    return spans.sort("start_ns")["duration_ns"].to_list()


def _kineto(*times: tuple[int, int], stream_id: int = 7) -> KinetoTrace:
    """Kernels that start and last so long, each launched 10 us before; the host works for 20 ms."""
    kineto = KinetoTrace()
    kineto.operator("aten::mm", 0, 20_000_000)
    for number, (start, duration) in enumerate(times):
        kineto.launch(f"k{number}", start - 10_000, start, duration, stream_id=stream_id)
    return kineto


def test_work_that_lasts_beyond_the_next_start_counts_for_nothing(tmp_path: Path) -> None:
    kineto = _kineto((100_000, 90_000), (200_000, 3_400_000_000), (400_000, 90_000))
    assert _durations(kineto, tmp_path) == [90_000, 0, 90_000]
    assert _doubts(kineto, tmp_path) == {"impossible_time": (1, 3_400_000_000)}


def test_the_last_work_of_a_stream_may_not_outlast_the_run_a_hundred_times(tmp_path: Path) -> None:
    assert _doubts(_kineto((100_000, 2_000_000_001)), tmp_path) == {"impossible_time": (1, 2_000_000_001)}
    assert _doubts(_kineto((100_000, 2_000_000_000)), tmp_path) == {}


@pytest.mark.parametrize(("overlap_ns", "kinds"), [(50_000, []), (50_001, ["impossible_time"])])
def test_fifty_microseconds_of_overlap_are_rounding_where_they_are_a_small_share(
    overlap_ns: int, kinds: list[str], tmp_path: Path
) -> None:
    kineto = _kineto((100_000, 6_000_000), (6_100_000 - overlap_ns, 6_000_000))
    assert list(_doubts(kineto, tmp_path)) == kinds


def test_many_that_overlap_are_kept_and_their_overlap_is_said(tmp_path: Path) -> None:
    kineto = _kineto(*((100_000 * n, 130_000) for n in range(1, 11)))
    assert _doubts(kineto, tmp_path) == {"stream_overlap": (9, 9 * 30_000)}
    assert _durations(kineto, tmp_path) == [130_000] * 10


def test_streams_run_side_by_side(tmp_path: Path) -> None:
    kineto = _kineto((100_000, 5_000_000))
    for number, stream in enumerate((8, 9)):
        kineto.launch(f"beside{number}", 110_000, 150_000, 5_000_000, stream_id=stream)
    assert _doubts(kineto, tmp_path) == {}


def test_one_start_before_the_launch_is_set_aside(tmp_path: Path) -> None:
    kineto = _kineto(*((1_000_000 * n, 90_000) for n in range(1, 11)))
    kineto.launch("early", 12_000_000, 11_899_999, 500)
    assert _doubts(kineto, tmp_path) == {"impossible_time": (1, 500)}


def test_where_all_start_early_it_is_the_clock(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.operator("aten::mm", 0, 20_000_000)
    for n in range(1, 11):
        kineto.launch(f"k{n}", 1_000_000 * n, 1_000_000 * n - 300_000, 90_000)
    assert _doubts(kineto, tmp_path) == {"start_before_launch": (10, None)}


def test_branches_of_a_replayed_graph_may_overlap(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.operator("aten::mm", 0, 20_000_000)
    correlation = kineto.runtime("cudaGraphLaunch", 1_000, 5_000)
    for n in range(3):
        kineto.kernel(f"k{n}", 10_000 + n, 900_000, correlation=correlation)
    assert not set(ledger_counts(converted(kineto, tmp_path))) & set(_KINDS)
