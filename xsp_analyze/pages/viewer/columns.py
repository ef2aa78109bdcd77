"""Columns of whole numbers as text that takes little room: varints, deflated, in base64."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from xsp_analyze.pages.shell import Packed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_model.arrays import Ints, Positions

__all__ = ["AS_DIFFERENCES", "encode_numbers", "encoded_columns"]

AS_DIFFERENCES = frozenset({"start", "time", "times", "span", "lane", "from_lane", "from_time", "to_lane", "to_time"})
"""Columns that are written as the difference of each value from the one before it, the first from 0."""

_PAYLOAD_BITS = 7
_MORE = 0x80
_WORD_BITS = 64
_RAW_DEFLATE = -15  # zlib's window bits: negative stands for no header


def encode_numbers(values: Positions, *, differences: bool = False) -> Packed:
    """Zigzag LEB128 of each value (or of its difference from the one before), deflated without header, in base64."""
    numbers = np.asarray(values, dtype=np.int64)
    if differences:
        numbers = np.diff(numbers, prepend=np.int64(0))
    packer = zlib.compressobj(6, zlib.DEFLATED, _RAW_DEFLATE)
    return Packed(base64.b64encode(packer.compress(_varints(numbers)) + packer.flush()).decode("ascii"))


def encoded_columns(columns: Mapping[str, Positions]) -> dict[str, Any]:
    """Columns of one length: `count` and each of them by its name."""
    count = len(next(iter(columns.values())))
    return {
        "count": count,
        "columns": {
            name: encode_numbers(values, differences=name in AS_DIFFERENCES) for name, values in columns.items()
        },
    }


def _varints(numbers: Ints) -> bytes:
    zigzag = ((numbers << 1) ^ (numbers >> (_WORD_BITS - 1))).view(np.uint64)
    sizes = np.ones(len(zigzag), dtype=np.int64)
    for bits in range(_PAYLOAD_BITS, _WORD_BITS, _PAYLOAD_BITS):
        sizes += zigzag >= np.uint64(1 << bits)
    offsets = np.cumsum(sizes) - sizes
    out = np.zeros(int(sizes.sum()), dtype=np.uint8)
    for byte_index in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > byte_index)
        payload = (zigzag[rows] >> np.uint64(_PAYLOAD_BITS * byte_index)) & np.uint64(_MORE - 1)
        out[offsets[rows] + byte_index] = payload | np.where(
            sizes[rows] > byte_index + 1, np.uint64(_MORE), np.uint64(0)
        )
    return out.tobytes()
