"""Begins and ends of ranges as Chrome's format has them (B and E, b and e), paired by time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BeginsAndEnds", "Mark", "Pair"]


class Mark(NamedTuple):
    """A begin or an end, with whatever is to be remembered of it."""

    time_ns: int
    is_end: bool
    what: Any


class Pair(NamedTuple):
    """A begin and its end."""

    key: tuple[Any, ...]
    begin: Mark
    end: Mark


@dataclass(slots=True)
class BeginsAndEnds:
    """Marks by lane. Their order in the file counts at equal times alone: the format lets events come in any.

    An end closes the last begin of its lane that is open.
    """

    unpaired: int = 0
    open: int = 0
    """Begins without an end among what was read so far, if every end has a begin."""
    _marks: dict[tuple[Any, ...], list[Mark]] = field(default_factory=dict)

    def add(self, key: tuple[Any, ...], mark: Mark) -> None:
        """Takes a mark of the lane `key`."""
        self._marks.setdefault(key, []).append(mark)
        self.open += -1 if mark.is_end else 1

    def pairs(self) -> Iterator[Pair]:
        """Every pair, lane by lane, in order of the ends; what is left is counted in `unpaired`."""
        for key, marks in self._marks.items():
            begun: list[Mark] = []
            for mark in sorted(marks, key=lambda each: each.time_ns):
                if not mark.is_end:
                    begun.append(mark)
                elif begun:
                    yield Pair(key, begun.pop(), mark)
                else:
                    self.unpaired += 1
            self.unpaired += len(begun)
