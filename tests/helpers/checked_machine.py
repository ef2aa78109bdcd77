"""Machine code run by Python itself, every load and store of it held against the memory it was given."""

from __future__ import annotations

import ctypes
import struct
from types import FunctionType
from typing import TYPE_CHECKING, Any

from xsp_ingest.machine.sqlite import cells, reader, scan_state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import BinaryIO

    from numpy.typing import NDArray

    from xsp_ingest.machine.sqlite.reader import Layout, RowRange
    from xsp_model.columns.arrays import Ints

__all__ = ["OutsideError", "fill"]


class OutsideError(AssertionError):
    """A load or store beyond the memory."""


class _Memory:
    def __init__(self, read: Sequence[NDArray[Any]], written: Sequence[NDArray[Any]]) -> None:
        self._written = [(each.ctypes.data, each.nbytes) for each in written]
        self._read = [(each.ctypes.data, each.nbytes) for each in read] + self._written

    def load(self, address: int, form: str) -> Any:  # noqa: ANN401
        self._check(address, struct.calcsize(form), self._read)
        return struct.unpack(form, ctypes.string_at(address, struct.calcsize(form)))[0]

    def store(self, address: int, form: str, value: float) -> None:
        content = struct.pack(form, value)  # refuses what does not fit
        self._check(address, len(content), self._written)
        ctypes.memmove(address, content, len(content))

    @staticmethod
    def _check(address: int, length: int, spans: Sequence[tuple[int, int]]) -> None:
        if not any(start <= address and address + length <= start + size for start, size in spans):
            raise OutsideError


def _interpreted(memory: _Memory) -> Callable[..., int]:
    machine = dict(vars(cells))
    names: dict[str, Any] = {
        **machine,
        "byte": lambda address: memory.load(address, "B"),
        "number": lambda address: memory.load(address, "<q"),
        "pair": lambda address: memory.load(address, ">H"),
        "big_endian": lambda address: memory.load(address, ">q"),
        "put": lambda address, value: memory.store(address, "<q", value),
        "put_byte": lambda address, value: memory.store(address, "B", value),
        "put_real": lambda address, value: memory.store(address, "<d", float(value)),
    }
    for name, value in machine.items():
        if hasattr(value, "py_func"):
            names[name] = FunctionType(value.py_func.__code__, names)
    read_leaves: Callable[..., int] = names["read_leaves"]
    return read_leaves


def fill(file: BinaryIO, pages: Layout, part: RowRange, page_numbers: Ints) -> None:
    """What `reader._fill` does."""
    room, span = part.room, slice(part.first, part.first + int(part.state[scan_state.MAX_ROWS]))
    columns: list[NDArray[Any]] = [room.rowids, *room.values.values(), *room.missing.values()]
    kept: list[NDArray[Any]] = [
        part.state,
        part.plan,
        part.deferred,
        part.shapes,
        *part.ends.values(),
        *part.bytes.values(),
    ]
    for content, slots in reader._pieces(file, pages, page_numbers):
        memory = _Memory([content, slots], [*(each[span] for each in columns), *kept])
        addresses = (each.ctypes.data for each in (part.state, part.plan, content, slots))
        reader.check(file, _interpreted(memory)(*addresses, len(slots)))
