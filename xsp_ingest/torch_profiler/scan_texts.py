"""Texts for the compiled scanner: each distinct one kept once, found again by its hash."""

from __future__ import annotations

import numpy as np

from xsp_ingest.torch_profiler import scan_desk as at
from xsp_ingest.torch_profiler.scan_bytes import byte, machine, masked, number, put, put_byte, word

__all__ = ["MIX", "MIX_2", "index", "intern"]

MIX, MIX_2 = np.uint64(at.MIX), np.uint64(at.MIX_2)


@machine
def _hash(place: int, length: int) -> np.uint64:
    mixed = np.uint64(length) * MIX_2
    while length > 0:
        mixed = (mixed ^ masked(place, length)) * MIX
        mixed ^= mixed >> np.uint64(32)
        place += 8
        length -= 8
    return mixed


@machine
def _is_same(place: int, other: int, length: int) -> bool:
    while length > 0:
        if masked(place, length) != masked(other, length):
            return False
        place += 8
        other += 8
        length -= 8
    return True


@machine
def intern(place: int, length: int, desk: int) -> int:
    """The number of the text, a new one where it was not met before."""
    mixed = _hash(place, length)
    table, mask = number(desk + at.TABLE), number(desk + at.TABLE_MASK)
    known, hashes, store = number(desk + at.KNOWN), number(desk + at.HASHES), number(desk + at.STORE)
    slot = np.int64(mixed) & mask
    while True:
        found = number(table + 8 * slot)
        if found < 0:
            break
        is_like = word(hashes + 8 * found) == mixed and number(known + 16 * found + 8) == length
        if is_like and _is_same(place, store + number(known + 16 * found), length):
            return found  # type: ignore[no-any-return]
        slot = (slot + 1) & mask
    new, used = number(desk + at.TEXTS), number(desk + at.TEXT_BYTES)
    put(table + 8 * slot, new)
    put(hashes + 8 * new, mixed)
    put(known + 16 * new, used)
    put(known + 16 * new + 8, length)
    for i in range(length):
        put_byte(store + used + i, byte(place + i))
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
