"""Attention: products of queries with keys and of weights with values, rotary embedding, and caches of both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from xsp_analyze.work_models.call import ELEMENT_BITS, ModelledWork, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.work_models.call import Arguments, ServingLengths

__all__ = ["FORMULAS", "Extent", "Heads", "extent_of", "heads_of"]

# How many keys the queries of a call of attention attend to, from shapes, masks and the lengths of requests.

_ROWS, _BATCHED = 3, 4  # dimensions: of heads and sequence, and with a batch
_FIRST, _LAST = -3, -2  # where heads are
_MASKS = (0, 1, 2)  # numbers as `custom_mask_type` has them, and as truth values are
_BOTTOM_RIGHT = 2  # of `custom_mask_type`: the triangle ends at the last query and the last key


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads of queries, and of keys and values, which groups of them may share; elements of one of each."""

    queries: int
    keys: int
    key_size: int
    value_size: int


@dataclass(frozen=True, slots=True)
class Extent:
    """Of one head, over the batch: queries, keys that any of them attends to, and pairs of a query and such a key."""

    queries: int
    keys: int
    pairs: int


@dataclass(frozen=True, slots=True)
class _Band:
    """Which keys a query attends to: from `left` before its own to `right` after it; None: without a bound."""

    left: int | None = None
    right: int | None = None
    bottom_right: bool = False  # the last query's own key is the last one; else the first's is the first

    def extent(self, batch: int, queries: int, keys: int) -> Extent:
        """Of `batch` requests, each of that many queries and keys."""
        own = keys - queries if self.bottom_right else 0
        end = keys if self.right is None else min(keys, max(0, own + queries + self.right))
        begin = 0 if self.left is None else min(end, max(0, own - self.left))
        pairs = queries * keys if self.right is None else _rising(own + self.right + 1, queries, keys)
        pairs -= 0 if self.left is None else _rising(own - self.left, queries, keys)
        return Extent(batch * queries, batch * (end - begin), batch * max(0, pairs))


def _rising(first: int, count: int, limit: int) -> int:
    """The sum of first, first + 1, ... over `count` terms, none of them below 0 or above `limit`."""
    return _from_zero(first + count, limit) - _from_zero(first, limit)


def _from_zero(end: int, limit: int) -> int:
    """The sum of 0, 1, ... below `end`, none above `limit`."""
    below = min(max(end, 0), limit + 1)
    return below * (below - 1) // 2 + max(0, end - limit - 1) * limit


def heads_of(arguments: Arguments, query: Tensor, key: Tensor, value: Tensor) -> Heads | None:
    """By the settings `layout`, and of a cache of pages `key_heads_axis`; None where shapes do not fit.

    `layout`: `heads_first` is (..., heads, sequence, size), as SDPA has it, `heads_last` (..., sequence, heads, size),
    or of queries (sequence, heads times size).
    """
    axis = _FIRST if arguments.settings.get("layout") == "heads_first" else _LAST
    key_axis = arguments.settings.get("key_heads_axis", axis)
    if not isinstance(key_axis, int) or not query.shape or not query.elements * key.elements:
        return None
    if min(len(key.shape), len(value.shape)) < _ROWS:
        return None
    if key_axis == axis:
        size, value_size = key.shape[-1], value.shape[-1]
    else:
        size = value_size = query.shape[-1]
    heads = 0 if axis == _FIRST and len(query.shape) != len(key.shape) else _query_heads(query, axis, size)
    key_heads = key.shape[key_axis]
    return Heads(heads, key_heads, size, value_size) if heads and heads % key_heads == 0 else None


def _query_heads(query: Tensor, axis: int, size: int) -> int:
    """0 where their size is another."""
    if len(query.shape) == _ROWS - 1 and axis == _LAST:
        return 0 if query.shape[-1] % size else query.shape[-1] // size
    if len(query.shape) < _ROWS or query.shape[-1] != size or (len(query.shape) > _BATCHED and axis == _LAST):
        return 0
    return query.shape[axis]


def extent_of(arguments: Arguments, heads: Heads, query: Tensor, key: Tensor) -> Extent | None:
    """None where lengths or mask were not recorded: lengths that tensors hold are those of the serving step, if any.

    `settings.at_least`: inputs of a call; one of an older release has fewer, and others.
    """
    band = _band(arguments)
    fewest = arguments.settings.get("at_least", 0)
    if band is None or (isinstance(fewest, int) and len(arguments.call.inputs) < fewest):
        return None
    rows, key_rows = query.elements // (heads.queries * heads.key_size), key.elements // (heads.keys * heads.key_size)
    cumulative = arguments.tensor("cumulative")
    if arguments.settings.get("serving") or any(arguments.tensor(role) for role in ("pages", "used_keys")):
        return _of_step(arguments.lengths, band, rows) or _of_new(arguments, band, cumulative, rows)
    if cumulative is not None:
        return _of_equal(arguments, band, cumulative, rows, key_rows) or _of_step(arguments.lengths, band, rows)
    batch, key_batch = prod(query.shape[:-_ROWS]), prod(key.shape[:-_ROWS])
    if not batch or not key_batch or (batch != key_batch and min(batch, key_batch) > 1):
        return None
    extent = band.extent(max(batch, key_batch), rows // batch, key_rows // key_batch)
    return replace(extent, keys=extent.keys // max(batch, key_batch) * key_batch)


def _of_new(arguments: Arguments, band: _Band, cumulative: Tensor | None, rows: int) -> Extent | None:
    """Of requests whose keys lie in pages, if all are as long as the longest, and no key is of an earlier step."""
    longest = arguments.value("max_queries")
    if cumulative is None or not isinstance(longest, int) or arguments.value("max_keys") != longest:
        return None
    is_full = rows == longest * (cumulative.elements - 1)
    return _of_equal(arguments, band, cumulative, rows, rows) if is_full else None


def _of_equal(arguments: Arguments, band: _Band, cumulative: Tensor, rows: int, key_rows: int) -> Extent | None:
    """Of requests one after the other in one dimension, if it is one or all are as long as the longest."""
    batch = cumulative.elements - 1
    longest, longest_key = arguments.value("max_queries"), arguments.value("max_keys")
    if batch == 1 or (batch > 1 and (rows, key_rows) == (_times(longest, batch), _times(longest_key, batch))):
        return band.extent(batch, rows // batch, key_rows // batch)
    return None


def _times(length: object, batch: int) -> int | None:
    return length * batch if isinstance(length, int) else None


def _of_step(lengths: ServingLengths | None, band: _Band, rows: int) -> Extent | None:
    """Of the requests of a serving step, if the call holds all their queries: an engine may split them over calls."""
    if lengths is None or lengths.queries is None or lengths.keys is None or lengths.queries > rows:
        return None
    if band.left is not None or band.right not in {None, 0} or lengths.queries_keys is None:
        return None
    if band.right is None:
        return Extent(lengths.queries, lengths.keys, lengths.queries_keys)
    if lengths.queries_squared is None:
        return None
    later = (lengths.queries_squared - lengths.queries) // 2  # new tokens do not attend to those after them
    return Extent(lengths.queries, lengths.keys, lengths.queries_keys - later)


def _band(arguments: Arguments) -> _Band | None:
    """None where a mask or a window that the operator takes was not recorded."""
    causal = arguments.value("causal", arguments.settings.get("causal"))
    if not isinstance(causal, int) or causal not in _MASKS:
        return None
    window = arguments.value("window")
    pair = window if isinstance(window, list) and len(window) == len("lr") else (None, None)
    left, right = (
        _limit_of(arguments.value(role, side)) for role, side in zip(("window_left", "window_right"), pair, strict=True)
    )
    size = arguments.value("window_size")
    left = size - 1 if isinstance(size, int) and size > 0 else left  # keys that a query sees, its own among them
    corner = causal == _BOTTOM_RIGHT or arguments.settings.get("causal_end") == "bottom_right"
    return _Band(left, 0 if causal else right, corner)


def _limit_of(value: object) -> int | None:
    """Windows below 0 have no bound."""
    return value if isinstance(value, int) and value >= 0 else None


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
    """The backward pass of `flex_attention`."""
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
