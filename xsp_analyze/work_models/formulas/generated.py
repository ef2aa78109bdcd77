"""Kernels that a compiler generated (TorchInductor's, in Triton), from the operands that they are launched with.

PyTorch records the launch as an operator: pointers as tensors, in the order in-out, in, out (`python_argdefs` of
`torch/_inductor/codegen/common.py`), and after them the sizes of the grid as scalars. What the kernel computes with
them is not recorded.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

from xsp_analyze.work_models.call import ELEMENT_BITS, ModelledWork, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_analyze.work_models.call import Arguments

__all__ = ["COLLECTIVES", "FORMULAS"]

_MATRIX = 2
_FILTER_DIMENSIONS = 3  # dimensions of a filter of a convolution in one dimension of space


def generated_kernel(arguments: Arguments) -> ModelledWork | None:
    """Each operand once, of none more elements than the sizes of the grid make together; one operation for each.

    Least work: an operand that is read and written counts once, as which ones are is not recorded; the last is taken
    to be written. Sizes of the grid are the last scalars, at least `settings.sizes` of them: as many as an element of
    the last operand each needs. Those before them are sizes of shapes, bounds and the like. No more operations count
    than the largest operand has elements. None where no sizes are recorded: nothing tells then how much of an operand,
    which may be a table to gather from, is touched.
    """
    tensors = arguments.every_tensor()
    sizes = _grid_sizes(arguments, tensors[-1]) if tensors else []
    if not sizes:
        return None
    elements = min(prod(sizes), max(t.stored_elements for t in tensors))
    *read, written = (min(t.stored_elements, elements) * ELEMENT_BITS[t.element_type] // 8 for t in tensors)
    return ModelledWork(0, elements, sum(read), written)


def _grid_sizes(arguments: Arguments, output: Tensor) -> list[int]:
    """The fewest of the last scalars that reach each element of the output."""
    minimum = arguments.settings.get("sizes", 1)
    sizes: list[int] = []
    for size in reversed(_scalars(arguments)):
        is_reached = len(sizes) >= (minimum if isinstance(minimum, int) else 1)
        if not isinstance(size, int) or size <= 0 or (is_reached and prod(sizes) >= output.stored_elements):
            break
        sizes.append(size)
    return sizes


def _scalars(arguments: Arguments) -> list[object]:
    """The values of inputs that are no tensors, in order."""
    call = arguments.call
    return [value for each, value in zip(call.inputs, call.values, strict=False) if each is None]


def template(arguments: Arguments) -> ModelledWork | None:
    """A product or convolution that Inductor's template computes: of the first two operands that fit the last one.

    Epilogues that were fused into it are not counted but by the bytes of their operands.
    """
    tensors = arguments.every_tensor()
    output = tensors[-1] if tensors else None
    for left, right in pairwise(tensors[:-1]):
        if output is not None and (depth := _depth(left, right, output)):
            read = sum(t.bytes for t in tensors[:-1])
            return ModelledWork(2 * depth * output.elements, 0, read, output.bytes)
    return None


def _depth(left: Tensor, right: Tensor, output: Tensor) -> int | None:
    """How many products each element of the output is the sum of; None where the shapes are of no such operation."""
    if len(right.shape) >= _FILTER_DIMENSIONS and len(left.shape) == len(right.shape) == len(output.shape):
        channels = (left.shape[0], right.shape[0])
        if output.shape[:2] == channels and right.shape[1] and left.shape[1] % right.shape[1] == 0:
            return prod(right.shape[1:])
    if min(len(left.shape), len(right.shape)) < _MATRIX or left.shape[-1] != right.shape[-2]:
        return None
    batched = len(right.shape) > _MATRIX
    if batched and left.shape[:-_MATRIX] != right.shape[:-_MATRIX]:
        return None
    return left.shape[-1] if output.elements == prod(left.shape[:-1]) * right.shape[-1] else None


def streaming(arguments: Arguments) -> ModelledWork | None:
    """`settings.read` and `settings.written` list operands that each are moved once; those not there count nothing.

    The first of each has to be there. `settings.flop`: operations an element of those that `settings.of` lists, of the
    first that is read if it is not said.
    """
    read, written, counted = (_roles(arguments, setting) for setting in ("read", "written", "of"))
    if not read or not written:
        return None
    flop = arguments.settings.get("flop", 0)
    elements = sum(t.elements for t in counted) if counted else read[0].elements
    operations = elements * flop if isinstance(flop, int) else 0
    return ModelledWork(0, operations, sum(t.bytes for t in read), sum(t.bytes for t in written))


def _roles(arguments: Arguments, setting: str) -> Sequence[Tensor]:
    """The operands that a setting lists; none where the first of them is not there."""
    roles = arguments.settings.get(setting)
    tensors = [arguments.tensor(str(role)) for role in (roles if isinstance(roles, list) else [])]
    return [] if not tensors or tensors[0] is None else [t for t in tensors if t is not None]


FORMULAS: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {
    "generated_kernel": generated_kernel,
    "streaming": streaming,
    "template": template,
}


# Collectives: bytes that a rank must send to the others, where the shapes alone tell them.
# Where the trace records sizes and group, `frames.collectives.modelled_collectives` knows more, kernel by kernel.


def gather_or_scatter(arguments: Arguments) -> ModelledWork | None:
    """`input` and `output`, one of which is the whole and the other a rank's part: all but the own part is sent.

    That is (n - 1) / n of the whole of n ranks: nccl-tests, doc/PERFORMANCE.md. The ranks are counted by the shapes, or
    by the input `ranks` where there is no output.
    """
    sent, received = arguments.tensor("input"), arguments.tensor("output")
    if sent is None:
        return None
    if received is not None:
        bus, written = abs(received.bytes - sent.bytes), received.bytes
        return ModelledWork(0, 0, sent.bytes, written, bus)
    ranks = arguments.value("ranks")
    if type(ranks) is not int or ranks < 1:
        return None
    if arguments.settings.get("scatters"):
        part = sent.bytes // ranks
        return ModelledWork(0, 0, sent.bytes, part, sent.bytes - part)
    return ModelledWork(0, 0, sent.bytes, sent.bytes * ranks, sent.bytes * (ranks - 1))


def exchange(arguments: Arguments) -> ModelledWork | None:
    """`input` in as many parts as `splits` has sizes, one for each rank: all but the own one is sent.

    Which part is the own one is not recorded: (n - 1) / n of the whole, as in nccl-tests, doc/PERFORMANCE.md.
    """
    sent, splits = arguments.tensor("input"), arguments.value("splits")
    if sent is None or not isinstance(splits, list) or not splits:
        return None
    received = arguments.tensor("output")
    written = sent.bytes if received is None else received.bytes
    return ModelledWork(0, 0, sent.bytes, written, sent.bytes * (len(splits) - 1) // len(splits))


def message(arguments: Arguments) -> ModelledWork | None:
    """`input`, all of which a rank sends at least once, with how many others it may be: of more than two nearly twice.

    None where an operator inside that `settings.inside` lists is there: it records the group, or has no copies around
    it.
    """
    sent, inside = arguments.tensor("input"), arguments.settings.get("inside")
    if sent is None or (isinstance(inside, list) and any(call.name in inside for call in arguments.call.inner_calls)):
        return None
    return ModelledWork(0, 0, sent.bytes, sent.bytes, sent.bytes)


COLLECTIVES: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {
    "exchange": exchange,
    "gather_or_scatter": gather_or_scatter,
    "message": message,
}
