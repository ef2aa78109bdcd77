"""How far the clocks of ranks are apart, judged by the ends of collectives that they ran together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

__all__ = ["ENOUGH", "ClockSkew", "clock_skews"]

ENOUGH = 3
"""Collectives from which on a median stands against one that ended oddly."""

_ENOUGH_FOR_DRIFT = 8
_ALIKE = 0.9  # clocks are compared over ranks only where nearly all collectives have a counterpart


@dataclass(frozen=True, slots=True)
class ClockSkew:
    """How far ahead of the reference's a clock is: the median over `count` collectives, and how that spreads.

    Half of the differences lie in `spread_ns`, from their first to their third quartile. Of a rank that is compared
    with another than the reference the spread is the sum of both, and the count the smaller. `drift_ns_per_s`: how
    much further it gets ahead a second, where a line through the differences leaves less than half of their spread;
    `at_ns`: when, by the reference's clock, that line is at the offset.
    """

    offset_ns: int
    spread_ns: int
    count: int
    drift_ns_per_s: float | None = None
    at_ns: float = 0.0


def clock_skews(ends: pl.DataFrame) -> dict[int, ClockSkew]:
    """The skew of every rank that collectives link to the lowest, which is the reference and not among them.

    `ends`: rank, group, name, nth (of that name in the group on the rank), end_ns. A collective ends on all ranks of
    its group at nearly the same time, so that the median difference is the clocks'. A rank that shares no group with
    the reference is compared with one that does, or that is linked to it likewise; over few groups rather than many.
    """
    if ends.is_empty():
        return {}
    groups: dict[str, dict[int, pl.DataFrame]] = {}
    for (rank, group), calls in ends.partition_by("rank", "group", as_dict=True).items():
        groups.setdefault(group, {})[rank] = calls
    reference = int(ends["rank"].min())  # type: ignore[arg-type]
    skews = _skews_through_groups(groups, reference)
    return {rank: skews[rank] for rank in sorted(skews) if rank != reference}


def _skews_through_groups(groups: Mapping[str, Mapping[int, pl.DataFrame]], reference: int) -> dict[int, ClockSkew]:
    skews = {reference: ClockSkew(0, 0, np.iinfo(np.int64).max)}
    largest_first = sorted(groups, key=lambda name: (-sum(calls.height for calls in groups[name].values()), name))
    reached = {reference}
    while reached:
        nearer, reached = reached, set()
        for ranks in (groups[name] for name in largest_first if nearer & groups[name].keys()):
            first = min(nearer & ranks.keys())
            for rank in sorted(ranks.keys() - skews.keys()):
                if (apart := _apart(ranks[first], ranks[rank])) is not None:
                    skews[rank] = _beyond(skews[first], apart)
                    reached.add(rank)
    return skews


def _beyond(nearer: ClockSkew, apart: ClockSkew) -> ClockSkew:
    drifts = [(skew.drift_ns_per_s, skew.at_ns) for skew in (nearer, apart) if skew.drift_ns_per_s is not None]
    drift = sum(each for each, _ in drifts)
    return ClockSkew(
        nearer.offset_ns + apart.offset_ns,
        nearer.spread_ns + apart.spread_ns,
        min(nearer.count, apart.count),
        drift if drifts else None,
        sum(each * at for each, at in drifts) / drift if drift else 0.0,
    )


def _apart(first: pl.DataFrame, other: pl.DataFrame) -> ClockSkew | None:
    both = first.join(other, on=["name", "nth"])
    if not both.height or both.height < _ALIKE * max(first.height, other.height):
        return None
    apart = np.sort((both["end_ns_right"] - both["end_ns"]).to_numpy())
    last = len(apart) - 1
    # The lower median is a difference that was measured, and moves by what a clock moves.
    quarter = (last + 1) // 4
    spread = int(apart[last - quarter] - apart[quarter])
    offset = int(apart[last // 2])
    return ClockSkew(offset, spread, len(apart), *_drift(both, spread, offset))


def _drift(both: pl.DataFrame, spread_ns: int, offset_ns: int) -> tuple[float | None, float]:
    """The slope of the differences over time, by the median of slopes over half of the time (Theil, Siegel).

    And when a line of this slope is at the offset.
    """
    rows = both.sort("end_ns")
    at, apart = rows["end_ns"].to_numpy(), (rows["end_ns_right"] - rows["end_ns"]).to_numpy()
    half = len(at) // 2
    if len(at) < _ENOUGH_FOR_DRIFT or at[0] == at[-1]:
        return None, 0.0
    length, rise = at[-half:] - at[:half], apart[-half:] - apart[:half]
    slope = float(np.median(rise[length > 0] / length[length > 0]))
    rest = np.sort(apart - slope * (at - at[0]))
    quarter = len(rest) // 4
    left = rest[-1 - quarter] - rest[quarter]
    if left >= spread_ns / 2 or not slope:
        return None, 0.0
    return slope * 1e9, float(at[0] + (offset_ns - np.median(rest)) / slope)
