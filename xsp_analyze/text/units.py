"""Units for people: which unit a column is shown in, and how a value then reads.

`pages/assets/units.js` says the same for what pages draw themselves; a test holds the two together.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import pairwise
from typing import TYPE_CHECKING

from xsp_analyze.core import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.core import Column

__all__ = [
    "FULL_COVERAGE",
    "THIN_SPACE",
    "UNKNOWN",
    "Scale",
    "apart",
    "apart_in",
    "count",
    "count_of",
    "duration",
    "exact",
    "is_share",
    "number",
    "plain_spaces",
    "quantity",
    "scale_of",
    "scales_of",
    "share",
    "size",
    "with_total",
]

UNKNOWN = "-"
"""How a null reads."""
THIN_SPACE = "\u202f"
"""Narrow, and no line is broken at it: between thousands, and between a number and its unit."""
FULL_COVERAGE = 0.95
"""A statement on layers says how much of device time they hold where it is less than that."""
_SHARE_NAMES = ("share", "occupancy", "utilization", "coverage", "match_rate")
"""Last words of the names of columns that hold a share in 0..1; shown in percent."""
_MIN_SHARED = 0.1  # shows three digits, and one more
_MAX_SHARED = 1e5
_SMALLEST = (1.0, 0.1, 0.01, 0.001, 0.0001)  # what so many decimals tell apart from nothing
_MAX_DECIMALS = len(_SMALLEST) - 1
_MAX_APART = 9  # decimals of two values that differ by little: nanoseconds of a second
_EXACT = Context(prec=400, rounding=ROUND_HALF_UP)
_THINLY = re.compile(f"(?<=\\d){THIN_SPACE}(?=[\\d%A-Za-z\u00b5])")


@dataclass(frozen=True, slots=True)
class Scale:
    """One way to show a quantity: divide by `divisor`, print with `decimals`, call it `unit`."""

    unit: str
    divisor: float = 1.0
    decimals: int | None = None  # null: three significant digits
    grouped: bool = True  # thousands apart; not for numbers that are names, such as process ids


_THOUSANDS = (1e15, 1e12, 1e9, 1e6, 1e3, 1.0)


def _of(prefixes: str, unit: str) -> tuple[Scale, ...]:
    """The scales of a unit, the largest first; `prefixes` are for 10 to the 15th, 12th, ... 3rd and 0th."""
    named = zip(prefixes, _THOUSANDS[len(_THOUSANDS) - len(prefixes) :], strict=True)
    return tuple(Scale(f"{prefix.strip()}{unit}", divisor) for prefix, divisor in named)


_LADDERS: dict[str, tuple[Scale, ...]] = {
    "ns": (Scale("s", 1e9), Scale("ms", 1e6), Scale("\N{MICRO SIGN}s", 1e3), Scale("ns")),
    "byte": (Scale("TiB", 1 << 40), Scale("GiB", 1 << 30), Scale("MiB", 1 << 20), Scale("KiB", 1 << 10), Scale("B")),
    "flop": _of("PTGMk ", "FLOP"),
    "flop/s": _of("PTGMk ", "FLOP/s"),
    "byte/s": _of("TGMk ", "B/s"),
    "Hz": _of("GMk ", "Hz"),
    "%": (Scale("%"),),
    "share": (Scale("%", 0.01),),
}


def scale_of(column: Column, values: Sequence[object]) -> Scale:
    """The scale in which the column's values are best compared: one for the whole column."""
    numbers = [v for v in values if isinstance(v, int | float) and math.isfinite(v)]
    unit = "share" if is_share(column) else column.unit
    # of times and work the unit is kept small enough that short entries do not vanish
    scale = _pick(unit, max(map(abs, numbers), default=0) / (1 if unit == "byte" else 10))
    return _without_decimals(replace(scale, grouped=unit in _LADDERS or column.role is Role.MEASURE), numbers)


def scales_of(columns: Sequence[tuple[Column, Sequence[object]]]) -> list[Scale]:
    """The scale of each column of a table: columns of a unit share one, so that a row reads at a glance.

    It is the smallest that suits one of them and in which none has a number of more than five digits, else the
    largest. A column keeps a smaller one of its own where its largest value would show as less than 0.1.
    """
    own = [scale_of(column, values) for column, values in columns]
    largest = [_largest(values) for _, values in columns]
    chosen = []
    for (column, values), scale, peak in zip(columns, own, largest, strict=True):
        rivals = [(s, m) for (c, _), s, m in zip(columns, own, largest, strict=True) if c.unit == column.unit and m > 0]
        shared = _shared_scale(scale, peak, rivals) if column.unit in _LADDERS else scale
        chosen.append(_without_decimals(replace(shared, decimals=None), values))
    return chosen


def _largest(values: Sequence[object]) -> float:
    return max((abs(v) for v in values if isinstance(v, int | float) and math.isfinite(v)), default=0)


def _shared_scale(own: Scale, largest: float, rivals: Sequence[tuple[Scale, float]]) -> Scale:
    """The scale for a column among the others of its unit: theirs and their largest values."""
    if not rivals:
        return own
    peak = max(value for _, value in rivals)
    scales = sorted((scale for scale, _ in rivals), key=lambda s: s.divisor)
    shared = next((s for s in scales if peak < _MAX_SHARED * s.divisor), scales[-1])
    fits = largest == 0 or largest >= _MIN_SHARED * shared.divisor
    return shared if fits and shared.divisor != own.divisor else own


def _without_decimals(scale: Scale, values: Sequence[object]) -> Scale:
    """Without decimals where the numbers are shown as they are and none of them has any."""
    if scale.divisor != 1 or scale.unit == "%":
        return scale
    numbers = (v for v in values if isinstance(v, int | float) and math.isfinite(v))
    return replace(scale, decimals=0) if all(v == int(v) for v in numbers) else scale


def is_share(column: Column) -> bool:
    """Whether the column holds shares in 0..1."""
    return column.unit == "share" or (not column.unit and column.name.endswith(_SHARE_NAMES))


def _pick(unit: str, largest: float) -> Scale:
    """The scale in which so much reads with one to three digits before the point, once rounded."""
    ladder = _LADDERS.get(unit) or (Scale(unit),)
    return next((scale for scale, lower in pairwise(ladder) if largest >= 999.5 * lower.divisor), ladder[-1])


def number(value: float | None, scale: Scale) -> str:
    """The value in the scale; a value too small for its decimals is shown as below the least one, never as 0."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return _figures(value / scale.divisor if scale.divisor != 1 else value, scale.decimals, grouped=scale.grouped)


def _figures(value: float, decimals: int | None, *, grouped: bool = True) -> str:
    """Digits: three that count, or so many decimals; a half goes away from zero, as in JavaScript."""
    if not value:
        return "0" if decimals is None else f"{0:.{decimals}f}"
    fraction = _three_digits(value) if decimals is None else decimals
    smallest = _SMALLEST[fraction] if fraction < len(_SMALLEST) else 10.0**-fraction
    if abs(value) < smallest / 2:
        return f"<{smallest:.{fraction}f}" if value > 0 else f">-{smallest:.{fraction}f}"
    exact = Decimal.from_float(value)  # noqa: FURB164 (which marks nothing in the caller's context)
    digits = f"{exact.quantize(Decimal((0, (1,), -fraction)), context=_EXACT):,f}"
    return digits.replace(",", THIN_SPACE if grouped else "")


def _three_digits(value: float) -> int:
    """How many decimals show three significant digits of the value, as far as there are as many."""
    return min(max(2 - int(f"{value:.2e}".partition("e")[2]), 0), _MAX_DECIMALS)


def apart_in(values: Sequence[float | None], scale: Scale) -> list[str]:
    """Values that are compared, in the scale: with as many digits as the least difference among them needs."""
    scale = _without_decimals(scale, values)
    distinct = sorted({v / scale.divisor for v in values if v is not None and math.isfinite(v)})
    steps = [two - one for one, two in pairwise(distinct)]
    if scale.decimals is not None or not steps:
        return [number(v, scale) for v in values]
    needed = min(1 - int(f"{min(steps):.1e}".partition("e")[2]), _MAX_APART)
    finest = {v: max(_three_digits(v), needed) for v in distinct if v}
    return [number(v, replace(scale, decimals=finest.get((v or 0) / scale.divisor))) for v in values]


def apart(values: Sequence[float | None], unit: str) -> list[str]:
    """The same in the one unit that suits the largest of them, with the unit: `177.91 ms`, `178.20 ms`."""
    scale = _pick(unit, _largest(values))
    return [_with_unit(text, scale) for text in apart_in(values, scale)]


def with_total(values: Sequence[float | None], unit: str) -> list[str]:
    """Parts and what they add up to: all in one unit and with the same decimals, one more than the largest needs."""
    scale = _without_decimals(_pick(unit, _largest(values)), values)
    if scale.decimals is None:
        scale = replace(scale, decimals=_three_digits(_largest(values) / scale.divisor) + 1)
    return [_with_unit(number(v, scale), scale) for v in values]


def _with_unit(text: str, scale: Scale) -> str:
    return f"{text}{THIN_SPACE}{scale.unit}" if scale.unit and text != UNKNOWN else text


def count(value: float | None) -> str:
    """A number of things; of a mean step perhaps a broken one: `1 234` or `0.5`."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == int(value):
        return _figures(value, 0)
    text = _figures(value, None)
    return text.rstrip("0").rstrip(".") if "." in text else text


def count_of(value: float, one: str, many: str) -> str:
    """A number of things with their name: `1 copy`, `2 copies`."""
    return f"{count(value)} {one if value == 1 else many}"


def duration(value_ns: float | None) -> str:
    """A single duration, in the unit that suits it: `1.23 ms`."""
    return quantity(value_ns, "ns")


def size(value_bytes: float | None) -> str:
    """A single size: `1.50 MiB`."""
    return quantity(value_bytes, "byte")


def quantity(value: float | None, unit: str) -> str:
    """A single quantity in a unit at rest, in the one that suits it: `53.6 GFLOP`; other units stay as they are."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    scale = _pick(unit, abs(value))
    scale = _without_decimals(scale, [value]) if unit in _LADDERS else scale
    return _with_unit(number(value, scale), scale)


def share(value: float | None) -> str:
    """A share in 0..1 as percent: `12.3 %`."""
    return quantity(value, "share")


def exact(value: float | None, unit: str) -> str:
    """The value as it is stored, in its unit at rest: `1 234 567 ns`."""
    if value is None:
        return "unknown"
    before, point, fraction = f"{Decimal(repr(value)):f}".partition(".")
    digits = re.sub(r"(?<=\d)(?=(?:\d{3})+$)", THIN_SPACE, before)
    tail = "" if fraction in {"", "0"} else f"{point}{fraction}"
    return f"{digits}{tail}{THIN_SPACE}{unit}" if unit else f"{digits}{tail}"


def plain_spaces(text: str) -> str:
    """The text for a terminal: not all of them show narrow spaces, so numbers have plain ones there."""
    return _THINLY.sub(" ", text)
