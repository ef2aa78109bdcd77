"""The compiled scanner's machine code: bytes of `traceEvents` in, rows of whole numbers out.

Numba compiles it once; afterwards this module is not even imported (see `xsp_ingest.native`).
"""

# ruff: noqa: C901, PLR0911, PLR0912, PLR1714, PLR2004, SIM109
# (chained comparisons compile faster than `in`; bytes and digits are compared with numbers, named beside them)

from __future__ import annotations

import numpy as np

from xsp_ingest.torch_profiler import scan_desk as at
from xsp_ingest.torch_profiler.scan_bytes import (
    BACKSLASH,
    CLOSE_LIST,
    CLOSE_OBJECT,
    COLON,
    COMMA,
    OPEN_LIST,
    OPEN_OBJECT,
    QUOTE,
    byte,
    machine,
    masked,
    number,
    put,
    put_small,
    word,
)
from xsp_ingest.torch_profiler.scan_desk import (
    AXES,
    CATEGORY,
    COMMA_OR_END,
    COMPLETE,
    DONE,
    FIRST_DETAIL,
    FULL,
    INCOMPLETE,
    KEY_WORDS,
    KEYS_PER_LEVEL,
    MEMBERS,
    MICROSECONDS,
    NAME,
    NULL,
    ONE_VALUE,
    PAD,
    PHASE,
    PYTHON,
    TEXT,
    UNREAD,
    UNSURE,
    VALUE,
    WHOLE,
    WORD,
)
from xsp_ingest.torch_profiler.scan_grammar import after_blanks, stopped, string_end, value_end
from xsp_ingest.torch_profiler.scan_numbers import microseconds, whole
from xsp_ingest.torch_profiler.scan_texts import MIX, MIX_2, index, intern

__all__ = ["scan_events"]


@machine
def _axes(place: int, end: int, target: int, nesting: int) -> int:
    """The end of the value; where it is a list, the first three elements go to the target."""
    for axis in range(3):
        put(target + 8 * axis, NULL)
    if byte(place) != OPEN_LIST:
        return value_end(place, end, nesting)
    place = after_blanks(place + 1)
    if byte(place) == CLOSE_LIST:
        return place + 1
    axis = 0
    while True:
        place, value = whole(place, end, nesting)
        if place < 0:
            return place
        if axis < 3:  # x, y, z
            put(target + 8 * axis, value)
        axis += 1
        place = after_blanks(place)
        letter = byte(place)
        if letter == CLOSE_LIST:
            return place + 1
        if letter != COMMA:
            return stopped(place, end)
        place = after_blanks(place + 1)


@machine
def _meaning(place: int, length: int, keys: int) -> int:
    """What the table says of the key, or -1."""
    if length > 24:  # no key we know is longer
        return -1
    first = masked(place, length)
    second = masked(place + 8, length - 8) if length > 8 else np.uint64(0)
    third = masked(place + 16, length - 16) if length > 16 else np.uint64(0)
    mixed = first ^ (second * MIX) ^ (third * MIX_2) ^ np.uint64(length)
    slot = (mixed * MIX) >> np.uint64(56)
    while True:
        entry = keys + np.int64(slot) * (8 * KEY_WORDS)
        length_there = number(entry + 24)
        if length_there == 0:
            return -1
        same = word(entry) == first and word(entry + 8) == second and word(entry + 16) == third
        if same and length_there == length + 1:
            return number(entry + 32)  # type: ignore[no-any-return]
        slot = (slot + np.uint64(1)) % np.uint64(KEYS_PER_LEVEL)


@machine
def _take(place: int, meaning: int, desk: int) -> int:
    """The end of the value at the place, which goes to the row as the key's meaning says."""
    end, nesting, row = number(desk + at.END), number(desk + at.NESTING), number(desk + at.ROW)
    kind, target = meaning >> 8, row + 8 * (meaning & 255)
    if kind == WHOLE:
        place, value = whole(place, end, nesting)
        put(target, value)
        return place
    if kind == MICROSECONDS:
        place, value = microseconds(place, end, nesting)
        put(target, value)
        return place
    if kind == AXES:
        return _axes(place, end, target, nesting)
    if kind == WORD and byte(place) == QUOTE:
        stop, escaped = string_end(place + 1, end)
        if escaped or stop < 0:  # words are compared as they are written
            return UNSURE if escaped else stop
        stop += 1
    else:
        stop = value_end(place, end, nesting)
    if kind == TEXT or kind == WORD:
        put(target, place if kind == TEXT or byte(place) == QUOTE else NULL)
        put(target + 8 * number(desk + at.WIDTH), stop)
    return stop


@machine
def _forget(first: int, desk: int) -> None:
    """Makes the row null from a slot on."""
    row = number(desk + at.ROW)
    for slot in range(first, number(desk + at.WIDTH)):
        put(row + 8 * slot, NULL)


@machine
def _event(place: int, desk: int) -> int:
    """The end of the event whose members start at the place; fills the desk's row."""
    end, keys = number(desk + at.END), number(desk + at.KEYS)
    _forget(0, desk)
    inside = False  # of `args`
    place = after_blanks(place)
    closed = byte(place) == CLOSE_OBJECT
    while True:
        if closed:
            place += 1
            if not inside:
                return place
            inside = False
        else:
            if byte(place) != QUOTE:
                return stopped(place, end)
            stop, escaped = string_end(place + 1, end)
            if stop < 0:
                return stop
            if escaped:
                return UNSURE
            table = keys + KEYS_PER_LEVEL * 8 * KEY_WORDS if inside else keys
            meaning = _meaning(place + 1, stop - place - 1, table)
            place = after_blanks(stop + 1)
            if byte(place) != COLON:
                return stopped(place, end)
            place = after_blanks(place + 1)
            if meaning >> 8 == MEMBERS:
                _forget(number(desk + at.FIRST_ARGUMENT), desk)
                if byte(place) == OPEN_OBJECT:
                    inside = True
                    place = after_blanks(place + 1)
                    closed = byte(place) == CLOSE_OBJECT
                    continue
            place = _take(place, meaning, desk)
            if place < 0:
                return place
        place = after_blanks(place)
        letter = byte(place)
        closed = letter == CLOSE_OBJECT
        if letter == COMMA:
            place = after_blanks(place + 1)
        elif not closed:
            return stopped(place, end)


@machine
def _has_room(event_bytes: int, desk: int) -> bool:
    return (  # type: ignore[no-any-return]
        number(desk + at.ROWS) < number(desk + at.MAX_ROWS)
        and number(desk + at.DETAIL_ROWS) < number(desk + at.MAX_DETAILS)
        and number(desk + at.TEXTS) + number(desk + at.WIDTH) <= number(desk + at.MAX_TEXTS)
        and number(desk + at.TEXT_BYTES) + event_bytes + PAD <= number(desk + at.STORE_BYTES)
    )


@machine
def _text(slot: int, desk: int) -> int:
    """The number of the text in the slot of the row, or -1."""
    start = number(number(desk + at.ROW) + 8 * slot)
    if start == NULL:
        return -1
    return intern(start, number(number(desk + at.ROW) + 8 * (slot + number(desk + at.WIDTH))) - start, desk)


@machine
def _is_module(desk: int) -> int:
    """1 where the name is a module's, 0 where it is not, UNSURE where an escape hides it."""
    start, prefix = number(number(desk + at.ROW) + 8 * NAME), number(desk + at.MODULE_PREFIX)
    if start == NULL:
        return 0
    for i in range(number(desk + at.MODULE_PREFIX_BYTES)):
        letter = byte(start + i)
        if letter == BACKSLASH:
            return UNSURE
        if letter != byte(prefix + i):
            return 0
    return 1


@machine
def _is_kept(desk: int) -> int:
    """1 where the row's event is of use, else 0 or UNSURE; counts frames that are left out."""
    category = _text(CATEGORY, desk)
    if category == PYTHON:
        module = _is_module(desk)
        if module == 0 and _text(PHASE, desk) == COMPLETE:
            put(desk + at.PYTHON_FRAMES, number(desk + at.PYTHON_FRAMES) + 1)
        return module
    return 1 if category < UNREAD or category >= number(desk + at.KNOWN_TEXTS_COUNT) else 0


@machine
def _clear(table: int, columns: int, height: int, here: int) -> None:
    for column in range(columns):
        put(table + 8 * (column * height + here), NULL)


@machine
def _keep(desk: int) -> None:
    """Appends the desk's row to the columns."""
    here, height, width = number(desk + at.ROWS), number(desk + at.MAX_ROWS), number(desk + at.WIDTH)
    row, plan = number(desk + at.ROW), number(desk + at.PLAN)
    numbers, codes = number(desk + at.NUMBERS), number(desk + at.CODES)
    details, there, depth = number(desk + at.DETAILS), number(desk + at.DETAIL_ROWS), number(desk + at.MAX_DETAILS)
    _clear(numbers, number(desk + at.NUMBER_COLUMNS), height, here)
    for column in range(number(desk + at.CODE_COLUMNS)):
        put_small(codes + 4 * (column * height + here), -1)
    detailed = False
    # Backwards: of two slots with the same column the earlier one, its preferred spelling, is written last.
    for slot in range(width - 1, -1, -1):
        value = number(row + 8 * slot)
        if value == NULL:
            continue
        column = number(plan + 8 * slot)
        if column < 0:
            put_small(codes + 4 * ((-1 - column) * height + here), _text(slot, desk))
        elif column < FIRST_DETAIL:
            put(numbers + 8 * (column * height + here), value)
        else:
            if not detailed:
                detailed = True
                _clear(details, number(desk + at.DETAIL_COLUMNS), depth, there)
                put(details + 8 * there, here)
            put(details + 8 * ((column - FIRST_DETAIL) * depth + there), value)
    put(desk + at.ROWS, here + 1)
    put(desk + at.DETAIL_ROWS, there + detailed)


@machine
def scan_events(desk: int) -> int:
    """Scans entries of the list from the desk's place on; DONE behind its closing bracket.

    With any other result the place is that of the entry that could not be scanned. Where ONE_VALUE is expected,
    one value is passed over and nothing kept: a second function for Python to call would cost a second start.
    """
    end, nesting = number(desk + at.END), number(desk + at.NESTING)
    expected = number(desk + at.EXPECTED)
    if expected == ONE_VALUE:
        stop = value_end(number(desk + at.PLACE), end, nesting)
        if stop < 0 or stop >= end:  # a number may go on behind the end
            return stop if stop < 0 else INCOMPLETE
        put(desk + at.PLACE, stop)
        return DONE
    index(desk)
    while True:
        place = after_blanks(number(desk + at.PLACE))
        letter = byte(place)
        if letter == CLOSE_LIST and expected != VALUE:
            put(desk + at.PLACE, place + 1)
            return DONE
        if expected == COMMA_OR_END:
            if letter != COMMA:
                return stopped(place, end)
            place = after_blanks(place + 1)
            put(desk + at.PLACE, place)
            expected = VALUE
            put(desk + at.EXPECTED, expected)
            letter = byte(place)
        if letter == OPEN_OBJECT:
            stop = _event(place + 1, desk)
            if stop < 0:
                return stop
            if not _has_room(stop - place, desk):
                return FULL
            kept = _is_kept(desk)
            if kept < 0:
                return kept
            if kept:
                _keep(desk)
        else:
            stop = value_end(place, end, nesting)
            if stop < 0 or stop >= end:  # a number may go on behind the end
                return stop if stop < 0 else INCOMPLETE
            put(desk + at.NOT_OBJECTS, number(desk + at.NOT_OBJECTS) + 1)
        expected = COMMA_OR_END
        put(desk + at.PLACE, stop)
        put(desk + at.EXPECTED, expected)
