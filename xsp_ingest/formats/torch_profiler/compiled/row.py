"""The event that was scanned, a value a slot, and the columns it is appended to.

A text is in the row by where it starts, its end `width` slots on; one whose number is known by that, as -1 - number.
"""

from __future__ import annotations

from xsp_ingest.formats.torch_profiler.compiled import scan_state as at
from xsp_ingest.formats.torch_profiler.compiled.scan_state import (
    CATEGORY,
    COMPLETE,
    NAME,
    NULL,
    OWN_TEXTS,
    PAD,
    PHASE,
    PYTHON,
    UNREAD,
    UNSURE,
)
from xsp_ingest.formats.torch_profiler.compiled.texts import intern
from xsp_ingest.machine.intrinsics import BACKSLASH, byte, machine, number, put, put_small

__all__ = ["forget", "has_room", "is_kept", "keep"]


@machine
def forget(first: int, desk: int) -> None:
    """Makes the row null from a slot on."""
    row = number(desk + at.ROW)
    for slot in range(first, number(desk + at.WIDTH)):
        put(row + 8 * slot, NULL)


@machine
def has_room(event_bytes: int, desk: int) -> bool:
    """Whether the tables take one more event of so many bytes."""
    return (  # type: ignore[no-any-return]
        number(desk + at.ROWS) < number(desk + at.MAX_ROWS)
        and number(desk + at.DETAIL_ROWS) < number(desk + at.MAX_DETAILS)
        and number(desk + at.TEXTS) + number(desk + at.WIDTH) <= number(desk + at.MAX_TEXTS)
        and number(desk + at.TEXT_BYTES) + event_bytes + PAD <= number(desk + at.STORE_BYTES)
    )


@machine
def _text(slot: int, desk: int) -> int:
    """The number of the text in the slot of the row, or -1."""
    row = number(desk + at.ROW)
    start = number(row + 8 * slot)
    if start == NULL:
        return -1
    if start < 0:
        return -1 - start  # type: ignore[no-any-return]
    return intern(start, number(row + 8 * (slot + number(desk + at.WIDTH))) - start, desk)


@machine
def _is_module(desk: int) -> int:
    """1 where the name is a module's, 0 where it is not, UNSURE where an escape hides it."""
    start, prefix = number(number(desk + at.ROW) + 8 * NAME), number(desk + at.MODULE_PREFIX)
    if start < 0:  # none, or a list
        return 0
    for i in range(number(desk + at.MODULE_PREFIX_BYTES)):
        letter = byte(start + i)
        if letter == BACKSLASH:
            return UNSURE
        if letter != byte(prefix + i):
            return 0
    return 1


@machine
def is_kept(desk: int) -> int:
    """1 where the row's event is of use, else 0 or UNSURE; counts frames that are left out."""
    category = _text(CATEGORY, desk)
    if category == PYTHON:
        module = _is_module(desk)
        if module == 0 and _text(PHASE, desk) == COMPLETE:
            put(desk + at.PYTHON_FRAMES, number(desk + at.PYTHON_FRAMES) + 1)
        return module
    return 1 if category < UNREAD or category >= number(desk + at.KNOWN_TEXTS_COUNT) else 0


@machine
def _other_spellings(desk: int) -> None:
    """A value under another spelling of its key counts where there is none under the preferred one."""
    row, width = number(desk + at.ROW), number(desk + at.WIDTH)
    for slot in range(number(desk + at.FIRST_SPELLING), width):
        preferred = number(number(desk + at.PREFERRED) + 8 * slot)
        if number(row + 8 * slot) != NULL and number(row + 8 * preferred) == NULL:
            put(row + 8 * preferred, number(row + 8 * slot))
            put(row + 8 * (preferred + width), number(row + 8 * (slot + width)))


@machine
def keep(desk: int) -> None:
    """Appends the row to the columns."""
    _other_spellings(desk)
    here, height, row = number(desk + at.ROWS), number(desk + at.MAX_ROWS), number(desk + at.ROW)
    numbers, columns = number(desk + at.NUMBERS) + 8 * here, number(desk + at.NUMBER_COLUMNS)
    for column in range(columns):
        put(numbers + 8 * column * height, number(row + 8 * (OWN_TEXTS + column)))
    codes = number(desk + at.CODES) + 4 * here
    for column in range(number(desk + at.CODE_COLUMNS)):
        slot = column if column < OWN_TEXTS else column + columns
        put_small(codes + 4 * column * height, _text(slot, desk))
    _keep_details(here, columns + number(desk + at.CODE_COLUMNS), desk)
    put(desk + at.ROWS, here + 1)


@machine
def _keep_details(here: int, first: int, desk: int) -> None:
    """Likewise what few events have, from a slot of the row on, where the row has any."""
    row, columns = number(desk + at.ROW) + 8 * first, number(desk + at.DETAIL_COLUMNS) - 1
    found = False
    for column in range(columns):
        found |= number(row + 8 * column) != NULL
    if not found:
        return
    there, depth = number(desk + at.DETAIL_ROWS), number(desk + at.MAX_DETAILS)
    details = number(desk + at.DETAILS) + 8 * there
    put(details, here)
    for column in range(columns):
        put(details + 8 * (column + 1) * depth, number(row + 8 * column))
    put(desk + at.DETAIL_ROWS, there + 1)
