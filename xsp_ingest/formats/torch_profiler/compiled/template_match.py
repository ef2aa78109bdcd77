"""An event whose segments are all known: its values are read one after the other, and nothing between them is."""

# ruff: noqa: C901, PLR0912 (chained comparisons compile faster than `in`)

from __future__ import annotations

from xsp_ingest.formats.torch_profiler.compiled import scan_state as at
from xsp_ingest.formats.torch_profiler.compiled.grammar import list_end, string_end, value_end
from xsp_ingest.formats.torch_profiler.compiled.numbers import few_digits, few_nanoseconds, integer, microseconds
from xsp_ingest.formats.torch_profiler.compiled.row import forget
from xsp_ingest.formats.torch_profiler.compiled.scan_state import (
    AXES,
    CATEGORY,
    INTEGER,
    LABEL,
    MICROSECONDS,
    NO_VALUE,
    PHASE,
    TEXT,
    THE_END,
    UNSURE,
)
from xsp_ingest.formats.torch_profiler.compiled.template_segments import follow
from xsp_ingest.formats.torch_profiler.compiled.texts import number_of_text
from xsp_ingest.machine.intrinsics import (
    CLOSE_LIST,
    COMMA,
    NINE,
    OPEN_LIST,
    POINT,
    QUOTE,
    ZERO,
    byte,
    leading_digits,
    machine,
    number,
    put,
)

__all__ = ["known_event"]

_SPACE = 32


@machine
def _axes(offset: int, target: int) -> int:
    """The end of a list of three short whole numbers, which go to the target; UNSURE of anything else."""
    if byte(offset) != OPEN_LIST:
        return UNSURE
    for axis in range(3):
        start = offset + 1 + (byte(offset + 1) == _SPACE)
        offset, value = few_digits(start)
        if offset == start or byte(offset) != (CLOSE_LIST if axis == 2 else COMMA):  # noqa: PLR2004 (z)
            return UNSURE
        put(target + 8 * axis, value)
    return offset + 1


@machine
def _text(offset: int, target: int, state: int) -> int:
    """The end of the value, which goes to the target as a text of the row."""
    end = number(state + at.END)
    first = byte(offset)
    if first == OPEN_LIST:
        stop = list_end(offset)
        if stop > 0:
            code = number_of_text(offset, stop - offset, state)
            if code >= 0:
                put(target, -1 - code)
                return stop
    if first == QUOTE:
        stop, _ = string_end(offset + 1, end)
        stop += stop >= 0
    else:
        stop = value_end(offset, end, number(state + at.NESTING))
    put(target, offset)
    put(target + 8 * number(state + at.WIDTH), stop)
    return stop


@machine
def _pass_value(offset: int, state: int) -> int:
    """The end of a value that nobody wants."""
    end = number(state + at.END)
    first = byte(offset)
    if first == QUOTE:
        stop, _ = string_end(offset + 1, end)
        return stop + 1 if stop >= 0 else stop
    if ZERO <= first <= NINE:
        stop, _ = few_digits(offset)
        if stop > offset:
            if byte(stop) == POINT:
                decimals = leading_digits(stop + 1)
                if 0 < decimals < 8:  # noqa: PLR2004 (bytes of a word)
                    return stop + 1 + decimals  # type: ignore[no-any-return]
            else:
                return stop
    return value_end(offset, end, number(state + at.NESTING))


@machine
def known_event(offset: int, state: int) -> int:
    """The end of the event whose members start at the place, or less than 0; fills the scan state's row.

    A number is taken to end where its digits do: a segment must follow, and none starts with a point or an `e`.
    """
    end, nesting, row = number(state + at.END), number(state + at.NESTING), number(state + at.ROW)
    forget(0, state)
    segment = number(state + at.SEGMENTS)
    while offset >= 0:
        segment = follow(offset, segment)
        if segment == 0:
            return UNSURE
        offset += number(segment + at.SEGMENT_BYTES)
        meaning = number(segment + at.SEGMENT_MEANING)
        kind, target = meaning >> 8, row + 8 * (meaning & 255)
        if number(segment + at.SEGMENT_PHASE) >= 0:
            put(row + 8 * PHASE, -1 - number(segment + at.SEGMENT_PHASE))
        if number(segment + at.SEGMENT_CATEGORY) >= 0:
            put(row + 8 * CATEGORY, -1 - number(segment + at.SEGMENT_CATEGORY))
        if kind == INTEGER:
            stop, value = few_digits(offset)
            if stop == offset:
                stop, value = integer(offset, end, nesting)
            put(target, value)
            offset = stop
        elif kind == MICROSECONDS:
            stop, value = few_nanoseconds(offset)
            if stop == offset:
                stop, value = microseconds(offset, end, nesting)
            put(target, value)
            offset = stop
        elif kind == TEXT:
            offset = _text(offset, target, state)
        elif kind == AXES:
            offset = _axes(offset, target)
        elif kind == THE_END:
            return offset
        elif kind == LABEL:
            return UNSURE
        elif kind != NO_VALUE:
            offset = _pass_value(offset, state)
    return offset
