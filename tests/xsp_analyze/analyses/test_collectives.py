"""B08: who waits for whom, and rates, worked out by hand."""

from __future__ import annotations

import pytest

from tests.helpers.hand import Hand
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.frames.step_frames import StepFrames
from xsp_model import XspError

_ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def _ranks(*durations: tuple[int, ...], **facts: int) -> Hand:
    """One all-reduce after the other on each rank; `durations` are those of a rank."""
    hand = Hand()
    for rank, each in enumerate(durations):
        hand.run(rank, rank=rank, **facts)
        for number, duration in enumerate(each):
            hand.work(_ALL_REDUCE, 1000 * number + 100 * rank, duration, run_id=rank)
    return hand


def test_ranks_wait_for_the_one_with_the_shortest_kernels() -> None:
    # First: 50 and 30; second: 80 and 20; both end with rank 1, the last to come.
    row = run(find("B08"), StepFrames.of(_ranks((50, 80), (30, 20)).build())).table.row(0, named=True)
    assert (row["operation"], row["rank_count"], row["count"], row["matched_count"]) == ("all_reduce", 2, 2, 2)
    assert (row["duration_ns"], row["transfer_ns"], row["wait_ns"], row["skew_ns"]) == (90, 50, 40, 80)
    assert (row["straggler"], row["straggler_share"], row["bytes"]) == (1, 1.0, None)


def test_an_operation_that_a_rank_lacks_is_not_matched() -> None:
    row = run(find("B08"), StepFrames.of(_ranks((50, 80), (30,)).build())).table.row(0, named=True)
    assert (row["count"], row["matched_count"], row["transfer_ns"], row["wait_ns"]) == (1.5, 1, 30, 10)


def test_a_lone_rank_waits_for_nobody_that_is_known() -> None:
    row = run(find("B08"), StepFrames.of(_ranks((50,)).build())).table.row(0, named=True)
    assert (row["duration_ns"], row["matched_count"]) == (50, 0)
    assert [row[c] for c in ("transfer_ns", "wait_ns", "skew_ns", "straggler", "straggler_share")] == [None] * 5


def test_only_what_runs_beside_no_kernel_is_exposed() -> None:
    hand = _ranks((100,))
    hand.work("gemm", 20, 30, stream_id=8)
    hand.work("gemm", 40, 30, stream_id=9)
    hand.work("Memcpy", 90, 50, stream_id=9, kind="memcpy")
    assert run(find("B08"), StepFrames.of(hand.build())).table["exposed_ns"].to_list() == [50]


def test_rates_are_those_of_the_tensors_handed_over() -> None:
    # 1,000 floats in 40 ns: 100 GB/s; over the link of one of four ranks 2 x 3 / 4 of that.
    hand = Hand()
    hand.run(0, rank=0, world_size=4)
    handed_over = hand.span("operator", "operator", "record_param_comms", 0, 50)
    shapes = {"input_shapes": "[[1000], [], []]", "input_dtypes": '["float", "Scalar", ""]'}
    hand.extra["operators"] = [{"span_id": handed_over, **shapes}]
    around = hand.span("library", "range", "nccl:all_reduce", 5, 30, parent_id=handed_over)
    hand.work("ncclDevKernel_SendRecv(ncclDevComm*)", 100, 40, launch=10, parent=around)
    row = run(find("B08"), StepFrames.of(hand.build())).table.row(0, named=True)
    assert (row["operation"], row["bytes"]) == ("all_reduce", 4000)
    assert (row["byte_per_s"], row["bus_byte_per_s"]) == (pytest.approx(100e9), pytest.approx(150e9))


def test_a_trace_without_communication_is_answered_in_a_sentence() -> None:
    hand = Hand()
    hand.run(0)
    hand.work("gemm", 0, 10)
    with pytest.raises(XspError, match="needs communication kernels"):
        run(find("B08"), StepFrames.of(hand.build()))
