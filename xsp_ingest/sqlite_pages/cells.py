"""The machine code: leaf pages of a table in, columns out.

Every place is held against the page before anything is read there, and the pages are followed by PAD bytes, as a number
of up to nine bytes is begun within the page. Numba compiles it once; afterwards this module is not even imported (see
`xsp_ingest.native`).
"""

# ruff: noqa: C901, PLR0911, PLR0912, PLR1714, PLR2004
# (the format's numbers are named beside them; chained comparisons compile faster than `in`)

from __future__ import annotations

from xsp_ingest.sqlite_pages import desk as at
from xsp_ingest.sqlite_pages.desk import (
    DONE,
    ENTRY_WORDS,
    KIND,
    MISSING,
    NULLS,
    SKIPPED,
    TEXT,
    TEXT_BYTES,
    TEXT_USED,
    UNSURE,
    VALUES,
    WHOLE,
)
from xsp_ingest.sqlite_pages.memory import big_endian, pair, put_real
from xsp_ingest.torch_profiler.scan_bytes import byte, machine, number, put, put_byte

__all__ = ["read_leaves"]

_LEAF = 13
_ASK = 2  # a row that SQLite must be asked for: it goes on on other pages, or holds another type
_SIZES = 0x0088643210  # bytes of the values of types 0 to 9, four bits each
_NOT_FINITE = 0x7FF


@machine
def _varint(place: int) -> tuple[int, int]:
    """A number of up to nine bytes, and the place behind it."""
    value = 0
    for i in range(8):
        letter = byte(place + i)
        value = value << 7 | letter & 127
        if letter < 128:
            return value, place + i + 1
    if value >= 1 << 55:
        value -= 1 << 56
    return value << 8 | byte(place + 8), place + 9


@machine
def _local_bytes(payload: int, usable: int) -> int:
    """How much of a record is on its page."""
    if payload <= usable - 35:
        return payload
    least = (usable - 12) * 32 // 255 - 23
    fitting = least + (payload - least) % (usable - 4)
    return fitting if fitting <= usable - 35 else least


@machine
def _copy_text(entry: int, place: int, length: int, row: int) -> None:
    used = number(entry + 8 * TEXT_USED)
    target = number(entry + 8 * TEXT_BYTES) + used
    for i in range(0, length, 8):
        put(target + i, number(place + i))
    put(entry + 8 * TEXT_USED, used + length)
    put(number(entry + 8 * VALUES) + 8 * (row + 1), used + length)


@machine
def _put_missing(entry: int, kind: int, row: int) -> None:
    put_byte(number(entry + 8 * MISSING) + row, 1)
    put(entry + 8 * NULLS, number(entry + 8 * NULLS) + 1)
    if kind == TEXT:
        _copy_text(entry, entry, 0, row)


@machine
def _put_value(entry: int, kind: int, serial: int, place: int, row: int) -> int:
    """Takes one value, which lies within the page, into its column."""
    if serial == 0:
        _put_missing(entry, kind, row)
        return DONE
    if serial == 10 or serial == 11:
        return UNSURE
    if kind == TEXT:
        if serial < 12:
            return _ASK
        _copy_text(entry, place, (serial - 12) >> 1, row)
        return DONE
    target = number(entry + 8 * VALUES) + 8 * row
    if serial >= 12:
        if kind == WHOLE:
            return _ASK
        _put_missing(entry, kind, row)
        return DONE
    if serial == 7:
        if kind == WHOLE:
            return _ASK
        bits = big_endian(place)
        if (bits >> 52) & _NOT_FINITE == _NOT_FINITE and bits & ((1 << 52) - 1) != 0:
            _put_missing(entry, kind, row)  # SQLite has no NaN
        else:
            put(target, bits)
        return DONE
    value = serial - 8
    if serial < 8:
        value = big_endian(place) >> (64 - 8 * ((_SIZES >> (4 * serial)) & 15))
    if kind == WHOLE:
        put(target, value)
    else:
        put_real(target, value)
    return DONE


@machine
def _blank(plan: int, columns: int, row: int) -> None:
    """Gives the texts of a row that is asked for later their ends."""
    for column in range(columns):
        entry = plan + 8 * ENTRY_WORDS * column
        if number(entry + 8 * KIND) == TEXT:
            _copy_text(entry, entry, 0, row)


@machine
def _record(plan: int, columns: int, body: int, payload: int, local: int, row: int) -> int:
    """Takes the wanted columns of one record; DONE, UNSURE or _ASK."""
    data, place = _varint(body)
    if data > payload or place - body > data:
        return UNSURE
    if data > local:
        return _ASK
    stop = body + data
    for column in range(columns):
        entry = plan + 8 * ENTRY_WORDS * column
        kind = number(entry + 8 * KIND)
        if place >= stop:  # the record is older than the column
            if place > stop or data != payload:
                return UNSURE
            if kind != SKIPPED:
                if number(entry + 8 * at.IS_NULL_WHERE_ABSENT) == 0:
                    return _ASK
                _put_missing(entry, kind, row)
            continue
        serial = byte(place)
        place += 1
        if serial >= 128:
            serial, place = _varint(place - 1)
        if serial < 12:
            if serial < 0:
                return UNSURE
            size = (_SIZES >> (4 * serial)) & 15
        else:
            size = (serial - 12) >> 1
        if size > payload - data:
            return UNSURE
        if kind != SKIPPED:
            if size > local - data:
                return _ASK
            done = _put_value(entry, kind, serial, body + data, row)
            if done != DONE:
                return done
        data += size
    if place > stop or (place == stop and data != payload):
        return UNSURE
    return DONE


@machine
def _shape_of(desk: int, body: int) -> int:
    """Where the shape of such a record would be kept."""
    mixed = (
        number(body) & number(desk + 8 * at.FIRST_MASK) ^ (number(body + 8) & number(desk + 8 * at.SECOND_MASK)) >> 3
    )
    mixed ^= mixed >> 31
    mixed ^= mixed >> 17
    mixed ^= mixed >> 9
    slot = (mixed ^ mixed >> 5) & (at.KEPT_SHAPES - 1)
    return number(desk + 8 * at.SHAPES) + slot * number(desk + 8 * at.SHAPE_BYTES)  # type: ignore[no-any-return]


@machine
def _is_of_shape(desk: int, shape: int, body: int) -> bool:
    if number(shape + 8 * at.KNOWN) == 0:
        return False
    words = number(desk + 8 * at.FULL_WORDS)
    compared = shape + 8 * at.SHAPE_HEAD_WORDS
    for i in range(words):
        if number(body + 8 * i) != number(compared + 8 * i):
            return False
    last = number(body + 8 * words) & number(desk + 8 * at.LAST_MASK)
    return last == number(compared + 8 * words)  # type: ignore[no-any-return]


@machine
def _take(desk: int, shape: int, body: int, payload: int, local: int, row: int) -> bool:
    """Takes the wanted columns of a record of this shape, unless it is odd in another way."""
    end = number(shape + 8 * at.DATA_END)
    if end > local or (number(shape + 8 * at.IS_WHOLE_HEAD) != 0 and end != payload):
        return False
    step = shape + 8 * (at.SHAPE_HEAD_WORDS + number(desk + 8 * at.FULL_WORDS) + 1)
    for _ in range(number(shape + 8 * at.STEPS)):
        shift = number(step + 8 * at.SHIFT)
        if shift >= 0:
            put(number(step + 8 * at.TARGET) + 8 * row, big_endian(body + number(step + 8 * at.OFFSET)) >> shift)
        elif shift == at.CONSTANT:
            put(number(step + 8 * at.TARGET) + 8 * row, number(step + 8 * at.EXTRA))
        else:
            _put_missing(number(step + 8 * at.EXTRA), WHOLE, row)
        step += 8 * at.STEP_WORDS
    return True


@machine
def _keep_shape(desk: int, plan: int, columns: int, shape: int, body: int) -> None:
    """Makes the shape that of this record, which is sound, if its wanted columns are whole numbers or null."""
    put(shape + 8 * at.KNOWN, 0)
    head = byte(body)
    if head >= 128 or head <= columns:
        return
    words = number(desk + 8 * at.FULL_WORDS)
    compared = shape + 8 * at.SHAPE_HEAD_WORDS
    step = compared + 8 * (words + 1)
    data, steps = head, 0
    for column in range(columns):
        serial = byte(body + 1 + column)
        if serial >= 128:
            return
        size = (serial - 12) >> 1 if serial >= 12 else (_SIZES >> (4 * serial)) & 15
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
    for i in range(words):
        put(compared + 8 * i, number(body + 8 * i))
    put(compared + 8 * words, number(body + 8 * words) & number(desk + 8 * at.LAST_MASK))
    put(shape + 8 * at.DATA_END, data)
    put(shape + 8 * at.IS_WHOLE_HEAD, 1 if head == columns + 1 else 0)
    put(shape + 8 * at.STEPS, steps)
    put(shape + 8 * at.KNOWN, 1)


@machine
def _record_by_shape(desk: int, plan: int, columns: int, body: int, payload: int, local: int, row: int) -> int:
    """What `_record` does, faster where a record of the same shape came before."""
    if number(desk + 8 * at.SHAPES) == 0:
        return _record(plan, columns, body, payload, local, row)
    shape = _shape_of(desk, body)
    if _is_of_shape(desk, shape, body) and _take(desk, shape, body, payload, local, row):
        return DONE
    done = _record(plan, columns, body, payload, local, row)
    surprises = number(desk + 8 * at.SURPRISES)
    if done == DONE and (surprises < 64 or surprises & 7 == 0):  # where shapes seldom come again, few are worth keeping
        _keep_shape(desk, plan, columns, shape, body)
    put(desk + 8 * at.SURPRISES, surprises + 1)
    return done


@machine
def _leaf(desk: int, plan: int, page: int) -> int:
    usable, columns = number(desk + 8 * at.USABLE), number(desk + 8 * at.COLUMNS)
    row, previous = number(desk + 8 * at.ROWS), number(desk + 8 * at.PREVIOUS)
    rowids = number(desk + 8 * at.ROWIDS)
    cells = pair(page + 3)
    directory_end = 8 + 2 * cells
    if byte(page) != _LEAF or cells == 0 or directory_end > usable or row + cells > number(desk + 8 * at.MOST_ROWS):
        return UNSURE
    for i in range(cells):
        cell = pair(page + 8 + 2 * i)
        if cell < directory_end or cell > usable - 4:
            return UNSURE
        payload, place = _varint(page + cell)
        rowid, body = _varint(place)
        if payload < 1 or rowid <= previous:
            return UNSURE
        local = _local_bytes(payload, usable)
        if body + local + (4 if local < payload else 0) > page + usable:
            return UNSURE
        done = _record_by_shape(desk, plan, columns, body, payload, local, row)
        if done != DONE:
            asked = number(desk + 8 * at.ASKED)
            if done == UNSURE or asked == number(desk + 8 * at.MOST_ASKED):
                return UNSURE
            _blank(plan, columns, row)
            put(number(desk + 8 * at.WHERE_ASKED) + 8 * asked, row)
            put(desk + 8 * at.ASKED, asked + 1)
        put(rowids + 8 * row, rowid)
        previous = rowid
        row += 1
    put(desk + 8 * at.ROWS, row)
    put(desk + 8 * at.PREVIOUS, previous)
    return DONE


@machine
def read_leaves(desk: int, plan: int, pages: int, slots: int, count: int) -> int:
    """Adds the rows of so many leaf pages, which lie one behind the other; `slots` says which comes when."""
    page_bytes = number(desk + 8 * at.PAGE_BYTES)
    for i in range(count):
        done = _leaf(desk, plan, pages + page_bytes * number(slots + 8 * i))
        if done != DONE:
            return done
    return DONE
