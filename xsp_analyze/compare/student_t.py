"""Student's t distribution: tails as small as a correction for many rows asks for, without a library of statistics."""

from __future__ import annotations

import math
from functools import lru_cache

__all__ = ["critical", "two_sided"]

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
