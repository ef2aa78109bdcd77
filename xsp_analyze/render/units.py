"""Units for people: which unit a column is shown in, and how a value then reads."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from xsp_analyze.core import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.core import Column

__all__ = [
    "FULL_COVERAGE",
    "UNKNOWN",
    "Scale",
    "count",
    "counted",
    "duration",
    "is_share",
    "number",
    "quantity",
    "scale_of",
    "scales_of",
    "share",
    "size",
]

UNKNOWN = "-"
"""How a null reads."""

FULL_COVERAGE = 0.95
"""A statement on layers says how much of device time they hold where it is less than that."""

_SHARE_NAMES = ("share", "occupancy", "coverage", "match_rate")
"""Last words of the names of columns that hold a share in 0..1; shown in percent."""

_MIN_SHARED = 0.1  # with three decimals, this still shows three digits
_MAX_SHARED = 1e5


@dataclass(frozen=True, slots=True)
class Scale:
    """One way to show a quantity: divide by `divisor`, print with `decimals`, call it `unit`."""

    unit: str
    divisor: float = 1.0
    decimals: int | None = None  # null: integers as they are, floats to three decimals
    grouped: bool = True  # thousands apart; not for numbers that are names, such as process ids


_LADDERS: dict[str, tuple[tuple[float, Scale], ...]] = {
    # largest value at least -> scale; the unit is kept small enough that short entries do not vanish
    "ns": (
        (1e10, Scale("s", 1e9, 3)),
        (1e7, Scale("ms", 1e6, 3)),
        (1e4, Scale("\N{MICRO SIGN}s", 1e3, 3)),
        (0, Scale("ns")),
    ),
    "byte": (
        (1 << 34, Scale("GiB", 1 << 30, 3)),
        (1 << 20, Scale("MiB", 1 << 20, 3)),
        (1 << 10, Scale("KiB", 1 << 10, 3)),
        (0, Scale("B")),
    ),
    "flop": ((1e10, Scale("GFLOP", 1e9, 3)), (1e7, Scale("MFLOP", 1e6, 3)), (0, Scale("FLOP"))),
    "flop/s": ((1e13, Scale("TFLOP/s", 1e12, 3)), (0, Scale("GFLOP/s", 1e9, 3))),
    "byte/s": ((0, Scale("GB/s", 1e9, 3)),),
    "Hz": ((0, Scale("MHz", 1e6, 0)),),
    "%": ((0, Scale("%", 1, 1)),),
    "share": ((0, Scale("%", 0.01, 1)),),
}


def scale_of(column: Column, values: Sequence[object]) -> Scale:
    """The scale in which the column's values are best compared: one for the whole column."""
    numbers = [v for v in values if isinstance(v, int | float) and math.isfinite(v)]
    unit = "share" if is_share(column) else column.unit
    grouped = column.role is Role.MEASURE
    scale = _pick(unit, max(map(abs, numbers), default=0)) if unit in _LADDERS else Scale(unit, grouped=grouped)
    return _without_decimals(scale, numbers)


def scales_of(columns: Sequence[tuple[Column, Sequence[object]]]) -> list[Scale]:
    """The scale of each column of a table: columns of a unit share one, so that a row reads at a glance.

    It is the smallest that suits one of them and in which none has a number of more than five digits, else the
    largest. A column keeps a smaller one of its own where its largest value would show as less than 0.1.
    """
    own = [scale_of(column, values) for column, values in columns]
    largest = [_largest(values) for _, values in columns]
    chosen = []
    for (column, _), scale, peak in zip(columns, own, largest, strict=True):
        rivals = [(s, m) for (c, _), s, m in zip(columns, own, largest, strict=True) if c.unit == column.unit and m > 0]
        chosen.append(_shared(scale, peak, rivals) if column.unit in _LADDERS else scale)
    return chosen


def _largest(values: Sequence[object]) -> float:
    return max((abs(v) for v in values if isinstance(v, int | float) and math.isfinite(v)), default=0)


def _shared(own: Scale, largest: float, rivals: Sequence[tuple[Scale, float]]) -> Scale:
    """The scale for a column among the others of its unit: theirs and their largest values."""
    if not rivals:
        return own
    peak = max(value for _, value in rivals)
    scales = sorted((scale for scale, _ in rivals), key=lambda s: s.divisor)
    shared = next((s for s in scales if peak < _MAX_SHARED * s.divisor), scales[-1])
    fits = largest == 0 or largest >= _MIN_SHARED * shared.divisor
    return shared if fits and shared.divisor != own.divisor else own


def _without_decimals(scale: Scale, numbers: Sequence[float]) -> Scale:
    """Without decimals where none of the numbers has any."""
    if scale.decimals is None and all(v == int(v) for v in numbers):
        return replace(scale, decimals=0)
    return scale


def is_share(column: Column) -> bool:
    """Whether the column holds shares in 0..1."""
    return column.unit == "share" or (not column.unit and column.name.endswith(_SHARE_NAMES))


def _pick(unit: str, largest: float) -> Scale:
    return next(scale for threshold, scale in _LADDERS[unit] if largest >= threshold)


def number(value: float | None, scale: Scale) -> str:
    """The value in the scale; a value too small for its decimals is shown as below the least one, never as 0."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if scale.divisor == 1 and (scale.decimals == 0 or isinstance(value, int)):
        return f"{round(value):,}" if scale.grouped else str(round(value))
    decimals = 3 if scale.decimals is None else scale.decimals
    shown = value / scale.divisor
    smallest = 10.0**-decimals
    if shown and abs(shown) < smallest / 2:
        return f"<{smallest:.{decimals}f}" if shown > 0 else f">-{smallest:.{decimals}f}"
    return f"{shown:,.{decimals}f}"


def count(value: float | None) -> str:
    """A number of things; of a mean step perhaps a broken one: `1,234` or `0.5`."""
    if value is None:
        return UNKNOWN
    return f"{round(value):,}" if value == int(value) else f"{value:,.1f}"


def counted(value: float, one: str, many: str) -> str:
    """A number of things with their name: `1 copy`, `2 copies`."""
    return f"{count(value)} {one if value == 1 else many}"


def duration(value_ns: float | None) -> str:
    """A single duration, in the unit that suits it: `1.234 ms`."""
    return quantity(value_ns, "ns")


def size(value_bytes: float | None) -> str:
    """A single size: `1.500 MiB`."""
    return quantity(value_bytes, "byte")


def quantity(value: float | None, unit: str) -> str:
    """A single quantity in a unit at rest, in the one that suits it: `53.623 GFLOP`."""
    if value is None:
        return UNKNOWN
    scale = _pick(unit, abs(value) * (10 if unit == "ns" else 1))
    return f"{number(value, scale)} {scale.unit}"


def share(value: float | None) -> str:
    """A share in 0..1 as percent: `12.3 %`."""
    return UNKNOWN if value is None else f"{number(value, Scale('%', 0.01, 1))} %"
