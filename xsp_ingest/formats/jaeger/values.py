"""Reads the values of tags, which may be typed or text, as Go or as JSON prints them."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["lists_as_json", "sizes"]

_NUMBER = re.compile(r"\d+")
_LISTS = re.compile(r"[\[\]\d\s,-]+\Z")
_BETWEEN = re.compile(r"(?<=[\d\]])\s*[\s,]\s*(?=[\d\[-])")
_AXES = 3
_MAX_DIGITS = 18  # of a number that surely fits into 64 bits


def sizes(value: Any) -> tuple[int, int, int] | None:  # noqa: ANN401
    """Three sizes, as `[729 1 1]`, `[729,1,1]` or a list."""
    digits = _NUMBER.findall(str(value)) if isinstance(value, str | list) else []
    axes = [int(n) for n in digits if len(n) <= _MAX_DIGITS]
    return (axes[0], axes[1], axes[2]) if len(axes) == _AXES else None


def lists_as_json(value: Any) -> str | None:  # noqa: ANN401
    """Nested lists of integers as JSON, from Go's `[[1 2] [3]]` or from JSON; null for anything else."""
    shown = str(value) if isinstance(value, str | list) else ""
    return _BETWEEN.sub(", ", shown.strip()) if "[" in shown and _LISTS.match(shown) else None
