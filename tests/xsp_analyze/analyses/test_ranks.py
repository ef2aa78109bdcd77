"""B29, B30 and B31: what ranks do with a step, who came last, how fast collectives were; worked out by hand."""

from __future__ import annotations

import gzip
import json
from statistics import median_low
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.hand import Hand
from tests.helpers.profile_trace import profile
from tests.helpers.rank_traces import REDUCE, grouped_traces, rank_trace, write_ranks
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.helpers.synth import KinetoTrace
    from xsp_model import Trace

_MS = 1_000_000


def _rows(identity: str, trace: Trace, steps: str | None = None) -> pl.DataFrame:
    return run(find(identity), StepView.of(trace, steps)).table


def _read(folder: Path, traces: Sequence[KinetoTrace]) -> Trace:
    return convert(write_ranks(folder, traces), Options())


def _three(folder: Path) -> Trace:
    """Rank 2 computes 6 ms where the others do 4, so that they wait 2 ms for it in each of two steps of 20 ms."""
    return _read(folder, [rank_trace(4, 3), rank_trace(4, 3), rank_trace(6, 1)])


def _reductions(*durations: Sequence[int], ranks: Sequence[int] | None = None, clock_ns: int = 0) -> Hand:
    """All-reduces one after the other, each ending everywhere at once; `durations` are those of a rank."""
    hand = Hand()
    for run_id, each in enumerate(durations):
        hand.run(run_id, rank=ranks[run_id] if ranks else run_id)
        for number, duration in enumerate(each):
            ahead = clock_ns if run_id else 0
            hand.work(REDUCE, 1000 * (number + 1) - duration + ahead, duration, run_id=run_id)
    return hand


def test_each_rank_says_what_it_did_with_its_step(tmp_path: Path) -> None:
    rows = _rows("B29", _three(tmp_path))
    parts = ("step_ns", "compute_ns", "exposed_communication_ns", "exposed_memory_ns", "idle_ns", "wait_ns")
    assert rows.select("rank", *(pl.col(c) / _MS for c in parts), "last_count").rows() == [
        (0, 20, 4, 3, 0, 13, 2, 0),
        (1, 20, 4, 3, 0, 13, 2, 0),
        (2, 20, 6, 1, 0, 13, 0, 1),
    ]


def test_each_step_is_answered_for_itself_in_order_of_ranks(tmp_path: Path) -> None:
    rows = _rows("B29", _three(tmp_path), "each")
    assert rows.select("step", "rank", "wait_ns", "last_count").rows() == [
        (step, rank, wait * _MS, last) for step in (0, 1) for rank, wait, last in ((0, 2, 0), (1, 2, 0), (2, 0, 1))
    ]
    assert rows.schema["idle_ns"] == pl.Int64
    in_all = _rows("B29", _three(tmp_path), "all").row(2, named=True)
    assert (in_all["compute_ns"], in_all["wait_ns"], in_all["last_count"]) == (12 * _MS, 0, 2)


def test_ranks_stand_in_order_of_their_numbers() -> None:
    trace = _reductions((10,), (20,), (30,), ranks=(10, 2, 1)).build()
    assert _rows("B29", trace)["rank"].to_list() == [1, 2, 10]
    assert _rows("B30", trace).select("rank", "last_count", "waited_for_ns").rows() == [
        (10, 1, 30.0), (1, 0, 0.0), (2, 0, 0.0)
    ]  # fmt: skip


def test_ranks_that_say_the_same_number_are_numbered_in_order() -> None:
    assert _rows("B29", _reductions((10,), (20,), ranks=(3, 3)).build())["rank"].to_list() == [0, 1]


def test_stragglers_are_told_by_collective_group_and_rank(tmp_path: Path) -> None:
    rows = _rows("B30", _read(tmp_path, grouped_traces()), "all")
    columns = ("process_group", "rank", "count", "last_count", "waited_for_ns", "wait_ns", "duration_ns")
    assert rows.select(columns).rows() == [
        ("dp [1, 3]", 1, 1, 1, 190.0, 0, 110),
        ("tp [2, 3]", 2, 2, 2, 110.0, 0, 45),
        ("tp [0, 1]", 1, 2, 1, 60.0, 50, 120),
        ("dp [0, 2]", 2, 1, 1, 50.0, 0, 150),
        ("tp [0, 1]", 0, 2, 1, 50.0, 60, 130),
        ("dp [0, 2]", 0, 1, 0, 0.0, 50, 200),
        ("dp [1, 3]", 3, 1, 0, 0.0, 190, 300),
        ("tp [2, 3]", 3, 2, 0, 0.0, 110, 155),
    ]


def test_ranks_that_come_last_together_share_what_is_waited_for_them() -> None:
    rows = _rows("B30", _reductions((30,), (10,), (10,)).build()).sort("rank")
    assert rows.select("rank", "last_count", "last_share", "waited_for_ns", "wait_ns").rows() == [
        (0, 0, 0.0, 0.0, 20), (1, 0, 0.0, 10.0, 0), (2, 0, 0.0, 10.0, 0)
    ]  # fmt: skip


@pytest.mark.slow
@given(
    st.lists(st.lists(st.integers(1, 900), min_size=3, max_size=3), min_size=2, max_size=4),
    st.integers(-400, 400),
    st.integers(0, 5),
)
def test_all_that_is_waited_is_waited_for_somebody_whatever_the_clocks(
    durations: list[list[int]], clock_ns: int, seed: int
) -> None:
    rows = _rows("B30", _reductions(*durations).build())
    assert rows["waited_for_ns"].sum() == pytest.approx(rows["wait_ns"].sum())
    assert rows["wait_ns"].sum() == sum(sum(call) - len(call) * min(call) for call in zip(*durations, strict=True))
    assert _rows("B30", _reductions(*durations, clock_ns=clock_ns).build(shuffle=seed)).equals(rows)


def test_a_mean_step_counts_who_came_last_over_all_steps(tmp_path: Path) -> None:
    # Rank 0 comes last once, rank 2 twice: 1 ms shorter than the others' 3 ms, which then wait 1 ms each.
    traces = [rank_trace(4, 3, steps=3) for _ in range(3)]
    for rank, numbers in ((0, (0,)), (2, (1, 2))):
        calls = [event for event in traces[rank].events if event["name"] == REDUCE]
        for number in numbers:
            calls[number]["dur"] = 2 * _MS
    trace = _read(tmp_path, traces)
    assert _rows("B29", trace)["last_count"].to_list() == pytest.approx([1 / 3, 0, 2 / 3])
    rows = _rows("B30", trace).sort("rank")
    assert rows["last_share"].to_list() == pytest.approx([1 / 3, 0, 2 / 3])
    assert rows["waited_for_ns"].to_list() == pytest.approx([2 * _MS / 3, 0, 4 * _MS / 3])
    assert rows["wait_ns"].to_list() == pytest.approx([2 * _MS / 3, _MS, _MS / 3])


def test_clocks_are_compared_where_ranks_are_runs(tmp_path: Path) -> None:
    rows = _rows("B29", _read(tmp_path, grouped_traces((0, 40, -20, 90))), "all")
    assert rows.select("rank", "clock_offset_ns", "clock_spread_ns", "clock_count").rows() == [
        (0, None, None, None), (1, 40, 0, 2), (2, -20, 0, 1), (3, 90, 0, 1)
    ]  # fmt: skip
    hand = Hand()
    hand.run(0)
    for device, duration in ((3, 80), (5, 20)):
        hand.work(REDUCE, 100 - duration, duration, device_id=device)
    devices = _rows("B29", hand.build())
    assert devices.select("rank", "wait_ns", "clock_offset_ns").rows() == [(3, 60, None), (5, 0, None)]


def test_bandwidth_is_of_messages_of_a_size(tmp_path: Path) -> None:
    # All-reduces of two ranks: what the link carries is the message. tp sends 4000 bytes, dp 1600.
    rows = _rows("B31", _read(tmp_path, grouped_traces()), "all")
    columns = ("process_group", "from_bytes", "ranks", "count", "matched_count", "message_bytes", "transfer_ns")
    assert rows.select(columns).rows() == [
        ("dp [0, 2]", 1024, 2, 1, 1, 1600.0, 150.0),
        ("dp [1, 3]", 1024, 2, 1, 1, 1600.0, 110.0),
        ("tp [0, 1]", 2048, 2, 2, 2, 4000.0, 35.0),
        ("tp [2, 3]", 2048, 2, 2, 2, 4000.0, 22.5),
    ]
    rates = rows.select("bus_byte_per_s", "min_bus_byte_per_s", "max_bus_byte_per_s").row(2)
    assert rates == pytest.approx((8000 / 70e-9, 4000 / 40e-9, 4000 / 30e-9))


def test_a_lone_rank_has_rates_with_waiting_in_them(tmp_path: Path) -> None:
    trace = _read(tmp_path, grouped_traces()[:1])
    rows = _rows("B31", trace, "all").select("process_group", "count", "matched_count", "transfer_ns").rows()
    assert rows == [("dp [0, 2]", 1, 0, 200.0), ("tp [0, 1]", 2, 0, 65.0)]
    for identity in ("B29", "B30"):
        with pytest.raises(XspError, match="needs several ranks"):
            _rows(identity, trace)


def test_a_leveled_set_has_no_ranks() -> None:
    with pytest.raises(XspError, match="needs several ranks"):
        _rows("B29", profile())


def test_ranks_without_device_work_have_their_steps(tmp_path: Path) -> None:
    traces = []
    for length in (20, 30):
        trace = rank_trace(1, 1, steps=0)
        trace.step(0, 0, length * _MS)
        trace.operator("aten::mm", 1_000, _MS)
        traces.append(trace)
    rows = _rows("B29", _read(tmp_path, traces))
    assert rows.select("rank", "step_ns", "compute_ns", "idle_ns", "wait_ns").rows() == [
        (0, 20 * _MS, None, None, None), (1, 30 * _MS, None, None, None)
    ]  # fmt: skip


# Real ranks, from their files alone

_KINDS = {"all_to_all": "SendRecv", "all_reduce": "AllReduce"}


@pytest.fixture(name="dlrm", scope="module")
def fixture_dlrm(real_dir: Path) -> tuple[Trace, list[dict[str, list[dict[str, Any]]]]]:
    """The trace, and of each rank its kernels of each operation in order."""
    files = sorted((real_dir / "kineto" / "dlrm_8rank.v100").glob("*.gz"))
    ranks = []
    for path in files:
        with gzip.open(path) as file:
            events = [e for e in json.load(file)["traceEvents"] if e.get("cat") == "kernel"]
        events.sort(key=lambda e: e["ts"])
        ranks.append({kind: [e for e in events if part in e["name"]] for kind, part in _KINDS.items()})
    return convert(files, Options()), ranks


@pytest.mark.real
def test_real_ranks_wait_as_their_kernels_say(dlrm: tuple[Trace, list[dict[str, list[dict[str, Any]]]]]) -> None:
    trace, ranks = dlrm
    waits, last = [0] * 8, [0] * 8
    for kind in _KINDS:
        for calls in zip(*(rank[kind] for rank in ranks), strict=True):
            durations = [call["dur"] for call in calls]
            for rank, duration in enumerate(durations):
                waits[rank] += 1000 * (duration - min(durations))
                last[rank] += duration == min(durations)
    rows = _rows("B29", trace)
    assert rows["wait_ns"].to_list() == waits == [
        5_581_000, 11_119_000, 3_275_000, 9_557_000, 6_370_000, 6_034_000, 3_341_000, 1_529_000
    ]  # fmt: skip
    assert rows["last_count"].to_list() == last == [0, 0, 0, 0, 1, 2, 0, 5]
    straggler = _rows("B30", trace).row(0, named=True)
    assert (straggler["operation"], straggler["rank"]) == ("all_to_all", 7)
    assert (straggler["last_count"], straggler["waited_for_ns"]) == (4, 34_699_000)


@pytest.mark.real
def test_real_collectives_carry_what_their_arguments_say(
    dlrm: tuple[Trace, list[dict[str, list[dict[str, Any]]]]],
) -> None:
    # The first all-reduce is of 394,241 floats; over 8 ranks a link carries 14/8 of that, in rank 7's 86 us.
    trace, ranks = dlrm
    shortest = min(rank["all_reduce"][0]["dur"] for rank in ranks)
    row = _rows("B31", trace).filter(pl.col("operation") == "all_reduce").row(-1, named=True)
    assert (row["message_bytes"], row["transfer_ns"]) == (394_241 * 4, 1000 * shortest)
    assert row["bus_byte_per_s"] == pytest.approx(394_241 * 4 * 14 / 8 / (shortest * 1e-6))
    assert round(row["bus_byte_per_s"] / 1e9, 3) == 32.089


@pytest.mark.real
def test_real_clocks_are_apart_as_their_collectives_end(
    dlrm: tuple[Trace, list[dict[str, list[dict[str, Any]]]]],
) -> None:
    trace, ranks = dlrm
    ends = [[e["ts"] + e["dur"] for kind in _KINDS for e in rank[kind]] for rank in ranks]
    apart = [1000 * median_low(own - first for own, first in zip(each, ends[0], strict=True)) for each in ends[1:]]
    assert _rows("B29", trace)["clock_offset_ns"].to_list() == [None, *apart]
    assert apart == [-1000, -1000, -2000, -1000, -1000, -1000, -1000]
