"""Quantities as nvprof prints them, `25.408us` or `1.1152KB`, exactly in ns and bytes."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

from xsp_model.intervals import LATEST_NS

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["byte_count", "time_ns"]

_QUANTITY = re.compile(r"(-?\d{1,18}(?:\.\d{1,18})?)\s?([a-zA-Z]{0,3})\Z", re.ASCII)
_TIMES: Mapping[str, int] = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_BYTES: Mapping[str, int] = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


def time_ns(text: str) -> int | None:
    """A time; None where the text is none."""
    return _scaled(text, _TIMES)


def byte_count(text: str) -> int | None:
    """A size, whose prefixes are powers of 1024; None where the text is none."""
    return _scaled(text, _BYTES)


def _scaled(text: str, units: Mapping[str, int]) -> int | None:
    match = _QUANTITY.match(text)
    if match is None or match[2] not in units:
        return None
    value = round(Decimal(match[1]) * units[match[2]])
    return value if -LATEST_NS < value < LATEST_NS else None  # sizes, too, are added up
