"""Of the calls running at a time the one that began last, as a look at every single moment says."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from xsp_analyze.frames.critical_path import innermost_calls, overlaps

_CALLS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 12)), max_size=12)


def _at(calls: list[tuple[int, int]], moment: int) -> int:
    """The call of [start, end) that began last, of several the shortest, of these the last; -1: none."""
    running = [(start, -end, row) for row, (start, end) in enumerate(calls) if start <= moment < end]
    return max(running)[2] if running else -1


@given(_CALLS, st.lists(st.tuples(st.integers(0, 35), st.integers(1, 10)), max_size=4))
def test_stretches_are_those_of_every_moment(lengths: list[tuple[int, int]], intervals: list[tuple[int, int]]) -> None:
    calls = [(start, start + length) for start, length in lengths]
    frame = pl.DataFrame(calls, schema={"start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")
    stretches = innermost_calls(frame)
    row_at = {t: int(row) for left, right, row in zip(*stretches, strict=True) for t in range(left, right)}
    assert row_at == {t: row for t in range(40) if (row := _at(calls, t)) >= 0}
    start = np.array([s for s, _ in intervals], dtype=np.int64)
    end = np.array([s + n for s, n in intervals], dtype=np.int64)
    rows, shared = overlaps(stretches, start, end)
    sums = {row: int(shared[rows == row].sum()) for row in range(-1, len(calls))}
    moments = [_at(calls, t) for s, n in intervals for t in range(s, s + n)]
    assert sums == {row: moments.count(row) for row in range(-1, len(calls))}
    assert (shared > 0).all()
