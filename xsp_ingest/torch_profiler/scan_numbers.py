"""Numbers for the compiled scanner: whole ones, and microseconds as ns without rounding on the way."""

# ruff: noqa: PLR1714, PLR2004, SIM109
# (chained comparisons compile faster than `in`; bytes and digits are compared with numbers, named beside them)

from __future__ import annotations

import numpy as np

from xsp_ingest.torch_profiler.scan_bytes import (
    CAPITAL_I,
    MINUS,
    NINE,
    PLUS,
    POINT,
    QUOTE,
    ZERO,
    byte,
    machine,
    masked,
)
from xsp_ingest.torch_profiler.scan_desk import NULL, UNSURE
from xsp_ingest.torch_profiler.scan_grammar import (
    LONGEST_NUMBER,
    digits_end,
    fraction_end,
    string_end,
    value_end,
    whole_part_end,
)

__all__ = ["microseconds", "whole"]


@machine
def _digits(place: int, stop: int) -> int:
    """The number that the digits from place to stop write, or -1 where it exceeds int64."""
    value = 0
    for i in range(place, stop):
        digit = byte(i) - ZERO
        if value >= 922337203685477580 and (value > 922337203685477580 or digit > 7):  # 2**63 - 1
            return -1
        value = value * 10 + digit
    return value


@machine
def _signed(value: int, digits: int, stop: int, negative: bool) -> tuple[int, int]:  # noqa: FBT001 (numba)
    if value >= 0:
        return stop, -value if negative else value
    # The smallest int64 is our null: where the file may hold it, the plain scanner reads the file.
    return UNSURE if negative and digits == 19 else stop, NULL


@machine
def whole(place: int, end: int, nesting: int) -> tuple[int, int]:
    """The end of the value, and the whole number it is; a string of digits, or `stream 7`, counts as its number."""
    first = byte(place)
    if first == QUOTE:
        stop, escaped = string_end(place + 1, end)
        if stop < 0:
            return stop, NULL
        if escaped:
            return UNSURE, NULL
        return _whole_of_string(place + 1, stop)
    stop = value_end(place, end, nesting)
    if stop < 0 or not (first == MINUS or ZERO <= first <= NINE):
        return stop, NULL
    start = place + (first == MINUS)
    if digits_end(start) != stop:
        return stop, NULL
    return _signed(_digits(start, stop), stop - start, stop, first == MINUS)


@machine
def _whole_of_string(place: int, stop: int) -> tuple[int, int]:
    if stop - place > 7 and masked(place, 7) == np.uint64(0x206D6165727473):  # `stream `
        place += 7
    negative = byte(place) == MINUS
    place += negative
    last = digits_end(place)
    if last != stop:
        # Other scripts have digits too: those are left to the plain scanner.
        return (stop + 1 if byte(last) < 128 else UNSURE), NULL
    if last == place or stop - place >= LONGEST_NUMBER:
        return (stop + 1 if last == place else UNSURE), NULL
    return _signed(_digits(place, stop), stop - place, stop + 1, negative)


@machine
def microseconds(place: int, end: int, nesting: int) -> tuple[int, int]:
    """The end of the value, and the ns it means where it is a number or the text of one."""
    first = byte(place)
    if first == QUOTE:
        stop, escaped = string_end(place + 1, end)
        if stop < 0:
            return stop, NULL
        if escaped:
            return UNSURE, NULL
        last, value = _nanoseconds(place + 1, end)
        return (stop + 1 if last == stop else UNSURE), value
    if ZERO <= first <= NINE or (first == MINUS and byte(place + 1) != CAPITAL_I):
        return _nanoseconds(place, end)
    return value_end(place, end, nesting), NULL


@machine
def _nanoseconds(place: int, end: int) -> tuple[int, int]:
    """The end of the number at the place, and a thousand times its value, half to even."""
    negative = byte(place) == MINUS
    place += negative
    point = whole_part_end(place, end)
    if point < 0:
        return point, NULL
    stop = fraction_end(point, end)
    if stop < 0:
        return stop, NULL
    fraction = point
    if byte(point) == POINT:
        fraction = digits_end(point + 1)
    exact = fraction == stop
    value = _without_exponent(place, point, stop) if exact else _with_exponent(place, point, fraction, stop)
    if value < 0:
        return (stop, NULL) if value == NULL else (value, NULL)
    return stop, -value if negative else value


@machine
def _without_exponent(place: int, point: int, stop: int) -> int:
    whole = _digits(place, point) if point - place <= 19 else -1  # digits of 2**63
    if whole < 0 or whole >= 9223372036854775:  # 2**63 / 1000
        return UNSURE if whole == 9223372036854775 or stop - place > 28 else NULL
    value = whole * 1000
    if stop <= point:
        return value
    if stop - place > 28:  # digits to which Python's decimal multiplies
        return UNSURE
    unit = 100
    for i in range(point + 1, min(stop, point + 4)):
        value += (byte(i) - ZERO) * unit
        unit //= 10
    if stop - point <= 4:  # three decimals
        return value
    next_digit = byte(point + 4) - ZERO
    more = False
    for i in range(point + 5, stop):
        more = more or byte(i) != ZERO
    if next_digit > 5 or (next_digit == 5 and (more or value & 1 == 1)):
        value += 1
    return value


@machine
def _with_exponent(place: int, point: int, fraction: int, stop: int) -> int:
    """A thousand times the number, half to even; numbers out of the ordinary are left to the plain scanner."""
    if fraction - place > 18 or stop - fraction > 5:  # int64 holds it; the exponent is below 10000
        return UNSURE
    decimals = max(fraction - point - 1, 0)
    value = _digits(place, point)
    for i in range(point + 1, fraction):
        value = value * 10 + byte(i) - ZERO
    if value == 0:
        return 0
    sign = byte(fraction + 1)
    exponent = _digits(fraction + 1 + (sign == PLUS or sign == MINUS), stop)
    shift = (-exponent if sign == MINUS else exponent) + 3 - decimals
    while shift > 0:
        if value > 922337203685477580:  # 2**63 / 10
            return NULL
        value *= 10
        shift -= 1
    divisor = 1
    while shift < 0 and divisor <= value and divisor < 1000000000000000000:  # 10**18, beyond any value here
        divisor *= 10
        shift += 1
    if shift < 0:
        return 0
    quotient = value // divisor
    twice = 2 * (value - quotient * divisor)
    return quotient + (twice > divisor or (twice == divisor and quotient & 1 == 1))
