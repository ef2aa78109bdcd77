"""Units for people: which unit a column is shown in, and how a value then reads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_analyze.core import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.core import Column

__all__ = ["UNKNOWN", "Scale", "duration", "number", "scale_of", "share", "size"]

UNKNOWN = "-"
"""How a null reads."""

SHARE_UNITS = ("share", "1", "ratio")
"""Units of columns that hold a share in 0..1; shown in percent."""


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
        (1e4, Scale("us", 1e3, 3)),
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
    **{unit: ((0, Scale("%", 0.01, 1)),) for unit in SHARE_UNITS},
}


def scale_of(column: Column, values: Sequence[object]) -> Scale:
    """The scale in which the column's values are best compared: one for the whole column."""
    largest = max((abs(v) for v in values if isinstance(v, int | float) and math.isfinite(v)), default=0)
    if column.unit in _LADDERS and (column.unit not in SHARE_UNITS or column.dtype.is_float()):
        return _pick(column.unit, largest)
    return Scale("" if column.unit in SHARE_UNITS else column.unit, grouped=column.role is Role.MEASURE)


def _pick(unit: str, largest: float) -> Scale:
    return next(scale for least, scale in _LADDERS[unit] if largest >= least)


def number(value: float | None, scale: Scale) -> str:
    """The value in the scale; a value too small for its decimals is shown as below the least one, never as 0."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if scale.divisor == 1 and scale.decimals is None and isinstance(value, int):
        return f"{value:,}" if scale.grouped else str(value)
    decimals = 3 if scale.decimals is None else scale.decimals
    shown = value / scale.divisor
    least = 10.0**-decimals
    if shown and abs(shown) < least / 2:
        return f"<{least:.{decimals}f}" if shown > 0 else f">-{least:.{decimals}f}"
    return f"{shown:,.{decimals}f}"


def duration(value_ns: float | None) -> str:
    """A single duration, in the unit that suits it: `1.234 ms`."""
    return _single(value_ns, "ns")


def size(value_bytes: float | None) -> str:
    """A single size: `1.500 MiB`."""
    return _single(value_bytes, "byte")


def _single(value: float | None, unit: str) -> str:
    if value is None:
        return UNKNOWN
    scale = _pick(unit, abs(value) * (10 if unit == "ns" else 1))
    return f"{number(value, scale)} {scale.unit}"


def share(value: float | None) -> str:
    """A share in 0..1 as percent: `12.3 %`."""
    return UNKNOWN if value is None else f"{number(value, Scale('%', 0.01, 1))} %"
