"""`python -m benchmarks.compare_shapes`: false alarms and coverage of `xsp compare`, by the shape of the noise.

Equal sides are made as tables of steps, not as traces, so that thousands can be compared: 24 rows, and the model as
their sum and idle time. Everything from the statistics of rows on is the product's own. A Markdown table, as in
docs/compare.md, goes to stdout.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.compare.levels import Measured
from xsp_analyze.compare.rows import Assumed, Conclusion, conclude, conclude_all, rows_of
from xsp_analyze.compare.significance import FALSE_DISCOVERY_RATE, RUN_NOISE, trimmed_means

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xsp_analyze.compare.rows import Row
    from xsp_model.columns.arrays import Floats

_ROWS = 24
_IDLE = 0.2  # of the sum of rows
_IS_OFF = 0.2  # of captures
_PLANTED_ROW = 5
_PLANTED = 1.3
_ASSUMED = Assumed(RUN_NOISE["device"], alike=True)


def _normal(random: np.random.Generator, size: tuple[int, ...]) -> Floats:
    return random.normal(size=size)


def _log_normal(random: np.random.Generator, size: tuple[int, ...]) -> Floats:
    return random.lognormal(sigma=1.0, size=size)


def _neighbour(random: np.random.Generator, size: tuple[int, ...]) -> Floats:
    """Little in four of five cases, in the fifth ten deviations more: another program ran."""
    off: Floats = np.where(random.random(size) < _IS_OFF, 10.0, 0.0) + random.normal(size=size)
    return off


@dataclass(frozen=True)
class _Shape:
    """Noise of a capture: of its steps, drawn by `draw`, and of whole captures, all rows alike and each for itself."""

    name: str
    draw: Callable[[np.random.Generator, tuple[int, ...]], Floats]
    step: float = 0.02
    capture: float = 0.01
    capture_of_row: float = 0.01
    draw_capture: Callable[[np.random.Generator, tuple[int, ...]], Floats] = _normal
    carried_over: float = 0.0
    within_drift: float = 0.0  # from the first step of a capture to the last
    drift: float = 0.0  # from one capture to the next
    in_turns: bool = False
    after_times: float = 1.0  # how many times as noisy captures after are


_SHAPES = (
    _Shape("normal steps; captures do not differ", _normal, capture=0.0, capture_of_row=0.0),
    _Shape("normal steps, correlated 0.6; captures do not differ", _normal, capture=0.0, capture_of_row=0.0,
           carried_over=0.6),
    _Shape("log-normal steps; captures do not differ", _log_normal, step=0.05, capture=0.0, capture_of_row=0.0),
    _Shape("captures differ by 1 %, and rows by 1 % more", _normal),
    _Shape("captures differ by 3 %, and rows by 1 % more", _normal, capture=0.03),
    _Shape("captures differ by 3 %, and rows by 3 % more", _normal, capture=0.03, capture_of_row=0.03),
    _Shape("captures differ log-normally, 2 %", _log_normal, capture=0.02, draw_capture=_log_normal),
    _Shape("one capture in five is 10 % off", _normal, draw_capture=_neighbour),
    _Shape("captures after differ three times as much", _normal, after_times=3.0),
    _Shape("steps drift by 5 % within each capture", _normal, within_drift=0.05),
    _Shape("captures drift by 1 % each, sides in turns", _normal, drift=0.01, in_turns=True),
    _Shape("captures drift by 1 % each, one side after the other", _normal, drift=0.01),
)  # fmt: skip
_COLUMNS = (
    "noise", "captures a side", "steps", "false alarms: model", "false alarms: any row", "interval holds 1: model",
    "interval holds 1: rows", "inconclusive: model", "planted 1.3 x row found",
)  # fmt: skip


def main() -> None:
    """Prints a line a shape and number of captures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=1000, help="comparisons a line")
    parser.add_argument("--captures", type=int, nargs="+", default=[1, 3, 5], help="captures a side")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--only", default="", help="shapes with this in their name")
    args = parser.parse_args()
    print(f"| {' | '.join(_COLUMNS)} |")
    print("|" + "---|" * len(_COLUMNS))
    for captures in args.captures:
        for shape in (s for s in _SHAPES if args.only in s.name):
            print(_line(shape, captures, args.steps, args.times), flush=True)


def _line(shape: _Shape, captures: int, steps: int, times: int) -> str:
    counts = np.mean([_once(shape, captures, steps, seed) for seed in range(times)], axis=0)
    alarms, any_row, model_held, rows_held, inconclusive, detected = (f"{value:.1%}" for value in counts)
    cells = (shape.name, captures, steps, alarms, any_row, model_held, rows_held, inconclusive, detected)
    return f"| {' | '.join(map(str, cells))} |"


def _once(shape: _Shape, captures: int, steps: int, seed: int) -> tuple[float, ...]:
    random = np.random.default_rng(seed)
    before = [_capture(shape, random, steps, _nth(shape, n, captures, is_after=False)) for n in range(captures)]
    after = [
        _capture(shape, random, steps, _nth(shape, n, captures, is_after=True), shape.after_times)
        for n in range(captures)
    ]
    equal, model = _comparison(before, after), _of_model(before, after)
    slower = [times * np.where(np.arange(_ROWS) == _PLANTED_ROW, _PLANTED, 1.0)[:, None] for times in after]
    planted = _comparison(before, slower)[_PLANTED_ROW]
    return (
        bool(model.significant),
        any(row.significant for row in equal),
        _holds(model),
        float(np.mean([_holds(row) for row in equal])),
        model.conclusion is Conclusion.INCONCLUSIVE,
        bool(planted.significant),
    )


def _nth(shape: _Shape, n: int, captures: int, *, is_after: bool) -> int:
    """Which capture of all in time this is."""
    return 2 * n + is_after if shape.in_turns else n + captures * is_after


def _capture(shape: _Shape, random: np.random.Generator, steps: int, nth: int, noisier: float = 1.0) -> Floats:
    """Rows x steps of one capture, in ns."""
    capture = shape.capture * shape.draw_capture(random, (1,)) + shape.capture_of_row * _normal(random, (_ROWS,))
    own = shape.draw(random, (_ROWS, steps)) + shape.draw(random, (1, steps))
    for step in range(1, steps):
        own[:, step] = shape.carried_over * own[:, step - 1] + np.sqrt(1 - shape.carried_over**2) * own[:, step]
    drift = shape.drift * nth + shape.within_drift * np.linspace(0, 1, steps)
    base = 20_000.0 * np.arange(1, _ROWS + 1)
    return np.asarray(base[:, None] * np.exp(noisier * capture[:, None] + shape.step * own + drift), dtype=np.float64)


def _comparison(before: Sequence[Floats], after: Sequence[Floats]) -> list[Row]:
    keys = [(n, n) for n in range(_ROWS)]
    one, two = ([_measurement(times) for times in side] for side in (before, after))
    rows, _ = rows_of("layer", one, two, keys, lambda a, _: {"name": str(a)}, _ASSUMED)
    return conclude_all(rows)


def _of_model(before: Sequence[Floats], after: Sequence[Floats]) -> Row:
    idle = _IDLE * 20_000.0 * _ROWS * (_ROWS + 1) / 2
    one, two = ([_measurement(times.sum(axis=0, keepdims=True) + idle) for times in side] for side in (before, after))
    beside = [_measurement(times) for times in before], [_measurement(times) for times in after]
    rows, _ = rows_of("model", one, two, [(0, 0)], lambda _, __: {"name": "latency"}, _ASSUMED, beside)
    p = rows[0].p_value
    return conclude(rows[0], is_discovery=p is not None and p <= FALSE_DISCOVERY_RATE)


def _measurement(times: Floats) -> Measured:
    return Measured(pl.DataFrame({"key": range(len(times))}), trimmed_means(times), np.ones(len(times)), times)


def _holds(row: Row) -> float:
    return float((row.low or 0.0) <= 1.0 <= (row.high or np.inf))


if __name__ == "__main__":
    main()
