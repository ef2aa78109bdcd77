"""Slices on tracks: Perfetto ends the slice that began last, so what does not nest goes to a further track."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["NEVER", "Lanes"]

NEVER = 1 << 63
"""The end of what was never closed."""


class Lanes:
    """The tracks that stand for one thread or stream: spans come by start, and of one start the longest first.

    `end` is told of each slice that ends, before any that begins then or later; of what was never closed, nothing.
    """

    def __init__(self, end: Callable[[int, int], None], track: Callable[[int], int]) -> None:
        self._end = end
        self._track = track  # the track of each lane by its number
        self._open: list[tuple[int, list[int]]] = []  # of each lane its track, and the ends of its open slices

    def put(self, start_ns: int, end_ns: int) -> int:
        """The first track in which the span lies beside or within what runs then."""
        for uuid, ends in self._open:
            self._close(uuid, ends, start_ns)
            if not ends or end_ns <= ends[-1]:
                ends.append(end_ns)
                return uuid
        uuid = self._track(len(self._open))
        self._open.append((uuid, [end_ns]))
        return uuid

    def _close(self, uuid: int, ends: list[int], time_ns: int) -> None:
        while ends and ends[-1] <= time_ns:
            self._end(uuid, ends.pop())

    def rest(self) -> Iterator[tuple[int, int]]:
        """Track and end of each slice that is still open and was closed at some time."""
        for uuid, ends in self._open:
            yield from ((uuid, end) for end in reversed(ends) if end < NEVER)
