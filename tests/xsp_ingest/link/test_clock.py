"""The Unix time of a trace's beginning."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.rank_traces import grouped_traces
from tests.helpers.synth import KinetoTrace
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("base", "is_date"), [(1_700_000_000 * 10**9, True), (2**63 - 500, False)])
def test_a_time_beyond_what_63_bits_hold_is_no_date(tmp_path: Path, base: int, is_date: bool) -> None:  # noqa: FBT001
    made = KinetoTrace(baseTimeNanoseconds=base)
    made.operator("aten::add", 1_000, 10)
    trace = convert([made.write(tmp_path / "t.json")], Options())
    assert trace.frame("runs")["epoch_ns"].to_list() == [base + 1_000 if is_date else None]


def test_clocks_are_compared_within_groups_and_from_group_to_group(tmp_path: Path) -> None:
    # Rank 3 shares no group with rank 0: it is compared with one that does. By name alone its first call is dp.
    paths = [trace.write(tmp_path / f"rank{i}.json") for i, trace in enumerate(grouped_traces((0, 40, -20, 90)))]
    trace = convert(paths, Options())
    starts = trace.frame("spans").group_by("run_id").agg(pl.col("start_ns").min()).sort("run_id")["start_ns"].to_list()
    assert [start - starts[0] for start in starts] == [0, 40, -20, 90]
    skews = trace.frame("ledger").filter(pl.col("kind") == "clock_skew").select("run_id", "count", "detail").rows()
    offset = re.compile(r"(ahead of|behind) the first run's by (\d+) ns")
    offsets = [(run, count, match[0]) for run, count, text in skews if (match := offset.search(text))]
    assert offsets == [
        (1, 2, "ahead of the first run's by 40 ns"),
        (2, 1, "behind the first run's by 20 ns"),
        (3, 2, "ahead of the first run's by 90 ns"),
    ]
