"""The compiled scanner's machine code: bytes of `traceEvents` in, rows of whole numbers out.

Numba compiles it once; afterwards this module is not even imported (see `xsp_ingest.machine.native`).
"""

# ruff: noqa: C901, PLR0911, PLR0912, PLR1714, PLR2004, SIM109
# (chained comparisons compile faster than `in`; bytes and digits are compared with numbers, named beside them)

from __future__ import annotations

import numpy as np

from xsp_ingest.formats.torch_profiler.compiled import scan_state as at
from xsp_ingest.formats.torch_profiler.compiled.grammar import after_blanks, stop_reason, string_end, value_end
from xsp_ingest.formats.torch_profiler.compiled.numbers import integer, microseconds
from xsp_ingest.formats.torch_profiler.compiled.row import forget, has_room, is_kept, keep
from xsp_ingest.formats.torch_profiler.compiled.scan_state import (
    AXES,
    COMMA_OR_END,
    DONE,
    FULL,
    INCOMPLETE,
    INTEGER,
    KEY_WORDS,
    KEYS_PER_LEVEL,
    LABEL,
    MAX_SCORE,
    MAX_VALUE_OFFSETS,
    MEMBERS,
    MICROSECONDS,
    MIN_SCORE,
    NULL,
    ONE_VALUE,
    SCORE_LOST,
    TEXT,
    UNKNOWN,
    UNSURE,
    VALUE,
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
    eight_bytes,
    machine,
    masked_word,
    number,
    put,
)

__all__ = ["scan_events"]


@machine
def _axes(offset: int, end: int, target: int, nesting: int) -> int:
    """The end of the value; where it is a list, the first three elements go to the target."""
    for axis in range(3):
        put(target + 8 * axis, NULL)
    if byte(offset) != OPEN_LIST:
        return value_end(offset, end, nesting)
    offset = after_blanks(offset + 1)
    if byte(offset) == CLOSE_LIST:
        return offset + 1
    axis = 0
    while True:
        offset, value = integer(offset, end, nesting)
        if offset < 0:
            return offset
        if axis < 3:  # x, y, z
            put(target + 8 * axis, value)
        axis += 1
        offset = after_blanks(offset)
        char = byte(offset)
        if char == CLOSE_LIST:
            return offset + 1
        if char != COMMA:
            return stop_reason(offset, end)
        offset = after_blanks(offset + 1)


@machine
def _meaning(offset: int, length: int, keys: int) -> int:
    """What the table says of the key, or -1."""
    if length > 24:  # no key we know is longer
        return -1
    first = masked_word(offset, length)
    second = masked_word(offset + 8, length - 8) if length > 8 else np.uint64(0)
    third = masked_word(offset + 16, length - 16) if length > 16 else np.uint64(0)
    mixed = first ^ (second * MIX) ^ (third * MIX_2) ^ np.uint64(length)
    slot = (mixed * MIX) >> np.uint64(56)
    while True:
        entry = keys + np.int64(slot) * (8 * KEY_WORDS)
        length_there = number(entry + 24)
        if length_there == 0:
            return -1
        same = eight_bytes(entry) == first and eight_bytes(entry + 8) == second and eight_bytes(entry + 16) == third
        if same and length_there == length + 1:
            return number(entry + 32)  # type: ignore[no-any-return]
        slot = (slot + np.uint64(1)) % np.uint64(KEYS_PER_LEVEL)


@machine
def _take(offset: int, meaning: int, state: int) -> int:
    """The end of the value at the place, which goes to the row as the key's meaning says."""
    end, nesting, row = number(state + at.END), number(state + at.NESTING), number(state + at.ROW)
    kind, target = meaning >> 8, row + 8 * (meaning & 255)
    if kind == INTEGER:
        offset, value = integer(offset, end, nesting)
        put(target, value)
        return offset
    if kind == MICROSECONDS:
        offset, value = microseconds(offset, end, nesting)
        put(target, value)
        return offset
    if kind == AXES:
        return _axes(offset, end, target, nesting)
    if kind == LABEL and byte(offset) == QUOTE:
        stop, escaped = string_end(offset + 1, end)
        if escaped or stop < 0:  # words are compared as they are written
            return UNSURE if escaped else stop
        stop += 1
    else:
        stop = value_end(offset, end, nesting)
    if kind == TEXT or kind == LABEL:
        put(target, offset if kind == TEXT or byte(offset) == QUOTE else NULL)
        put(target + 8 * number(state + at.WIDTH), stop)
    return stop


@machine
def _event(offset: int, state: int) -> int:
    """The end of the event whose members start at the place; fills the scan state's row."""
    end, keys = number(state + at.END), number(state + at.KEYS)
    forget(0, state)
    inside, seen = False, False  # whether within `args`, and whether they were met
    put(state + at.VALUE_OFFSETS_COUNT, 0)
    offset = after_blanks(offset)
    closed = byte(offset) == CLOSE_OBJECT
    while True:
        if closed:
            offset += 1
            if not inside:
                return offset
            inside = False
        else:
            if byte(offset) != QUOTE:
                return stop_reason(offset, end)
            stop, escaped = string_end(offset + 1, end)
            if stop < 0:
                return stop
            if escaped:
                return UNSURE
            table = keys + KEYS_PER_LEVEL * 8 * KEY_WORDS if inside else keys
            meaning = _meaning(offset + 1, stop - offset - 1, table)
            offset = after_blanks(stop + 1)
            if byte(offset) != COLON:
                return stop_reason(offset, end)
            offset = after_blanks(offset + 1)
            if meaning >> 8 == MEMBERS:
                if seen:  # an event with `args` twice is not one to learn from
                    put(state + at.VALUE_OFFSETS_COUNT, MAX_VALUE_OFFSETS + 1)
                seen = True
                forget(number(state + at.FIRST_ARGUMENT), state)
                if byte(offset) == OPEN_OBJECT:
                    inside = True
                    offset = after_blanks(offset + 1)
                    closed = byte(offset) == CLOSE_OBJECT
                    continue
            value = offset
            offset = _take(offset, meaning, state)
            if offset < 0:
                return offset
            remember(value, offset, UNKNOWN if meaning >> 8 == MEMBERS else meaning, state)
        offset = after_blanks(offset)
        char = byte(offset)
        closed = char == CLOSE_OBJECT
        if char == COMMA:
            offset = after_blanks(offset + 1)
        elif not closed:
            return stop_reason(offset, end)


@machine
def _entry(offset: int, state: int) -> int:
    """The end of the event that starts at the place, after its row is kept where it is of use."""
    stop, seen = UNSURE, False
    if number(state + at.SCORE) >= 0:
        stop = known_event(offset + 1, state)
        seen = stop >= 0
    if not seen:
        stop = _event(offset + 1, state)
        if stop < 0:
            return stop
    if not has_room(stop - offset, state):
        return FULL
    if not seen:
        learn(offset + 1, stop, state)
    _judge(seen, state)
    kept = is_kept(state)
    if kept < 0:
        return kept
    if kept:
        keep(state)
    return stop


@machine
def _judge(seen: bool, state: int) -> None:  # noqa: FBT001 (numba)
    """Template segments that fail too often are not asked for a while."""
    score = number(state + at.SCORE)
    if score < 0:
        score = score + 1 if score < -1 else MAX_SCORE // 8
    elif seen:
        score = min(score + 1, MAX_SCORE)
    else:
        score = score - SCORE_LOST if score >= SCORE_LOST else MIN_SCORE
    put(state + at.SCORE, score)


@machine
def scan_events(state: int) -> int:
    """Scans entries of the list from the scan state's place on; DONE behind its closing bracket.

    With any other result the place is that of the entry that could not be scanned. Where ONE_VALUE is expected,
    one value is passed over and nothing kept: a second function for Python to call would cost a second start.
    """
    end, nesting = number(state + at.END), number(state + at.NESTING)
    expected = number(state + at.EXPECTED)
    if expected == ONE_VALUE:
        stop = value_end(number(state + at.OFFSET), end, nesting)
        if stop < 0 or stop >= end:  # a number may go on behind the end
            return stop if stop < 0 else INCOMPLETE
        put(state + at.OFFSET, stop)
        return DONE
    index(state)
    while True:
        offset = after_blanks(number(state + at.OFFSET))
        char = byte(offset)
        if char == CLOSE_LIST and expected != VALUE:
            put(state + at.OFFSET, offset + 1)
            return DONE
        if expected == COMMA_OR_END:
            if char != COMMA:
                return stop_reason(offset, end)
            offset = after_blanks(offset + 1)
            put(state + at.OFFSET, offset)
            expected = VALUE
            put(state + at.EXPECTED, expected)
            char = byte(offset)
        if char == OPEN_OBJECT:
            stop = _entry(offset, state)
            if stop < 0:
                return stop
        else:
            stop = value_end(offset, end, nesting)
            if stop < 0 or stop >= end:  # a number may go on behind the end
                return stop if stop < 0 else INCOMPLETE
            put(state + at.NOT_OBJECTS, number(state + at.NOT_OBJECTS) + 1)
        expected = COMMA_OR_END
        put(state + at.OFFSET, stop)
        put(state + at.EXPECTED, expected)
