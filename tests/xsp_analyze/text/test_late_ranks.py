"""Ranks that others wait for: how much, whether chance explains it, and why, over simulated jobs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.job_simulator import DataParallel
from tests.helpers.rank_traces import write_ranks
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.findings import advise
from xsp_analyze.frames.rank_waits import is_beyond_chance, late_ranks, late_ranks_of
from xsp_analyze.text.late_ranks import rank_reason
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_MS = 1_000_000
_STEPS = 12


def _view(folder: Path, job: DataParallel) -> StepView:
    return StepView.of(convert(write_ranks(folder, job.traces()), Options()))


def _even(ranks: int, spread: float = 0.01, steps: int = _STEPS) -> list[list[int]]:
    chance = random.Random(ranks)  # noqa: S311 (a job that is the same each time)
    return [[round(4 * _MS * (1 + chance.uniform(-spread, spread))) for _ in range(steps)] for _ in range(ranks)]


def _slower(times: list[list[int]], rank: int, by: float) -> list[list[int]]:
    return [[round(t * (1 + by * (r == rank))) for t in own] for r, own in enumerate(times)]


def _stragglers(view: StepView) -> Sequence[str]:
    return [one.observation.sentence for one in advise(view) if one.rule.id == "straggler"]


@pytest.mark.parametrize(
    ("last", "calls", "ranks"),
    [(31, 31, 2), (25, 31, 2), (10, 10, 2), (20, 31, 4), (10, 100, 1000)],
)
def test_what_chance_does_not_explain(last: int, calls: int, ranks: int) -> None:
    assert is_beyond_chance(last / calls, calls, ranks)


@pytest.mark.parametrize(
    ("last", "calls", "ranks"),
    [(16, 31, 2), (15, 31, 2), (9, 31, 4), (3, 100, 1000), (0, 1, 2), (5, 5, 1), (2, 2, 3)],
)
def test_what_chance_explains(last: int, calls: int, ranks: int) -> None:
    assert not is_beyond_chance(last / calls, calls, ranks)


@pytest.mark.parametrize("ranks", [2, 5])
def test_waiting_is_what_was_played(tmp_path: Path, ranks: int) -> None:
    job = DataParallel(_slower(_even(ranks, 0.1), 1, 0.2))
    trace = convert(write_ranks(tmp_path, job.traces()), Options())
    rows = run(find("B30"), StepView.of(trace, "all")).table.sort("rank")
    assert rows["wait_ns"].to_list() == pytest.approx(job.waits_ns(), rel=0.01)


@pytest.mark.parametrize("ranks", [2, 4])
def test_even_ranks_have_no_straggler(tmp_path: Path, ranks: int) -> None:
    view = _view(tmp_path, DataParallel(_even(ranks, 0.1, steps=31)))
    assert late_ranks_of(view).is_empty()
    assert not _stragglers(view)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("strength", [0.05, 0.3])
def test_a_slow_device_is_told_by_kernels_that_are_the_same_and_slower(
    tmp_path: Path, ranks: int, strength: float
) -> None:
    view = _view(tmp_path, DataParallel(_slower(_even(ranks), 1, strength)))
    assert late_ranks_of(view)["rank"].to_list() == [1]
    assert "with the same kernels, most of them slower" in rank_reason(view, 1)
    assert strength < 0.1 or "look at its clocks" in _stragglers(view)[0]


@pytest.mark.parametrize(("late_steps", "named"), [((0, 1, 2, 3, 4, 5), [2]), ((0,), [])])
def test_one_long_call_hides_no_rank_that_is_late_in_all_and_makes_none(
    tmp_path: Path, late_steps: Sequence[int], named: list[int]
) -> None:
    """The first call is waited in thirty times as long, as where ranks start; the others by the one that is late."""
    times = _even(4, steps=6)
    late = [[0] * 6 for _ in range(4)]
    for step in late_steps:
        late[2][step] = 60 * _MS if step == 0 else 2 * _MS
    assert late_ranks_of(_view(tmp_path, DataParallel(times, late)))["rank"].to_list() == named


def test_ranks_without_devices_are_told_apart_by_what_operators_compute(tmp_path: Path) -> None:
    """Gloo: rank 1 multiplies for 5 ms of each step before it reduces, the others for 2 ms, and they wait for it."""
    traces = []
    for rank in range(3):
        trace = KinetoTrace(process_id=100 + rank, distributedInfo={"rank": rank, "world_size": 3, "pg_count": 1})
        for number in range(4):
            start, compute = number * 10 * _MS, (5 if rank == 1 else 2) * _MS
            trace.step(number, start, 9 * _MS)
            trace.operator("aten::matmul", start + _MS, compute)
            trace.operator("aten::mm", start + _MS + 1_000, compute - 2_000)
            trace.operator("c10d::allreduce_", start + _MS + compute, 20_000)
            trace.annotation("gloo:all_reduce", start + _MS + compute + 30_000, 7 * _MS - compute, thread_id=9)
        traces.append(trace)
    view = StepView.of(convert(write_ranks(tmp_path, traces), Options()))
    assert late_ranks_of(view)["rank"].to_list() == [1]
    assert rank_reason(view, 1).startswith("It computes 3.00\u202fms a step longer than the median rank")


def test_more_work_is_told_by_other_counts_of_kernels(tmp_path: Path) -> None:
    view = _view(tmp_path, DataParallel(_slower(_even(4), 2, 0.25), kernels={2: 5, 0: 4, 1: 4, 3: 4}))
    assert "with more or other work" in rank_reason(view, 2)


@pytest.mark.parametrize(("loading", "reason"), [(False, "its host comes later"), (True, "waits for input")])
def test_a_later_start_is_told_by_idle_time_and_by_its_input(tmp_path: Path, *, loading: bool, reason: str) -> None:
    late = [[_MS * (rank == 3)] * _STEPS for rank in range(4)]
    view = _view(tmp_path, DataParallel(_even(4), late, loading=loading))
    assert late_ranks_of(view).select("rank", "calls", "ranks").rows() == [(3, _STEPS, 4)]
    assert reason in rank_reason(view, 3)


def test_of_a_job_with_ranks_missing_none_is_named(tmp_path: Path) -> None:
    assert not _stragglers(_view(tmp_path, DataParallel(_slower(_even(2), 1, 0.3), world_size=128)))


def test_one_call_that_took_long_makes_no_straggler(tmp_path: Path) -> None:
    times = _even(2, 0.1, steps=31)
    times[0][7] = 100 * _MS
    assert late_ranks_of(_view(tmp_path, DataParallel(times))).is_empty()


def test_each_group_has_its_own() -> None:
    columns = ("rank", "operation", "step", "meeting", "process_group", "number", "wait_ns", "matched", "last_share")
    rows = [
        (rank, "all_reduce", 0, "all_reduce", group, number, 20 * (rank != late), True, 1.0 * (rank == late))
        for group, ranks, late in (("a", (0, 1), 1), ("b", (2, 3), 2))
        for rank in ranks
        for number in range(20)
    ]
    late = late_ranks(pl.DataFrame(rows, schema=list(columns), orient="row"))
    assert sorted(late.select("process_group", "rank", "last_count").rows()) == [("a", 1, 20), ("b", 2, 20)]


def test_a_rank_that_is_late_as_it_waited_itself_is_not_named() -> None:
    """Rank 1 is late to a; rank 0, which waited for it there, is so late to b, where 2 and 3 wait."""
    columns = ("rank", "operation", "step", "meeting", "process_group", "number", "wait_ns", "matched", "last_share")
    calls = (("a", (0, 1), 1), ("b", (0, 2, 3), 0))
    rows = [
        (rank, "all_reduce", 0, "all_reduce", group, number, 20 * (rank != late), True, 1.0 * (rank == late))
        for group, ranks, late in calls
        for rank in ranks
        for number in range(20)
    ]
    late = late_ranks(pl.DataFrame(rows, schema=list(columns), orient="row"))
    assert late.select("process_group", "rank").rows() == [("a", 1)]
