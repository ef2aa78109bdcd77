"""Calls of many threads at once: each looks its own up, and those of all others, as though it were looked at alone."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from xsp_analyze.frames.host_calls import BLOCK_CAUSES, HostCalls, outermost_blocks

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
