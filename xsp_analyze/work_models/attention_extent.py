"""How many keys the queries of a call of attention attend to, from shapes, masks and the lengths of requests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xsp_analyze.work_models.call import Arguments, ServingLengths, Tensor

__all__ = ["Extent", "Heads", "extent_of", "heads_of"]

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
