"""The compiled scanner's machine code: bytes of `traceEvents` in, rows of whole numbers out.

Numba compiles it once; afterwards this module is not even imported (see `xsp_ingest.machine.native`).
"""

# ruff: noqa: C901, PLR0911, PLR0912, PLR1714, PLR2004, SIM109
# (chained comparisons compile faster than `in`; bytes and digits are compared with numbers, named beside them)

from __future__ import annotations

import numpy as np

from xsp_ingest.formats.torch_profiler.compiled import scan_state as at
from xsp_ingest.formats.torch_profiler.compiled.grammar import after_blanks, stopped, string_end, value_end
from xsp_ingest.formats.torch_profiler.compiled.numbers import microseconds, whole
from xsp_ingest.formats.torch_profiler.compiled.row import forget, has_room, is_kept, keep
from xsp_ingest.formats.torch_profiler.compiled.scan_state import (
    AXES,
    COMMA_OR_END,
    DISTRUST,
    DONE,
    FULL,
    INCOMPLETE,
    KEY_WORDS,
    KEYS_PER_LEVEL,
    MEMBERS,
    MICROSECONDS,
    MOST_TRAIL,
    MOST_TRUST,
    NULL,
    ONE_VALUE,
    TEXT,
    TRUST_LOST,
    UNKNOWN,
    UNSURE,
    VALUE,
    WHOLE,
    WORD,
)
from xsp_ingest.formats.torch_profiler.compiled.template_match import known_event
from xsp_ingest.formats.torch_profiler.compiled.template_segments import learn, remember
from xsp_ingest.formats.torch_profiler.compiled.texts import MIX, MIX_2, index
from xsp_ingest.machine.intrinsics import (
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
    word,
)

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
def _event(place: int, desk: int) -> int:
    """The end of the event whose members start at the place; fills the desk's row."""
    end, keys = number(desk + at.END), number(desk + at.KEYS)
    forget(0, desk)
    inside, seen = False, False  # whether within `args`, and whether they were met
    put(desk + at.TRAIL_COUNT, 0)
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
                if seen:  # an event with `args` twice is not one to learn from
                    put(desk + at.TRAIL_COUNT, MOST_TRAIL + 1)
                seen = True
                forget(number(desk + at.FIRST_ARGUMENT), desk)
                if byte(place) == OPEN_OBJECT:
                    inside = True
                    place = after_blanks(place + 1)
                    closed = byte(place) == CLOSE_OBJECT
                    continue
            value = place
            place = _take(place, meaning, desk)
            if place < 0:
                return place
            remember(value, place, UNKNOWN if meaning >> 8 == MEMBERS else meaning, desk)
        place = after_blanks(place)
        letter = byte(place)
        closed = letter == CLOSE_OBJECT
        if letter == COMMA:
            place = after_blanks(place + 1)
        elif not closed:
            return stopped(place, end)


@machine
def _entry(place: int, desk: int) -> int:
    """The end of the event that starts at the place, after its row is kept where it is of use."""
    stop, known = UNSURE, False
    if number(desk + at.TRUST) >= 0:
        stop = known_event(place + 1, desk)
        known = stop >= 0
    if not known:
        stop = _event(place + 1, desk)
        if stop < 0:
            return stop
    if not has_room(stop - place, desk):
        return FULL
    if not known:
        learn(place + 1, stop, desk)
    _judge(known, desk)
    kept = is_kept(desk)
    if kept < 0:
        return kept
    if kept:
        keep(desk)
    return stop


@machine
def _judge(known: bool, desk: int) -> None:  # noqa: FBT001 (numba)
    """Seams that fail too often are not asked for a while."""
    trust = number(desk + at.TRUST)
    if trust < 0:
        trust = trust + 1 if trust < -1 else MOST_TRUST // 8
    elif known:
        trust = min(trust + 1, MOST_TRUST)
    else:
        trust = trust - TRUST_LOST if trust >= TRUST_LOST else DISTRUST
    put(desk + at.TRUST, trust)


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
            stop = _entry(place, desk)
            if stop < 0:
                return stop
        else:
            stop = value_end(place, end, nesting)
            if stop < 0 or stop >= end:  # a number may go on behind the end
                return stop if stop < 0 else INCOMPLETE
            put(desk + at.NOT_OBJECTS, number(desk + at.NOT_OBJECTS) + 1)
        expected = COMMA_OR_END
        put(desk + at.PLACE, stop)
        put(desk + at.EXPECTED, expected)
