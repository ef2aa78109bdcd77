"""Calls of many threads at once: each looks its own up, and those of all others, as though it were looked at alone."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.hand import Hand
from xsp_analyze.frames.host_calls import BLOCK_CAUSES, HostCalls, outermost_blocks
from xsp_analyze.frames.idle import CAUSES, idle_by_device
from xsp_analyze.trace.trace_view import TraceView

HOLDING = [BLOCK_CAUSES.index(cause) for cause in ("sync", "initialisation", "profiler")]
_CALL = st.tuples(st.integers(1, 4), st.integers(0, 30), st.integers(1, 12), st.integers(0, len(BLOCK_CAUSES) - 1))


@given(st.lists(_CALL, max_size=12))
def test_a_moment_is_of_the_threads_own_call_or_of_the_first_of_others_that_holds_up_the_process(
    calls: list[tuple[int, int, int, int]],
) -> None:
    rows = outermost_blocks(
        pl.DataFrame(
            [
                {"process_id": 1, "thread_id": thread, "start_ns": start, "end_ns": start + length, "cause": cause}
                for thread, start, length, cause in calls
            ],
            schema=dict.fromkeys(("process_id", "thread_id", "start_ns", "end_ns", "cause"), pl.Int64),
        ).with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("call"), waited_ns=pl.lit(0, pl.Int64))
    )
    looked_up = HostCalls.of(rows)
    in_order = sorted(rows.iter_rows(named=True), key=lambda row: (row["start_ns"], -row["end_ns"]))
    for thread in range(6):
        times = np.arange(45)
        own = looked_up.own_at(np.full(45, thread), times)
        other = looked_up.others_at(np.full(45, thread), times)
        for time in times.tolist():
            open_then = [row for row in in_order if row["start_ns"] <= time < row["end_ns"]]
            mine = [row["call"] for row in open_then if row["thread_id"] == thread]
            theirs = [row for row in open_then if row["thread_id"] != thread and row["cause"] in HOLDING]
            assert (looked_up.own.call[own[time]] if own[time] >= 0 else None) == (mine[0] if mine else None)
            other_start = looked_up.holding.start[other[time]] if other[time] >= 0 else None
            assert other_start == (theirs[0]["start_ns"] if theirs else None)


def _idle_of_untied_work(*, launch: int | None) -> list[tuple[str, str | None, int]]:
    """Stretches in which a device was idle, with cause and name, beside operators of several threads."""
    hand = Hand()
    hand.run(0)
    hand.step(0, 0, 1_000)
    for name, start, length, thread in (
        ("IteratorGetNext", 0, 300, 3), ("hash_table_Lookup", 100, 50, 4), ("Unique", 400, 100, 3),
        ("MatMul", 600, 30, 3),
    ):  # fmt: skip
        hand.span("operator", "operator", name, start, length, thread_id=thread)
    hand.work("gemm", 300, 50, step=0)
    hand.work("gemm", 600, 400, step=0, launch=launch)
    trace = hand.build()
    idle = idle_by_device(TraceView(trace))[0, 0]
    names = trace.frame("spans")["name"].cast(pl.String).to_list()
    causes = [CAUSES[cause].removeprefix("idle_").removesuffix("_ns") for cause in idle.cause.tolist()]
    calls = [names[call] if call >= 0 else None for call in idle.call.tolist()]
    return list(zip(causes, calls, (idle.end - idle.start).tolist(), strict=True))


def test_where_no_launch_is_known_open_operators_of_the_host_explain_a_gap() -> None:
    assert _idle_of_untied_work(launch=None) == [
        ("input", "IteratorGetNext", 100),
        ("host", "hash_table_Lookup", 50),
        ("input", "IteratorGetNext", 150),
        ("unknown", None, 50),
        ("host", "Unique", 100),
        ("unknown", None, 100),
    ]


def test_work_without_a_launch_among_others_with_one_leaves_a_gap_unknown() -> None:
    assert ("unknown", None, 300) in _idle_of_untied_work(launch=595)
