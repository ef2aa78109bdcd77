"""The event that was scanned, a value a slot, and the columns it is appended to.

A text is in the row by where it starts, its end `width` slots on; one whose number is known by that, as -1 - number.
"""

from __future__ import annotations

import numpy as np

from xsp_ingest.formats.torch_profiler.compiled import scan_state as at
from xsp_ingest.formats.torch_profiler.compiled.scan_state import (
    BUILT_IN,
    BUILT_IN_BYTES,
    CATEGORY,
    COMPLETE,
    FRAME_NUMBERS,
    NAME,
    NULL,
    OWN_TEXTS,
    PAD,
    PHASE,
    PYTHON,
    TORCH,
    TORCH_BYTES,
    UNREAD,
    UNSURE,
)
from xsp_ingest.formats.torch_profiler.compiled.texts import intern
from xsp_ingest.machine.intrinsics import BACKSLASH, byte, machine, masked_word, number, put, put_small

__all__ = ["forget", "has_room", "is_kept", "keep"]

_TORCH, _BUILT_IN = np.uint64(TORCH), np.uint64(BUILT_IN)


@machine
def forget(first: int, state: int) -> None:
    """Makes the row null from a slot on."""
    row = number(state + at.ROW)
    for slot in range(first, number(state + at.WIDTH)):
        put(row + 8 * slot, NULL)


@machine
def has_room(event_bytes: int, state: int) -> bool:
    """Whether the tables take one more event of so many bytes."""
    return (  # type: ignore[no-any-return]
        number(state + at.ROWS) < number(state + at.MAX_ROWS)
        and number(state + at.DETAIL_ROWS) < number(state + at.MAX_DETAILS)
        and number(state + at.FRAME_ROWS) < number(state + at.MAX_FRAMES)
        and number(state + at.TEXTS) + number(state + at.WIDTH) <= number(state + at.MAX_TEXTS)
        and number(state + at.TEXT_BYTES) + event_bytes + PAD <= number(state + at.STORE_BYTES)
    )


@machine
def _text(slot: int, state: int) -> int:
    """The number of the text in the slot of the row, or -1."""
    row = number(state + at.ROW)
    start = number(row + 8 * slot)
    if start == NULL:
        return -1
    if start < 0:
        return -1 - start  # type: ignore[no-any-return]
    return intern(start, number(row + 8 * (slot + number(state + at.WIDTH))) - start, state)


@machine
def _is_module(state: int) -> int:
    """1 where the name is a module's, 0 where it is not, UNSURE where an escape hides it."""
    start, prefix = number(number(state + at.ROW) + 8 * NAME), number(state + at.MODULE_PREFIX)
    if start < 0:  # none, or a list
        return 0
    for i in range(number(state + at.MODULE_PREFIX_BYTES)):
        char = byte(start + i)
        if char == BACKSLASH:
            return UNSURE
        if char != byte(prefix + i):
            return 0
    return 1


@machine
def _keep_frame(state: int) -> None:
    """Appends the row's frame of a function to the frames, where those are wanted and it may be the user's."""
    row = number(state + at.ROW)
    start, moment = number(row + 8 * NAME), row + 8 * OWN_TEXTS
    if number(state + at.WANTS_FRAMES) == 0 or number(moment) == NULL or number(moment + 8) == NULL:
        return
    if start >= 0 and (masked_word(start, TORCH_BYTES) == _TORCH or masked_word(start, BUILT_IN_BYTES) == _BUILT_IN):
        return
    rows, height = number(state + at.FRAME_ROWS), number(state + at.MAX_FRAMES)
    target = number(state + at.FRAMES) + 8 * rows
    put(target, _text(NAME, state))
    for column in range(FRAME_NUMBERS):
        put(target + 8 * (column + 1) * height, number(moment + 8 * column))
    put(state + at.FRAME_ROWS, rows + 1)


@machine
def is_kept(state: int) -> int:
    """1 where the row's event is of use, else 0 or UNSURE; counts frames and arrows that are left out."""
    category = _text(CATEGORY, state)
    if category == PYTHON:
        module = _is_module(state)
        if module == 0 and _text(PHASE, state) == COMPLETE:
            put(state + at.PYTHON_FRAMES, number(state + at.PYTHON_FRAMES) + 1)
            _keep_frame(state)
        return module
    if category < UNREAD or category >= number(state + at.KNOWN_TEXTS_COUNT):
        return 1
    count = state + at.UNREAD_COUNTS + 8 * (category - UNREAD)
    put(count, number(count) + 1)
    return 0


@machine
def _other_spellings(state: int) -> None:
    """A value under another spelling of its key counts where there is none under the preferred one."""
    row, width = number(state + at.ROW), number(state + at.WIDTH)
    for slot in range(number(state + at.FIRST_SPELLING), width):
        preferred = number(number(state + at.PREFERRED) + 8 * slot)
        if number(row + 8 * slot) != NULL and number(row + 8 * preferred) == NULL:
            put(row + 8 * preferred, number(row + 8 * slot))
            put(row + 8 * (preferred + width), number(row + 8 * (slot + width)))


@machine
def keep(state: int) -> None:
    """Appends the row to the columns."""
    _other_spellings(state)
    here, height, row = number(state + at.ROWS), number(state + at.MAX_ROWS), number(state + at.ROW)
    numbers, columns = number(state + at.NUMBERS) + 8 * here, number(state + at.NUMBER_COLUMNS)
    for column in range(columns):
        put(numbers + 8 * column * height, number(row + 8 * (OWN_TEXTS + column)))
    text_ids = number(state + at.TEXT_IDS) + 4 * here
    for column in range(number(state + at.CODE_COLUMNS)):
        slot = column if column < OWN_TEXTS else column + columns
        put_small(text_ids + 4 * column * height, _text(slot, state))
    _keep_details(here, columns + number(state + at.CODE_COLUMNS), state)
    put(state + at.ROWS, here + 1)


@machine
def _keep_details(here: int, first: int, state: int) -> None:
    """Likewise what few events have, from a slot of the row on, where the row has any."""
    row, columns = number(state + at.ROW) + 8 * first, number(state + at.DETAIL_COLUMNS) - 1
    has_details = False
    for column in range(columns):
        has_details |= number(row + 8 * column) != NULL
    if not has_details:
        return
    there, depth = number(state + at.DETAIL_ROWS), number(state + at.MAX_DETAILS)
    details = number(state + at.DETAILS) + 8 * there
    put(details, here)
    for column in range(columns):
        put(details + 8 * (column + 1) * depth, number(row + 8 * column))
    put(state + at.DETAIL_ROWS, there + 1)
