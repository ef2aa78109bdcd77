"""An event whose seams are all known: its values are read one after the other, and nothing between them is."""

# ruff: noqa: C901, PLR0912 (chained comparisons compile faster than `in`)

from __future__ import annotations

from xsp_ingest.formats.torch_profiler.compiled import scan_state as at
from xsp_ingest.formats.torch_profiler.compiled.grammar import list_end, string_end, value_end
from xsp_ingest.formats.torch_profiler.compiled.numbers import few_digits, few_nanoseconds, microseconds, whole
from xsp_ingest.formats.torch_profiler.compiled.row import forget
from xsp_ingest.formats.torch_profiler.compiled.scan_state import (
    AXES,
    CATEGORY,
    MICROSECONDS,
    NO_VALUE,
    PHASE,
    TEXT,
    THE_END,
    UNSURE,
    WHOLE,
    WORD,
)
from xsp_ingest.formats.torch_profiler.compiled.template_segments import follow
from xsp_ingest.formats.torch_profiler.compiled.texts import known
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
def _axes(place: int, target: int) -> int:
    """The end of a list of three short whole numbers, which go to the target; UNSURE of anything else."""
    if byte(place) != OPEN_LIST:
        return UNSURE
    for axis in range(3):
        start = place + 1 + (byte(place + 1) == _SPACE)
        place, value = few_digits(start)
        if place == start or byte(place) != (CLOSE_LIST if axis == 2 else COMMA):  # noqa: PLR2004 (z)
            return UNSURE
        put(target + 8 * axis, value)
    return place + 1


@machine
def _text(place: int, target: int, desk: int) -> int:
    """The end of the value, which goes to the target as a text of the row."""
    end = number(desk + at.END)
    first = byte(place)
    if first == OPEN_LIST:
        stop = list_end(place)
        if stop > 0:
            code = known(place, stop - place, desk)
            if code >= 0:
                put(target, -1 - code)
                return stop
    if first == QUOTE:
        stop, _ = string_end(place + 1, end)
        stop += stop >= 0
    else:
        stop = value_end(place, end, number(desk + at.NESTING))
    put(target, place)
    put(target + 8 * number(desk + at.WIDTH), stop)
    return stop


@machine
def _passed(place: int, desk: int) -> int:
    """The end of a value that nobody wants."""
    end = number(desk + at.END)
    first = byte(place)
    if first == QUOTE:
        stop, _ = string_end(place + 1, end)
        return stop + 1 if stop >= 0 else stop
    if ZERO <= first <= NINE:
        stop, _ = few_digits(place)
        if stop > place:
            if byte(stop) == POINT:
                decimals = leading_digits(stop + 1)
                if 0 < decimals < 8:  # noqa: PLR2004 (bytes of a word)
                    return stop + 1 + decimals  # type: ignore[no-any-return]
            else:
                return stop
    return value_end(place, end, number(desk + at.NESTING))


@machine
def known_event(place: int, desk: int) -> int:
    """The end of the event whose members start at the place, or less than 0; fills the desk's row.

    A number is taken to end where its digits do: what follows must be a seam, and none starts with a point or an `e`.
    """
    end, nesting, row = number(desk + at.END), number(desk + at.NESTING), number(desk + at.ROW)
    forget(0, desk)
    seam = number(desk + at.SEAMS)
    while place >= 0:
        seam = follow(place, seam)
        if seam == 0:
            return UNSURE
        place += number(seam + at.SEAM_BYTES)
        meaning = number(seam + at.SEAM_MEANING)
        kind, target = meaning >> 8, row + 8 * (meaning & 255)
        if number(seam + at.SEAM_PHASE) >= 0:
            put(row + 8 * PHASE, -1 - number(seam + at.SEAM_PHASE))
        if number(seam + at.SEAM_CATEGORY) >= 0:
            put(row + 8 * CATEGORY, -1 - number(seam + at.SEAM_CATEGORY))
        if kind == WHOLE:
            stop, value = few_digits(place)
            if stop == place:
                stop, value = whole(place, end, nesting)
            put(target, value)
            place = stop
        elif kind == MICROSECONDS:
            stop, value = few_nanoseconds(place)
            if stop == place:
                stop, value = microseconds(place, end, nesting)
            put(target, value)
            place = stop
        elif kind == TEXT:
            place = _text(place, target, desk)
        elif kind == AXES:
            place = _axes(place, target)
        elif kind == THE_END:
            return place
        elif kind == WORD:
            return UNSURE
        elif kind != NO_VALUE:
            place = _passed(place, desk)
    return place
