"""Numbers for the compiled scanner: whole ones, and microseconds as ns without rounding on the way."""

# ruff: noqa: PLR1714, PLR2004, SIM109
# (chained comparisons compile faster than `in`; bytes and digits are compared with numbers, named beside them)

from __future__ import annotations

import numpy as np

from xsp_ingest.formats.torch_profiler.compiled.grammar import (
    LONGEST_NUMBER,
    digits_end,
    fraction_end,
    integer_part_end,
    string_end,
    value_end,
)
from xsp_ingest.formats.torch_profiler.compiled.scan_state import NULL, UNSURE
from xsp_ingest.machine.intrinsics import (
    CAPITAL_I,
    MINUS,
    NINE,
    PLUS,
    POINT,
    QUOTE,
    ZERO,
    byte,
    eight_bytes,
    leading_digits,
    machine,
    masked_word,
)

__all__ = ["few_digits", "few_nanoseconds", "integer", "microseconds"]

_ZEROS = np.uint64(0x3030303030303030)


@machine
def _eight(digits: np.uint64) -> int:
    """The number that eight digits write, a byte each, the first in the lowest: by pairs, by fours, all."""
    digits = digits * np.uint64(2561) >> np.uint64(8)
    digits = (digits & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(6553601) >> np.uint64(16)
    return np.int64((digits & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001) >> np.uint64(32))  # type: ignore[return-value]


@machine
def _first(offset: int, count: int) -> int:
    """The number that the first 1 to 7 digits at the place write."""
    return _eight((eight_bytes(offset) ^ _ZEROS) << np.uint64(64 - 8 * count))


@machine
def few_digits(offset: int) -> tuple[int, int]:
    """The end of the 1 to 16 digits at the place, as JSON writes a whole number, and their number.

    The place itself where there is something else, which may still be a number.
    """
    count = leading_digits(offset)
    if count == 0 or (count > 1 and byte(offset) == ZERO):
        return offset, 0
    if count < 8:
        return offset + count, _first(offset, count)
    more = leading_digits(offset + 8)
    stop = offset + 8 + more
    value = _eight(eight_bytes(stop - 8) ^ _ZEROS)
    if more == 0:
        return stop, value
    if more < 8:
        return stop, _first(offset, more) * 100000000 + value
    if ZERO <= byte(stop) <= NINE:
        return offset, 0
    return stop, _eight(eight_bytes(offset) ^ _ZEROS) * 100000000 + value


@machine
def few_nanoseconds(offset: int) -> tuple[int, int]:
    """Likewise of microseconds with at most three decimals, in ns."""
    stop, integer = few_digits(offset)
    if stop == offset or integer >= 9223372036854775:  # 2**63 / 1000
        return offset, 0
    if byte(stop) != POINT:
        return stop, integer * 1000
    decimals = leading_digits(stop + 1)
    if decimals == 0 or decimals > 3:
        return offset, 0
    digits = (eight_bytes(stop + 1) ^ _ZEROS) & ((np.uint64(1) << np.uint64(8 * decimals)) - np.uint64(1))
    return stop + 1 + decimals, integer * 1000 + _eight(digits) // 100000  # five digits of none


@machine
def _digits(offset: int, stop: int) -> int:
    """The number that the digits from place to stop write, or -1 where it exceeds int64."""
    value = 0
    for i in range(offset, stop):
        digit = byte(i) - ZERO
        if value >= 922337203685477580 and (value > 922337203685477580 or digit > 7):  # 2**63 - 1
            return -1
        value = value * 10 + digit
    return value


@machine
def _with_sign(value: int, digits: int, stop: int, negative: bool) -> tuple[int, int]:  # noqa: FBT001 (numba)
    if value >= 0:
        return stop, -value if negative else value
    # The smallest int64 is our null: where the file may hold it, the plain scanner reads the file.
    return UNSURE if negative and digits == 19 else stop, NULL


@machine
def integer(offset: int, end: int, nesting: int) -> tuple[int, int]:
    """The end of the value, and the whole number it is; a string of digits, or `stream 7`, counts as its number."""
    first = byte(offset)
    if first == QUOTE:
        stop, escaped = string_end(offset + 1, end)
        if stop < 0:
            return stop, NULL
        if escaped:
            return UNSURE, NULL
        return _integer_of_string(offset + 1, stop)
    stop = value_end(offset, end, nesting)
    if stop < 0 or not (first == MINUS or ZERO <= first <= NINE):
        return stop, NULL
    start = offset + (first == MINUS)
    if digits_end(start) != stop:
        return stop, NULL
    return _with_sign(_digits(start, stop), stop - start, stop, first == MINUS)


@machine
def _integer_of_string(offset: int, stop: int) -> tuple[int, int]:
    if stop - offset > 7 and masked_word(offset, 7) == np.uint64(0x206D6165727473):  # `stream `
        offset += 7
    negative = byte(offset) == MINUS
    offset += negative
    last = digits_end(offset)
    if last != stop:
        # Other scripts have digits too: those are left to the plain scanner.
        return (stop + 1 if byte(last) < 128 else UNSURE), NULL
    if last == offset or stop - offset >= LONGEST_NUMBER:
        return (stop + 1 if last == offset else UNSURE), NULL
    return _with_sign(_digits(offset, stop), stop - offset, stop + 1, negative)


@machine
def microseconds(offset: int, end: int, nesting: int) -> tuple[int, int]:
    """The end of the value, and the ns it means where it is a number or the text of one."""
    first = byte(offset)
    if first == QUOTE:
        stop, escaped = string_end(offset + 1, end)
        if stop < 0:
            return stop, NULL
        if escaped:
            return UNSURE, NULL
        last, value = _nanoseconds(offset + 1, end)
        return (stop + 1 if last == stop else UNSURE), value
    if ZERO <= first <= NINE or (first == MINUS and byte(offset + 1) != CAPITAL_I):
        return _nanoseconds(offset, end)
    return value_end(offset, end, nesting), NULL


@machine
def _nanoseconds(offset: int, end: int) -> tuple[int, int]:
    """The end of the number at the place, and a thousand times its value, half to even."""
    negative = byte(offset) == MINUS
    offset += negative
    point = integer_part_end(offset, end)
    if point < 0:
        return point, NULL
    stop = fraction_end(point, end)
    if stop < 0:
        return stop, NULL
    fraction = point
    if byte(point) == POINT:
        fraction = digits_end(point + 1)
    exact = fraction == stop
    value = _without_exponent(offset, point, stop) if exact else _with_exponent(offset, point, fraction, stop)
    if value < 0:
        return (stop, NULL) if value == NULL else (value, NULL)
    return stop, -value if negative else value


@machine
def _without_exponent(offset: int, point: int, stop: int) -> int:
    integer = _digits(offset, point) if point - offset <= 19 else -1  # digits of 2**63
    if integer < 0 or integer >= 9223372036854775:  # 2**63 / 1000
        return UNSURE if integer == 9223372036854775 or stop - offset > 28 else NULL
    value = integer * 1000
    if stop <= point:
        return value
    if stop - offset > 28:  # digits to which Python's decimal multiplies
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
def _with_exponent(offset: int, point: int, fraction: int, stop: int) -> int:
    """A thousand times the number, half to even; numbers out of the ordinary are left to the plain scanner."""
    if fraction - offset > 18 or stop - fraction > 5:  # int64 holds it; the exponent is below 10000
        return UNSURE
    decimals = max(fraction - point - 1, 0)
    value = _digits(offset, point)
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
