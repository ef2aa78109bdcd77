"""A call of an operator as people read it: what it is called with, in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xsp_analyze.render.names import cut

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["short_call", "spelled_call"]

_MAX_SHORT = 34
_MAX_SHAPES = 90


def spelled_call(row: Mapping[str, Any]) -> str:
    """A row of B23: `aten::linear of 1x141x512, 512x512 in bf16`."""
    shapes = f" of {cut(row['shapes'], _MAX_SHAPES)}" if row["shapes"] else ""
    dtypes = f" in {row['dtypes']}" if row["dtypes"] else ""
    return f"{row['operator']}{shapes}{dtypes}"


def short_call(row: Mapping[str, Any], max_length: int = _MAX_SHORT) -> str:
    """The same beside a point or a number: `linear 1x141x512, 512x512`."""
    name = str(row["operator"]).rpartition("::")[2]
    return cut(f"{name} {row['shapes'] or ''}".strip(), max_length)
