"""What stands between the values of an event, remembered: events of one sort differ in their values alone.

A seam is the text from the end of one value to the start of the next: commas, blanks, keys, `"args": {`. Seams make
a tree, whose root is the start of any event. A text that is a known seam was checked byte by byte when it was met
first, in the same place of the grammar, so to compare it is to check it.

The values of `ph` and `cat`, which are few, belong to seams: so the tree's first branches are the sorts of events.
"""

from __future__ import annotations

from xsp_ingest.formats.torch_profiler.compiled import scan_state as at
from xsp_ingest.formats.torch_profiler.compiled.scan_state import (
    MOST_SEAMS,
    MOST_TRAIL,
    NO_VALUE,
    PHASE,
    THE_END,
    TRAIL_WORDS,
    WORD,
)
from xsp_ingest.formats.torch_profiler.compiled.texts import intern
from xsp_ingest.machine.intrinsics import LONG, QUOTE, byte, leading_alike, machine, number, put, put_byte

__all__ = ["follow", "learn", "remember"]


@machine
def follow(place: int, seam: int) -> int:
    """The seam among those after this one whose text stands at the place, or 0."""
    seam = number(seam + at.SEAM_NEXT)
    while seam != 0 and leading_alike(place, seam) < number(seam + at.SEAM_BYTES):
        seam = number(seam + at.SEAM_BESIDE)
    return seam


@machine
def remember(value: int, stop: int, meaning: int, desk: int) -> None:
    """Notes a value of the event that is being scanned."""
    count, trail = number(desk + at.TRAIL_COUNT), number(desk + at.TRAIL)
    if count < MOST_TRAIL:
        note = trail + 8 * TRAIL_WORDS * count
        put(note, value)
        put(note + 8, stop)
        put(note + 16, meaning)
    put(desk + at.TRAIL_COUNT, count + 1)


@machine
def _seam(before: int, place: int, length: int, meaning: int, desk: int) -> int:
    """The seam with this text and meaning after another, made where it is new; 0 where there is no more room."""
    seam, last = number(before + at.SEAM_NEXT), 0
    while seam != 0:
        alike = number(seam + at.SEAM_BYTES) == length and leading_alike(place, seam) >= length
        if alike and number(seam + at.SEAM_MEANING) == meaning:
            return seam  # type: ignore[no-any-return]
        last, seam = seam, number(seam + at.SEAM_BESIDE)
    count = number(desk + at.SEAM_COUNT)
    if count >= MOST_SEAMS:
        return 0
    put(desk + at.SEAM_COUNT, count + 1)
    seam = number(desk + at.SEAMS) + at.SEAM_SIZE * count
    for i in range(length):
        put_byte(seam + i, byte(place + i))
    put(seam + at.SEAM_BYTES, length)
    put(seam + at.SEAM_MEANING, meaning)
    put(seam + at.SEAM_NEXT, 0)
    put(seam + at.SEAM_BESIDE, 0)
    put(seam + at.SEAM_PHASE, -1)
    put(seam + at.SEAM_CATEGORY, -1)
    put(last + at.SEAM_BESIDE if last != 0 else before + at.SEAM_NEXT, seam)
    return seam  # type: ignore[no-any-return]


@machine
def _long_seam(before: int, place: int, stop: int, meaning: int, desk: int) -> int:
    """Likewise; a text longer than a seam holds becomes several, all but the last with no value behind them."""
    while stop - place > LONG and before != 0:
        before = _seam(before, place, LONG, NO_VALUE << 8, desk)
        place += LONG
    return _seam(before, place, stop - place, meaning, desk) if before != 0 else 0


@machine
def learn(place: int, stop: int, desk: int) -> None:
    """Remembers the seams of the event that was scanned, whose content starts at the place, from the noted values."""
    count = number(desk + at.TRAIL_COUNT)
    if count > MOST_TRAIL:
        return
    seam = number(desk + at.SEAMS)
    phase, category = -1, -1
    for i in range(count):
        note = number(desk + at.TRAIL) + 8 * TRAIL_WORDS * i
        value, value_end, meaning = number(note), number(note + 8), number(note + 16)
        is_word = meaning >> 8 == WORD and byte(value) == QUOTE
        if is_word and i + 1 < count and number(note + 8 * TRAIL_WORDS) - place <= LONG:
            # An event may have any number of these; its row, kept afterwards, has at most WIDTH texts.
            if number(desk + at.TEXTS) + number(desk + at.WIDTH) >= number(desk + at.MAX_TEXTS):
                return
            code = intern(value, value_end - value, desk)
            if meaning & 255 == PHASE:
                phase = code
            else:
                category = code
            continue
        seam = _long_seam(seam, place, value, meaning, desk)
        if seam == 0:
            return
        if phase >= 0:
            put(seam + at.SEAM_PHASE, phase)
        if category >= 0:
            put(seam + at.SEAM_CATEGORY, category)
        phase, category = -1, -1
        place = value_end
    _long_seam(seam, place, stop, THE_END << 8, desk)
