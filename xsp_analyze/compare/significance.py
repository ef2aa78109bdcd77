"""Which of many ratios are no accident: intervals, tests by t and by ranks, false discoveries."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model.columns.arrays import Bools, Floats, Ints

__all__ = [
    "FALSE_DISCOVERY_RATE",
    "MIN_STEPS",
    "RUN_NOISE",
    "Estimates",
    "Judged",
    "RankTest",
    "StepNoise",
    "block_length",
    "correlation",
    "critical",
    "discoveries",
    "judge",
    "rank_test",
    "step_noise",
    "trimmed_means",
    "two_sided",
]

# Student's t distribution: tails as small as a correction for many rows asks for, without a library of statistics.

_MAX_TERMS = 300
_TINY = 1e-300
_ENOUGH = 1e-14
_NORMAL_FROM = 1e6  # degrees of freedom from which the normal distribution is the same to nine digits


def two_sided(t: float, freedom: float) -> float:
    """The probability of a value at least as far from 0 as `t`; 1 where there are no degrees of freedom."""
    if not freedom > 0 or math.isnan(t):
        return 1.0
    if math.isinf(t):
        return 0.0
    if freedom >= _NORMAL_FROM:
        return math.erfc(abs(t) / math.sqrt(2))
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


@lru_cache(4096)
def critical(freedom: float, alpha: float = 0.05) -> float:
    """The value that is exceeded, on either side, with probability `alpha`; infinite without degrees of freedom."""
    if not freedom > 0:
        return math.inf
    low, high = 0.0, 1.0
    while two_sided(high, freedom) > alpha:
        high *= 2
        if math.isinf(high):
            return math.inf
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, freedom) > alpha else (low, middle)
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function. Source: Abramowitz and Stegun, 26.5.8 and the symmetry 26.5.2."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    scale = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return scale * _fraction(a, b, x) / a
    return 1.0 - scale * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, from its front (Lentz's method)."""
    c, d = 1.0, 1.0 / _nonzero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = 1.0
        for term in (even, odd):
            d = 1.0 / _nonzero(1 + term * d)
            c = _nonzero(1 + term / c)
            change *= c * d
        value *= change
        if abs(change - 1) < _ENOUGH:
            break
    return value


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


# Ratios of two sides with their intervals, and which of many are no accident.
#
# Two kinds of noise are told apart. Within a capture, steps vary: `step_noise` measures that. Between captures of the
# same work whole runs vary (clocks, memory layout, neighbours), which no number of steps of one run can show. So the
# run is the unit that may be exchanged, and the noise of runs is added: measured where a side has several captures,
# and
# worth as many degrees of freedom as there are captures. Rows of the same captures do not count: what disturbs a
# capture
# disturbs them all. With one a side, what moves a whole run cannot be seen and is assumed; what moves rows apart is
# read
# from how far their ratios scatter around their middle, which the few that really changed do not move.

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


# The Mann-Whitney test: whether values of one side rank above those of the other, whatever shape their noise has.

_EXACT_UP_TO = 40  # values of both sides together; with more the normal distribution is near enough
_CACHED = 4096


@dataclass(frozen=True, slots=True)
class RankTest:
    """Two-sided p, and the least p that so many values can have: above 5 % the test can decide nothing."""

    p: float
    min_p: float


def rank_test(before: Sequence[float] | Floats, after: Sequence[float] | Floats) -> RankTest | None:
    """The test of independent values of two sides; null where a side has none or holds what is unknown.

    Exact, ties and all, by counting in how many of all ways to share the ranks out the sum lies as far off. Source:
    Mann and Whitney, "On a test of whether one of two random variables is stochastically larger", 1947.
    """
    values = np.concatenate([np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)])
    first, count = len(before), len(values)
    if not 0 < first < count or not np.isfinite(values).all():
        return None
    doubled = _doubled_ranks(values)
    total = int(sum(doubled[:first]))
    if count <= _EXACT_UP_TO:
        return RankTest(_exact(tuple(sorted(doubled)), first, total), min(2 / math.comb(count, first), 1.0))
    return RankTest(_normal(doubled, first, total), 0.0)


def _doubled_ranks(values: Floats) -> list[int]:
    """Twice the rank of each value: whole where equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return [int(rank) for rank in (2 * last - counts + 1)[inverse]]


def _exact(ranks: tuple[int, ...], first: int, total: int) -> float:
    ways = _ways(ranks, first)
    middle = first * (len(ranks) + 1)  # of doubled ranks
    sums = np.arange(len(ways))
    as_far = np.abs(sums - middle) >= abs(total - middle)
    return float(ways[as_far].sum() / ways.sum())


@lru_cache(_CACHED)
def _ways(ranks: tuple[int, ...], first: int) -> Floats:
    """In how many ways `first` of the ranks have each sum: exact up to 2^53, which 40 values stay far below."""
    ways = np.zeros((first + 1, sum(ranks) + 1))
    ways[0, 0] = 1.0
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank].copy()
    of_first: Floats = ways[first].copy()
    return of_first


def _normal(doubled: Sequence[int], first: int, total: int) -> float:
    """By the normal distribution, corrected for ties and for ranks being whole."""
    count = len(doubled)
    off = np.asarray(doubled, dtype=np.float64) - (count + 1)
    variance = first * (count - first) / (count * (count - 1)) * float((off**2).sum())
    if variance <= 0:
        return 1.0
    distance = max(abs(total - first * (count + 1)) - 1.0, 0.0)  # half a rank, doubled
    return math.erfc(distance / math.sqrt(2 * variance))


# How far a mean over the steps of one capture may be off, from how its steps vary.
#
# Steps of one run follow one another: a slow step is often followed by another one (clocks, caches, other programs),
# so
# they are not as many independent measurements as there are steps. Blocks of successive steps are drawn instead of
# steps (the circular block bootstrap: Politis and Romano, 1992), as long as the steps' own correlation asks for.

MIN_STEPS = 3
"""With fewer steps nothing is said of their noise."""
_RESAMPLES = 500
_MAX_CORRELATION = 0.9
_MIN_FOR_CORRELATION = 6
_MIN_FOR_OWN = 10
_FEW_ROWS = 10
_ASSUMED_STEPS = 20  # as how many steps the assumption counts
_UNSEEN = 0.3  # of fewer steps correlation cannot be seen, which does not mean that there is none
_MAX_DRAWS = 4_000_000  # numbers drawn at once: 32 MB
_TRIM_ONE_IN = 5


@dataclass(frozen=True, slots=True)
class StepNoise:
    """Of each row: the standard error of its mean over the mean (nan: unknown), and the degrees of freedom of that."""

    relative_error: Floats
    freedom: Floats
    correlation: float
    block: int

    @classmethod
    def unknown(cls, rows: int) -> StepNoise:
        """Too few steps to tell."""
        return cls(np.full(rows, np.nan), np.zeros(rows), 0.0, 1)


def step_noise(values: Floats, companions: Floats | None = None, *, seed: int = 0) -> StepNoise:
    """The noise of each row of `values` (rows x steps), by a block bootstrap of the trimmed mean; deterministic.

    `companions` are rows of the same steps that say better than these how much one step is like the one before.
    """
    rows, steps = values.shape
    if steps < MIN_STEPS or rows == 0:
        return StepNoise.unknown(rows)
    usable = companions is not None and companions.shape[1] == steps and len(companions) > rows
    shared = correlation(companions if usable and companions is not None else values)
    own = _own(shared, values)
    block = block_length(shared, steps)
    picks = _picks(steps, block, seed)
    blocks = steps / block
    spread = np.empty(rows)
    at_once = max(1, _MAX_DRAWS // picks.size)
    for start in range(0, rows, at_once):
        drawn = trimmed_means(values[start : start + at_once][:, picks])
        spread[start : start + at_once] = drawn.std(axis=1, ddof=1)
    # A resample of m blocks varies by (m - 1) / m of what m new blocks would.
    spread *= np.sqrt(blocks / (blocks - 1) * _beyond_blocks(own, shared, block))
    left = np.maximum(steps / _inflation(own) - 1, 1.0)
    freedom = np.where(own > shared, np.minimum(blocks - 1, left), blocks - 1)
    mean = trimmed_means(values)
    is_positive = mean > 0
    error = np.where(is_positive, spread / np.where(is_positive, mean, 1.0), np.nan)
    return StepNoise(error, freedom, shared, block)


def trimmed_means(values: Floats) -> Floats:
    """The trimmed mean over the last axis, as `formulas.trimmed_mean` takes it."""
    count = values.shape[-1]
    dropped = 1 if count == MIN_STEPS else count // _TRIM_ONE_IN
    mean: Floats = np.sort(values, axis=-1)[..., dropped : count - dropped].mean(axis=-1)
    return mean


def correlation(values: Floats) -> float:
    """How much a step is like the one before it, 0 to 0.9: the median over rows, and half its standard error more.

    What disturbs a step disturbs most rows of it, so that the rows together say it better than each by itself. They
    may all say the same wrong thing, though, and too little correlation taken makes noise look like a finding. Ranks
    are taken, so that an outlier counts once. What few rows say of few steps is pulled towards what is assumed.
    """
    rows, steps = values.shape
    if steps < _MIN_FOR_CORRELATION or rows == 0:
        return _UNSEEN
    ranks: Floats = np.argsort(np.argsort(values, axis=1, kind="stable"), axis=1).astype(np.float64)
    median = float(np.median(_lag_products(ranks)))
    if rows < _FEW_ROWS:
        return float((steps * median + _ASSUMED_STEPS * _UNSEEN) / (steps + _ASSUMED_STEPS))
    return min(median + 0.5 / math.sqrt(steps), _MAX_CORRELATION)


def _own(shared: float, values: Floats) -> Floats:
    """The correlation to take for each row: what rows share, or its own where that is clearly more.

    Of the times themselves, as ranks hide that a run changed its pace for good.
    """
    steps = values.shape[1]
    if steps < _MIN_FOR_OWN:
        return np.full(len(values), shared)
    return np.maximum(_lag_products(values) - 1 / math.sqrt(steps), shared)


def _lag_products(values: Floats) -> Floats:
    """The correlation of each step with the one before, 0 to 0.9, corrected for short series.

    Source of the correction: Kendall, "Note on bias in the estimation of autocorrelation", 1954.
    """
    steps = values.shape[1]
    off = values - values.mean(axis=1, keepdims=True)
    squares = (off**2).sum(axis=1)
    ratios = np.divide((off[:, 1:] * off[:, :-1]).sum(axis=1), squares, out=np.zeros(len(off)), where=squares > 0)
    corrected: Floats = np.clip((steps * ratios + 1) / (steps - 3), 0.0, _MAX_CORRELATION)
    return corrected


def block_length(shared: float, steps: int) -> int:
    """Steps in a block, best for steps correlated so (Carlstein, 1986); at least three in all."""
    best: float = (math.sqrt(6) * shared / (1 - shared**2)) ** (2 / 3) * steps ** (1 / 3)
    return max(1, min(math.ceil(best), steps // 3))


def _beyond_blocks(own: Floats, shared: float, block: int) -> Floats:
    """The variance of a mean over what blocks show of it: they do not see that one block is like the next.

    For steps of which each takes over that much of the one before (a first-order autoregression): blocks are as long
    as suits what the rows share, a row may need more.
    """
    within = 1 + 2 * sum((1 - lag / block) * shared**lag for lag in range(1, block))
    return _inflation(own) / within


def _inflation(correlated: Floats) -> Floats:
    """By how much correlation makes the variance of a mean of many steps larger."""
    return (1 + correlated) / (1 - correlated)


def _picks(steps: int, block: int, seed: int) -> Ints:
    """Places of the steps of each resample (resamples x steps): blocks that start anywhere and wrap around."""
    count = math.ceil(steps / block)
    starts = np.random.default_rng(seed).integers(0, steps, size=(_RESAMPLES, count))
    indices = (starts[:, :, None] + np.arange(block)) % steps
    return indices.reshape(_RESAMPLES, count * block)[:, :steps]
