"""The machine code: leaf pages of a table in, columns out.

Every place is held against the page before anything is read there, and the pages are followed by PAD bytes: at most two
numbers of up to nine bytes, or sixteen bytes of a record's head, are begun within the page. What is written has room:
rows are counted before a page is begun, rows to ask for and bytes of text one by one. The cells of a page take no more
bytes than it has: a few that lie on each other would be as many texts of the page's length. Numba compiles it once;
afterwards this module is not even imported (see `xsp_ingest.machine.native`).
"""

from __future__ import annotations

from xsp_ingest.machine.byte_order import pair
from xsp_ingest.machine.intrinsics import byte, machine, number, put
from xsp_ingest.machine.sqlite import scan_state as at
from xsp_ingest.machine.sqlite.records import blank, varint
from xsp_ingest.machine.sqlite.scan_state import DONE, OVERLAPPING, UNSURE
from xsp_ingest.machine.sqlite.shapes import record_by_shape

__all__ = ["read_leaves"]

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
