"""What a user may have meant: the known names nearest to one that is not known."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["closest"]

_MAX_NAMES = 3
_MIN_CHARACTERS = 3
_CUTOFF = 0.6


def closest(unknown: str, names: Iterable[str]) -> list[str]:
    """At most three of the known names, best first: spelled alike, or with the wanted text in them, in any case."""
    lowered = {name.lower(): name for name in names}
    text = unknown.lower()
    alike = difflib.get_close_matches(text, lowered, _MAX_NAMES, _CUTOFF)
    within = [name for name in lowered if len(text) >= _MIN_CHARACTERS and text in name]
    return [lowered[name] for name in dict.fromkeys([*alike, *within])][:_MAX_NAMES]
