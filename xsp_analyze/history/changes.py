"""Where a series of runs changed: points that a library proposes, each held against tests of our own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from xsp_analyze.compare.significance import critical, rank_test, two_sided
from xsp_model.errors import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model.columns.arrays import Floats

__all__ = ["MIN_SIDE", "Change", "Kind", "changes_in", "scatter_of"]

MIN_SIDE = 4
"""Runs on either side of a change; with fewer an outlier cannot be told from a change."""
_FALSE = 0.05  # chance of a false change in a series: each of its n points is tested at this over n
_MIN_EFFECT = 0.002  # of the value: less is nothing that one would act upon
_PENALTY = 2.0  # of a change, in log n: low, as what the library proposes too often our tests take back
_REACH = 1_000  # runs on either side that a change is tested by
_EXACT = 40  # values that the rank test counts exactly; of more, it has no p as small as few runs after many can have
_SHORT = 12
_CLIP = 4.0  # standard deviations from the runs around it, beyond which a value counts as that far off
_WINDOW = 7  # runs around one, itself included
_TO_SIGMA = 1.4826  # of a normal distribution: its standard deviation over its median absolute deviation
_MIN_SCATTER = 1e-4  # of the value: what cannot be told apart where a measure does not vary at all


class Kind(StrEnum):
    """How a series changed."""

    STEP = "step"
    DRIFT = "drift"


@dataclass(frozen=True, slots=True)
class Change:
    """A change: `at` is the first run of after; of a drift where it is half way, from run `begin` to run `end`.

    `ratio` is the value after over that before, with its 95 % interval; both p are of their own test.
    """

    at: int
    begin: int
    end: int
    kind: Kind
    before: float
    after: float
    ratio: float
    low: float
    high: float
    p_value: float
    rank_p_value: float


def changes_in(values: Sequence[float] | Floats) -> list[Change]:
    """The changes of positive values in order of time; XspError where the library is not installed."""
    library = require("ruptures", purpose="finding where a history changed", extra="history")
    logs = np.log(np.asarray(values, dtype=np.float64))
    if len(logs) < 2 * MIN_SIDE or not np.isfinite(logs).all():
        return []
    scatter = max(_sigma(np.diff(logs)) / math.sqrt(2), _MIN_SCATTER)
    held = _clip(logs, scatter)
    # Linear kernel: changes of the mean, found exactly (PELT). Source: Killick, Fearnhead and Eckley, "Optimal
    # detection of changepoints with a linear computational cost", 2012.
    search = library.KernelCPD(kernel="linear", min_size=2).fit(((held - held.mean()) / scatter)[:, None])
    proposed = [int(at) for at in search.predict(pen=_PENALTY * math.log(len(logs)))[:-1]]
    kept = _points_that_hold(logs, held, proposed)
    return _with_drifts(logs, held, kept)


def scatter_of(values: Sequence[float] | Floats) -> float | None:
    """How far runs scatter from one to the next, as a share of the value: what a change hides in; null under 3 runs."""
    logs = np.log(np.asarray(values, dtype=np.float64))
    return None if len(logs) < 3 else _sigma(np.diff(logs)) / math.sqrt(2)  # noqa: PLR2004


def _sigma(differences: Floats) -> float:
    return _TO_SIGMA * float(np.median(np.abs(differences - np.median(differences))))


def _clip(logs: Floats, scatter: float) -> Floats:
    """The values, of which one far off from those around it counts as a few standard deviations off."""
    half = _WINDOW // 2
    padded = np.pad(logs, half, mode="reflect")
    around = np.median(np.lib.stride_tricks.sliding_window_view(padded, _WINDOW), axis=1)
    clipped: Floats = np.clip(logs, around - _CLIP * scatter, around + _CLIP * scatter)
    return clipped


def _points_that_hold(logs: Floats, held: Floats, proposed: Sequence[int]) -> list[int]:
    """Points that both tests hold; the weakest goes first, as what lies between others is then seen as one."""
    points = sorted(set(proposed))
    level = _FALSE / len(logs)
    while points:
        ends = [0, *points, len(logs)]
        noise = _correlation(held, ends)
        around = list(zip(ends[:-2], points, ends[2:], strict=True))
        # Of those beside a stretch too short to be tested the smaller step is the weaker.
        strength = [(max(_p_values(logs, held, *each, noise)), -_step_of(held, *each)) for each in around]
        weakest = max(range(len(points)), key=lambda i: strength[i])
        if strength[weakest][0] <= level:
            return points
        del points[weakest]
        points = _best_positions(held, points)
    return []


def _step_of(held: Floats, begin: int, at: int, end: int) -> float:
    return abs(float(held[at:end].mean() - held[begin:at].mean()))


def _best_positions(held: Floats, points: Sequence[int]) -> list[int]:
    """Each point where, between its neighbours, it leaves least: it may have stood for one that is gone as well."""
    ends = [0, *points, len(held)]
    positions = []
    for begin, at, end in zip(ends[:-2], points, ends[2:], strict=True):
        if end - begin < 2 * MIN_SIDE:
            positions.append(at)
            continue
        sums = np.cumsum(held[begin:end] - held[begin:end].mean())
        before = np.arange(MIN_SIDE, end - begin - MIN_SIDE + 1)
        one, two = sums[before - 1], sums[-1] - sums[before - 1]
        explained = one**2 / before + two**2 / (end - begin - before)
        positions.append(begin + int(before[np.argmax(explained)]))
    return sorted(set(positions))


def _sides(values: Floats, begin: int, at: int, end: int) -> tuple[Floats, Floats]:
    return values[max(begin, at - _REACH) : at], values[at : min(end, at + _REACH)]


def _p_values(logs: Floats, held: Floats, begin: int, at: int, end: int, noise: float) -> tuple[float, float]:
    """By means (Welch, for values each a part of the one before) and by ranks; 1 where a side is too short."""
    one, two = _sides(held, begin, at, end)
    if min(len(one), len(two)) < MIN_SIDE or abs(two.mean() - one.mean()) < _MIN_EFFECT:
        return 1.0, 1.0
    error, freedom = _error(one, two, noise)
    ranks = rank_test(*_for_ranks(*_sides(logs, begin, at, end)))
    return two_sided(float(two.mean() - one.mean()) / error, freedom), 1.0 if ranks is None else ranks.p


def _for_ranks(one: Floats, two: Floats) -> tuple[Floats, Floats]:
    """The sides; where one is short, of the other only as many of the nearest as are counted exactly."""
    short = min(len(one), len(two))
    if short >= _SHORT:
        return one, two
    room = _EXACT - short
    return (one[-room:], two) if len(two) == short else (one, two[:room])


def _error(one: Floats, two: Floats, noise: float) -> tuple[float, float]:
    """Of the difference of means its standard error and degrees of freedom; `noise`: correlation of successive runs."""
    min_variance = _MIN_SCATTER**2
    parts = [max(float(side.var(ddof=1)), min_variance) / len(side) for side in (one, two)]
    freedom = sum(parts) ** 2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, (one, two), strict=True))
    inflation = (1 + noise) / (1 - noise)
    return math.sqrt(sum(parts) * inflation), max(freedom / inflation, 1.0)


def _correlation(held: Floats, ends: Sequence[int]) -> float:
    """How much a run is like the one before it, within stretches without a change, 0 to 0.9."""
    off = np.concatenate([held[a:b] - held[a:b].mean() for a, b in pairwise(ends)])
    squares = float((off**2).sum())
    if squares <= 0:
        return 0.0
    ratio = float((off[1:] * off[:-1]).sum()) / squares
    short = len(ends) / len(held)  # each stretch takes its own mean, which looks like a negative correlation
    return min(max(ratio + short, 0.0), 0.9)


def _with_drifts(logs: Floats, held: Floats, points: Sequence[int]) -> list[Change]:
    """The changes, those in one direction that a line says better than steps as one drift."""
    changes, at = [], 0
    ends = [0, *points, len(logs)]
    noise = _correlation(held, ends)
    while at < len(points):
        last = at
        direction = _rises(held, ends, at)
        while last + 1 < len(points) and _rises(held, ends, last + 1) == direction:
            last += 1
        begin, end = ends[at], ends[last + 2]
        if _is_line(held, begin, points[at : last + 1], end):
            changes.append(_drift(logs, held, begin, end))
        else:
            changes += [_step(logs, held, ends[i], ends[i + 1], ends[i + 2], noise) for i in range(at, last + 1)]
        at = last + 1
    return changes


def _rises(held: Floats, ends: Sequence[int], at: int) -> bool:
    return bool(held[ends[at + 1] : ends[at + 2]].mean() > held[ends[at] : ends[at + 1]].mean())


def _is_line(held: Floats, begin: int, inner: Sequence[int], end: int) -> bool:
    """Whether a line says the stretch better than steps, by what each leaves and, of several, what it has to fit with.

    Of a single small change a line is as good for long; the step is taken, as most changes are. Source: Schwarz,
    "Estimating the dimension of a model", 1978.
    """
    part = held[begin:end]
    positions = np.arange(len(part))
    line = part - np.polyval(np.polyfit(positions, part, 1), positions)
    ends = [0, *(point - begin for point in inner), len(part)]
    steps = np.concatenate([part[a:b] - part[a:b].mean() for a, b in pairwise(ends)])
    min_variance = len(part) * _MIN_SCATTER**2
    left = [max(float((rest**2).sum()), min_variance) for rest in (line, steps)]
    more = 0 if len(inner) == 1 else 2 * len(inner) - 1  # means and places of steps, beside two numbers of a line
    return len(part) * math.log(left[0] / left[1]) < more * math.log(len(part))


def _step(logs: Floats, held: Floats, begin: int, at: int, end: int, noise: float) -> Change:
    one, two = _sides(held, begin, at, end)
    error, freedom = _error(one, two, noise)
    p, rank_p = _p_values(logs, held, begin, at, end, noise)
    return _change(
        Kind.STEP, (at, at, at), float(one.mean()), float(two.mean()), error * critical(round(freedom, 1)), (p, rank_p)
    )


def _drift(logs: Floats, held: Floats, begin: int, end: int) -> Change:
    """From the first to the last run by the line through all of them."""
    part = held[begin:end]
    positions = np.arange(len(part)) - (len(part) - 1) / 2
    slope = float((positions * part).sum() / (positions**2).sum())
    left = part - part.mean() - slope * positions
    error = math.sqrt(max(float((left**2).sum()) / (len(part) - 2), _MIN_SCATTER**2) / float((positions**2).sum()))
    reach = slope * (len(part) - 1) / 2
    half = (begin + end) // 2
    ranks = rank_test(logs[begin:half], logs[half:end])
    p = two_sided(slope / error, len(part) - 2)
    spread = critical(float(len(part) - 2)) * error * (len(part) - 1)
    middle = float(part.mean())
    return _change(
        Kind.DRIFT,
        (half, begin, end - 1),
        middle - reach,
        middle + reach,
        spread,
        (p, 1.0 if ranks is None else ranks.p),
    )


def _change(
    kind: Kind, where: tuple[int, int, int], before: float, after: float, spread: float, p: tuple[float, float]
) -> Change:
    shift = after - before
    ratios = (math.exp(shift), math.exp(shift - spread), math.exp(shift + spread))
    return Change(*where, kind, math.exp(before), math.exp(after), *ratios, *p)
