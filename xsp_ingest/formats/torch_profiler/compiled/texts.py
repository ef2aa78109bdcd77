"""Texts for the compiled scanner: each distinct one kept once, found again by its hash."""

from __future__ import annotations

import numpy as np

from xsp_ingest.formats.torch_profiler.compiled import scan_state as at
from xsp_ingest.machine.intrinsics import (
    LONG,
    byte,
    eight_bytes,
    leading_alike,
    machine,
    masked_word,
    number,
    put,
    put_byte,
)

__all__ = ["MIX", "MIX_2", "index", "intern", "number_of_text"]

MIX, MIX_2 = np.uint64(at.MIX), np.uint64(at.MIX_2)


@machine
def _hash(offset: int, length: int) -> np.uint64:
    """Of two halves at a time, which the processor mixes side by side."""
    mixed, other = np.uint64(length) * MIX_2, MIX
    while length > 8:  # noqa: PLR2004 (bytes of a word)
        mixed = (mixed ^ eight_bytes(offset)) * MIX
        other = (other ^ masked_word(offset + 8, length - 8)) * MIX_2
        mixed ^= mixed >> np.uint64(32)
        other ^= other >> np.uint64(29)
        offset += 16
        length -= 16
    if length > 0:
        mixed = (mixed ^ masked_word(offset, length)) * MIX
    mixed = (mixed ^ other) * MIX
    return mixed ^ (mixed >> np.uint64(32))


@machine
def _is_same(offset: int, other: int, length: int) -> bool:
    while length > LONG:
        if leading_alike(offset, other) < LONG:
            return False
        offset += LONG
        other += LONG
        length -= LONG
    return leading_alike(offset, other) >= length  # type: ignore[no-any-return]


@machine
def _slot(offset: int, length: int, mixed: np.uint64, state: int) -> int:
    """Where in the table the text is, or would be."""
    table, mask = number(state + at.TABLE), number(state + at.TABLE_MASK)
    texts, hashes, store = number(state + at.SEEN), number(state + at.HASHES), number(state + at.STORE)
    slot = np.int64(mixed) & mask
    while True:
        text_id = number(table + 8 * slot)
        if text_id < 0:
            return table + 8 * slot  # type: ignore[no-any-return]
        is_like = eight_bytes(hashes + 8 * text_id) == mixed and number(texts + 16 * text_id + 8) == length
        if is_like and _is_same(offset, store + number(texts + 16 * text_id), length):
            return table + 8 * slot  # type: ignore[no-any-return]
        slot = (slot + 1) & mask


@machine
def number_of_text(offset: int, length: int, state: int) -> int:
    """The number of the text, or -1 where it was not met before."""
    return number(_slot(offset, length, _hash(offset, length), state))  # type: ignore[no-any-return]


@machine
def intern(offset: int, length: int, state: int) -> int:
    """The number of the text, a new one where it was not met before; -1 where it is new and there is no room for it.

    A text is followed by PAD bytes of the store, as it is compared LONG bytes at a time.
    """
    mixed = _hash(offset, length)
    slot = _slot(offset, length, mixed, state)
    text_id = number(slot)
    if text_id >= 0:
        return text_id  # type: ignore[no-any-return]
    new, used = number(state + at.TEXTS), number(state + at.TEXT_BYTES)
    if new >= number(state + at.MAX_TEXTS) or length + at.PAD > number(state + at.STORE_BYTES) - used:
        return -1
    put(slot, new)
    put(number(state + at.HASHES) + 8 * new, mixed)
    put(number(state + at.SEEN) + 16 * new, used)
    put(number(state + at.SEEN) + 16 * new + 8, length)
    for i in range(length):
        put_byte(number(state + at.STORE) + used + i, byte(offset + i))
    put(state + at.TEXTS, new + 1)
    put(state + at.TEXT_BYTES, used + length)
    return new  # type: ignore[no-any-return]


@machine
def index(state: int) -> None:
    """Puts the texts into a table that is new."""
    table, mask, hashes = number(state + at.TABLE), number(state + at.TABLE_MASK), number(state + at.HASHES)
    for text in range(number(state + at.INDEXED), number(state + at.TEXTS)):
        slot = number(hashes + 8 * text) & mask
        while number(table + 8 * slot) >= 0:
            slot = (slot + 1) & mask
        put(table + 8 * slot, text)
    put(state + at.INDEXED, number(state + at.TEXTS))
