"""What stands between the values of an event, remembered: events of one kind differ in their values alone.

A segment is the text from the end of one value to the start of the next: commas, blanks, keys, `"args": {`. They make
a tree, whose root is the start of any event. A text that is a known segment was checked byte by byte when it was met
first, in the same place of the grammar, so to compare it is to check it.

The values of `ph` and `cat`, which are few, belong to segments: so the tree's first branches are the kinds of events.
"""

from __future__ import annotations

from xsp_ingest.formats.torch_profiler.compiled import scan_state as at
from xsp_ingest.formats.torch_profiler.compiled.scan_state import (
    LABEL,
    MAX_SEGMENTS,
    MAX_VALUE_OFFSETS,
    NO_VALUE,
    PHASE,
    THE_END,
    VALUE_OFFSETS_WORDS,
)
from xsp_ingest.formats.torch_profiler.compiled.texts import intern
from xsp_ingest.machine.intrinsics import LONG, QUOTE, byte, leading_alike, machine, number, put, put_byte

__all__ = ["follow", "learn", "remember"]


@machine
def follow(offset: int, segment: int) -> int:
    """The segment among those after this one whose text stands at the place, or 0."""
    segment = number(segment + at.SEGMENT_NEXT)
    while segment != 0 and leading_alike(offset, segment) < number(segment + at.SEGMENT_BYTES):
        segment = number(segment + at.SEGMENT_BESIDE)
    return segment


@machine
def remember(value: int, stop: int, meaning: int, state: int) -> None:
    """Notes a value of the event that is being scanned."""
    count, value_offsets = number(state + at.VALUE_OFFSETS_COUNT), number(state + at.VALUE_OFFSETS)
    if count < MAX_VALUE_OFFSETS:
        note = value_offsets + 8 * VALUE_OFFSETS_WORDS * count
        put(note, value)
        put(note + 8, stop)
        put(note + 16, meaning)
    put(state + at.VALUE_OFFSETS_COUNT, count + 1)


@machine
def _segment(before: int, offset: int, length: int, meaning: int, state: int) -> int:
    """The segment with this text and meaning after another, made where it is new; 0 where there is no more room."""
    segment, last = number(before + at.SEGMENT_NEXT), 0
    while segment != 0:
        alike = number(segment + at.SEGMENT_BYTES) == length and leading_alike(offset, segment) >= length
        if alike and number(segment + at.SEGMENT_MEANING) == meaning:
            return segment  # type: ignore[no-any-return]
        last, segment = segment, number(segment + at.SEGMENT_BESIDE)
    count = number(state + at.SEGMENT_COUNT)
    if count >= MAX_SEGMENTS:
        return 0
    put(state + at.SEGMENT_COUNT, count + 1)
    segment = number(state + at.SEGMENTS) + at.SEGMENT_SIZE * count
    for i in range(length):
        put_byte(segment + i, byte(offset + i))
    put(segment + at.SEGMENT_BYTES, length)
    put(segment + at.SEGMENT_MEANING, meaning)
    put(segment + at.SEGMENT_NEXT, 0)
    put(segment + at.SEGMENT_BESIDE, 0)
    put(segment + at.SEGMENT_PHASE, -1)
    put(segment + at.SEGMENT_CATEGORY, -1)
    put(last + at.SEGMENT_BESIDE if last != 0 else before + at.SEGMENT_NEXT, segment)
    return segment  # type: ignore[no-any-return]


@machine
def _long_segment(before: int, offset: int, stop: int, meaning: int, state: int) -> int:
    """Likewise; a text longer than a segment holds becomes several, all but the last with no value behind them."""
    while stop - offset > LONG and before != 0:
        before = _segment(before, offset, LONG, NO_VALUE << 8, state)
        offset += LONG
    return _segment(before, offset, stop - offset, meaning, state) if before != 0 else 0


@machine
def learn(offset: int, stop: int, state: int) -> None:
    """Remembers the segments of the event that was scanned, whose content starts there, from the noted values."""
    count = number(state + at.VALUE_OFFSETS_COUNT)
    if count > MAX_VALUE_OFFSETS:
        return
    segment = number(state + at.SEGMENTS)
    phase, category = -1, -1
    for i in range(count):
        note = number(state + at.VALUE_OFFSETS) + 8 * VALUE_OFFSETS_WORDS * i
        value, value_end, meaning = number(note), number(note + 8), number(note + 16)
        is_word = meaning >> 8 == LABEL and byte(value) == QUOTE
        if is_word and i + 1 < count and number(note + 8 * VALUE_OFFSETS_WORDS) - offset <= LONG:
            # An event may have any number of these; its row, kept afterwards, has at most WIDTH texts.
            if number(state + at.TEXTS) + number(state + at.WIDTH) >= number(state + at.MAX_TEXTS):
                return
            code = intern(value, value_end - value, state)
            if meaning & 255 == PHASE:
                phase = code
            else:
                category = code
            continue
        segment = _long_segment(segment, offset, value, meaning, state)
        if segment == 0:
            return
        if phase >= 0:
            put(segment + at.SEGMENT_PHASE, phase)
        if category >= 0:
            put(segment + at.SEGMENT_CATEGORY, category)
        phase, category = -1, -1
        offset = value_end
    _long_segment(segment, offset, stop, THE_END << 8, state)
