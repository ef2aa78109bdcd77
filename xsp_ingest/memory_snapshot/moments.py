"""Moments at which memory in use changed, and how the JSON that tells them is decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec
import polars as pl

from xsp_ingest.content import cut_off, whole
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["MOMENTS", "column", "decoded"]

MOMENTS: Mapping[str, pl.DataType] = {
    "time_ns": pl.Int64(),  # Unix time
    "device_id": pl.Int64(),
    "bytes": pl.Int64(),
    "allocated_bytes": pl.Int64(),
    "reserved_bytes": pl.Int64(),
}
_MOST_BYTES = 1 << 30

_T = TypeVar("_T")


def column(values: Sequence[int]) -> pl.Series:
    """Whole numbers of 64 bits."""
    return pl.Series(values, dtype=pl.Int64)


def decoded(path: Path, kind: type[_T]) -> _T:
    """The file's JSON as this type; XspError where it is cut off, another JSON, or longer than 1 GiB."""
    content = whole(path, _MOST_BYTES).decode("utf-8", errors="replace")
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise XspError(f"the memory record is not as PyTorch writes it ({error})", path=path) from error
    except (msgspec.DecodeError, RecursionError) as error:
        if "truncated" in str(error):
            raise cut_off(path, "its JSON does not end") from error
        raise XspError("the memory record is no valid JSON", path=path, advice="Write it again") from error
