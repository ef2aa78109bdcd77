"""The rows of a comparison: both sides' times, their ratio, what it is worth, and where time moved."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_analyze.classification import KernelClass
from xsp_analyze.compare.significance import (
    FALSE_DISCOVERY_RATE,
    Estimates,
    Judged,
    discoveries,
    judge,
    rank_test,
    step_noise,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_analyze.compare.levels import Measured
    from xsp_model.columns.arrays import Floats, Ints

__all__ = [
    "LEVELS",
    "MARGIN",
    "Assumed",
    "ClassMoves",
    "Conclusion",
    "Move",
    "Row",
    "conclude",
    "conclude_all",
    "estimates",
    "in_order",
    "moves",
    "rows_of",
]


class Conclusion(StrEnum):
    """What a row's numbers say of it."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"  # no farther than noise reaches, and noise does not reach far
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Row:
    """One thing on both sides; times are ns per step, or per input where asked; null: unknown, or not there."""

    level: str
    name: str
    change: str = "same"  # appeared, vanished, renamed, replaced, moved
    after_name: str | None = None  # where it is called otherwise after
    before_ns: float | None = None
    after_ns: float | None = None
    difference_ns: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    q_value: float | None = None
    rank_p_value: float | None = None  # Mann-Whitney, of captures, or of the steps of one capture a side
    rank_min_p: float | None = None  # that so many values can have
    significant: bool | None = None
    conclusion: Conclusion | None = None
    before_count: float | None = None
    after_count: float | None = None
    layer_index: int | None = None
    layer_type: str | None = None
    path: str | None = None
    kernel: str | None = None  # of a layer: the kernel or operator in it that changed most the same way
    kernel_difference_ns: float | None = None
    moved_to: tuple[str, ...] = ()  # rows of the level that run more often what this one runs less often
    moved_from: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Assumed:
    """What is taken for granted of noise: `floor` between captures; `alike`: most rows should not differ."""

    floor: float
    alike: bool


def estimates(
    captures: Sequence[Measured], keys: Sequence[object], companions: Sequence[Measured] = (), *, by_steps: bool = True
) -> tuple[Estimates, Floats]:
    """The captures' rows in the order of these keys, and the mean of how often each ran; nan where there is no such.

    `companions` are other rows of the same captures, see `step_noise`, which is asked where noise is judged by steps.
    """
    values, counts, steps = [], [], []
    for measured in captures:
        at = {key: row for row, key in enumerate(measured.keys)}
        indices = np.array([at.get(key, -1) for key in keys], dtype=np.int64)
        values.append(_take_or_nan(measured.mean_ns, indices))
        counts.append(_take_or_nan(measured.count, indices))
        of_rows = measured.steps[np.maximum(indices, 0)] if len(measured.mean_ns) else np.empty((len(indices), 0))
        steps.append(np.where(indices[:, None] >= 0, of_rows, 0.0))
    beside: list[Floats | None] = [measured.steps for measured in companions]
    beside = beside or [None] * len(captures)
    noise = [step_noise(s, b) for s, b in zip(steps, beside, strict=True)] if by_steps else []
    of_captures = np.array(values).reshape(len(captures), len(keys))
    return Estimates(of_captures, noise, steps[0] if by_steps else of_captures.T), np.mean(counts, axis=0)


def _take_or_nan(values: Floats, indices: Ints) -> Floats:
    return (
        np.where(indices >= 0, values[np.maximum(indices, 0)], np.nan) if len(values) else np.full(len(indices), np.nan)
    )


def rows_of(
    level: str,
    before: Sequence[Measured],
    after: Sequence[Measured],
    pairs: Sequence[tuple[Any, Any]],
    describe: Callable[[Any, Any], Mapping[str, Any]],
    assumed: Assumed,
    companions: tuple[Sequence[Measured], Sequence[Measured]] = ((), ()),
) -> tuple[list[Row], Judged]:
    """A row a pair of keys (null: the side has none); `describe` gives a row's name and what else is known of it."""
    by_steps = len(before) == len(after) == 1
    one, one_count = estimates(before, [a for a, _ in pairs], companions[0], by_steps=by_steps)
    two, two_count = estimates(after, [b for _, b in pairs], companions[1], by_steps=by_steps)
    judged = judge(one, two, floor=assumed.floor, alike=assumed.alike)
    ranks = [_rank_columns(one, two, at) if np.isfinite(judged.ratio[at]) else {} for at in range(len(pairs))]
    first, second = one.mean, two.mean
    rows = []
    for at, (a, b) in enumerate(pairs):
        old, new = _or_none(first[at]), _or_none(second[at])
        rows.append(
            Row(
                level,
                change="appeared" if a is None else "vanished" if b is None else "same",
                before_ns=old,
                after_ns=new,
                difference_ns=None if old is None and new is None else (new or 0.0) - (old or 0.0),
                ratio=_or_none(judged.ratio[at]),
                low=_or_none(judged.low[at]),
                high=_or_none(judged.high[at]),
                p_value=_or_none(judged.p[at]),
                **ranks[at],
                before_count=_or_none(one_count[at]),
                after_count=_or_none(two_count[at]),
                **describe(a, b),
            )
        )
    return rows, judged


def _rank_columns(one: Estimates, two: Estimates, at: int) -> dict[str, Any]:
    test = rank_test(one.samples[at], two.samples[at])
    return {} if test is None else {"rank_p_value": test.p, "rank_min_p": test.min_p}


LEVELS = ("layer_type", "operator", "kernel_class", "layer_block", "layer", "kernel")
"""The levels of rows, what sums up others first."""


def in_order(rows: Sequence[Row]) -> list[Row]:
    """By level; in each first what noise does not explain, as far as is known of it; most time first."""

    def sort_key(row: Row) -> tuple[int, bool, float, str]:
        return (LEVELS.index(row.level), row.significant is False, -abs(row.difference_ns or 0.0), row.name)

    return sorted(rows, key=sort_key)


def _or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


# What a row's numbers say of it: it changed, it did not, or the captures cannot tell.

MARGIN = 1.1
"""An interval that reaches beyond this factor, either way, is too wide to say that nothing changed."""


def conclude(row: Row, *, is_discovery: bool) -> Row:
    """The row with its conclusion, and whether that is a significant change; as it is where nothing is known of noise.

    `is_discovery`: its interval, corrected for how many rows were tested, leaves out 1. A rank test that could decide
    and does not agree takes that back: one step or capture that is far off moves a mean, and no ranks.
    """
    if row.p_value is None:
        return row
    conclusion = _outcome(row, is_discovery=is_discovery)
    if conclusion is Conclusion.CHANGED:
        return replace(row, conclusion=conclusion, significant=True)
    return replace(row, conclusion=conclusion, significant=False, moved_to=(), moved_from=())  # noise moves nothing


def _outcome(row: Row, *, is_discovery: bool) -> Conclusion:
    if is_discovery:
        decides = row.rank_min_p is not None and row.rank_min_p <= FALSE_DISCOVERY_RATE
        refuted = decides and (row.rank_p_value or 0.0) > FALSE_DISCOVERY_RATE
        return Conclusion.INCONCLUSIVE if refuted else Conclusion.CHANGED
    narrow = row.low is not None and row.high is not None and row.low >= 1 / MARGIN and row.high <= MARGIN
    return Conclusion.UNCHANGED if narrow else Conclusion.INCONCLUSIVE


def conclude_all(rows: Sequence[Row]) -> list[Row]:
    """The rows decided, with q: corrected for as many as were tested, all of them together."""
    p = np.array([np.nan if r.p_value is None else r.p_value for r in rows], dtype=np.float64)
    q, is_discovery = discoveries(p)
    return [
        _mark_moved(
            conclude(
                row if np.isnan(q[at]) else replace(row, q_value=float(q[at])), is_discovery=bool(is_discovery[at])
            )
        )
        for at, row in enumerate(rows)
    ]


def _mark_moved(row: Row) -> Row:
    """The row, called moved where it is on both sides and its time is elsewhere."""
    moved = bool(row.moved_to or row.moved_from) and row.change == "same"
    return replace(row, change="moved") if moved else row


# Time that moved: what one operator or kernel no longer runs, another one of the same class of kernels does.
#
# A row that takes less because it launches less did not get faster. Within each class of kernels those that run less
# often are held against those that run more often: where what the ones lost is there in the others, it moved.

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
    """Where the time of each name moved, at a level (a column of `levels.cells`), and in which classes.

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
    """The rows that took a good part of what moved, most first."""
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
