"""Mixture of experts: routing, and the products of all experts in one operator."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

from xsp_analyze.work_models.call import ModelledWork, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_analyze.work_models.call import Arguments, Call

__all__ = ["FORMULAS"]

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


FORMULAS: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {
    "experts": experts,
    "experts_inside": experts_inside,
    "routing": routing,
}
