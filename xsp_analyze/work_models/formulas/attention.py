"""Attention: products of queries with keys and of weights with values, rotary embedding, and caches of both."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from xsp_analyze.work_models.attention_extent import Extent, Heads, extent_of, heads_of
from xsp_analyze.work_models.call import ELEMENT_BITS, ModelledWork, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.work_models.call import Arguments

_PAIR = 5  # vector flop a pair: scale, maximum, difference, exponential, sum
_LSE_BYTES = 4  # the logarithm of a query's sum, which the backward pass takes, is fp32
_OUTPUT_TYPES = {"fp8": "bf16", "int8": "bf16"}  # what comes out of products of such types, unless a buffer was given

__all__ = ["FORMULAS"]


def attention(arguments: Arguments) -> ModelledWork | None:
    """Two products a pair. `settings.lse`, or the input of that name: whether the logarithms of sums are put out."""
    operands = _operands(arguments)
    if operands is None:
        return None
    query, key, value, heads, extent = operands
    flop = 2 * extent.pairs * heads.queries * (heads.key_size + heads.value_size)
    read = _read(query, key, value, heads, extent) + _masks(arguments)
    element = ELEMENT_BITS[_output_type(arguments, query)] // 8
    written = extent.queries * heads.queries * heads.value_size * element
    if arguments.settings.get("lse", arguments.value("lse")):
        written += extent.queries * heads.queries * _LSE_BYTES
    return ModelledWork(flop, _PAIR * extent.pairs * heads.queries, read, written)


def attention_backward(arguments: Arguments) -> ModelledWork | None:
    """Five products a pair: scores again, and gradients of weights, values, queries and keys.

    Gradients of what was expanded are as large as it seemed.
    """
    operands = _operands(arguments)
    if operands is None:
        return None
    query, key, value, heads, extent = operands
    flop = 2 * extent.pairs * heads.queries * (3 * heads.key_size + 2 * heads.value_size)
    others = (arguments.tensor(role) for role in ("gradient", "output", "logarithms"))
    read = _read(query, key, value, heads, extent) + _masks(arguments) + sum(t.bytes for t in others if t is not None)
    written = sum(t.like(t.shape).bytes for t in (query, key, value))
    return ModelledWork(flop, _PAIR * extent.pairs * heads.queries, read, written)


def latent_attention(arguments: Arguments) -> ModelledWork | None:
    """Multi-head latent attention (DeepSeek-V2) of a serving step.

    `query` (tokens, heads, size); of the new tokens `latent` (tokens, rank) and the part of the keys that is `rotated`
    (tokens, [1,] size); `output` (tokens, heads times value size).
    Where every request has one token, queries go into the space of the latents, of which each token has one for all
    heads; else keys and values are counted as if taken out of it, which is less a pair. Either way every new token
    goes through the weights between the two; taking earlier tokens out of the cache again is not counted.
    """
    tensors = [arguments.tensor(role) for role in ("query", "latent", "rotated", "output")]
    operands = [tensor for tensor in tensors if tensor is not None and tensor.shape and tensor.elements]
    if len(operands) != len(tensors) or len(operands[0].shape) != len("thd"):
        return None
    query, latent, rotated, output = operands
    heads, rank, size = query.shape[1], latent.shape[-1], query.shape[-1]
    extent = extent_of(arguments, Heads(heads, 1, size, size), query, latent)
    if extent is None or arguments.lengths is None or size < rotated.shape[-1]:
        return None
    value_size = output.elements // (output.shape[0] * heads)
    position_size = rotated.shape[-1]
    is_decode = arguments.lengths.queries_squared == extent.queries
    pair = 2 * rank + position_size if is_decode else size + value_size
    unpacked = extent.queries * rank * (size - position_size + value_size)
    read = _rows(query, extent.queries, heads * size) + _rows(latent, extent.keys, rank)
    read += _rows(rotated, extent.keys, position_size)
    written = extent.queries * heads * value_size * ELEMENT_BITS[output.element_type] // 8
    return ModelledWork(2 * heads * (extent.pairs * pair + unpacked), _PAIR * extent.pairs * heads, read, written)


def flex_attention(arguments: Arguments) -> ModelledWork | None:
    """Of a template of Inductor, whose mask is code, and blocks that only tensors tell: None if there is one.

    Without a mask there is one block for all; what a change of scores leaves out is not known, and counts.
    """
    return None if _has_blocks(arguments) else attention(arguments)


def flex_attention_backward(arguments: Arguments) -> ModelledWork | None:
    """As `flex_attention`."""
    return None if _has_blocks(arguments) else attention_backward(arguments)


def _has_blocks(arguments: Arguments) -> bool:
    indices = (t for t in arguments.every_tensor() if t.element_type == "int32" and len(t.shape) == len("bhqk"))
    return any(prod(t.shape[-2:]) > 1 for t in indices)


def _operands(arguments: Arguments) -> tuple[Tensor, Tensor, Tensor, Heads, Extent] | None:
    query, key, value = (arguments.tensor(role) for role in ("query", "key", "value"))
    if query is None or key is None or value is None:
        return None
    heads = heads_of(arguments, query, key, value)
    extent = extent_of(arguments, heads, query, key) if heads else None
    return (query, key, value, heads, extent) if heads and extent else None


def _read(query: Tensor, key: Tensor, value: Tensor, heads: Heads, extent: Extent) -> int:
    keys = _rows(key, extent.keys, heads.keys * heads.key_size)
    values = _rows(value, extent.keys, heads.keys * heads.value_size)
    return _rows(query, extent.queries, heads.queries * heads.key_size) + keys + values


def _rows(tensor: Tensor, rows: int, size: int) -> int:
    """Bytes of that many rows of so many elements; of what was expanded, the share that is stored."""
    return tensor.bytes * rows * size // tensor.elements if tensor.elements else 0


def _masks(arguments: Arguments) -> int:
    tensors = (arguments.tensor(role) for role in ("mask", "dropout_mask"))
    return sum(t.bytes for t in tensors if t is not None)


def _output_type(arguments: Arguments, query: Tensor) -> str:
    buffer = arguments.tensor("output")
    return buffer.element_type if buffer is not None else _OUTPUT_TYPES.get(query.element_type, query.element_type)


# Rotary position embedding: pairs of elements of queries and keys turned by an angle that the position gives.

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


# Writing to caches of keys and values, and what else only moves its operands to others, converting them.


def cache_update(arguments: Arguments) -> ModelledWork | None:
    """Rows of `key` and `value` (tokens, ...) to the places of `slots` in `cache`, whose elements they become.

    Of a batch that was padded only the step's own tokens are written, where its lengths are known.
    """
    key, value, cache, slots = (arguments.tensor(role) for role in ("key", "value", "cache", "slots"))
    if key is None or value is None or cache is None or slots is None or not key.shape or not key.shape[0]:
        return None
    rows = min(key.shape[0], slots.elements)
    if arguments.lengths is not None and arguments.lengths.queries is not None:
        rows = min(rows, arguments.lengths.queries)
    elements = (key.elements + value.elements) * rows // key.shape[0]
    read = (key.bytes + value.bytes) * rows // key.shape[0] + rows * ELEMENT_BITS[slots.element_type] // 8
    return ModelledWork(0, 0, read, elements * ELEMENT_BITS[cache.element_type] // 8)


FORMULAS: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {
    "attention": attention,
    "attention_backward": attention_backward,
    "flex_attention": flex_attention,
    "flex_attention_backward": flex_attention_backward,
    "latent_attention": latent_attention,
    "rotary": rotary,
    "cache_update": cache_update,
}
