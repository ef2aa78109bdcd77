"""Rotary position embedding: pairs of elements of queries and keys turned by an angle that the position gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.work_models.call import ELEMENT_BITS
from xsp_analyze.work_models.work import ModelledWork

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.work_models.arguments import Arguments

__all__ = ["FORMULAS"]

_FLOP = 3  # an element: of a pair four products, a sum and a difference


def rotary(arguments: Arguments) -> ModelledWork | None:
    """`query` and `key`, if any, of `head_size` elements a head, turned in place or to an output of their shape.

    `table` (positions, elements turned) has cosines and sines: a head's other elements stay as they are. A row of it is
    read for each position, and none twice.
    """
    query, table, indices = (arguments.tensor(role) for role in ("query", "table", "positions"))
    if query is None or not query.shape or table is None or indices is None or len(table.shape) != len("pe"):
        return None
    size = arguments.value("head_size", query.shape[-1])
    turned = table.shape[-1]
    if not isinstance(size, int) or size < turned or not turned:
        return None
    tensors = [t for t in (query, arguments.tensor("key")) if t is not None]
    elements = sum(t.elements for t in tensors) * turned // size
    moved = elements * ELEMENT_BITS[query.element_type] // 8
    rows = min(indices.elements, table.shape[0])
    angles = rows * turned * ELEMENT_BITS[table.element_type] // 8
    return ModelledWork(0, elements * _FLOP, moved + angles + indices.bytes, moved)


FORMULAS: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {"rotary": rotary}
