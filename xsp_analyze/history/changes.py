"""Where a series of runs changed: points that a library proposes, each held against tests of our own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xsp_analyze.compare.significance import critical, rank_test, two_sided
from xsp_model.errors import require

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xsp_model.columns.arrays import Floats

__all__ = ["MIN_SIDE", "Change", "Kind", "changes_in", "scatter_of"]

MIN_SIDE = 4
"""Runs on either side of a change; with fewer an outlier cannot be told from a change."""
_FALSE = 0.05  # chance of a false change in a series: each of its n points is tested at this over n
_MIN_EFFECT = 0.002  # of the value: less is nothing that one would act upon
_PENALTY = 2.0  # of a change, in log n: low, as what the library proposes too often our tests take back
_SHORTEST = 2  # runs between two proposed changes
_REACH = 1_000  # runs on either side that a change is tested by
_EXACT = 40  # values that the rank test counts exactly; of more, it has no p as small as few runs after many can have
_SHORT = 12
_CLIP = 4.0  # standard deviations from the runs around it, beyond which a value counts as that far off
_WINDOW = 7  # runs around one, itself included
_TO_SIGMA = 1.4826  # of a normal distribution: its standard deviation over its median absolute deviation
_MIN_DRIFT = 3 * MIN_SIDE  # runs in which a series moves steadily; in fewer it is as good as a step
_GRID = 16  # of a drift's begin, and of its end, that are tried
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
    search = _exact_search()
    logs = np.log(np.asarray(values, dtype=np.float64))
    if len(logs) < 2 * MIN_SIDE or not np.isfinite(logs).all():
        return []
    scatter = max(_sigma(np.diff(logs)) / math.sqrt(2), _MIN_SCATTER)
    held = _clip(logs, scatter)
    proposed = search(((held - held.mean()) / scatter)[:, None], _PENALTY * math.log(len(logs)))
    kept = _points_that_hold(logs, held, proposed)
    return _with_drifts(logs, held, kept)


def _exact_search() -> Callable[[Floats, float], list[int]]:
    """Of values and a penalty the changes of the mean, exactly (PELT). XspError where the library is not installed.

    Source: Killick, Fearnhead and Eckley, "Optimal detection of changepoints with a linear computational cost", 2012.
    Of the library only the function itself is loaded: its package imports all of scipy, a second, for other searches.
    """
    package = find_spec("ruptures")
    files = [
        file
        for folder in (package.submodule_search_locations or [] if package else [])
        for file in Path(folder, "detection", "_detection").glob("ekcpd.*")
        if file.name.endswith(tuple(EXTENSION_SUFFIXES))
    ]
    spec = spec_from_file_location("ruptures.detection._detection.ekcpd", files[0]) if files else None
    if spec is None or spec.loader is None:  # a release that is laid out otherwise
        library = require("ruptures", purpose="finding where a history changed", extra="history")
        kernel = library.KernelCPD(kernel="linear", min_size=_SHORTEST)
        return lambda values, penalty: [int(at) for at in kernel.fit(values).predict(pen=penalty)[:-1]]
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda values, penalty: _path(module.ekcpd_pelt_L2(values, penalty, _SHORTEST), len(values))


def _path(before: Sequence[int], end: int) -> list[int]:
    """The points that lead to the end, each of which has the one before it."""
    points = []
    while (end := int(before[end])) > 0:
        points.append(end)
    return points[::-1]


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
        last, ramp = _drift_from(held, ends, at)
        if ramp is None:
            changes.append(_step(logs, held, ends[at], ends[at + 1], ends[at + 2], noise))
        else:
            changes.append(_drift(logs, held, (ends[at], ends[last + 2]), ramp))
        at = last + 1
    return changes


def _drift_from(held: Floats, ends: Sequence[int], at: int) -> tuple[int, tuple[int, int] | None]:
    """The last of the points from this one on that are one drift, as many as can be, and its runs; none: a step."""
    last = at
    while last + 3 < len(ends) and _rises(held, ends, last + 1) == _rises(held, ends, at):
        last += 1
    for until in range(last, at - 1, -1):
        # Part of a row of steps is a drift only where it has several: two steps are soon as good as a line.
        if until in {at, last} or until - at >= 2:  # noqa: PLR2004
            ramp = _ramp_of(held, ends[at], ends[at + 1 : until + 2], ends[until + 2])
            if ramp is not None:
                return until, ramp
    return at, None


def _rises(held: Floats, ends: Sequence[int], at: int) -> bool:
    return bool(held[ends[at + 1] : ends[at + 2]].mean() > held[ends[at] : ends[at + 1]].mean())


def _ramp_of(held: Floats, begin: int, inner: Sequence[int], end: int) -> tuple[int, int] | None:
    """First and last run of a steady move, with a level before and after it; None where steps say the stretch better.

    That is by what each leaves and what it has to fit with. Of a single small change a line is as good for long; the
    step is taken, as most changes are. Source: Schwarz, "Estimating the dimension of a model", 1978.
    """
    part = held[begin:end]
    ends = [0, *(point - begin for point in inner), len(part)]
    steps = np.concatenate([part[a:b] - part[a:b].mean() for a, b in pairwise(ends)])
    alone = len(inner) == 1
    of_steps = 2 if alone else 2 * len(inner) + 1  # means, and places of changes
    best, limit = None, _misfit(steps, of_steps)
    for first in _grid(0, 0 if alone else ends[1] - 1):
        for last in _grid(len(part) - 1 if alone else ends[-2], len(part) - 1):
            has_level = (first > 0) + (last < len(part) - 1)
            if last - first + 1 < (2 if has_level == 0 else _MIN_DRIFT):
                continue
            misfit = _misfit(_fit(part, first, last)[2], 2 + has_level)
            if misfit < limit:
                best, limit = (begin + first, begin + last), misfit
    return best


def _grid(low: int, high: int) -> list[int]:
    return sorted({round(position) for position in np.linspace(low, high, _GRID)})


def _misfit(left: Floats, numbers: int) -> float:
    """Schwarz's criterion of what a fit with so many numbers leaves."""
    variance = max(float((left**2).mean()), _MIN_SCATTER**2)
    return len(left) * math.log(variance) + numbers * math.log(len(left))


def _fit(part: Floats, first: int, last: int) -> tuple[float, float, Floats, float]:
    """Level before a steady move from run to run, by how much it moves, what that leaves, and the move's weight."""
    move = np.clip((np.arange(len(part)) - first) / (last - first), 0.0, 1.0)
    off = move - move.mean()
    weight = float((off**2).sum())
    shift = float((off * part).sum()) / weight
    level = float(part.mean()) - shift * float(move.mean())
    return level, shift, part - level - shift * move, weight


def _step(logs: Floats, held: Floats, begin: int, at: int, end: int, noise: float) -> Change:
    one, two = _sides(held, begin, at, end)
    error, freedom = _error(one, two, noise)
    p, rank_p = _p_values(logs, held, begin, at, end, noise)
    return _change(
        Kind.STEP, (at, at, at), float(one.mean()), float(two.mean()), error * critical(round(freedom, 1)), (p, rank_p)
    )


def _drift(logs: Floats, held: Floats, stretch: tuple[int, int], ramp: tuple[int, int]) -> Change:
    """From the first to the last run of the ramp, by all runs of the stretch."""
    begin, end = stretch
    level, shift, left, weight = _fit(held[begin:end], ramp[0] - begin, ramp[1] - begin)
    freedom = float(end - begin - 2)
    error = math.sqrt(max(float((left**2).sum()) / freedom, _MIN_SCATTER**2) / weight)
    half = (ramp[0] + ramp[1] + 1) // 2
    ranks = rank_test(logs[begin:half], logs[half:end])
    p_values = two_sided(shift / error, freedom), 1.0 if ranks is None else ranks.p
    return _change(Kind.DRIFT, (half, *ramp), level, level + shift, error * critical(freedom), p_values)


def _change(
    kind: Kind, where: tuple[int, int, int], before: float, after: float, spread: float, p: tuple[float, float]
) -> Change:
    shift = after - before
    ratios = (math.exp(shift), math.exp(shift - spread), math.exp(shift + spread))
    return Change(*where, kind, math.exp(before), math.exp(after), *ratios, *p)
