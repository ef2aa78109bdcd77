"""Ratios of two sides with their intervals, and which of many are no accident.

Two kinds of noise are told apart. Within a capture, steps vary: `step_noise` measures that. Between captures of the
same work whole runs vary (clocks, memory layout, neighbours), which no number of steps of one run can show. So the
run is the unit that may be exchanged, and the noise of runs is added: measured where a side has several captures, and
worth as many degrees of freedom as there are captures. Rows of the same captures do not count: what disturbs a capture
disturbs them all. With one a side, what moves a whole run cannot be seen and is assumed; what moves rows apart is read
from how far their ratios scatter around their middle, which the few that really changed do not move.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from xsp_analyze.compare.student_t import critical, two_sided

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.compare.step_noise import StepNoise
    from xsp_model.arrays import Bools, Floats

__all__ = ["FALSE_DISCOVERY_RATE", "RUN_NOISE", "Estimates", "Judged", "discoveries", "judge"]

FALSE_DISCOVERY_RATE = 0.05
RUN_NOISE = {"device": 0.01, "host": 0.05}
"""What runs of the same work are taken to differ by at least (a standard deviation), where it was not measured.

On the host, by 20 captures of one model on a shared machine of two cores: 4 to 7 % beside what steps explain. On a
device it is an assumption: 1 % is what clocks that are not locked give.
"""

_ASSUMED_FREEDOM = 10.0  # an assumed noise is no measured one: tails stay heavier than the normal distribution's
_MIN_ROWS = 10  # fewer say nothing of how ratios scatter
_MIN_FREEDOM = 1e-9
_MEDIAN_CHI2 = 0.454936  # of one degree of freedom


@dataclass(frozen=True, slots=True)
class Estimates:
    """What one side measured at a level: captures x rows of means per step (nan: not there).

    `noise`: of the steps, a capture each; none where several captures show it. `samples`: rows x what may be ranked,
    steps of the one capture or captures.
    """

    values: Floats
    noise: Sequence[StepNoise] = ()
    samples: Floats = field(default_factory=lambda: np.empty((0, 0)))

    @property
    def captures(self) -> int:
        """How often the side was captured."""
        return len(self.values)

    @property
    def mean(self) -> Floats:
        """Of each row, over captures (geometric, as ratios are compared); nan where a capture lacks it."""
        if self.captures == 1:
            only: Floats = self.values[0]
            return only
        positive = (self.values > 0).all(axis=0)
        mean: Floats = np.where(positive, np.exp(self.logs.mean(axis=0)), self.values.mean(axis=0))
        return mean

    @property
    def logs(self) -> Floats:
        """Logarithms; nan where a value is 0 or unknown."""
        logs: Floats = np.log(np.where(self.values > 0, self.values, np.nan))
        return logs


@dataclass(frozen=True, slots=True)
class Judged:
    """Of each row the ratio after over before, its 95 % interval and p; nan: unknown. `run_noise` is what was added."""

    ratio: Floats
    low: Floats
    high: Floats
    p: Floats
    run_noise: float | None
    run_noise_source: str


@dataclass(frozen=True, slots=True)
class _Spread:
    """Variance of each row's logarithm of the ratio, and its degrees of freedom."""

    variance: Floats
    freedom: Floats
    run_noise: float
    source: str


def judge(before: Estimates, after: Estimates, *, floor: float, alike: bool = True) -> Judged:
    """The rows' ratios. `alike`: both sides ran on the same system, so that most rows should not differ."""
    shift = after.logs.mean(axis=0) - before.logs.mean(axis=0)
    several = before.captures + after.captures > 2  # noqa: PLR2004 (one a side)
    spread = _between(before, after) if several else _within(before, after, shift, floor, alike=alike)
    error = np.sqrt(spread.variance)
    is_measured = np.isfinite(shift) & np.isfinite(error) & (error > 0) & (spread.freedom > 0)
    reach, p = np.full(len(shift), np.nan), np.full(len(shift), np.nan)
    for row in np.flatnonzero(is_measured):
        freedom = float(spread.freedom[row])
        reach[row] = critical(max(round(freedom, 1), 0.1)) * error[row]
        p[row] = two_sided(float(shift[row] / error[row]), freedom)
    any_known = bool(is_measured.any())
    with np.errstate(over="ignore"):
        ends = np.exp(shift - reach), np.exp(shift + reach)
    noise = spread.run_noise if any_known else None
    return Judged(np.exp(shift), *ends, p, noise, spread.source if any_known else "unknown")


def discoveries(p: Floats, rate: float = FALSE_DISCOVERY_RATE) -> tuple[Floats, Bools]:
    """The q of each row, and which rows are significant at this false discovery rate; nan is not tested.

    Source: Benjamini and Hochberg, "Controlling the false discovery rate", 1995.
    """
    q = np.full(len(p), np.nan)
    tested = np.flatnonzero(np.isfinite(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    count = len(order)
    if count:
        scaled = p[order] * count / np.arange(1, count + 1)
        q[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return q, np.nan_to_num(q, nan=1.0) <= rate


def _within(before: Estimates, after: Estimates, shift: Floats, floor: float, *, alike: bool) -> _Spread:
    """One capture a side: the noise of their steps, and what runs are taken to differ by."""
    one, two = before.noise[0], after.noise[0]
    steps = one.relative_error**2 + two.relative_error**2
    run, source = floor, "assumed"
    usable = np.isfinite(shift) & np.isfinite(steps)
    if alike and usable.sum() >= _MIN_ROWS:
        off = shift[usable] - np.median(shift[usable])
        excess = _excess(off**2, steps[usable])
        if excess > 0:
            run, source = math.hypot(floor, excess), "assumed, and the scatter of the rows"
    variance = steps + 2 * run**2
    parts = np.full(len(steps), (2 * run**2) ** 2 / _ASSUMED_FREEDOM)  # Welch and Satterthwaite's degrees of freedom
    for noise in (one, two):
        parts += noise.relative_error**4 / np.maximum(noise.freedom, _MIN_FREEDOM)
    freedom = np.divide(variance**2, parts, out=np.full(len(parts), 1e9), where=parts > 0)
    return _Spread(variance, np.where(np.isfinite(freedom), freedom, 0.0), run, source)


def _between(before: Estimates, after: Estimates) -> _Spread:
    """Several captures: how far each row's means over captures may be off, by its own captures alone.

    Sides may be of unequal noise. Source: Welch, "The generalization of Student's problem when several different
    population variances are involved", 1947. A side of one capture is taken to be as noisy as the other.
    """
    counts = before.captures, after.captures
    repeated = [side for side in (before, after) if side.captures > 1]
    squares = [((side.logs - side.logs.mean(axis=0)) ** 2).sum(axis=0) for side in repeated]
    degrees = [side.captures - 1 for side in repeated]
    pooled = np.sum(squares, axis=0) / sum(degrees)
    if len(repeated) == 1:
        variance = pooled * (1 / counts[0] + 1 / counts[1])
        freedom = np.full(len(pooled), float(degrees[0]))
    else:
        of_means = [s / d / c for s, d, c in zip(squares, degrees, counts, strict=True)]
        variance = np.sum(of_means, axis=0)
        parts = np.sum([v**2 / d for v, d in zip(of_means, degrees, strict=True)], axis=0)
        freedom = np.divide(variance**2, parts, out=np.zeros(len(variance)), where=parts > 0)
    usable = np.isfinite(pooled)
    run = math.sqrt(float(np.median(pooled[usable]))) if usable.any() else 0.0
    return _Spread(variance, np.where(np.isfinite(freedom), freedom, 0.0), run, "captures")


def _excess(squares: Floats, expected: Floats) -> float:
    """The run noise s for which the median row's squares / (expected + 2 s^2) is as of chi squared; 0: none needed.

    The median is not moved by the few rows that really changed.
    """

    def too_small(s: float) -> bool:
        total = expected + 2 * s * s
        ratios = np.divide(squares, total, out=np.full(len(total), np.inf), where=total > 0)
        return bool(np.median(ratios) > _MEDIAN_CHI2)

    if not too_small(0.0):
        return 0.0
    high = math.sqrt(float(squares.max()) / (2 * _MEDIAN_CHI2)) + 1e-12
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if too_small(middle) else (low, middle)
    return high
