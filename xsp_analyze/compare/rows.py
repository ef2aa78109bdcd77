"""The rows of a comparison: a layer, operator or kernel with both sides' times, their ratio, and what it is worth."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from xsp_analyze.compare.rank_test import rank_test
from xsp_analyze.compare.significance import Estimates, Judged, judge
from xsp_analyze.compare.step_noise import step_noise

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_analyze.compare.levels import Measured
    from xsp_model.arrays import Floats, Ints

__all__ = ["LEVELS", "Assumed", "Conclusion", "Row", "estimates", "in_order", "rows_of"]


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
