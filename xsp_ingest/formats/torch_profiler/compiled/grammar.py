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
    masked_word,
    put_byte,
    trailing_zeros,
)

__all__ = [
    "LONGEST_NUMBER",
    "after_blanks",
    "digits_end",
    "fraction_end",
    "integer_part_end",
    "list_end",
    "stop_reason",
    "string_end",
    "value_end",
]

LONGEST_NUMBER = 4000  # Python refuses whole numbers of more than 4300 digits


@machine
def after_blanks(offset: int) -> int:
    while byte(offset) <= 32:  # space
        blanks = leading_blanks(offset)
        offset += blanks
        if blanks < LANES:
            break
    return offset


@machine
def stop_reason(offset: int, end: int) -> int:
    return INCOMPLETE if offset >= end else UNSURE


@machine
def _escape_end(offset: int, end: int) -> int:
    """The place after the escape that starts at the place."""
    char = byte(offset + 1)
    if char == 117:  # u
        for i in range(offset + 2, offset + 6):
            digit = byte(i)
            if not (ZERO <= digit <= NINE or 97 <= digit | 32 <= 102):  # a..f
                return stop_reason(i, end)
        return offset + 6
    # one of  "  \  /  b  f  n  r  t
    if char in (QUOTE, BACKSLASH, 47, 98, 102, 110, 114, 116):
        return offset + 2
    return stop_reason(offset + 1, end)


@machine
def string_end(offset: int, end: int) -> tuple[int, bool]:
    """The place of the quote that ends the string whose content starts at the place, and whether it holds escapes."""
    escaped = False
    while True:
        ordinary = leading_ordinary(offset)
        offset += ordinary
        if ordinary == LANES:
            continue
        char = byte(offset)
        if char == QUOTE:
            return offset, escaped
        if char != BACKSLASH:
            return stop_reason(offset, end), escaped
        escaped = True
        offset = _escape_end(offset, end)
        if offset < 0:
            return offset, escaped


@machine
def digits_end(offset: int) -> int:
    while ZERO <= byte(offset) <= NINE:
        offset += 1
    return offset


@machine
def fraction_end(offset: int, end: int) -> int:
    """The end of what may follow a number's whole part: `.5`, `e-7`, or nothing."""
    if byte(offset) == POINT:
        start = offset + 1
        offset = digits_end(start)
        if offset == start:
            return stop_reason(offset, end)
    if byte(offset) | 32 == 101:  # e
        start = offset + 1
        if byte(start) == PLUS or byte(start) == MINUS:
            start += 1
        offset = digits_end(start)
        if offset == start:
            return stop_reason(offset, end)
    return offset


@machine
def integer_part_end(offset: int, end: int) -> int:
    """The end of a number's digits before point or exponent; the place is behind its sign."""
    first = byte(offset)
    if first == ZERO:
        return offset + 1
    if not ZERO < first <= NINE:
        return stop_reason(offset, end)
    stop = digits_end(offset)
    return stop if stop - offset < LONGEST_NUMBER else UNSURE


@machine
def _literal_end(offset: int, end: int) -> int:
    """The end of null, true, false, NaN, Infinity; as in Python's json."""
    first = byte(offset)
    if first == 110:
        seen, length = 0x6C6C756E, 4  # null
    elif first == 116:
        seen, length = 0x65757274, 4  # true
    elif first == 102:
        seen, length = 0x65736C6166, 5  # false
    elif first == 78:
        seen, length = 0x4E614E, 3  # NaN
    elif first == CAPITAL_I:
        seen, length = 0x7974696E69666E49, 8  # Infinity
    else:
        return stop_reason(offset, end)
    if masked_word(offset, length) == np.uint64(seen):
        return offset + length
    return INCOMPLETE if offset + length > end else UNSURE


@machine
def _scalar_end(offset: int, end: int) -> int:
    """The end of a value that is neither object nor list."""
    first = byte(offset)
    if first == QUOTE:
        stop, _ = string_end(offset + 1, end)
        return stop + 1 if stop >= 0 else stop
    if first == MINUS or ZERO <= first <= NINE:
        if first == MINUS:
            offset += 1
            if byte(offset) == CAPITAL_I:
                return _literal_end(offset, end)
        offset = integer_part_end(offset, end)
        return fraction_end(offset, end) if offset >= 0 else offset
    return _literal_end(offset, end)


@machine
def _member_value(offset: int, end: int) -> int:
    """Where the value of the member starts whose key's opening quote is at the place."""
    if byte(offset) != QUOTE:
        return stop_reason(offset, end)
    offset, _ = string_end(offset + 1, end)
    if offset < 0:
        return offset
    offset = after_blanks(offset + 1)
    if byte(offset) != COLON:
        return stop_reason(offset, end)
    return after_blanks(offset + 1)


@machine
def value_end(offset: int, end: int, nesting: int) -> int:
    """The end of the value that starts at the place, every byte of it checked; `nesting` is MAX_DEPTH bytes."""
    depth = 0
    while True:
        first = byte(offset)
        if first == OPEN_OBJECT or first == OPEN_LIST:
            close = first + 2
            offset = after_blanks(offset + 1)
            if byte(offset) == close:
                offset += 1
            else:
                if depth == MAX_DEPTH:
                    return UNSURE
                put_byte(nesting + depth, close)
                depth += 1
                if close == CLOSE_OBJECT:
                    offset = _member_value(offset, end)
                    if offset < 0:
                        return offset
                continue
        else:
            offset = _scalar_end(offset, end)
            if offset < 0:
                return offset
        while depth > 0:
            offset = after_blanks(offset)
            char = byte(offset)
            if char == COMMA:
                break
            if char != byte(nesting + depth - 1):
                return stop_reason(offset, end)
            offset += 1
            depth -= 1
        if depth == 0:
            return offset
        offset = after_blanks(offset + 1)
        if byte(nesting + depth - 1) == CLOSE_OBJECT:
            offset = _member_value(offset, end)
            if offset < 0:
                return offset


@machine
def _inside(quotes: np.uint64) -> np.uint64:
    """Of the bits of quotes those from each first one to before each second one: the texts between them."""
    for shift in (1, 2, 4, 8, 16, 32):
        quotes ^= quotes << np.uint64(shift)
    return quotes


@machine
def list_end(offset: int) -> int:
    """The end of the list at the place by its brackets alone, nothing else in it checked; 0 where that is not easy.

    Only a list that is byte by byte one that was checked is known to be one.
    """
    depth = 0
    in_text = np.uint64(0)
    while True:
        odd = marked(offset, BACKSLASH) | marked(offset, 0)
        texts = _inside(marked(offset, QUOTE)) ^ in_text
        closes = marked(offset, CLOSE_LIST) & ~texts
        brackets = (marked(offset, OPEN_LIST) & ~texts) | closes
        while brackets != np.uint64(0):
            lowest = brackets & (~brackets + np.uint64(1))
            depth += 1 if closes & lowest == np.uint64(0) else -1
            if depth == 0:
                return offset + trailing_zeros(lowest) + 1 if odd & (lowest - np.uint64(1)) == np.uint64(0) else 0
            brackets ^= lowest
        if odd != np.uint64(0):
            return 0
        in_text = np.uint64(0) - (texts >> np.uint64(63))
        offset += LONG
