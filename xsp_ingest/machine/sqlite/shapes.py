"""The machine code for records that look like one before: where each value is, is known."""

# ruff: noqa: PLR2004 (the format's numbers are named beside them)

from __future__ import annotations

from xsp_ingest.machine.byte_order import big_endian
from xsp_ingest.machine.intrinsics import byte, machine, number, put
from xsp_ingest.machine.sqlite import scan_state as at
from xsp_ingest.machine.sqlite.records import SIZES, put_missing, record
from xsp_ingest.machine.sqlite.scan_state import DONE, ENTRY_WORDS, INTEGER, KIND, SKIPPED, VALUES

__all__ = ["record_by_shape"]


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
