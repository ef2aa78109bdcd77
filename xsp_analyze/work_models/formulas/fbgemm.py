"""FBGEMM's operators of recommendation models: lookups in tables of embeddings, and jagged tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.work_models.work import ModelledWork

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.work_models.arguments import Arguments

__all__ = ["FORMULAS"]

_UNPOOLED = 2  # of PoolingMode: sum, mean, none


def lookup(arguments: Arguments) -> ModelledWork | None:
    """A row of `rows` for each of `indices`, added up over each bag that `offsets` delimit, of every table.

    `table_count` is a tensor of an element a table, `total` and `largest` what the widths of their rows add up to, and
    the most. None where tables differ in width, as nothing tells then how many of the indices are of which. Each index
    counts as another row; the output as of the type of the rows.
    """
    rows, indices, offsets, tables = (arguments.tensor(r) for r in ("rows", "indices", "offsets", "table_count"))
    total, width, mode = (arguments.value(role) for role in ("total", "largest", "pooling"))
    if rows is None or indices is None or offsets is None or tables is None or not tables.elements:
        return None
    if type(total) is not int or type(width) is not int or total != width * tables.elements:
        return None
    gathered = rows.like((indices.elements, width))
    bags = (offsets.elements - 1) // tables.elements
    output = gathered if mode == _UNPOOLED else rows.like((bags, total))
    added = 0 if mode == _UNPOOLED else gathered.elements
    return ModelledWork(0, added, gathered.bytes + indices.bytes + offsets.bytes, output.bytes)


def permuted(arguments: Arguments) -> ModelledWork | None:
    """`lengths` (features, batch) and jagged `indices`, and `weights` if there are any, in another order of features.

    None where `order` has another number of features: what is left out or repeated is not recorded.
    """
    order, lengths, indices = (arguments.tensor(role) for role in ("order", "lengths", "indices"))
    if order is None or lengths is None or indices is None or order.shape[:1] != lengths.shape[:1]:
        return None
    weights = arguments.tensor("weights")
    moved = lengths.bytes + indices.bytes + (0 if weights is None else weights.bytes)
    return ModelledWork(0, 0, moved + order.bytes, moved)


def padded(arguments: Arguments) -> ModelledWork | None:
    """Jagged `values` (all, width) written as (batch, longest, width), or without width; `offsets` tell the batch.

    The bytes of the offsets do not count: the profiler does not write the types of tensors in lists.
    """
    values, longest = arguments.tensor("values"), arguments.value("longest")
    index = arguments.operands["offsets"]
    offsets = arguments.call.inputs[index] if index < len(arguments.call.inputs) else None
    if values is None or not isinstance(offsets, tuple) or not offsets or not offsets[0].shape:
        return None
    if not isinstance(longest, list) or not all(type(each) is int for each in longest):
        return None
    shape = (offsets[0].shape[0] - 1, *longest, *values.shape[1:])
    dense = values.like(shape).bytes
    return ModelledWork(0, 0, min(values.bytes, dense), dense) if min(shape) >= 0 else None


FORMULAS: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {
    "lookup": lookup,
    "padded": padded,
    "permuted": permuted,
}
