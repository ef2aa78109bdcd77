"""The machine code for one record: a list of types, then a list of values."""

# ruff: noqa: C901, PLR0911, PLR0912, PLR1714, PLR2004 (the format's numbers are named beside them)

from __future__ import annotations

from xsp_ingest.machine.byte_order import big_endian, put_real
from xsp_ingest.machine.intrinsics import byte, machine, number, put, put_byte
from xsp_ingest.machine.sqlite import scan_state as at
from xsp_ingest.machine.sqlite.scan_state import (
    DONE,
    ENTRY_WORDS,
    INTEGER,
    KIND,
    MISSING,
    NULLS,
    SKIPPED,
    TEXT,
    TEXT_BYTES,
    TEXT_ROOM,
    TEXT_USED,
    UNSURE,
    VALUES,
)

__all__ = ["ASK", "SIZES", "blank", "put_missing", "record", "varint"]

ASK = 2
"""What SQLite must be asked for: a row that goes on on other pages, or holds another type."""

SIZES = 0x0088643210
"""Bytes of the values of types 0 to 9, four bits each."""

_NOT_FINITE = 0x7FF


@machine
def varint(offset: int) -> tuple[int, int]:
    """A number of up to nine bytes, and the place behind it."""
    value = 0
    for i in range(8):
        char = byte(offset + i)
        value = value << 7 | char & 127
        if char < 128:
            return value, offset + i + 1
    if value >= 1 << 55:
        value -= 1 << 56
    return value << 8 | byte(offset + 8), offset + 9


@machine
def _copy_text(entry: int, offset: int, length: int, row: int) -> int:
    """Takes a text, or none of it where it is longer than the room that is left; behind that are PAD bytes more."""
    used = number(entry + 8 * TEXT_USED)
    if length > number(entry + 8 * TEXT_ROOM) - used:
        return UNSURE
    target = number(entry + 8 * TEXT_BYTES) + used
    for i in range(0, length, 8):
        put(target + i, number(offset + i))
    put(entry + 8 * TEXT_USED, used + length)
    put(number(entry + 8 * VALUES) + 8 * (row + 1), used + length)
    return DONE


@machine
def put_missing(entry: int, kind: int, row: int) -> None:
    put_byte(number(entry + 8 * MISSING) + row, 1)
    put(entry + 8 * NULLS, number(entry + 8 * NULLS) + 1)
    if kind == TEXT:
        _copy_text(entry, entry, 0, row)


@machine
def _put_value(entry: int, kind: int, serial: int, offset: int, row: int) -> int:
    """Takes one value, which lies within the page, into its column."""
    if serial == 0:
        put_missing(entry, kind, row)
        return DONE
    if serial == 10 or serial == 11:
        return UNSURE
    if kind == TEXT:
        if serial < 12:
            return ASK
        return _copy_text(entry, offset, (serial - 12) >> 1, row)
    target = number(entry + 8 * VALUES) + 8 * row
    if serial >= 12:
        if kind == INTEGER:
            return ASK
        put_missing(entry, kind, row)
        return DONE
    if serial == 7:
        if kind == INTEGER:
            return ASK
        bits = big_endian(offset)
        if (bits >> 52) & _NOT_FINITE == _NOT_FINITE and bits & ((1 << 52) - 1) != 0:
            put_missing(entry, kind, row)  # SQLite has no NaN
        else:
            put(target, bits)
        return DONE
    value = serial - 8
    if serial < 8:
        value = big_endian(offset) >> (64 - 8 * ((SIZES >> (4 * serial)) & 15))
    if kind == INTEGER:
        put(target, value)
    else:
        put_real(target, value)
    return DONE


@machine
def blank(plan: int, columns: int, row: int) -> None:
    """Gives the texts of a row that is asked for later their ends."""
    for column in range(columns):
        entry = plan + 8 * ENTRY_WORDS * column
        if number(entry + 8 * KIND) == TEXT:
            _copy_text(entry, entry, 0, row)


@machine
def record(plan: int, columns: int, body: int, payload: int, local: int, row: int) -> int:
    """Takes the wanted columns of one record; DONE, UNSURE or ASK."""
    data, offset = varint(body)
    if data > payload or offset - body > data:
        return UNSURE
    if data > local:
        return ASK
    stop = body + data
    for column in range(columns):
        entry = plan + 8 * ENTRY_WORDS * column
        kind = number(entry + 8 * KIND)
        if offset >= stop:  # the record is older than the column
            if offset > stop or data != payload:
                return UNSURE
            if kind != SKIPPED:
                if number(entry + 8 * at.IS_NULL_WHERE_ABSENT) == 0:
                    return ASK
                put_missing(entry, kind, row)
            continue
        serial = byte(offset)
        offset += 1
        if serial >= 128:
            serial, offset = varint(offset - 1)
        if serial < 12:
            if serial < 0:
                return UNSURE
            size = (SIZES >> (4 * serial)) & 15
        else:
            size = (serial - 12) >> 1
        if size > payload - data:
            return UNSURE
        if kind != SKIPPED:
            if size > local - data:
                return ASK
            done = _put_value(entry, kind, serial, body + data, row)
            if done != DONE:
                return done
        data += size
    if offset > stop or (offset == stop and data != payload):
        return UNSURE
    return DONE
