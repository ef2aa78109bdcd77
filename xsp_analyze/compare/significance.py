"""Ratios of two sides with their intervals, and which of many are no accident.

Two kinds of noise are told apart. Within a capture, steps vary: `step_noise` measures that. Between captures of the
same work whole runs vary (clocks, memory layout, neighbours), which no number of steps of one run can show. So the
run is the unit that may be exchanged, and the noise of runs is added: measured where a side has several captures.
With one a side, what moves a whole run cannot be seen and is assumed; what moves rows apart is read from how far
their ratios scatter around their middle, which the few that really changed do not move.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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
_PRIOR_FREEDOM = 4.0  # how many captures' worth the rows together count against a row's own captures
_MEDIAN_CHI2 = 0.454936  # of one degree of freedom


@dataclass(frozen=True, slots=True)
class Estimates:
    """What one side measured at a level: captures x rows of means per step (nan: not there), and their step noise."""

    values: Floats
    noise: Sequence[StepNoise]

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
    spread = _between(before, after, floor) if several else _within(before, after, shift, floor, alike=alike)
    error = np.sqrt(spread.variance)
    is_measured = np.isfinite(shift) & np.isfinite(error) & (error > 0) & (spread.freedom > 0)
    reach, p = np.full(len(shift), np.nan), np.full(len(shift), np.nan)
    quantiles: dict[float, float] = {}
    for row in np.flatnonzero(is_measured):
        freedom = float(spread.freedom[row])
        rounded = round(freedom, 1)
        if rounded not in quantiles:
            quantiles[rounded] = critical(max(rounded, 0.1))
        reach[row] = quantiles[rounded] * error[row]
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
    run, source, degrees = floor, "assumed", _ASSUMED_FREEDOM
    usable = np.isfinite(shift) & np.isfinite(steps)
    if alike and usable.sum() >= _MIN_ROWS:
        off = shift[usable] - np.median(shift[usable])
        excess = _excess(off**2, steps[usable], 2.0, _MEDIAN_CHI2)
        if excess > 0:
            run, source = math.hypot(floor, excess), "assumed, and the scatter of the rows"
            degrees = max(usable.sum() / 2, _ASSUMED_FREEDOM) if excess > floor else _ASSUMED_FREEDOM
    variance = steps + 2 * run**2
    parts = np.full(len(steps), (2 * run**2) ** 2 / degrees)  # Welch and Satterthwaite's degrees of freedom
    for noise in (one, two):
        parts += noise.relative_error**4 / np.maximum(noise.freedom, _MIN_FREEDOM)
    freedom = np.divide(variance**2, parts, out=np.full(len(parts), 1e9), where=parts > 0)
    return _Spread(variance, np.where(np.isfinite(freedom), freedom, 0.0), run, source)


def _between(before: Estimates, after: Estimates, floor: float) -> _Spread:
    """Several captures: how they differ, row by row, leaning on what all rows show (of few rows, on the floor).

    A variance of two or three captures is little known: it is pulled towards the rows' own, as worth four captures
    more. Source of the idea: Smyth, "Linear models and empirical Bayes methods", 2004.
    """
    freedom = before.captures + after.captures - 2
    squares = [((s.logs - s.logs.mean(axis=0)) ** 2).sum(axis=0) for s in (before, after)]
    own = (squares[0] + squares[1]) / freedom
    steps = _step_variance([*before.noise, *after.noise], len(own))
    usable = np.isfinite(own)
    per_mean = 1 / before.captures + 1 / after.captures
    run = floor
    if usable.sum() >= _MIN_ROWS:
        median = (1 - 2 / (9 * freedom)) ** 3  # of chi squared over its freedom: Wilson and Hilferty, 1931
        run = max(_excess(own[usable], steps[usable], 1.0, median), floor)
    expected = steps + run**2
    prior = np.where(expected > 0, _PRIOR_FREEDOM, 0.0)
    variance = (prior * expected + freedom * own) / (prior + freedom)
    return _Spread(variance * per_mean, prior + freedom, run, "captures")


def _step_variance(noise: Sequence[StepNoise], rows: int) -> Floats:
    """The mean over captures of each row's step variance; 0 where no capture could tell."""
    variances = [n.relative_error**2 for n in noise if (n.freedom > 0).any()]
    return np.nan_to_num(np.mean(variances, axis=0), nan=0.0) if variances else np.zeros(rows)


def _excess(squares: Floats, expected: Floats, times: float, median: float) -> float:
    """The run noise s for which the median row has squares / (known + times s^2) = median; 0 where none is needed.

    The median is not moved by the few rows that really changed.
    """

    def too_small(s: float) -> bool:
        total = expected + times * s * s
        return bool(np.median(np.divide(squares, total, out=np.full(len(total), np.inf), where=total > 0)) > median)

    if not too_small(0.0):
        return 0.0
    high = math.sqrt(float(squares.max()) / (times * median)) + 1e-12
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if too_small(middle) else (low, middle)
    return high
