"""B10: paths worked out by hand, and that their pieces fill the run whatever it holds."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.hand import Hand, total
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView


def _path(hand: Hand) -> list[tuple[object, ...]]:
    table = run(find("B10"), StepView.of(hand.build())).table
    return table.select("link", "kind", "layer_name", "piece_count", "duration_ns").rows()


def test_the_host_waits_for_the_last_kernel_of_a_queue() -> None:
    # a: call [10,15), runs [20,60); b: call [30,35), runs [62,90). The host waits [40,95) and ends at 100. Back from
    # 100: host 5, return 5 (90 to 95), b 28, gap 2, a 40, launch 5 (15 to 20), host 15, of which 7 in the layer [3,10).
    hand = Hand()
    hand.run(0)
    hand.step(1, 0, 100)
    layer = hand.module("Linear_0", 3, 7, 0, step=1)
    hand.work("a", 20, 40, launch=10, layer=layer, step=1)
    hand.work("b", 62, 28, launch=30, step=1)
    hand.span("runtime", "call", "cudaStreamSynchronize", 40, 55, step=1)
    assert _path(hand) == [
        ("device", "kernel", "Linear_0", 1, 40),
        ("device", "kernel", None, 1, 28),
        ("host", None, None, 2, 13),
        ("host", None, "Linear_0", 1, 7),
        ("launch latency", None, None, 1, 5),
        ("synchronisation", None, None, 1, 5),
        ("device gap", None, None, 1, 2),
    ]


def test_a_late_launch_leads_to_the_host_and_a_wait_in_vain_is_no_wait() -> None:
    # b is launched at 70, long after a ended at 30: a is not on the path. The wait [35,50) had nothing to wait for.
    hand = Hand()
    hand.run(0)
    hand.step(1, 0, 80)
    hand.work("a", 10, 20, launch=0, step=1)
    hand.span("runtime", "call", "cudaDeviceSynchronize", 35, 15, step=1)
    hand.work("b", 78, 22, launch=70, step=1)
    assert _path(hand) == [
        ("host", None, None, 1, 75),
        ("device", "kernel", None, 1, 22),
        ("launch latency", None, None, 1, 3),
    ]


def test_work_that_was_ready_long_before_waited_for_the_other_stream() -> None:
    # b on stream 8 was launched at 5 us and begins at 61, right after a on stream 7 ended at 60.
    hand = Hand()
    hand.run(0)
    hand.step(1, 0, 90_000)
    hand.work("a", 10_000, 50_000, launch=0, step=1)
    hand.work("b", 61_000, 30_000, launch=5_000, stream_id=8, step=1)
    assert _path(hand) == [
        ("device", "kernel", None, 2, 80_000),
        ("launch latency", None, None, 1, 9_995),
        ("device gap", None, None, 1, 1_000),
        ("host", None, None, 1, 5),
    ]


def test_the_run_ends_with_what_ends_last_of_a_stream_not_with_what_began_last() -> None:
    hand = Hand()
    hand.run(0)
    hand.step(1, 0, 500)
    hand.span("runtime", "call", "cudaGetDevice", 0, 1)
    hand.work("k", 730, 54, stream_id=8, step=1)
    hand.work("k", 734, 1, stream_id=8, step=1)
    assert total(run(find("B10"), StepView.of(hand.build())).table["duration_ns"]) == 784


_work = st.tuples(st.integers(0, 900), st.integers(0, 100), st.integers(0, 80), st.integers(7, 9), st.booleans())
_wait = st.tuples(st.integers(0, 900), st.integers(0, 200))


@given(st.lists(_work, min_size=1, max_size=30), st.lists(_wait, max_size=8), st.booleans())
def test_the_pieces_fill_the_run(
    work: list[tuple[int, int, int, int, bool]],
    waits: list[tuple[int, int]],
    in_steps: bool,  # noqa: FBT001 (hypothesis)
) -> None:
    hand = Hand()
    hand.run(0)
    hand.span("runtime", "call", "cudaGetDevice", 0, 1)
    step: dict[str, Any] = {"step": 1} if in_steps else {}
    if in_steps:
        hand.step(1, 0, 500)
    for start, duration, latency, stream, launched in work:
        hand.work("k", start + latency, duration, launch=start if launched else None, stream_id=stream, **step)
    for start, duration in waits:
        hand.span("runtime", "call", "cudaStreamSynchronize", start, duration, **step)
    trace = hand.build()
    end = (pl.col("start_ns") + pl.col("duration_ns")).max()
    spans = trace.scan("spans")
    device = spans.filter(pl.col("attribution").is_not_null()).select(end).collect().item()
    total = max(500, device) if in_steps else spans.select(end).collect().item()
    table = run(find("B10"), StepView.of(trace)).table
    assert sum(table["duration_ns"].to_list()) == total
    assert (table["duration_ns"] > 0).all()


def test_slack_is_what_work_could_be_later_by() -> None:
    """B49: in the first trace above both kernels have none; a third, on a stream of its own, could end with b."""
    hand = Hand()
    hand.run(0)
    hand.step(1, 0, 100)
    layer = hand.module("Linear_0", 3, 7, 0, step=1)
    hand.work("a", 20, 40, launch=10, layer=layer, step=1)
    hand.work("b", 62, 28, launch=30, step=1)
    hand.work("vectorized_elementwise_kernel", 50, 10, launch=36, step=1, stream_id=8)
    hand.span("runtime", "call", "cudaDeviceSynchronize", 42, 53, step=1)
    table = run(find("B49"), StepView.of(hand.build())).table
    columns = ("kernel_class", "layer_name", "activity_count", "duration_ns", "critical_ns", "least_slack_ns")
    assert table.select(columns).rows() == [
        ("matrix product", "Linear_0", 1, 40, 40, None),  # by its layer
        ("other", None, 1, 28, 28, None),
        ("elementwise", None, 1, 10, 0, 30),
    ]
