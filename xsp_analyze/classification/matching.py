"""Which entry of a data file takes each of many texts: the first whose pattern is found in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Matcher", "Pattern"]

_FEW = 4  # texts for which making 85 automata costs more than trying each pattern
_LOOKAROUND = re.compile(r"\(\?<?[!=][^()]*\)")
_ASCII = ((r"\w", "[0-9A-Za-z_]"), (r"\d", "[0-9]"), (r"\b", r"(?-u:\b)"))  # the Unicode of polars' classes is slow


@dataclass(frozen=True)
class Pattern:
    """A pattern of a data file. Python compiles it, which takes a millisecond, when it is first tried: few ever are."""

    text: str

    def search(self, text: str) -> re.Match[str] | None:
        """Where the pattern is found first."""
        return self._pattern_object.search(text)

    @cached_property
    def _pattern_object(self) -> re.Pattern[str]:
        return re.compile(self.text)


class _HasPattern(Protocol):
    @property
    def pattern(self) -> Pattern: ...


E = TypeVar("E", bound=_HasPattern)


class Matcher(Generic[E]):
    """The entries in order, with what they answered for each text so far.

    Kernels' names run to a thousand characters, and a pattern has dozens of alternatives: Python takes 13 ms a name to
    try all. polars' automata take 0.1 s for a thousand names, but know no lookarounds: without these a pattern is found
    in all that the entry takes and in some more, which Python then tells apart.
    """

    def __init__(self, entries: Sequence[E]) -> None:
        self._entries = entries
        self._taken: dict[str, E | None] = {}

    def first(self, text: str) -> E | None:
        """The first entry whose pattern is found in the text; None: none is."""
        if text not in self._taken:
            self.learn([text])
        return self._taken[text]

    def learn(self, texts: Iterable[str]) -> None:
        """Finds the entries of all these at once, so that `first` knows them."""
        unknown = [text for text in dict.fromkeys(texts) if text not in self._taken]
        if len(unknown) <= _FEW:
            for text in unknown:
                self._taken[text] = next((e for e in self._entries if e.pattern.search(text)), None)
            return
        left = pl.Series(unknown, dtype=pl.String)
        for entry in self._entries:
            if left.is_empty():
                return
            hits = left.filter(left.str.contains(_superset(entry.pattern)))
            taken = [text for text in hits if entry.pattern.search(text)]
            self._taken.update(dict.fromkeys(taken, entry))
            if taken:
                left = left.filter(~left.is_in(taken))
        self._taken.update(dict.fromkeys(left))


def _superset(pattern: Pattern) -> str:
    """The pattern as polars knows it, found wherever the pattern is."""
    text = _LOOKAROUND.sub("", pattern.text)
    for python, ascii_class in _ASCII:
        text = text.replace(python, ascii_class)
    return text
