"""Ranks that others wait for, told from chance, and why they come late."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.collectives import CALL, PAIRWISE, rank_times, rank_units, waits_of
from xsp_analyze.frames.device_time import device_time
from xsp_analyze.frames.kernels.kernel_classes import IS_COMMUNICATION
from xsp_analyze.text.units import duration, share

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["FEW_CALLS", "is_beyond_chance", "late_ranks", "late_ranks_of", "rank_reason", "reason_of"]

_UNLIKELY = 0.01  # that so much waiting is for any one of the ranks, if each call were for any of them
_MIN_CALLS = 2.0  # one that takes nearly all of the waiting tells of no rank
FEW_CALLS = 10
"""Of fewer calls chance says little; they are told as they are."""
_HALF = 0.5
_NEARLY_ALL = 0.9
_SLOWER = 0.01


def is_beyond_chance(part: float, calls: float, ranks: int) -> bool:
    """Whether this part of the waiting of so many calls is more than chance gives one rank.

    Chernoff's bound on the binomial tail, times the ranks, one of which it is.
    """
    turn = 1 / max(ranks, 1)
    if ranks < 2 or part <= turn:  # noqa: PLR2004 (a pair)
        return False
    rest = 0.0 if part >= 1 else (1 - part) * log((1 - part) / (1 - turn))
    return calls * (part * log(part / turn) + rest) > log(ranks / _UNLIKELY)


def late_ranks(waits: pl.DataFrame) -> pl.DataFrame:
    """One row a rank that most of the waiting of its group is for, most waited for first.

    process_group, rank, last_count, calls, ranks, waited_for_ns, waited_share (of all waiting of the group) and
    effective_calls: so many calls of equal waiting would vary as much, so that one long call counts as one. `waits` as
    `with_waits` has them. Left out is what chance explains; of fewer than FEW_CALLS effective ones what is less than
    half again of its turn, or in fewer than two; and ranks that are late since they waited themselves as long.
    """
    met = waits.filter("matched", ~pl.col("operation").is_in(PAIRWISE))
    group, wait = pl.col("process_group"), pl.col("wait_ns").sum().cast(pl.Float64).over(CALL)
    once = pl.int_range(pl.len()).over(CALL) == 0
    calls = met.with_columns(wait.alias("call_ns"), once.alias("once"))
    of_group = calls.filter("once").group_by("process_group").agg(
        pl.col("call_ns").sum().alias("all_ns"), pl.col("call_ns").pow(2).sum().alias("squares")
    )  # fmt: skip
    by_rank = calls.group_by("process_group", "rank").agg(
        (pl.col("last_share") == 1).sum().cast(pl.Int64).alias("last_count"),
        pl.len().cast(pl.Int64).alias("calls"),
        (pl.col("call_ns") * pl.col("last_share")).sum().alias("waited_for_ns"),
    )
    rows = by_rank.join(of_group, on="process_group", nulls_equal=True).with_columns(
        pl.len().over(group).cast(pl.Int64).alias("ranks"),
        (pl.col("waited_for_ns") / pl.col("all_ns")).alias("waited_share"),
        (pl.col("all_ns").pow(2) / pl.col("squares")).alias("effective_calls"),
    )
    rows = rows.filter(pl.col("all_ns") > 0, pl.col("waited_share") >= _HALF).drop("all_ns", "squares")
    keep = [_is_late(*each) for each in rows.select("waited_share", "effective_calls", "ranks").iter_rows()]
    own = met.group_by("rank").agg(pl.col("wait_ns").sum().alias("own_ns"))
    kept = rows.filter(pl.Series(keep, dtype=pl.Boolean)).join(own, on="rank")
    is_first = pl.col("own_ns") < _HALF * pl.col("waited_for_ns") / (pl.col("ranks") - 1)
    kept = kept.filter(is_first).drop("own_ns")
    return kept.sort("waited_for_ns", "rank", descending=[True, False])


def _is_late(part: float, calls: float, ranks: int) -> bool:
    if part < (1 + 1 / ranks) / 2:
        return False
    return is_beyond_chance(part, calls, ranks) if calls >= FEW_CALLS else calls >= _MIN_CALLS


def reason_of(rank: int, times: pl.DataFrame, kernels: pl.DataFrame) -> str:
    """Why the rank comes late, as a sentence; empty where what is known does not say.

    `times`: a row a rank, with compute_ns, idle_ns and idle_input_ns; `kernels`: rank, kernel_name, count, duration_ns.
    """
    own, others = times.filter(pl.col("rank") == rank), times.filter(pl.col("rank") != rank)
    if own.is_empty() or others.is_empty():
        return ""
    more = {c: _middle(own[c]) - _middle(others[c]) for c in ("compute_ns", "idle_ns", "idle_input_ns")}
    compute, idle = max(more["compute_ns"], 0.0), max(more["idle_ns"], 0.0)
    if compute + idle <= _SLOWER * _middle(others["compute_ns"]):
        return ""
    if more["idle_input_ns"] >= _HALF * (compute + idle):
        return f"Its device waits for input {duration(more['idle_input_ns'])} a step longer than the median rank's."
    if idle > compute:
        return f"Its device is idle {duration(idle)} a step longer than the median rank's: its host comes later."
    by_how_much = f"It computes {duration(compute)} a step longer than the median rank"
    slowdown = _slowdown(rank, kernels)
    if slowdown is None:
        return f"{by_how_much}, with more or other work."
    return (
        f"{by_how_much}, with the same kernels, most of them slower ({share(slowdown)} in all): look at its clocks and"
        " temperature."
    )


def _middle(values: pl.Series) -> float:
    """The median; 0 where nothing is known."""
    median = values.cast(pl.Float64).median()
    return float(median) if isinstance(median, float | int) else 0.0


def _slowdown(rank: int, kernels: pl.DataFrame) -> float | None:
    """How much longer the same kernels take on it; None where it runs others, more, or only a few are slower."""
    median = (
        kernels.filter(pl.col("rank") != rank)
        .group_by("kernel_name")
        .agg(pl.col("count").median().alias("usual_count"), pl.col("duration_ns").median().alias("usual_ns"))
    )
    own = kernels.filter(pl.col("rank") == rank).join(median, on="kernel_name", how="left").drop_nulls("usual_ns")
    total = float(kernels.filter(pl.col("rank") == rank)["duration_ns"].sum())
    same = own.filter(pl.col("count") == pl.col("usual_count"))
    if not total or same["duration_ns"].sum() < _NEARLY_ALL * total:
        return None
    slowdown = float(same["duration_ns"].sum()) / float(same["usual_ns"].sum()) - 1
    slower = same.filter(pl.col("duration_ns") > (1 + max(slowdown / 2, _SLOWER)) * pl.col("usual_ns"))
    return slowdown if slower["duration_ns"].sum() >= _NEARLY_ALL * total else None


def rank_reason(frames: StepView, rank: int) -> str:
    """`reason_of` a rank of a trace that holds several."""
    units = rank_units(frames.of_trace).select("run_id", "device_id", "rank")
    parts = frames.once(device_time).parts
    times = rank_times(frames).group_by("rank").agg(pl.col("compute_ns", "idle_ns").mean())
    waited = units.join(parts, on=["run_id", "device_id"], nulls_equal=True).group_by("rank")
    times = times.join(waited.agg(pl.col("idle_input_ns").mean()), on="rank", how="left")
    return reason_of(rank, times, rank_kernels(frames))


def rank_kernels(frames: StepView) -> pl.DataFrame:
    """How often and how long each rank ran each kernel that computes: rank, kernel_name, count, duration_ns."""
    units = rank_units(frames.of_trace).select("run_id", "device_id", "rank")
    work = frames.of_trace.all_activities.filter(pl.col("kind").cast(pl.String) == "kernel", ~IS_COMMUNICATION)
    return (
        work.join(units, on=["run_id", "device_id"], nulls_equal=True)
        .group_by("rank", pl.col("name").cast(pl.String).alias("kernel_name"))
        .agg(pl.len().cast(pl.Int64).alias("count"), pl.col("duration_ns").sum())
    )


def late_ranks_of(frames: StepView) -> pl.DataFrame:
    """`late_ranks` over all steps of a trace."""
    return late_ranks(frames.once(waits_of))
