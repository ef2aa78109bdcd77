"""Attention: products of queries with keys and of weights with values, forward and backward, and serving's.

What must be done at least is done in one pass, as flash attention does it: queries, keys and values are read once, and
weights are never in memory. Only pairs of a query and a key that it attends to count: by `is_causal` nearly half.
A mask that is a tensor may hold anything: all pairs count, as kernels compute them, and its bytes are read.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from xsp_analyze.work_models.attention_extent import Extent, Heads, extent_of, heads_of
from xsp_analyze.work_models.call import ELEMENT_BITS, Tensor
from xsp_analyze.work_models.work import ModelledWork

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.work_models.arguments import Arguments

__all__ = ["FORMULAS"]

_PAIR = 5  # vector flop a pair: scale, maximum, difference, exponential, sum
_LSE_BYTES = 4  # the logarithm of a query's sum, which the backward pass takes, is fp32
_OUTPUT_TYPES = {"fp8": "bf16", "int8": "bf16"}  # what comes out of products of such types, unless a buffer was given


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


FORMULAS: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {
    "attention": attention,
    "attention_backward": attention_backward,
    "flex_attention": flex_attention,
    "flex_attention_backward": flex_attention_backward,
    "latent_attention": latent_attention,
}
