"""Integers from their digits, of which a damaged file may have thousands: more than Python or 64 bits take."""

from __future__ import annotations

import re

__all__ = ["natural"]

_DIGITS = re.compile(r"\d{1,20}\Z", re.ASCII)


def natural(text: str, bits: int = 63) -> int | None:
    """The number that the digits are; None where the text is anything else, or the number needs more bits."""
    number = int(text) if _DIGITS.match(text) else None
    return number if number is not None and not number >> bits else None
