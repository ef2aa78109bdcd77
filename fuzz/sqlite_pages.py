"""Damage to the pages of a SQLite file, much of which SQLite overlooks: cells, their numbers, trees and chains."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

__all__ = ["damage", "stacked_cells", "varint"]

_LEAF, _INTERIOR = 13, 5
_HEADS = {_LEAF: 8, _INTERIOR: 12}
_NUMBERS = (0, 1, 3, 4, 12, 13, 127, 128, 16383, 16384, 65500, 1 << 21, (1 << 31) - 1, 1 << 55, (1 << 63) - 1, 1 << 63)
_SERIALS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 69, 126, 127)


def varint(value: int, *, width: int = 1) -> bytes:
    """A number as SQLite writes it, in at least so many bytes, up to eight; in nine where it has more than 56 bits."""
    value &= (1 << 64) - 1  # rowids may be negative
    if value >> 56:
        return varint(value >> 8 | 1 << 55, width=8)[:8] + bytes([value & 255])
    septets = [value & 127]
    while value := value >> 7:
        septets.append(value & 127 | 128)
    septets += [128] * (width - len(septets))
    return bytes(reversed(septets))


def stacked_cells(size: int, cells: int, last_rowid: int, nulls: int) -> bytes:
    """A leaf with cells of rising rowids, each of which begins within the one before and goes on to the page's end.

    A record is so many nulls and a text.
    """
    page = bytearray(size)
    behind = 8 + 2 * cells
    page[0], page[3:5], page[5:7] = _LEAF, cells.to_bytes(2, "big"), behind.to_bytes(2, "big")
    for i in range(cells):
        rowid = varint(max(last_rowid - cells + 1 + i, 0))
        payload = min(size - behind - 3 - len(rowid), size - 35)
        text = max(payload - nulls - 4, 0)
        cell = varint(payload, width=3) + rowid + bytes([4 + nulls]) + bytes(nulls) + varint(13 + 2 * text, width=3)
        page[behind : behind + len(cell)] = cell
        page[8 + 2 * i : 10 + 2 * i] = (behind & 65535).to_bytes(2, "big")
        behind += len(cell)
    return bytes(page[:size])


def damage(content: bytes, random: Random) -> bytes | None:
    """The file with up to eight changes; None where it has no pages to speak of."""
    size = int.from_bytes(content[16:18], "big")
    size = 65536 if size == 1 else size
    if size < 512 or len(content) < 2 * size:
        return None
    changed = bytearray(content)
    for _ in range(random.choice([1, 1, 2, 8])):
        _change(changed, size, random)
    return bytes(changed[: len(content)])


def _change(content: bytearray, size: int, random: Random) -> None:
    starts = range(size, len(content) - size + 1, size)
    trees = [start for start in starts if content[start] in _HEADS]
    leaves = [start for start in trees if content[start] == _LEAF]
    if not leaves:
        return
    start = random.choice(leaves if random.random() < 0.8 else trees)
    actions: list[Callable[[bytearray, int, int, Random], None]] = [
        _share, _move, _stack, _stack, _number, _serials, _head, _chain, _child, _copy, _file_head,
    ]  # fmt: skip
    random.choice(actions)(content, start, size, random)


def _cells(content: bytearray, start: int) -> list[int]:
    """Where the page says that its cells begin."""
    head = start + _HEADS.get(content[start], 8)
    count = min(int.from_bytes(content[start + 3 : start + 5], "big"), 4000)
    return [int.from_bytes(content[at : at + 2], "big") for at in range(head, head + 2 * count, 2)]


def _point(content: bytearray, start: int, cell: int, target: int) -> None:
    at = start + _HEADS.get(content[start], 8) + 2 * cell
    content[at : at + 2] = (target & 65535).to_bytes(2, "big")


def _after(content: bytearray, at: int) -> int:
    """Behind the number of up to nine bytes."""
    for i in range(8):
        if at + i >= len(content) or content[at + i] < 128:
            return at + i + 1
    return at + 9


def _share(content: bytearray, start: int, _: int, random: Random) -> None:
    """A cell begins where another does, or many do."""
    if cells := _cells(content, start):
        target = random.choice(cells)
        for cell in random.sample(range(len(cells)), random.choice([1, len(cells)])):
            _point(content, start, cell, target)


def _move(content: bytearray, start: int, size: int, random: Random) -> None:
    """A cell begins a little earlier or later, anywhere, or just before the page's end."""
    if cells := _cells(content, start):
        cell = random.randrange(len(cells))
        near = cells[cell] + random.choice([-9, -2, -1, 1, 2, 9])
        _point(content, start, cell, random.choice([near, random.randrange(size), size - random.randrange(12)]))


def _stack(content: bytearray, start: int, size: int, random: Random) -> None:
    """Cells lie on each other; their rowids fit between those of the pages around."""
    cells = _cells(content, start)
    if content[start] != _LEAF or not cells:
        return
    first = min(start + cells[0], len(content) - 1)
    rowid_at = _after(content, first)
    record = _after(content, rowid_at)
    rowid = 0
    for byte in content[rowid_at:record]:
        rowid = rowid << 7 | byte & 127
    columns = content[record] - 1 if record < len(content) and content[record] < 60 else 3
    many = random.choice([1, 2, 3, 20, size // 30])
    content[start : start + size] = stacked_cells(size, many, rowid + random.choice([0, many]), max(columns - 1, 0))


def _number(content: bytearray, start: int, _: int, random: Random) -> None:
    """A cell's length or rowid is another one."""
    if cells := _cells(content, start):
        at = start + random.choice(cells) + (4 if content[start] == _INTERIOR else 0)
        at = random.choice([at, at, _after(content, at)])
        hostile = varint(random.choice(_NUMBERS), width=random.choice([1, 2, 8]))
        content[at : at + len(hostile)] = hostile


def _serials(content: bytearray, start: int, _: int, random: Random) -> None:
    """A record's head has another length, or other types of values; sometimes all cells of the page alike."""
    cells = _cells(content, start)
    if not cells:
        return
    at, what = random.randrange(8), random.choice([*[bytes([n]) for n in _SERIALS], varint(random.choice(_NUMBERS))])
    for cell in random.choice([cells, [random.choice(cells)]]):
        head = _after(content, _after(content, start + cell))
        content[head + at : head + at + len(what)] = what


def _head(content: bytearray, start: int, size: int, random: Random) -> None:
    """The page's kind, number of cells, or where its free bytes and content begin."""
    at = random.choice([0, 1, 3, 3, 3, 5, 7])
    value = random.choice([0, 1, 2, 5, 13, len(_cells(content, start)) + 1, (size - 8) // 2, size // 6, 65535])
    content[start + at : start + at + 2] = value.to_bytes(2, "big") if at in {1, 3, 5} else bytes([value & 255, 0])


def _chain(content: bytearray, start: int, size: int, random: Random) -> None:
    """A record goes on on a page that is its own, none, or any other; or that page goes on in a circle."""
    pages = len(content) // size
    target = random.choice([0, 1, start // size + 1, random.randrange(pages + 2), 0xFFFFFFFF]).to_bytes(4, "big")
    if cells := _cells(content, start):
        cell = start + random.choice(cells)
        length = varint(random.choice([size - 34, size, 5 * size, 1 << 31]), width=3)
        content[cell : cell + len(length)] = length
        local = ((size - 12) * 32 // 255 - 23 + _after(content, cell + len(length))) & ~3
        content[local : local + 4] = target
    other = random.randrange(pages) * size
    if other and content[other] not in _HEADS:
        content[other : other + 4] = target


def _child(content: bytearray, start: int, size: int, random: Random) -> None:
    """An interior page has another child; else the list of free pages names this one."""
    page = random.choice([0, 1, start // size + 1, random.randrange(len(content) // size + 2)]).to_bytes(4, "big")
    if content[start] == _INTERIOR:
        at = start + random.choice([8, *_cells(content, start)])
        content[at : at + 4] = page
    else:
        content[32:36] = (start // size + 1).to_bytes(4, "big")
        content[36:40] = random.choice([1, 2, 0xFFFFFFFF]).to_bytes(4, "big")


def _copy(content: bytearray, start: int, size: int, random: Random) -> None:
    """Another page is this one once more."""
    other = random.randrange(1, len(content) // size) * size
    content[other : other + size] = content[start : start + size]


def _file_head(content: bytearray, _: int, size: int, random: Random) -> None:
    """The size of pages, the bytes reserved in each, the number of pages."""
    if random.random() < 0.5:
        content[20] = random.choice([0, 1, 8, 32, 255])
    elif random.random() < 0.5:
        content[16:18] = random.choice([1, 512, 1024, size // 2 & 65535, size * 2 & 65535]).to_bytes(2, "big")
    else:
        content[28:32] = random.choice([0, 1, len(content) // size - 1, 0xFFFFFFFF]).to_bytes(4, "big")
