"""When a step took place on its devices; every answer worked out by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xsp_analyze.frames.steps import step_windows, without_ramp_up

if TYPE_CHECKING:
    from collections.abc import Sequence

Work = tuple[int | None, int | None, int, int]  # launch, step, start, end


def _windows(ranges: Sequence[tuple[int, int]], work: Sequence[Work]) -> list[tuple[int, int, str]]:
    steps = pl.DataFrame(
        [(0, 1, number, start, end - start) for number, (start, end) in enumerate(ranges)],
        schema={name: pl.Int64() for name in ("run_id", "process_id", "step", "start_ns", "host_ns")},
        orient="row",
    )
    calls = ("call_start_ns", "call_end_ns")
    names = ("run_id", "process_id", "device_id", "stream_id", "step", "start_ns", "duration_ns", *calls)
    rows = [(0, 1, 0, 7, step, start, end - start, launch, launch) for launch, step, start, end in work]
    activities = pl.DataFrame(rows, schema={name: pl.Int64() for name in names}, orient="row").sort("start_ns")
    return step_windows(steps, activities).select("begin_ns", "end_ns", "basis").rows()


def test_a_host_that_runs_ahead_is_not_what_a_step_takes() -> None:
    # Ranges of 10, 10 and 80 (held up by a full queue); the device works 30 for each, one after the other.
    windows = _windows([(0, 10), (10, 20), (20, 100)], [(1, 0, 5, 35), (11, 1, 35, 65), (21, 2, 65, 95)])
    assert windows == [(0, 35, "device_end"), (35, 65, "device_period"), (65, 95, "device_period")]


def test_work_of_before_bounds_the_first_step() -> None:
    # Work launched before the trace runs until 40; the step's own from 40 to 60, its range from 10 to 20.
    assert _windows([(10, 20)], [(None, None, 0, 40), (12, 0, 40, 60)]) == [(40, 60, "device_end")]


def test_the_first_step_begins_when_work_that_the_trace_does_not_hold_had_ended() -> None:
    # Launched at 10 us, its work waits until 5 ms: for as long the device did what was launched before the trace.
    first = _windows([(0, 100_000)], [(10_000, 0, 5_000_000, 8_000_000)])
    assert first == [(5_000_000, 8_000_000, "device_end")]
    prompt = _windows([(0, 100_000)], [(10_000, 0, 1_010_000, 8_000_000)])
    assert prompt == [(0, 8_000_000, "device_end")]  # no longer than an idle device may take


def test_work_whose_launch_was_lost_within_the_trace_counts_from_its_start() -> None:
    windows = _windows([(0, 50), (50, 100)], [(1, 0, 5, 15), (51, 1, 55, 65), (None, None, 70, 90)])
    assert windows == [(0, 50, "device_end"), (15, 65, "device_period")]


def test_a_step_beside_others_is_as_long_as_its_range() -> None:
    # Requests that overlap: the second is copied in while the first computes.
    windows = _windows([(0, 60), (40, 110)], [(None, 0, 0, 60), (None, 1, 40, 50), (None, 1, 60, 110)])
    assert windows == [(0, 60, "host"), (40, 110, "host")]


def test_a_pause_between_steps_is_of_neither() -> None:
    # The first range and its work end at 100 and 95; the next range begins at 200.
    windows = _windows([(0, 100), (200, 300)], [(5, 0, 10, 95), (205, 1, 210, 310)])
    assert windows == [(0, 100, "device_end"), (200, 310, "device_end")]


def test_a_pause_in_which_the_device_still_works_is_none() -> None:
    windows = _windows([(0, 100), (200, 300)], [(5, 0, 10, 250), (205, 1, 250, 400)])
    assert windows[1] == (250, 400, "device_period")


def test_microseconds_between_marks_are_no_pause() -> None:
    windows = _windows([(0, 1000), (1003, 2000)], [(5, 0, 10, 950), (1005, 1, 1010, 1900)])
    assert windows[1] == (950, 1900, "device_period")


def test_a_step_that_launched_nothing_is_its_range() -> None:
    windows = _windows([(0, 100), (100, 130), (130, 200)], [(5, 0, 10, 120), (135, 2, 140, 190)])
    assert windows[1:] == [(100, 130, "host"), (130, 200, "device_end")]


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=2, max_size=8), st.integers(0, 10**9))
def test_periods_neither_overlap_nor_leave_time_out_and_a_shift_changes_nothing(
    lengths: list[tuple[int, int]], shift: int
) -> None:
    """A host that takes h and enqueues d of work a step, with no pause: from the first end on, time is conserved."""
    ranges: list[tuple[int, int]] = []
    work: list[tuple[int, int, int, int]] = []
    now, free = shift, shift
    for number, (host, device) in enumerate(lengths):
        ranges.append((now, now + host))
        free = max(free, now) + device
        work.append((now, number, free - device, free))
        now += host
    windows = _windows(ranges, work)
    ends = [end for _, _, _, end in work]
    assert windows[1:] == [(a, b, "device_period") for a, b in pairwise(ends)]
    unshifted = _windows(
        [(a - shift, b - shift) for a, b in ranges], [(w - shift, s, a - shift, b - shift) for w, s, a, b in work]
    )
    assert [(b - a, basis) for a, b, basis in windows] == [(b - a, basis) for a, b, basis in unshifted]


@pytest.mark.parametrize(
    ("latencies", "kept"),
    [
        ([300, 150, 100, 101, 99, 100], [100, 101, 99, 100]),  # two steps of ramp-up
        ([100, 101, 99, 100], [100, 101, 99, 100]),
        ([300, 100, 101], [300, 100, 101]),  # two later steps may agree by chance
        ([100, 300, 100, 300, 100, 300], [100, 300, 100, 300, 100, 300]),  # uneven, not settled
        ([100, 100, 100, 500, 100, 100], [100, 100, 100, 500, 100, 100]),  # one slow step in between is no ramp-up
        ([60, 100, 101, 99, 100], [100, 101, 99, 100]),  # a first step cut short
        ([490, 33, 36, 25, 25], [33, 36, 25, 25]),  # compiled in the first: those after it are uneven
        ([300, 250, 200, 150, 100, 100, 100, 100, 100], [150, 100, 100, 100, 100, 100]),  # slowly
    ],
)
def test_ramp_up_is_what_comes_before_steps_agree(latencies: list[int], kept: list[int]) -> None:
    steps = pl.DataFrame({"run_id": 0, "step": range(len(latencies)), "duration_ns": latencies})
    assert without_ramp_up(steps)["duration_ns"].to_list() == kept


def test_a_copy_on_the_side_that_outlasts_steps_does_not_stretch_one_and_empty_the_next() -> None:
    # Even steps of 100 on stream 7; step 1 also starts a copy on stream 8 that runs to 390, to the end of step 3.
    ranges = [(100 * n, 100 * n + 100) for n in range(5)]
    steps = pl.DataFrame(
        {"run_id": 0, "process_id": 1, "step": range(5), "start_ns": [start for start, _ in ranges], "host_ns": 100}
    )
    work = [(n, 7, 100 * n + 10, 80, 100 * n + 5) for n in range(5)] + [(1, 8, 150, 240, 140)]
    columns = ("step", "stream_id", "start_ns", "duration_ns", "call_start_ns")
    activities = pl.DataFrame(work, schema=dict.fromkeys(columns, pl.Int64), orient="row").with_columns(
        pl.col("call_start_ns").alias("call_end_ns"),
        run_id=pl.lit(0, pl.Int64),
        process_id=pl.lit(1, pl.Int64),
        device_id=pl.lit(0, pl.Int64),
    )
    windows = step_windows(steps.cast(pl.Int64), activities.sort("start_ns"))
    assert windows["end_ns"].to_list() == [100, 190, 290, 390, 490]
    assert windows["begin_ns"].to_list() == [0, 90, 190, 290, 390]
