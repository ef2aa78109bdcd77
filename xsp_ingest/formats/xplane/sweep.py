"""The scan itself, in the part of Python that numba compiles: lines, their events, and the events' statistics.

It runs on bytes or on an array of them, whole and checked: no length leads beyond the message around it, no message
beyond the bytes, and nothing is written that the columns have no room for.
"""

# mypy: disable-error-code="no-any-return"
# ruff: noqa: C901, PLR0912, PLR2004
# (a scanner is its branches; the numbers are those of fields, wire types and bits)

from __future__ import annotations

from typing import Any

__all__ = ["EVENT", "LINE", "STAT", "sweep"]

LINE = ("line_id", "timestamp_ns", "name_at", "name_end", "display_at", "display_end")
EVENT = ("line", "metadata_id", "offset_ps", "duration_ps", "occurrences")
STAT = ("event", "metadata_id", "field", "value", "end")
"""`field` is the number of the value's field; a text lies in the file from `value` to `end`."""


def _varint(data: Any, at: int, end: int) -> tuple[int, int]:  # noqa: ANN401 (bytes, or an array of them)
    """The number at a place, as a signed 64-bit one, and the place behind it, -1 where there is none."""
    if at < end and data[at] < 0x80:  # most numbers are small
        return data[at] + 0, at + 1
    low = 0
    high = 0
    for n in range(10):
        if at >= end:
            return 0, -1
        byte = data[at] + 0  # of a small unsigned type otherwise
        at += 1
        if n < 8:
            low += (byte & 0x7F) << (7 * n)
        else:
            high += (byte & 0x7F) << (7 * (n - 8))
        if byte < 0x80:
            high &= 0xFF
            if high >= 0x80:
                high -= 0x100
            return low + high * 0x100000000000000, at
    return 0, -1


def _past(data: Any, at: int, end: int, kind: int) -> tuple[int, int]:  # noqa: ANN401
    """Where the content of a field begins and where it ends; -1 where it would end beyond `end`."""
    stop = -1
    if kind == 0:
        _, stop = _varint(data, at, end)
    elif kind == 2:
        size, at = _varint(data, at, end)
        if at >= 0 and 0 <= size <= end - at:
            stop = at + size
    elif kind == 1 and end - at >= 8:
        stop = at + 8
    elif kind == 5 and end - at >= 4:
        stop = at + 4
    return at, stop


def _eight_bytes(data: Any, at: int) -> int:  # noqa: ANN401
    """The signed number that eight bytes are, the lowest first."""
    low = 0
    for n in range(7):
        low += (data[at + n] + 0) << (8 * n)
    high = data[at + 7] + 0
    if high >= 0x80:
        high -= 0x100
    return low + high * 0x100000000000000


def _stat(data: Any, at: int, end: int) -> tuple[int, int, int, int, int]:  # noqa: ANN401
    """Id, field, value and end of a statistic; the place of damage comes last, -1 where there is none."""
    metadata = 0
    field = 0
    value = 0
    value_end = 0
    while at < end:
        here = at
        key, at = _varint(data, at, end)
        if at < 0 or key <= 7:
            return 0, 0, 0, 0, here
        start, stop = _past(data, at, end, key & 7)
        if stop < 0:
            return 0, 0, 0, 0, here
        number = key >> 3
        if number == 1 and key & 7 == 0:
            metadata, _ = _varint(data, start, stop)
        elif number == 2 and key & 7 == 1:
            field, value = 2, _eight_bytes(data, start)
        elif (number == 3 or number == 4 or number == 7) and key & 7 == 0:  # noqa: PLR1714 (numba)
            field = number
            value, _ = _varint(data, start, stop)
        elif (number == 5 or number == 6) and key & 7 == 2:  # noqa: PLR1714
            field, value, value_end = number, start, stop
        at = stop
    return metadata, field, value, value_end, -1


def _is_in(ids: Any, metadata: int) -> bool:  # noqa: ANN401 (a list or an array)
    """Whether the id is one of these, which are in order."""
    low = 0
    high = len(ids)
    while low < high:
        middle = (low + high) // 2
        if ids[middle] < metadata:
            low = middle + 1
        else:
            high = middle
    return low < len(ids) and ids[low] == metadata


def sweep(
    data: Any,  # noqa: ANN401
    starts: Any,  # noqa: ANN401
    ends: Any,  # noqa: ANN401
    wanted: Any,  # noqa: ANN401
    skipped: Any,  # noqa: ANN401
    fill: int,
    lines: Any,  # noqa: ANN401
    events: Any,  # noqa: ANN401
    stats: Any,  # noqa: ANN401
    counts: Any,  # noqa: ANN401
) -> int:
    """Counts events and wanted statistics, and with `fill` writes them; the place of damage, or -1.

    Events whose metadata is among the skipped are only counted, apart. `lines`, `events` and `stats` hold a column for
    each name of LINE, EVENT and STAT, one behind the other.
    """
    event_count = 0
    stat_count = 0
    skip_count = 0
    for line in range(len(starts)):
        at = starts[line] + 0
        end = min(ends[line] + 0, len(data))
        while at < end:
            here = at
            key, at = _varint(data, at, end)
            if at < 0 or key <= 7:
                return here
            start, stop = _past(data, at, end, key & 7)
            if stop < 0:
                return here
            number = key >> 3
            if number == 4 and key & 7 == 2:
                damage, metadata, after = _event(
                    data, start, stop, wanted, fill, line, event_count, stat_count, events, stats
                )
                if damage >= 0:
                    return damage
                if _is_in(skipped, metadata):
                    skip_count += 1
                else:
                    stat_count = after
                    event_count += 1
            elif number == 2 and key & 7 == 2:
                lines[2 * len(starts) + line], lines[3 * len(starts) + line] = start, stop
            elif number == 11 and key & 7 == 2:
                lines[4 * len(starts) + line], lines[5 * len(starts) + line] = start, stop
            elif number == 1 and key & 7 == 0:
                lines[line], _ = _varint(data, start, stop)
            elif number == 3 and key & 7 == 0:
                lines[len(starts) + line], _ = _varint(data, start, stop)
            at = stop
    counts[0] = event_count
    counts[1] = stat_count
    counts[2] = skip_count
    return -1


def _event(
    data: Any,  # noqa: ANN401
    at: int,
    end: int,
    wanted: Any,  # noqa: ANN401
    fill: int,
    line: int,
    event: int,
    stat_count: int,
    events: Any,  # noqa: ANN401
    stats: Any,  # noqa: ANN401
) -> tuple[int, int, int]:
    """Reads one event; gives the place of damage or -1, its metadata's id, how many statistics there are by now.

    What does not fit is not written: where an event is skipped later, its statistics may not have a place.
    """
    event_room = len(events) // 5
    stat_room = len(stats) // 5
    metadata = 0
    offset = 0
    duration = 0
    occurrences = 0
    while at < end:
        here = at
        key, at = _varint(data, at, end)
        if at < 0 or key <= 7:
            return here, 0, 0
        start, stop = _past(data, at, end, key & 7)
        if stop < 0:
            return here, 0, 0
        number = key >> 3
        if number == 4 and key & 7 == 2:
            known, field, value, value_end, damage = _stat(data, start, stop)
            if damage >= 0:
                return damage, 0, 0
            if field > 0 and _is_in(wanted, known):
                if fill > 0 and stat_count < stat_room:
                    stats[stat_count] = event
                    stats[stat_room + stat_count] = known
                    stats[2 * stat_room + stat_count] = field
                    stats[3 * stat_room + stat_count] = value
                    stats[4 * stat_room + stat_count] = value_end
                stat_count += 1
        elif key & 7 == 0:
            if number == 1:
                metadata, _ = _varint(data, start, stop)
            elif number == 2:
                offset, _ = _varint(data, start, stop)
            elif number == 3:
                duration, _ = _varint(data, start, stop)
            elif number == 5:
                occurrences, _ = _varint(data, start, stop)
        at = stop
    if fill > 0 and event < event_room:
        events[event] = line
        events[event_room + event] = metadata
        events[2 * event_room + event] = offset
        events[3 * event_room + event] = duration
        events[4 * event_room + event] = occurrences
    return -1, metadata, stat_count
