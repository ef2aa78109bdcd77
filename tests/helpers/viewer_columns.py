"""Columns of the trace viewer read back without the code under test, as its script reads them."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["unpacked", "unpacked_rows"]

_SUMMED = {"lane", "start", "time", "times", "span", "from_lane", "from_time", "to_lane", "to_time"}


def unpacked(text: str, *, summed: bool) -> list[int]:
    """The values of one column."""
    values, number, shift, last = [], 0, 0, 0
    for byte in zlib.decompress(base64.b64decode(text), -15):
        number += (byte & 127) << shift
        shift += 7
        if byte < 128:
            value = number // 2 if number % 2 == 0 else -(number + 1) // 2
            last = last + value if summed else value
            values.append(last)
            number, shift = 0, 0
    return values


def unpacked_rows(packed: Mapping[str, Any]) -> list[dict[str, int]]:
    """Each box, gap or launch as a dict."""
    columns = {name: unpacked(text, summed=name in _SUMMED) for name, text in packed["columns"].items()}
    assert all(len(values) == packed["count"] for values in columns.values())
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
