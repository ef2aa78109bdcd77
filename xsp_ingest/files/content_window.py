"""The part of a file's content that is being looked at, in one buffer that is filled again and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from xsp_ingest.files.source import Source

__all__ = ["ContentWindow", "Refusals"]

_BLANKS = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Refusals:
    """What a window raises, by who reads through it."""

    cut_off: Callable[[], Exception]  # content that ends where there has to be more
    too_long: Callable[[], Exception]  # more that is not used yet than the window holds


class ContentWindow:
    """Content in memory: of `text`, what stands before `offset` is used.

    `text` is a view of `buffer`, where zeros follow it: as many as the padding. `fill` moves the bytes and may
    replace the buffer, so neither views of it nor matches in it hold any longer than until then.
    """

    def __init__(
        self, source: Source, room_bytes: int, max_bytes: int, refusals: Refusals, *, padding_bytes: int = 0
    ) -> None:
        self.buffer = np.zeros(room_bytes + padding_bytes, dtype=np.uint8)
        self.text = self.buffer.data[:0]
        self.offset = 0
        self.passed_bytes = 0  # that have left the buffer
        self._source = source
        self._max_bytes = max_bytes
        self._refusals = refusals
        self._padding_bytes = padding_bytes

    @property
    def rest(self) -> memoryview:
        """What is not used yet."""
        return self.text[self.offset :]

    def more(self) -> None:
        """Adds the next bytes to the text, or refuses the content, which ends here."""
        if not self.fill():
            raise self._refusals.cut_off()

    def fill(self) -> bool:
        """Adds the next bytes to the text, of which only the rest stays; False at the end of the content."""
        kept = len(self.text) - self.offset
        if kept >= self._max_bytes:
            raise self._refusals.too_long()
        target, room = self._target(kept)
        target[:kept] = self.buffer[self.offset : len(self.text)]
        read = self._source.fill(target[kept:room].data)
        end = kept + read
        target[end : end + self._padding_bytes] = 0
        self.passed_bytes += self.offset
        self.buffer, self.text, self.offset = target, target.data[:end], 0
        return read > 0

    def _target(self, kept: int) -> tuple[NDArray[np.uint8], int]:
        """The buffer, or a larger one where less than half of it is free, and its size without the padding."""
        room = len(self.buffer) - self._padding_bytes
        if 2 * kept <= room or room >= self._max_bytes:
            return self.buffer, room
        room = min(2 * room, self._max_bytes)
        return np.zeros(room + self._padding_bytes, dtype=np.uint8), room

    def next_byte(self, passed: bytes = _BLANKS) -> int:
        """The next byte that is none of these, as by `peek`; the content is refused where it ends."""
        while (byte := self.peek(passed)) is None:
            self.more()
        return byte

    def peek(self, passed: bytes = _BLANKS) -> int | None:
        """The next byte that is none of these, before which the offset is then; None where the content ends."""
        while True:
            text = self.text
            for offset in range(self.offset, len(text)):
                if text[offset] not in passed:
                    self.offset = offset
                    return text[offset]
            self.offset = len(text)
            if not self.fill():
                return None
