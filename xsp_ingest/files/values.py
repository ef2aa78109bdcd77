"""Values of JSON that may be of any type, as what they ought to be, or nothing; times exactly in ns."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation

from xsp_model.columns.intervals import LATEST_NS

__all__ = ["characters", "finite", "int64", "integer", "json_integer", "nanoseconds", "natural", "text", "varint"]

_MAX_DIGITS = 4_000
_INT64 = range(-(1 << 63), 1 << 63)
_INTEGER = re.compile(r"[+-]?\d{1,19}\Z", re.ASCII)


def characters(value: str) -> str:
    """The text; half of a surrogate pair, which JSON may escape and is no character, becomes a question mark."""
    return value if value.isascii() else value.encode("utf-8", errors="replace").decode()


def text(value: object) -> str | None:
    """A text that is not empty."""
    return value if isinstance(value, str) and value else None


def int64(value: object) -> int | None:
    """A 64-bit integer; None for any other value, be it a text of digits."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value in _INT64 else None


def integer(value: object) -> int | None:
    """A 64-bit integer, from a number or from its digits."""
    return int64(int(value) if isinstance(value, str) and _INTEGER.match(value) else value)


def finite(value: object) -> float | None:
    """A finite number, from a number or from its text; None for any other value, and for what no float holds."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def json_integer(digits: str) -> int | float:
    """What `parse_int` of `json` makes of digits: of more than Python makes an integer of, an infinity."""
    return int(digits) if len(digits) <= _MAX_DIGITS else (-math.inf if digits.startswith("-") else math.inf)


def nanoseconds(value: object, unit_ns: int) -> int | None:
    """A time in units of `unit_ns` as ns; None for what is no finite number or beyond what can be added up.

    Exact from the digits that stand in the file; what is left below a nanosecond is rounded to the nearest.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    if isinstance(value, int):
        time_ns = value * unit_ns
    elif isinstance(value, float) and not math.isfinite(value):
        return None
    else:
        try:
            digits = Decimal(repr(value) if isinstance(value, float) else value)
        except InvalidOperation:
            return None
        if not digits.is_finite() or abs(digits.adjusted()) > 20:  # noqa: PLR2004 (far beyond any time)
            return 0 if digits.is_finite() and digits.adjusted() < 0 else None
        time_ns = round(digits * unit_ns)
    return time_ns if -LATEST_NS < time_ns < LATEST_NS else None


# Integers from their digits, of which a damaged file may have thousands: more than Python or 64 bits take.

_DIGITS = re.compile(r"\d{1,20}\Z", re.ASCII)


def natural(text: str, bits: int = 63) -> int | None:
    """The number that the digits are; None where the text is anything else, or the number needs more bits."""
    number = int(text) if _DIGITS.match(text) else None
    return number if number is not None and not number >> bits else None


# Integers of variable length as protobuf writes them: seven bits a byte, the lowest first.

_MAX_VARINT_BYTES = 10
_HIGH_BIT = 0x80


def varint(data: bytes | memoryview, at: int, end: int) -> tuple[int, int]:
    """The number at an offset and the offset behind it, -1 where there is none."""
    value = 0
    for n in range(min(_MAX_VARINT_BYTES, end - at)):
        byte = data[at + n]
        value |= (byte & (_HIGH_BIT - 1)) << (7 * n)
        if byte < _HIGH_BIT:
            return value, at + n + 1
    return 0, -1
