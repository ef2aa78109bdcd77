"""JSON's grammar for the compiled scanner: where a string, a number, a value ends, every byte of it checked.

Places are addresses; a negative one says why there is none.
"""

# ruff: noqa: C901, PLR0912, PLR1714, PLR2004, SIM109
# (chained comparisons compile faster than `in`; bytes and digits are compared with numbers, named beside them)

from __future__ import annotations

import numpy as np

from xsp_ingest.formats.torch_profiler.compiled.scan_state import INCOMPLETE, MAX_DEPTH, UNSURE
from xsp_ingest.machine.intrinsics import (
    BACKSLASH,
    CAPITAL_I,
    CLOSE_LIST,
    CLOSE_OBJECT,
    COLON,
    COMMA,
    LANES,
    LONG,
    MINUS,
    NINE,
    OPEN_LIST,
    OPEN_OBJECT,
    PLUS,
    POINT,
    QUOTE,
    ZERO,
    byte,
    leading_blanks,
    leading_ordinary,
    machine,
    marked,
    masked,
    put_byte,
    trailing_zeros,
)

__all__ = [
    "LONGEST_NUMBER",
    "after_blanks",
    "digits_end",
    "fraction_end",
    "list_end",
    "stopped",
    "string_end",
    "value_end",
    "whole_part_end",
]

LONGEST_NUMBER = 4000  # Python refuses whole numbers of more than 4300 digits


@machine
def after_blanks(place: int) -> int:
    while byte(place) <= 32:  # space
        found = leading_blanks(place)
        place += found
        if found < LANES:
            break
    return place


@machine
def stopped(place: int, end: int) -> int:
    return INCOMPLETE if place >= end else UNSURE


@machine
def _escape_end(place: int, end: int) -> int:
    """The place after the escape that starts at the place."""
    letter = byte(place + 1)
    if letter == 117:  # u
        for i in range(place + 2, place + 6):
            digit = byte(i)
            if not (ZERO <= digit <= NINE or 97 <= digit | 32 <= 102):  # a..f
                return stopped(i, end)
        return place + 6
    # one of  "  \  /  b  f  n  r  t
    if letter in (QUOTE, BACKSLASH, 47, 98, 102, 110, 114, 116):
        return place + 2
    return stopped(place + 1, end)


@machine
def string_end(place: int, end: int) -> tuple[int, bool]:
    """The place of the quote that ends the string whose content starts at the place, and whether it holds escapes."""
    escaped = False
    while True:
        found = leading_ordinary(place)
        place += found
        if found == LANES:
            continue
        letter = byte(place)
        if letter == QUOTE:
            return place, escaped
        if letter != BACKSLASH:
            return stopped(place, end), escaped
        escaped = True
        place = _escape_end(place, end)
        if place < 0:
            return place, escaped


@machine
def digits_end(place: int) -> int:
    while ZERO <= byte(place) <= NINE:
        place += 1
    return place


@machine
def fraction_end(place: int, end: int) -> int:
    """The end of what may follow a number's whole part: `.5`, `e-7`, or nothing."""
    if byte(place) == POINT:
        start = place + 1
        place = digits_end(start)
        if place == start:
            return stopped(place, end)
    if byte(place) | 32 == 101:  # e
        start = place + 1
        if byte(start) == PLUS or byte(start) == MINUS:
            start += 1
        place = digits_end(start)
        if place == start:
            return stopped(place, end)
    return place


@machine
def whole_part_end(place: int, end: int) -> int:
    """The end of a number's digits before point or exponent; the place is behind its sign."""
    first = byte(place)
    if first == ZERO:
        return place + 1
    if not ZERO < first <= NINE:
        return stopped(place, end)
    stop = digits_end(place)
    return stop if stop - place < LONGEST_NUMBER else UNSURE


@machine
def _literal_end(place: int, end: int) -> int:
    """The end of null, true, false, NaN, Infinity; as in Python's json."""
    first = byte(place)
    if first == 110:
        known, length = 0x6C6C756E, 4  # null
    elif first == 116:
        known, length = 0x65757274, 4  # true
    elif first == 102:
        known, length = 0x65736C6166, 5  # false
    elif first == 78:
        known, length = 0x4E614E, 3  # NaN
    elif first == CAPITAL_I:
        known, length = 0x7974696E69666E49, 8  # Infinity
    else:
        return stopped(place, end)
    if masked(place, length) == np.uint64(known):
        return place + length
    return INCOMPLETE if place + length > end else UNSURE


@machine
def _scalar_end(place: int, end: int) -> int:
    """The end of a value that is neither object nor list."""
    first = byte(place)
    if first == QUOTE:
        stop, _ = string_end(place + 1, end)
        return stop + 1 if stop >= 0 else stop
    if first == MINUS or ZERO <= first <= NINE:
        if first == MINUS:
            place += 1
            if byte(place) == CAPITAL_I:
                return _literal_end(place, end)
        place = whole_part_end(place, end)
        return fraction_end(place, end) if place >= 0 else place
    return _literal_end(place, end)


@machine
def _member_value(place: int, end: int) -> int:
    """Where the value of the member starts whose key's opening quote is at the place."""
    if byte(place) != QUOTE:
        return stopped(place, end)
    place, _ = string_end(place + 1, end)
    if place < 0:
        return place
    place = after_blanks(place + 1)
    if byte(place) != COLON:
        return stopped(place, end)
    return after_blanks(place + 1)


@machine
def value_end(place: int, end: int, nesting: int) -> int:
    """The end of the value that starts at the place, every byte of it checked; `nesting` is MAX_DEPTH bytes."""
    depth = 0
    while True:
        first = byte(place)
        if first == OPEN_OBJECT or first == OPEN_LIST:
            close = first + 2
            place = after_blanks(place + 1)
            if byte(place) == close:
                place += 1
            else:
                if depth == MAX_DEPTH:
                    return UNSURE
                put_byte(nesting + depth, close)
                depth += 1
                if close == CLOSE_OBJECT:
                    place = _member_value(place, end)
                    if place < 0:
                        return place
                continue
        else:
            place = _scalar_end(place, end)
            if place < 0:
                return place
        while depth > 0:
            place = after_blanks(place)
            letter = byte(place)
            if letter == COMMA:
                break
            if letter != byte(nesting + depth - 1):
                return stopped(place, end)
            place += 1
            depth -= 1
        if depth == 0:
            return place
        place = after_blanks(place + 1)
        if byte(nesting + depth - 1) == CLOSE_OBJECT:
            place = _member_value(place, end)
            if place < 0:
                return place


@machine
def _inside(quotes: np.uint64) -> np.uint64:
    """Of the bits of quotes those from each first one to before each second one: the texts between them."""
    for shift in (1, 2, 4, 8, 16, 32):
        quotes ^= quotes << np.uint64(shift)
    return quotes


@machine
def list_end(place: int) -> int:
    """The end of the list at the place by its brackets alone, nothing else in it checked; 0 where that is not easy.

    Only a list that is byte by byte one that was checked is known to be one.
    """
    depth = 0
    in_text = np.uint64(0)
    while True:
        odd = marked(place, BACKSLASH) | marked(place, 0)
        texts = _inside(marked(place, QUOTE)) ^ in_text
        closes = marked(place, CLOSE_LIST) & ~texts
        brackets = (marked(place, OPEN_LIST) & ~texts) | closes
        while brackets != np.uint64(0):
            lowest = brackets & (~brackets + np.uint64(1))
            depth += 1 if closes & lowest == np.uint64(0) else -1
            if depth == 0:
                return place + trailing_zeros(lowest) + 1 if odd & (lowest - np.uint64(1)) == np.uint64(0) else 0
            brackets ^= lowest
        if odd != np.uint64(0):
            return 0
        in_text = np.uint64(0) - (texts >> np.uint64(63))
        place += LONG
