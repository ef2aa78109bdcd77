"""The packets of a Perfetto trace, by the numbers that fields have in its schema, and their wire format."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from xsp_analyze.export.target import Sink

__all__ = ["Packets", "double", "fixed64", "message", "number", "text"]

# Protobuf's wire format, as much of it as Perfetto's packets need (protobuf.dev, "Encoding").

_CONTINUES, _SEVEN_BITS = 0x80, 7
_TWO_TO_64 = 1 << 64
_VARINT, _EIGHT_BYTES, _LENGTH = 0, 1, 2


def number(field: int, value: int) -> bytes:
    """An integer; negative ones as the ten bytes of their two's complement, as int32 and int64 have them."""
    return _key(field, _VARINT) + _varint(value % _TWO_TO_64)


def fixed64(field: int, value: int) -> bytes:
    """An integer in eight bytes."""
    return _key(field, _EIGHT_BYTES) + struct.pack("<Q", value)


def double(field: int, value: float) -> bytes:
    """A floating point number."""
    return _key(field, _EIGHT_BYTES) + struct.pack("<d", value)


def text(field: int, value: str) -> bytes:
    """A text in UTF-8; what UTF-8 cannot hold is a question mark."""
    return message(field, value.encode(errors="replace"))


def message(field: int, content: bytes) -> bytes:
    """A message, or bytes."""
    return _key(field, _LENGTH) + _varint(len(content)) + content


@lru_cache(maxsize=1024)
def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _varint(value: int) -> bytes:
    if value < _CONTINUES:
        return bytes((value,))
    out = bytearray()
    while value >= _CONTINUES:
        out.append(value & (_CONTINUES - 1) | _CONTINUES)
        value >>= _SEVEN_BITS
    out.append(value)
    return bytes(out)


# Schema: `protos/perfetto/trace` of Perfetto 59: trace_packet, track_event, track_descriptor, interned_data,
# debug_annotation, clock_snapshot.

_SEQUENCE = 1
_CLEARED, _NEEDS_STATE = 1, 2  # flags: nothing is interned yet; this uses what is
_BEGIN, _END, _COUNTER = 1, 2, 4
_REALTIME, _BOOTTIME = 1, 6  # clocks; the latter is the one that packets without a clock of their own are in
_IN_ORDER = 3  # of child tracks: by their ranks
_MAX_INTERNED = 1 << 17
_PACKET = 1
_OF_SEQUENCE = number(10, _SEQUENCE)
_STATEFUL = _OF_SEQUENCE + number(13, _NEEDS_STATE)
_CATEGORIES, _NAMES, _KEYS, _TEXTS = 1, 2, 3, 29  # fields of InternedData


class Packets:
    """Writes packets; a name, category or text goes in once and is a number from then on."""

    def __init__(self, file: Sink, epoch_ns: int | None, shift_ns: int = 0) -> None:
        self._file = file
        self._shift_ns = shift_ns  # of all times, where some are before the trace's own 0
        self._iids: dict[tuple[int, str], int] = {}
        self._added: list[bytes] = []  # what the next packet interns
        self._put(_OF_SEQUENCE + number(13, _CLEARED | _NEEDS_STATE) + number(87, 1))
        if epoch_ns is not None and epoch_ns >= 0:
            clocks = (_clock(_BOOTTIME, shift_ns), _clock(_REALTIME, epoch_ns))
            self._put(number(10, _SEQUENCE) + message(6, b"".join(clocks) + number(2, _BOOTTIME)))

    def _put(self, packet: bytes) -> None:
        self._file.write(message(_PACKET, packet))

    def process(self, uuid: int, name: str, pid: int) -> None:
        """A process, which holds threads and counters."""
        self._describe(uuid, name, message(3, number(1, pid) + text(6, name)))

    def thread(self, uuid: int, name: str, pid: int, tid: int) -> None:
        """A thread of a process."""
        self._describe(uuid, name, message(4, number(1, pid) + number(2, tid) + text(5, name)))

    def track(self, uuid: int, name: str, parent: int | None, rank: int) -> None:
        """A track within another, or of its own; those of one parent stand in the order of their ranks."""
        within = b"" if parent is None else number(5, parent)
        self._describe(uuid, name, within + number(11, _IN_ORDER) + number(12, rank))

    def counter(self, uuid: int, name: str, parent: int, unit: str) -> None:
        """A track of a number over time."""
        self._describe(uuid, name, number(5, parent) + message(8, text(6, unit)))

    def _describe(self, uuid: int, name: str, more: bytes) -> None:
        self._put(_OF_SEQUENCE + message(60, number(1, uuid) + text(2, name) + more))

    def begin(
        self,
        uuid: int,
        time_ns: int,
        category: str,
        name: str,
        *,
        arguments: Iterable[tuple[str, object]] = (),
        flows_from: Sequence[int] = (),
        flows_to: Sequence[int] = (),
    ) -> None:
        """A slice begins; arrows of a number lead from the slices that it starts at to those that it ends at."""
        event = [
            number(9, _BEGIN),
            number(11, uuid),
            number(3, self._iid(_CATEGORIES, category)),
            number(10, self._iid(_NAMES, name)),
            *(message(4, self._annotation(key, value)) for key, value in arguments),
            *(fixed64(47, flow) for flow in flows_from),
            *(fixed64(48, flow) for flow in flows_to),
        ]
        self._event(time_ns, b"".join(event))

    def end(self, uuid: int, time_ns: int) -> None:
        """The slice that began last on the track, of those that are open, ends."""
        self._event(time_ns, number(9, _END) + number(11, uuid))

    def count(self, uuid: int, time_ns: int, value: float) -> None:
        """A counter's value from now on."""
        self._event(time_ns, number(9, _COUNTER) + number(11, uuid) + double(44, value))

    def _event(self, time_ns: int, event: bytes) -> None:
        interned = message(12, b"".join(self._added)) if self._added else b""
        self._added.clear()
        self._put(number(8, time_ns + self._shift_ns) + _STATEFUL + interned + message(11, event))

    def _annotation(self, key: str, value: object) -> bytes:
        named = number(1, self._iid(_KEYS, key))
        if isinstance(value, bool):
            return named + number(2, value)
        if isinstance(value, int):
            return named + number(4, value)
        if isinstance(value, float):
            return named + double(5, value)
        written = str(value)
        if len(self._iids) < _MAX_INTERNED or (_TEXTS, written) in self._iids:
            return named + number(17, self._iid(_TEXTS, written))
        return named + text(6, written)

    def _iid(self, table: int, written: str) -> int:
        """The number of a text in one of the tables, each from 1."""
        iid = self._iids.get((table, written))
        if iid is None:
            iid = self._iids[table, written] = len(self._iids) + 1
            self._added.append(message(table, number(1, iid) + text(2, written)))
        return iid


def _clock(clock: int, time_ns: int) -> bytes:
    return message(1, number(1, clock) + number(2, time_ns))
