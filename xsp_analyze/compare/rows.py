"""The rows of a comparison: a layer, operator or kernel with both sides' times, their ratio, and what it is worth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from xsp_analyze.compare.significance import Estimates, Judged, discoveries, judge
from xsp_analyze.compare.step_noise import step_noise

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_analyze.compare.levels import Measured
    from xsp_model.arrays import Floats, Ints

__all__ = ["Assumed", "Row", "corrected", "estimates", "in_order", "rows_of"]


@dataclass(frozen=True, slots=True)
class Row:
    """One thing on both sides; times are ns per step, or per input where asked; null: unknown, or not there."""

    level: str
    name: str
    change: str = "same"  # appeared, vanished, renamed, replaced
    after_name: str | None = None  # where it is called otherwise after
    before_ns: float | None = None
    after_ns: float | None = None
    difference_ns: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    q_value: float | None = None
    significant: bool | None = None
    before_count: float | None = None
    after_count: float | None = None
    layer_index: int | None = None
    layer_type: str | None = None
    path: str | None = None
    kernel: str | None = None  # of a layer: the kernel or operator in it that changed most
    kernel_difference_ns: float | None = None


@dataclass(frozen=True, slots=True)
class Assumed:
    """What is taken for granted of noise: `floor` between captures; `alike`: most rows should not differ."""

    floor: float
    alike: bool


def estimates(
    captures: Sequence[Measured], keys: Sequence[object], companions: Sequence[Measured] = ()
) -> tuple[Estimates, Floats]:
    """The captures' rows in the order of these keys, and the mean of how often each ran; nan where there is no such.

    `companions` are other rows of the same captures, see `step_noise`.
    """
    values, noise, counts = [], [], []
    for number, measured in enumerate(captures):
        at = {key: row for row, key in enumerate(measured.keys)}
        indices = np.array([at.get(key, -1) for key in keys], dtype=np.int64)
        values.append(_taken(measured.mean_ns, indices))
        counts.append(_taken(measured.count, indices))
        steps = measured.steps[np.maximum(indices, 0)] if len(measured.mean_ns) else np.empty((len(indices), 0))
        beside = companions[number].steps if companions else None
        noise.append(step_noise(np.where(indices[:, None] >= 0, steps, 0.0), beside))
    return Estimates(np.array(values).reshape(len(captures), len(keys)), noise), np.mean(counts, axis=0)


def _taken(values: Floats, indices: Ints) -> Floats:
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
    one, one_count = estimates(before, [a for a, _ in pairs], companions[0])
    two, two_count = estimates(after, [b for _, b in pairs], companions[1])
    judged = judge(one, two, floor=assumed.floor, alike=assumed.alike)
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
                before_count=_or_none(one_count[at]),
                after_count=_or_none(two_count[at]),
                **describe(a, b),
            )
        )
    return rows, judged


def corrected(rows: Sequence[Row]) -> list[Row]:
    """The rows with q and whether they are significant, corrected for as many as were tested: all of them together."""
    p = np.array([np.nan if r.p_value is None else r.p_value for r in rows], dtype=np.float64)
    q, is_discovery = discoveries(p)
    return [
        row if row.p_value is None else replace(row, q_value=float(q[at]), significant=bool(is_discovery[at]))
        for at, row in enumerate(rows)
    ]


_LEVELS = ("layer", "operator", "kernel")


def in_order(rows: Sequence[Row]) -> list[Row]:
    """By level; in each what is significant first, then what was not tested, then noise; most time first in each."""

    def sort_key(row: Row) -> tuple[int, int, float, str]:
        group = 0 if row.significant else 1 if row.significant is None else 2
        return (_LEVELS.index(row.level), group, -abs(row.difference_ns or 0.0), row.name)

    return sorted(rows, key=sort_key)


def _or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
