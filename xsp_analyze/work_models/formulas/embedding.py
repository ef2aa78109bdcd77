"""Operators that read, or write, the rows of a table that indices name; FBGEMM's lookups and jagged tensors."""

from __future__ import annotations

from itertools import permutations
from math import prod
from typing import TYPE_CHECKING

from xsp_analyze.work_models.call import ELEMENT_BITS, ModelledWork, Tensor, number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_analyze.work_models.call import Arguments, Call

__all__ = ["EXPERTS", "FORMULAS"]


def gather(arguments: Arguments) -> ModelledWork | None:
    """Of `table` what `index` names, and the index, are read; it is written once.

    No more is read than the whole table: rows that are named twice stay in caches. `settings.picks`: what an index
    names, see `_elements_picked`. `settings.bags`: the rows of each entry of `bags` become one row. `weight`: read too.
    """
    table, index = arguments.tensor("table"), arguments.tensor("index")
    picked = _elements_picked(arguments, table, index)
    if table is None or index is None or picked is None:
        return None
    bags, written = arguments.tensor("bags"), picked
    if arguments.settings.get("bags"):
        if bags is None:
            return None
        ends = 1 if arguments.value("include_last") is True else 0
        written = (bags.elements - ends) * _row(table)
    beside = sum(t.bytes for t in (index, bags, arguments.tensor("weight")) if t is not None)
    size = _bytes(table, written)
    flop = arguments.settings.get("flop", 0)
    return ModelledWork(
        0, picked * (flop if isinstance(flop, int) else 0), min(_bytes(table, picked), table.bytes) + beside, size
    )


def scatter(arguments: Arguments) -> ModelledWork | None:
    """`source` goes into `table` at `index`, both read. What is not in place copies the rest of the table too.

    `settings.adds`: what lies there is read as well. Along a dimension as many elements are
    written as the source has; so they are where no index was recorded, as of lists: the least, as it may be broadcast.
    """
    table, index, source = (arguments.tensor(role) for role in ("table", "index", "source"))
    if table is None:
        return None
    picked = source.elements if source else None
    if "index" in arguments.operands and not (source and arguments.settings.get("picks") == "dim"):
        picked = _elements_picked(arguments, table, index)
    if picked is None:
        return None
    moved = min(_bytes(table, picked), table.bytes)
    read = sum(t.bytes for t in (index, source) if t is not None)
    if arguments.settings.get("picks") == "elements" and source is not None:
        read -= source.bytes - min(source.bytes, _bytes(source, picked))
    adds = arguments.settings.get("adds") is True or arguments.value("adds") is True
    flop = picked if adds else 0
    if not arguments.call.name.endswith("_"):
        return ModelledWork(0, flop, table.bytes + read, _bytes(table, table.elements))
    return ModelledWork(0, flop, read + (moved if adds else 0), moved)


def table_gradient(arguments: Arguments) -> ModelledWork | None:
    """The gradient of a table of `rows` rows, all of which are written; `gradient` and `index` are read."""
    gradient, index, rows = arguments.tensor("gradient"), arguments.tensor("index"), number(arguments.value("rows"))
    if gradient is None or index is None or rows is None or arguments.value("sparse") is True:
        return None
    beside = sum(t.bytes for t in (index, arguments.tensor("weight")) if t is not None)
    width = gradient.shape[-1]
    return ModelledWork(0, index.elements * width, gradient.bytes + beside, _bytes(gradient, int(rows) * width))


def picked_loss(arguments: Arguments) -> ModelledWork | None:
    """Of each row of `input` the element of the class that `target` names; one mean unless `reduction` is 0."""
    scores, target = arguments.tensor("input"), arguments.tensor("target")
    if scores is None or target is None:
        return None
    weight = arguments.tensor("weight")
    losses = target.elements if arguments.value("reduction") == 0 else 1
    read = _bytes(scores, target.elements) + target.bytes + (weight.bytes if weight else 0)
    return ModelledWork(0, 2 * target.elements, read, _bytes(scores, losses + 1))  # and the total weight


def _elements_picked(arguments: Arguments, table: Tensor | None, index: Tensor | None) -> int | None:
    """Elements of the table that the index names: `rows` of its first dimension, along `dim`, or single `elements`."""
    if table is None or index is None:
        return None
    kind = arguments.settings.get("picks")
    if kind == "rows":
        return index.elements * _row(table)
    if kind == "elements":
        return index.elements
    rank = len(table.shape)
    dimension = number(arguments.value("dim", 0 if rank == 1 else None))
    if dimension is None or not -rank <= dimension < rank:
        return None
    return index.elements * prod(size for at, size in enumerate(table.shape) if at != int(dimension) % rank)


def _row(table: Tensor) -> int:
    return prod(table.shape[1:])


def _bytes(tensor: Tensor, elements: int) -> int:
    return elements * ELEMENT_BITS[tensor.element_type] // 8


# FBGEMM's operators of recommendation models: lookups in tables of embeddings, and jagged tensors.
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


def permutation(arguments: Arguments) -> ModelledWork | None:
    """`lengths` (features, batch) and jagged `indices`, and `weights` if there are any, in another order of features.

    None where `order` has another number of features: what is left out or repeated is not recorded.
    """
    order, lengths, indices = (arguments.tensor(role) for role in ("order", "lengths", "indices"))
    if order is None or lengths is None or indices is None or order.shape[:1] != lengths.shape[:1]:
        return None
    weights = arguments.tensor("weights")
    moved = lengths.bytes + indices.bytes + (0 if weights is None else weights.bytes)
    return ModelledWork(0, 0, moved + order.bytes, moved)


def padding(arguments: Arguments) -> ModelledWork | None:
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
    "gather": gather,
    "scatter": scatter,
    "table_gradient": table_gradient,
    "picked_loss": picked_loss,
    "lookup": lookup,
    "padding": padding,
    "permutation": permutation,
}


# Mixture of experts: routing, and the products of all experts in one operator.

_STACKED = 3  # dimensions of the experts' matrices, stacked


def experts(arguments: Arguments) -> ModelledWork | None:
    """`features` (tokens, hidden) through `up` (experts, n, hidden) and `down` (experts, hidden, inner) of k experts.

    k is the last size of `chosen` (tokens, k); n is twice `inner` where the activation is gated. Weights of less than
    a byte are packed in the last dimension. Weights are those of the experts that so many tokens are expected to hit,
    each its own k of all with equal chances: which ones they chose is not recorded. None where an `expert map` says
    that not all of them are on this device.
    """
    features, up, down, chosen = (arguments.tensor(role) for role in ("features", "up", "down", "chosen"))
    if features is None or up is None or down is None or chosen is None or not chosen.shape:
        return None
    hidden, pairs = features.shape[-1], chosen.elements
    if not _fits(features, up, down, chosen) or _is_shared_out(arguments):
        return None
    inner = down.shape[2] * _weights_per_element(up, up.shape[2], hidden)
    tokens = features.elements // hidden if hidden else 0
    weights = round((up.bytes + down.bytes) * _share_hit(up.shape[0], chosen.shape[-1], tokens))
    flop = 2 * pairs * hidden * (up.shape[1] + inner)
    precision = "fp8" if up.element_type == "fp8" else None
    return ModelledWork(flop, 0, features.bytes + weights + chosen.bytes, features.bytes, precision=precision)


def _share_hit(experts: int, k: int, tokens: int) -> float:
    """The share of experts of which at least one token is expected, each taking `k` of them with equal chances.

    One that a token leaves out it does with a chance of 1 - k / experts, and all tokens with that to their number.
    """
    return 1 - (1 - min(k, experts) / experts) ** tokens if experts else 0.0


def _fits(features: Tensor, up: Tensor, down: Tensor, chosen: Tensor) -> bool:
    if len(up.shape) != _STACKED or len(down.shape) != _STACKED or not features.shape:
        return False
    hidden = features.shape[-1]
    tokens = features.elements // hidden if hidden else 0
    inner = down.shape[2] * _weights_per_element(up, up.shape[2], hidden)
    same = up.shape[0] == down.shape[0] and down.shape[1] == hidden and tokens * chosen.shape[-1] == chosen.elements
    return (
        same
        and up.shape[2] * _weights_per_element(up, up.shape[2], hidden) == hidden
        and up.shape[1] in {inner, 2 * inner}
    )


def _weights_per_element(up: Tensor, size: int, hidden: int) -> int:
    """How many weights are in an element, if so many meet the hidden size: 4-bit ones are two in a byte."""
    return 2 if size * 2 == hidden and up.element_type in {"uint8", "int8"} else 1


def _is_shared_out(arguments: Arguments) -> bool:
    """Whether an input behind the chosen experts maps them to those of this device: whole numbers in one dimension."""
    behind = arguments.call.inputs[arguments.operands["chosen"] + 1 :]
    return any(isinstance(t, Tensor) and t.element_type in {"int32", "int64"} and len(t.shape) == 1 for t in behind)


def experts_inside(arguments: Arguments) -> ModelledWork | None:
    """`features` (tokens, hidden) through the experts that the operators inside take, chosen by `scores`.

    Inside, `settings.routing` takes the scores and k; the experts' matrices (experts, hidden, n) and (experts, inner,
    hidden) are what else has a size for each expert. Weights are those of the experts expected: as `experts`.
    """
    features, scores = arguments.tensor("features"), arguments.tensor("scores")
    matrices = _stacked_matrices(arguments.call.inner_calls, scores.shape[-1]) if scores and scores.elements else []
    k = _experts_per_token(arguments)
    if features is None or scores is None or k is None or len(matrices) != 2:  # noqa: PLR2004 (up and down)
        return None
    inner = next((n for up, down in permutations(matrices) if (n := _inner(features.shape[-1], up, down))), None)
    if inner is None:
        return None
    hidden, up_size = features.shape[-1], sum(each.shape[2] for each in matrices) - features.shape[-1]
    tokens, count = scores.elements // scores.shape[-1], scores.shape[-1]
    pairs = tokens * k
    weights = round(sum(each.bytes for each in matrices) * _share_hit(count, k, tokens))
    flop = 2 * pairs * (hidden * up_size + inner * hidden)
    return ModelledWork(flop, scores.elements + pairs * hidden, features.bytes + scores.bytes + weights, features.bytes)


def _inner(hidden: int, up: Tensor, down: Tensor) -> int | None:
    """The size between two matrices of experts; None where they are none from and to the hidden size."""
    a_byte = _weights_per_element(up, up.shape[1], hidden)
    inner = down.shape[1] * a_byte
    fits = up.shape[1] * a_byte == hidden and down.shape[2] == hidden and up.shape[2] in {inner, 2 * inner}
    return inner if fits else None


def _stacked_matrices(calls: Sequence[Call], count: int) -> list[Tensor]:
    """The different matrices of so many experts among the inputs of calls."""
    tensors = [t for call in calls for t in call.inputs if isinstance(t, Tensor)]
    return [*dict.fromkeys(t for t in tensors if len(t.shape) == _STACKED and t.shape[0] == count)]


def _experts_per_token(arguments: Arguments) -> int | None:
    """How many experts each token takes: the second input of the operator inside that routes."""
    routing = arguments.settings.get("routing")
    counts = [call.values[1] for call in arguments.call.inner_calls if call.name == routing and len(call.values) > 1]
    return counts[0] if counts and type(counts[0]) is int and counts[0] > 0 else None


def routing(arguments: Arguments) -> ModelledWork | None:
    """The `k` largest of `scores` (tokens, experts) and which they are: reads all, writes a weight and a number each.

    Least work: a number takes two bytes at least, and comparing one operation a score.
    """
    scores, k = arguments.tensor("scores"), arguments.value("k")
    if scores is None or type(k) is not int or not scores.shape or not scores.shape[-1]:
        return None
    chosen = scores.elements // scores.shape[-1] * k
    return ModelledWork(0, scores.elements, scores.bytes, chosen * (scores.like((1,)).bytes + 2))


EXPERTS: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {
    "experts": experts,
    "experts_inside": experts_inside,
    "routing": routing,
}
