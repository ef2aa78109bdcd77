"""Texts for the compiled scanner: each distinct one kept once, found again by its hash."""

from __future__ import annotations

import numpy as np

from xsp_ingest.formats.torch_profiler.compiled import scan_state as at
from xsp_ingest.machine.intrinsics import (
    LONG,
    byte,
    leading_alike,
    machine,
    masked,
    number,
    put,
    put_byte,
    word,
)

__all__ = ["MIX", "MIX_2", "index", "intern", "known"]

MIX, MIX_2 = np.uint64(at.MIX), np.uint64(at.MIX_2)


@machine
def _hash(place: int, length: int) -> np.uint64:
    """Of two halves at a time, which the processor mixes side by side."""
    mixed, other = np.uint64(length) * MIX_2, MIX
    while length > 8:  # noqa: PLR2004 (bytes of a word)
        mixed = (mixed ^ word(place)) * MIX
        other = (other ^ masked(place + 8, length - 8)) * MIX_2
        mixed ^= mixed >> np.uint64(32)
        other ^= other >> np.uint64(29)
        place += 16
        length -= 16
    if length > 0:
        mixed = (mixed ^ masked(place, length)) * MIX
    mixed = (mixed ^ other) * MIX
    return mixed ^ (mixed >> np.uint64(32))


@machine
def _is_same(place: int, other: int, length: int) -> bool:
    while length > LONG:
        if leading_alike(place, other) < LONG:
            return False
        place += LONG
        other += LONG
        length -= LONG
    return leading_alike(place, other) >= length  # type: ignore[no-any-return]


@machine
def _slot(place: int, length: int, mixed: np.uint64, desk: int) -> int:
    """Where in the table the text is, or would be."""
    table, mask = number(desk + at.TABLE), number(desk + at.TABLE_MASK)
    texts, hashes, store = number(desk + at.KNOWN), number(desk + at.HASHES), number(desk + at.STORE)
    slot = np.int64(mixed) & mask
    while True:
        found = number(table + 8 * slot)
        if found < 0:
            return table + 8 * slot  # type: ignore[no-any-return]
        is_like = word(hashes + 8 * found) == mixed and number(texts + 16 * found + 8) == length
        if is_like and _is_same(place, store + number(texts + 16 * found), length):
            return table + 8 * slot  # type: ignore[no-any-return]
        slot = (slot + 1) & mask


@machine
def known(place: int, length: int, desk: int) -> int:
    """The number of the text, or -1 where it was not met before."""
    return number(_slot(place, length, _hash(place, length), desk))  # type: ignore[no-any-return]


@machine
def intern(place: int, length: int, desk: int) -> int:
    """The number of the text, a new one where it was not met before; -1 where it is new and there is no room for it.

    A text is followed by PAD bytes of the store, as it is compared LONG bytes at a time.
    """
    mixed = _hash(place, length)
    slot = _slot(place, length, mixed, desk)
    found = number(slot)
    if found >= 0:
        return found  # type: ignore[no-any-return]
    new, used = number(desk + at.TEXTS), number(desk + at.TEXT_BYTES)
    if new >= number(desk + at.MAX_TEXTS) or length + at.PAD > number(desk + at.STORE_BYTES) - used:
        return -1
    put(slot, new)
    put(number(desk + at.HASHES) + 8 * new, mixed)
    put(number(desk + at.KNOWN) + 16 * new, used)
    put(number(desk + at.KNOWN) + 16 * new + 8, length)
    for i in range(length):
        put_byte(number(desk + at.STORE) + used + i, byte(place + i))
    put(desk + at.TEXTS, new + 1)
    put(desk + at.TEXT_BYTES, used + length)
    return new  # type: ignore[no-any-return]


@machine
def index(desk: int) -> None:
    """Puts the texts into a table that is new."""
    table, mask, hashes = number(desk + at.TABLE), number(desk + at.TABLE_MASK), number(desk + at.HASHES)
    for text in range(number(desk + at.INDEXED), number(desk + at.TEXTS)):
        slot = number(hashes + 8 * text) & mask
        while number(table + 8 * slot) >= 0:
            slot = (slot + 1) & mask
        put(table + 8 * slot, text)
    put(desk + at.INDEXED, number(desk + at.TEXTS))
