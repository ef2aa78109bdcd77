"""Time that moved: what one operator or kernel no longer runs, another one of the same class of kernels does.

A row that takes less because it launches less did not get faster. Within each class of kernels those that run less
often are held against those that run more often: where what the ones lost is there in the others, it moved.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.classification import KernelClass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ClassMoves", "Move", "moves"]

_EXPLAINED = 0.5  # of a row's difference, that fewer or more launches explain; of what was lost, that is elsewhere
_GOOD_PART = 0.1  # of what the largest took
_NO_POOL = frozenset({str(KernelClass.OTHER)})  # kernels with nothing in common
_COLUMNS = ("ns", "count", "ns_after", "count_after")


@dataclass(frozen=True, slots=True)
class Move:
    """Where a row's time went (`is_to`) or came from: names of the same level, that which changed most first."""

    others: Sequence[str]
    is_to: bool


@dataclass(frozen=True, slots=True)
class ClassMoves:
    """A class of kernels of which time moved: its time on both sides, and differences by name, largest first."""

    kernel_class: str
    before_ns: float
    after_ns: float
    losses: Sequence[tuple[str, float]]
    gains: Sequence[tuple[str, float]]


def moves(before: pl.DataFrame, after: pl.DataFrame, level: str) -> tuple[dict[str, Move], list[ClassMoves]]:
    """Where the time of each name moved, at a level (a column of `device_levels.cells`), and in which classes.

    Classes of which most was lost first.
    """
    classes = _classes(before, after, level)
    pools = [pool for name, rows in classes.items() if (pool := _pool(name, rows)) is not None]
    differences: Counter[str] = Counter()
    for rows in classes.values():
        differences.update({key: row.difference for key, row in rows.items()})
    moved: dict[str, Move] = {}
    for is_to in (True, False):
        explained, others = _time_moved(pools, is_to=is_to)
        moved |= {
            key: Move(_largest(others[key]), is_to) for key, ns in explained.items() if _is_most(ns, differences[key])
        }
    return moved, sorted(pools, key=lambda pool: (_sum(pool.losses), pool.kernel_class))


def _time_moved(pools: Sequence[ClassMoves], *, is_to: bool) -> tuple[dict[str, float], dict[str, Counter[str]]]:
    """Of each name the time that moved in all classes, and the names that it moved to (else: from) with theirs."""
    explained: dict[str, float] = {}
    others: dict[str, Counter[str]] = {}
    for pool in pools:
        ours, theirs = (pool.losses, pool.gains) if is_to else (pool.gains, pool.losses)
        for key, ns in ours if _is_most(-_sum(theirs), _sum(ours)) else ():
            explained[key] = explained.get(key, 0.0) + ns
            others.setdefault(key, Counter()).update({name: abs(ns) for name, ns in theirs})
    return explained, others


def _largest(others: Counter[str]) -> list[str]:
    """Those that took a good part of what moved, most first."""
    min_ns = _GOOD_PART * max(others.values())
    return [name for name, ns in sorted(others.items(), key=lambda item: (-item[1], item[0])) if ns >= min_ns]


@dataclass(frozen=True, slots=True)
class _Change:
    """Of a name within a class: ns and count on both sides."""

    ns: float
    count: float
    ns_after: float
    count_after: float

    @property
    def difference(self) -> float:
        return self.ns_after - self.ns

    @property
    def is_by_count(self) -> bool:
        """Whether that it runs more or less often explains most of the difference."""
        launches = self.count_after - self.count
        each = self.ns / self.count if self.count else self.ns_after / self.count_after if self.count_after else 0.0
        return launches * self.difference > 0 and abs(launches) * each >= _EXPLAINED * abs(self.difference)


def _classes(before: pl.DataFrame, after: pl.DataFrame, level: str) -> dict[str, dict[str, _Change]]:
    keys = ["kernel_class", level]
    sides = [s.group_by(keys, maintain_order=True).agg(pl.col("ns", "count").sum()) for s in (before, after)]
    joined = sides[0].join(sides[1], on=keys, how="full", coalesce=True, suffix="_after", maintain_order="left_right")
    out: dict[str, dict[str, _Change]] = {}
    for name, key, *values in joined.with_columns(pl.col(_COLUMNS).fill_null(0.0)).select(*keys, *_COLUMNS).iter_rows():
        out.setdefault(name, {})[key] = _Change(*values)
    return out


def _pool(name: str, rows: Mapping[str, _Change]) -> ClassMoves | None:
    """What moved within a class; null where what some lost is not there in others, or the other way round."""
    by_count = {key: row.difference for key, row in rows.items() if row.is_by_count}
    losses = sorted(((k, d) for k, d in by_count.items() if d < 0), key=lambda item: (item[1], item[0]))
    gains = sorted(((k, d) for k, d in by_count.items() if d > 0), key=lambda item: (-item[1], item[0]))
    if name in _NO_POOL or not losses or not _is_most(-_sum(gains), _sum(losses)):
        return None
    total = [sum(getattr(row, column) for row in rows.values()) for column in ("ns", "ns_after")]
    return ClassMoves(name, total[0], total[1], losses, gains)


def _sum(parts: Sequence[tuple[str, float]]) -> float:
    return sum(ns for _, ns in parts)


def _is_most(part: float, total: float) -> bool:
    return part * total > 0 and abs(part) >= _EXPLAINED * abs(total)
