"""The machine code: leaf pages of a table in, columns out.

Every place is held against the page before anything is read there, and the pages are followed by PAD bytes: at most two
numbers of up to nine bytes, or sixteen bytes of a record's head, are begun within the page. What is written has room:
rows are counted before a page is begun, rows to ask for and bytes of text one by one. The cells of a page take no more
bytes than it has: a few that lie on each other would be as many texts of the page's length. Numba compiles it once;
afterwards this module is not even imported (see `xsp_ingest.machine.native`).
"""

# ruff: noqa: ANN401, C901, PLR0911, PLR0912, PLR1714, PLR2004
# (numba's and LLVM's builders are untyped; the format's numbers are named beside them)

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from xsp_ingest.machine.intrinsics import byte, machine, number, put, put_byte
from xsp_ingest.machine.sqlite import scan_state as at
from xsp_ingest.machine.sqlite.scan_state import (
    DONE,
    ENTRY_WORDS,
    INTEGER,
    KIND,
    MISSING,
    NULLS,
    OVERLAPPING,
    SKIPPED,
    TEXT,
    TEXT_BYTES,
    TEXT_ROOM,
    TEXT_USED,
    UNSURE,
    VALUES,
)

__all__ = [
    "ASK",
    "SIZES",
    "big_endian",
    "blank",
    "pair",
    "put_missing",
    "put_real",
    "read_leaves",
    "record",
    "record_by_shape",
    "varint",
]


# Loads and stores that only this format needs: numbers with their highest byte first, and real numbers.


def _big_endian_load(width: int) -> Any:
    """An intrinsic: the number of so many bits at an address, the byte there highest."""

    def load(_: Any, address: Any) -> Any:
        def emit(__: Any, builder: Any, ___: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], ir.IntType(width).as_pointer())
            return builder.zext(builder.bswap(builder.load(pointer, align=1)), ir.IntType(64))

        return types.int64(address), emit

    return intrinsic(load)


def _store_real() -> Any:
    """An intrinsic: writes a whole number to an address as a real one."""

    def store(_: Any, address: Any, value: Any) -> Any:
        def emit(context: Any, builder: Any, __: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], ir.DoubleType().as_pointer())
            builder.store(builder.sitofp(args[1], ir.DoubleType()), pointer, align=1)
            return context.get_dummy_value()

        return types.void(address, value), emit

    return intrinsic(store)


big_endian = _big_endian_load(64)
pair = _big_endian_load(16)
put_real = _store_real()


# One record: a list of types, then a list of values.

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


# Records that look like one before: where each value is, is known.


@machine
def _shape_of(state: int, body: int) -> int:
    """Where the shape of such a record would be kept."""
    mixed = (
        number(body) & number(state + 8 * at.FIRST_MASK) ^ (number(body + 8) & number(state + 8 * at.SECOND_MASK)) >> 3
    )
    mixed ^= mixed >> 31
    mixed ^= mixed >> 17
    mixed ^= mixed >> 9
    slot = (mixed ^ mixed >> 5) & (at.KEPT_SHAPES - 1)
    return number(state + 8 * at.SHAPES) + slot * number(state + 8 * at.SHAPE_BYTES)  # type: ignore[no-any-return]


@machine
def _is_of_shape(state: int, shape: int, body: int, local: int) -> bool:
    """Whether the record begins like those of the shape, and has as many bytes here as they have of head and values.

    So nothing is compared more than seven bytes behind the record.
    """
    if number(shape + 8 * at.SEEN) == 0 or number(shape + 8 * at.DATA_END) > local:
        return False
    full_words = number(state + 8 * at.FULL_WORDS)
    compared = shape + 8 * at.SHAPE_HEAD_WORDS
    for i in range(full_words):
        if number(body + 8 * i) != number(compared + 8 * i):
            return False
    last = number(body + 8 * full_words) & number(state + 8 * at.LAST_MASK)
    return last == number(compared + 8 * full_words)  # type: ignore[no-any-return]


@machine
def _take(state: int, shape: int, body: int, payload: int, row: int) -> bool:
    """Takes the wanted columns of a record of this shape, unless it is odd in another way."""
    if number(shape + 8 * at.IS_WHOLE_HEAD) != 0 and number(shape + 8 * at.DATA_END) != payload:
        return False
    step = shape + 8 * (at.SHAPE_HEAD_WORDS + number(state + 8 * at.FULL_WORDS) + 1)
    for _ in range(number(shape + 8 * at.STEPS)):
        shift = number(step + 8 * at.SHIFT)
        if shift >= 0:
            put(number(step + 8 * at.TARGET) + 8 * row, big_endian(body + number(step + 8 * at.OFFSET)) >> shift)
        elif shift == at.CONSTANT:
            put(number(step + 8 * at.TARGET) + 8 * row, number(step + 8 * at.EXTRA))
        else:
            put_missing(number(step + 8 * at.EXTRA), INTEGER, row)
        step += 8 * at.STEP_WORDS
    return True


@machine
def _keep_shape(state: int, plan: int, columns: int, shape: int, body: int) -> None:
    """Makes the shape that of this record, which is sound, if its wanted columns are whole numbers or null."""
    put(shape + 8 * at.SEEN, 0)
    head = byte(body)
    if head >= 128 or head <= columns:
        return
    full_words = number(state + 8 * at.FULL_WORDS)
    compared = shape + 8 * at.SHAPE_HEAD_WORDS
    step = compared + 8 * (full_words + 1)
    data, steps = head, 0
    for column in range(columns):
        serial = byte(body + 1 + column)
        if serial >= 128:
            return
        size = (serial - 12) >> 1 if serial >= 12 else (SIZES >> (4 * serial)) & 15
        entry = plan + 8 * ENTRY_WORDS * column
        if number(entry + 8 * KIND) != SKIPPED:
            if serial == 7 or serial >= 10:
                return
            put(step + 8 * at.TARGET, number(entry + 8 * VALUES))
            put(step + 8 * at.OFFSET, data)
            put(step + 8 * at.SHIFT, at.NULL if serial == 0 else at.CONSTANT if serial >= 8 else 64 - 8 * size)
            put(step + 8 * at.EXTRA, entry if serial == 0 else serial - 8)
            step += 8 * at.STEP_WORDS
            steps += 1
        data += size
    for i in range(full_words):
        put(compared + 8 * i, number(body + 8 * i))
    put(compared + 8 * full_words, number(body + 8 * full_words) & number(state + 8 * at.LAST_MASK))
    put(shape + 8 * at.DATA_END, data)
    put(shape + 8 * at.IS_WHOLE_HEAD, 1 if head == columns + 1 else 0)
    put(shape + 8 * at.STEPS, steps)
    put(shape + 8 * at.SEEN, 1)


@machine
def record_by_shape(state: int, plan: int, columns: int, body: int, payload: int, local: int, row: int) -> int:
    """What `_record` does, faster where a record of the same shape came before."""
    if number(state + 8 * at.SHAPES) == 0:
        return record(plan, columns, body, payload, local, row)
    shape = _shape_of(state, body)
    if _is_of_shape(state, shape, body, local) and _take(state, shape, body, payload, row):
        return DONE
    done = record(plan, columns, body, payload, local, row)
    surprises = number(state + 8 * at.SURPRISES)
    if done == DONE and (surprises < 64 or surprises & 7 == 0):  # where shapes seldom come again, few are worth keeping
        _keep_shape(state, plan, columns, shape, body)
    put(state + 8 * at.SURPRISES, surprises + 1)
    return done


_LEAF = 13


@machine
def _local_bytes(payload: int, usable: int) -> int:
    """How much of a record is on its page."""
    if payload <= usable - 35:
        return payload
    min_bytes = (usable - 12) * 32 // 255 - 23
    fitting = min_bytes + (payload - min_bytes) % (usable - 4)
    return fitting if fitting <= usable - 35 else min_bytes


@machine
def _leaf(state: int, plan: int, page: int) -> int:
    usable, columns = number(state + 8 * at.USABLE), number(state + 8 * at.COLUMNS)
    row, previous = number(state + 8 * at.ROWS), number(state + 8 * at.PREVIOUS)
    rowids = number(state + 8 * at.ROWIDS)
    cells = pair(page + 3)
    directory_end = 8 + 2 * cells
    if byte(page) != _LEAF or cells == 0 or directory_end > usable or row + cells > number(state + 8 * at.MAX_ROWS):
        return UNSURE
    free = usable - directory_end
    for i in range(cells):
        cell = pair(page + 8 + 2 * i)
        if cell < directory_end or cell > usable - 4:
            return UNSURE
        payload, offset = varint(page + cell)
        rowid, body = varint(offset)
        local = _local_bytes(payload, usable)
        end = body + local + (4 if local < payload else 0)
        if payload < 1 or rowid <= previous or end > page + usable:
            return UNSURE
        free -= end - page - cell
        if free < 0:
            return OVERLAPPING
        done = record_by_shape(state, plan, columns, body, payload, local, row)
        if done != DONE:
            deferred = number(state + 8 * at.DEFERRED)
            if done == UNSURE or deferred == number(state + 8 * at.MAX_DEFERRED):
                return UNSURE
            blank(plan, columns, row)
            put(number(state + 8 * at.DEFERRED_ROWS) + 8 * deferred, row)
            put(state + 8 * at.DEFERRED, deferred + 1)
        put(rowids + 8 * row, rowid)
        previous = rowid
        row += 1
    put(state + 8 * at.ROWS, row)
    put(state + 8 * at.PREVIOUS, previous)
    return DONE


@machine
def read_leaves(state: int, plan: int, pages: int, slots: int, count: int) -> int:
    """Adds the rows of so many leaf pages, which lie one behind the other; `slots` says which comes when."""
    page_bytes = number(state + 8 * at.PAGE_BYTES)
    for i in range(count):
        done = _leaf(state, plan, pages + page_bytes * number(slots + 8 * i))
        if done != DONE:
            return done
    return DONE
