"""How far a mean over the steps of one capture may be off, from how its steps vary.

Steps of one run follow one another: a slow step is often followed by another one (clocks, caches, other programs), so
they are not as many independent measurements as there are steps. Blocks of successive steps are drawn instead of
steps (the circular block bootstrap: Politis and Romano, 1992), as long as the steps' own correlation asks for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from xsp_model.arrays import Floats, Ints

__all__ = ["MIN_STEPS", "StepNoise", "block_length", "correlation", "step_noise", "trimmed_means"]

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
