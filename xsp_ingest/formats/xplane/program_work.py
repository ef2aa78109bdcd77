"""The work of an instruction by the sizes of what it takes and makes: flop, two a multiply-add, and bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import gcd, isqrt, prod
from typing import TYPE_CHECKING, Any

from xsp_ingest.formats.xplane.plane import message
from xsp_ingest.formats.xplane.program_graph import element_count, total_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from xsp_ingest.formats.xplane.program_graph import Array, Computation, Instruction, Program

__all__ = ["InstructionWork", "precision_of", "work_of"]

_MAX_STEPS = 1 << 20
_MAX_DIGITS = 18
_FORWARD_PRODUCTS = 2
_BACKWARD_PRODUCTS = 5  # the weights again, then one product for each gradient but of the weights two
_CONVOLUTIONS: Mapping[str, tuple[int, int, int]] = {  # where input, filter and output are; -1: the result
    "__cudnn$convForward": (0, 1, -1),
    "__cudnn$convForwardGraph": (0, 1, -1),
    "__cudnn$convBiasActivationForward": (0, 1, -1),
    "__cudnn$convBackwardInput": (-1, 1, 0),
    "__cudnn$convBackwardFilter": (0, -1, 1),
}
_MATMULS = ("__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8", "__cublas$lt$matmul$mx")
_ATTENTION = "__cudnn$fmha"


def dot_flop(computation: Computation, one: Instruction) -> int:
    """Of `dot`: each element of the result is a sum over the contracted dimensions."""
    dimensions = message("HloDotDimensions").FromString(one.message.dot_dimensions)
    return _product_flop(one.result[0], computation.operand(one, 0), dimensions.lhs_contracting)


def _product_flop(result: Array, left: Array, contracted: Sequence[int]) -> int:
    return 2 * result.elements * prod(_size(left, dimension) for dimension in contracted)


def _size(array: Array, dimension: int) -> int:
    if not 0 <= dimension < len(array.sizes):
        raise ValueError("a dimension that the array does not have")
    return array.sizes[dimension]


def convolution_flop(computation: Computation, one: Instruction) -> int:
    """Of `convolution`: multiplications with padding, and with what dilation puts between, are none."""
    arrays = computation.operand(one, 0), computation.operand(one, 1), one.result[0]
    return _convolution_flop(one, *arrays)


def _convolution_flop(one: Instruction, data: Array, kernel: Array, output: Array) -> int:
    """By the window and the dimensions of the forward convolution, whichever of the three is the result."""
    raw = one.message
    numbers = message("HloConvolutionDimensions").FromString(raw.convolution_dimensions)
    window = message("HloWindow").FromString(raw.window).dimensions
    spatial = list(zip(window, numbers.input_spatial, numbers.output_spatial, strict=True))
    batch = _size(data, numbers.input_batch)
    points = prod(_size(data, dimension) for dimension in numbers.input_spatial)
    features_in = data.elements // max(batch * points, 1)  # vectorised layouts part them into two dimensions
    kernel_points = prod(each.size for each in window)
    positions = prod(valid_positions(each, _size(data, at), _size(output, to)) for each, at, to in spatial)
    features_out = kernel.elements * max(raw.feature_group_count, 1) // max(kernel_points * features_in, 1)
    groups = max(raw.feature_group_count, 1) * max(raw.batch_group_count, 1)
    return int(2 * positions * batch * features_in * features_out // groups)


def valid_positions(window: Any, size: int, outputs: int) -> int:  # noqa: ANN401 (a message of protobuf)
    """How many pairs of an output and an element of the window meet an element of the input, in one dimension."""
    steps = [(outputs, max(window.stride, 1)), (window.size, max(window.window_dilation, 1))]
    (few, few_step), (many, many_step) = sorted(steps)
    apart = max(window.base_dilation, 1)
    if not 0 <= few <= _MAX_STEPS:
        raise ValueError("a window larger than any")
    last = (size - 1) * apart  # negative, and nothing fits, where there is no element
    offsets = (step * few_step - window.padding_low for step in range(few))
    return sum(_multiples(apart, last, offset, many_step, many) for offset in offsets)


def _multiples(apart: int, last: int, offset: int, step: int, count: int) -> int:
    """How many of `offset + i * step`, i below count, lie in 0..last and are multiples of `apart`."""
    common = gcd(step, apart)
    if offset % common:
        return 0
    period = apart // common
    first = (-offset // common) * pow(step // common, -1, period) % period if period > 1 else 0
    low = max(-(offset // step), 0)
    high = min((last - offset) // step, count - 1)
    start = low + (first - low) % period
    return (high - start) // period + 1 if high >= start else 0


def is_library_call(one: Instruction) -> bool:
    """Whether a custom call is one whose arithmetic is known: a product, a convolution or attention."""
    target = one.target
    return target in _MATMULS or target in _CONVOLUTIONS or target.startswith(_ATTENTION)


def library_flop(computation: Computation, one: Instruction) -> int | None:
    """Of a call of cuBLAS, cuDNN or what stands for them on other devices; None where its settings do not tell."""
    target = one.target
    if target in _CONVOLUTIONS:
        arrays = [one.result[0] if at < 0 else computation.operand(one, at) for at in _CONVOLUTIONS[target]]
        return _convolution_flop(one, *arrays)
    settings = _settings(one)
    if target in _MATMULS:
        return _matmul_flop(computation, one, _inner_settings(settings, "gemm_backend_config") or settings)
    if target.startswith(_ATTENTION):
        return _attention_flop(computation, one, _inner_settings(settings, "cudnn_fmha_backend_config") or settings)
    return None


def _settings(one: Instruction) -> dict[str, Any]:
    raw = one.message.backend_config
    settings = json.loads(raw) if raw.startswith(b"{") else {}
    return settings if isinstance(settings, dict) else {}


def _matmul_flop(computation: Computation, one: Instruction, settings: dict[str, Any]) -> int | None:
    left, right, result = computation.operand(one, 0), computation.operand(one, 1), one.result[0]
    numbers = _inner_settings(settings, "dot_dimension_numbers")
    if numbers:
        return _product_flop(result, left, _integers(numbers.get("lhs_contracting_dimensions")))
    if {len(each.sizes) for each in (left, right, result)} != {2} or not result.elements:
        return None
    square = left.elements * right.elements // result.elements  # m k * k n / m n
    return 2 * result.elements * isqrt(square) if isqrt(square) ** 2 == square else None


def _attention_flop(computation: Computation, one: Instruction, settings: dict[str, Any]) -> int | None:
    """Products of queries with keys and weights with values over the pairs that the mask leaves.

    Values are taken to be as long as keys. None with padding, whose lengths the program does not hold.
    """
    sizes = _integers(_inner_settings(settings, "intermediate_tensor_shape").get("dimensions"))
    if len(sizes) != 4 or "PADDING" in str(settings.get("mask_type", "")):  # noqa: PLR2004 (batch, heads, two lengths)
        return None
    batch, heads, queries, keys = sizes
    length = computation.operand(one, 0).elements // max(batch * heads * queries, 1)
    window = _integers([settings.get("sliding_window_length") or 0])[0]
    if "CAUSAL" in str(settings.get("mask_type", "")):
        pairs = _causal_pairs(queries, min(window, keys) if window > 0 else keys)
    else:
        pairs = queries * keys
    products = _BACKWARD_PRODUCTS if "Backward" in one.target else _FORWARD_PRODUCTS
    return 2 * products * batch * heads * pairs * length


def _causal_pairs(queries: int, at_most: int) -> int:
    """Of queries each of which attends to itself and those before, at most so many in all."""
    growing = min(queries, at_most)
    return growing * (growing + 1) // 2 + (queries - growing) * at_most


def _integers(values: object) -> list[int]:
    """Numbers as the settings' JSON has them, mostly as texts; ValueError where they are none."""
    texts = [str(value) for value in values] if isinstance(values, list) else []
    if not all(text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS for text in texts):
        raise ValueError("settings that are no whole numbers")
    return [int(text) for text in texts]


def _inner_settings(settings: dict[str, Any], key: str) -> dict[str, Any]:
    part = settings.get(key)
    return part if isinstance(part, dict) else {}


# Bytes that an instruction reads and writes at least: each operand once, of slices only what they take.
NO_WORK = frozenset(
    {
        *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id"),
        *("replica-id", "domain", "opt-barrier", "add-dependency", "get-dimension-size"),
    }
)
"""Instructions that do nothing by themselves."""
_UNKNOWN = frozenset(
    {
        *("while", "conditional", "call", "infeed", "outfeed", "send", "recv", "dynamic-reshape"),
    }
)
_UPDATES = frozenset({"dynamic-update-slice", "scatter"})
_TAKES_A_PART = frozenset({"slice", "dynamic-slice", "gather"})
_ONE_TO_ONE = frozenset(
    {"bitcast", "reshape", "convert", "copy", "transpose", "negate"}
)  # a part of one is of the other
_SCRATCH = frozenset({"s8", "u8"})
_MAX_DEPTH = 16


def traffic(program: Program, computation: Computation, one: Instruction) -> tuple[int, int] | None:
    """Bytes read and written; None where they are not known, or instructions that it calls do the work."""
    if one.opcode in NO_WORK:
        return 0, 0
    if one.opcode in _UNKNOWN or (one.opcode == "custom-call" and not is_library_call(one)):
        return None
    if one.opcode == "fusion":
        return _fusion(program, computation, one)
    return _WHICH.get(one.opcode, _all)(computation, one)


def _all(computation: Computation, one: Instruction) -> tuple[int, int]:
    return _read_once(computation, one), total_bytes(one.result)


def _slice_traffic(computation: Computation, one: Instruction) -> tuple[int, int]:
    """Of an array that a part is taken of, that part; and where it is."""
    where = sum(total_bytes(computation[number].result) for number in one.operand_ids[1:])
    return total_bytes(one.result) + where, total_bytes(one.result)


def _copy_traffic(computation: Computation, one: Instruction) -> tuple[int, int]:
    """Of `copy-start`, whose result is the old array and the new one."""
    moved = _read_once(computation, one)
    return moved, moved


def _library(computation: Computation, one: Instruction) -> tuple[int, int]:
    return _read_once(computation, one), total_bytes(_without_scratch(one.result))


def _read_once(computation: Computation, one: Instruction) -> int:
    return sum(total_bytes(arrays) for arrays in computation.operands(one))


def _update_traffic(computation: Computation, one: Instruction) -> tuple[int, int]:
    """Of an array in which a part is overwritten, or added to, only that part."""
    if len(one.result) != 1:
        return _all(computation, one)
    update = total_bytes(computation[_update_id(one)].result)
    if one.opcode == "dynamic-update-slice":
        return update, update
    indices = total_bytes(computation[one.operand_ids[1]].result)
    return indices + 2 * update, update


def _update_id(one: Instruction) -> int:
    """The operand that is written into the first one."""
    return one.operand_ids[-1] if one.opcode == "scatter" else one.operand_ids[1]


def _without_scratch(result: tuple[Array, ...]) -> tuple[Array, ...]:
    """The arrays but for the last one where it is the library's space to work in."""
    last = result[-1]
    is_scratch = len(result) > 1 and last.element_type in _SCRATCH and len(last.sizes) == 1
    return result[:-1] if is_scratch else result


def _fusion(program: Program, computation: Computation, one: Instruction) -> tuple[int, int]:
    """Of each operand what the fused instructions take of it, of the result what they do not leave as it was."""
    read: dict[int, int] = {}
    fused = program.first_callee(one)
    for position, operand in enumerate(one.operand_ids):
        arrays = computation[operand].result
        number = fused.parameters.get(position)
        taken = total_bytes(arrays)
        if number is not None and len(arrays) == 1:
            elements = _elements_taken(fused, number, arrays[0].elements)
            taken = -(-elements * arrays[0].bits // 8)
        read[operand] = max(read.get(operand, 0), taken)
    return sum(read.values()), sum(_result_bytes(fused, output) for output in _outputs(fused))


def _elements_taken(fused: Computation, number: int, size: int, *, is_operand: bool = True, depth: int = 0) -> int:
    """Elements of an instruction of so many that its users take, at most all.

    `is_operand`: it is the fusion's operand itself, so that what is written into it is written in place.
    """
    users = fused.users(number)
    if depth > _MAX_DEPTH or not users:
        return size
    taken = 0
    for user in users:
        is_first_only = user.operand_ids[0] == number and number not in user.operand_ids[1:]
        if user.opcode in _TAKES_A_PART and is_first_only:
            taken += element_count(user.result)
        elif user.opcode in _ONE_TO_ONE and user is not fused.root:
            stays = is_operand and user.opcode == "bitcast"
            taken += _elements_taken(fused, user.id, size, is_operand=stays, depth=depth + 1)
        elif user.opcode in _UPDATES and is_first_only and is_operand and user in _outputs(fused):
            taken += 0 if user.opcode == "dynamic-update-slice" else element_count(fused[_update_id(user)].result)
        else:
            return size
    return min(taken, size)


def _outputs(fused: Computation) -> list[Instruction]:
    """The instructions that make the results, seen through what only names them in another way."""
    roots = [fused[number] for number in fused.root.operand_ids] if fused.root.opcode == "tuple" else [fused.root]
    return [_behind(fused, root) for root in roots]


def _behind(fused: Computation, one: Instruction) -> Instruction:
    for _ in range(_MAX_DEPTH):
        if one.opcode != "bitcast":
            break
        one = fused[one.operand_ids[0]]
    return one


def _result_bytes(fused: Computation, output: Instruction) -> int:
    """Bytes of one result, or where it is an operand in which a part is overwritten, of the part."""
    if output.opcode in _UPDATES and _behind(fused, fused[output.operand_ids[0]]).opcode == "parameter":
        return total_bytes(fused[_update_id(output)].result)
    return total_bytes(output.result)


_WHICH: Mapping[str, Callable[[Computation, Instruction], tuple[int, int]]] = {
    **dict.fromkeys(_TAKES_A_PART, _slice_traffic),
    **dict.fromkeys(_UPDATES, _update_traffic),
    "copy-start": _copy_traffic,
    "custom-call": _library,
}


# The work of an instruction by the sizes of what it takes and makes.
_MAX = 1 << 62
_ELEMENTWISE = frozenset(
    {
        *("abs", "add", "and", "atan2", "cbrt", "ceil", "clamp", "compare", "cosine", "count-leading-zeros", "divide"),
        *("erf", "exponential", "exponential-minus-one", "floor", "is-finite", "log", "log-plus-one", "logistic"),
        *("maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "power", "remainder"),
        *("round-nearest-afz", "round-nearest-even", "rsqrt", "select", "shift-left", "shift-right-arithmetic"),
        *("shift-right-logical", "sign", "sine", "sqrt", "subtract", "tan", "tanh", "xor"),
    }
)
"""One operation an element of the result; conversions of types are none."""
_MOVES = NO_WORK | {
    *("bitcast-convert", "broadcast", "complex", "concatenate", "convert", "copy", "copy-start", "dynamic-slice"),
    *("dynamic-update-slice", "gather", "imag", "iota", "pad", "real", "reduce-precision", "reshape", "reverse", "rng"),
    *("rng-bit-generator", "rng-get-and-update-state", "slice", "sort", "stochastic-convert", "transpose"),
}
"""No arithmetic that is counted: of sorting the comparisons, of random numbers the bits are not."""
_DONE = "-done"


@dataclass(frozen=True, slots=True)
class InstructionWork:
    """What one run of an instruction does at least; None: not known.

    `flop`: of products, convolutions and attention; `vector_flop`: all other operations, as XLA counts them, but for
    conversions; `bus_bytes`: of collectives, what a device must send to others.
    """

    flop: int | None = None
    vector_flop: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    bus_bytes: int | None = None


def work_of(program: Program, computation: Computation, one: Instruction) -> InstructionWork:
    """Raises one of DAMAGE where the program is damaged."""
    if one.opcode.endswith(_DONE):
        return InstructionWork(0, 0, 0, 0)
    if one.opcode == "async-start":
        inner = program.first_callee(one)
        return work_of(program, inner, inner.root) if inner.root is not one else InstructionWork()
    kind = one.opcode.removesuffix("-start")
    if kind in _BUS:
        return _collective(program, computation, one, kind)
    flop, vector_flop = _arithmetic(program, computation, one, 0) or (None, None)
    read, written = traffic(program, computation, one) or (None, None)
    if any(not 0 <= (amount or 0) < _MAX for amount in (flop, vector_flop, read, written)):
        raise ValueError("more work than any instruction has")
    return InstructionWork(flop, vector_flop, read, written)


def precision_of(program: Program, computation: Computation, one: Instruction) -> str | None:
    """What its products are computed in, where their operands are narrower than FP32; of several, the first's."""
    for inside, each in _nested_instructions(program, computation, one, 0):
        if each.opcode in _PRODUCTS and (each.opcode != "custom-call" or is_library_call(each)):
            return _PRECISIONS.get(inside.operand(each, 0).element_type.partition("e")[0])
    return None


def _nested_instructions(
    program: Program, computation: Computation, one: Instruction, depth: int
) -> Iterator[tuple[Computation, Instruction]]:
    if one.opcode in {"fusion", "async-start"} and depth <= _MAX_DEPTH:
        called = program.first_callee(one)
        for each in called:
            yield from _nested_instructions(program, called, each, depth + 1)
    else:
        yield computation, one


_PRECISIONS = {
    "f64": "fp64",
    "f16": "fp16",
    "bf16": "bf16",
    "f8": "fp8",
    "s8": "int8",
    "u8": "int8",
}


def _arithmetic(program: Program, computation: Computation, one: Instruction, depth: int) -> tuple[int, int] | None:
    """Flop of products, and other operations."""
    if one.opcode in _MOVES:
        return 0, 0
    if one.opcode in _ELEMENTWISE:
        return 0, element_count(one.result)
    if one.opcode == "fusion":
        return _of_all(program, program.first_callee(one), depth)
    if one.opcode in _REPEATED and one.called_ids:
        each = _of_all(program, program.first_callee(one), depth)
        times = _REPEATED[one.opcode](computation, one)
        return each and (each[0] * times, each[1] * times)
    flop = _PRODUCTS.get(one.opcode, _unknown)(computation, one)
    return None if flop is None else (flop, 0)


def _of_all(program: Program, called: Computation, depth: int) -> tuple[int, int] | None:
    if depth > _MAX_DEPTH:
        raise ValueError("computations that call each other in a circle")
    parts = [_arithmetic(program, called, one, depth + 1) for one in called]
    counted = [part for part in parts if part is not None]
    if len(counted) < len(parts):
        return None
    return sum(flop for flop, _ in counted), sum(vector for _, vector in counted)


def _reduce_flop(computation: Computation, one: Instruction) -> int:
    """Each element of an operand but the first of each sum is one step."""
    return max(computation.operand(one, 0).elements - one.result[0].elements, 0)


def _in_windows(_: Computation, one: Instruction) -> int:
    return one.result[0].elements * max(_window_size(one) - 1, 0)


def _window_size(one: Instruction) -> int:
    return prod(each.size for each in message("HloWindow").FromString(one.message.window).dimensions)


def _map_flop(_: Computation, one: Instruction) -> int:
    return element_count(one.result)


def _select_flop(computation: Computation, one: Instruction) -> int:
    """Of each window which one is taken: the computation called first compares two."""
    return computation.operand(one, 1).elements * _window_size(one)


def _scatter_flop(computation: Computation, one: Instruction) -> int:
    return element_count(computation[one.operand_ids[-1]].result)


def _unknown(_: Computation, one: Instruction) -> None:  # noqa: ARG001 (of the type of the others)
    return None


_PRODUCTS: Mapping[str, Callable[[Computation, Instruction], int | None]] = {
    "custom-call": library_flop,
    "dot": dot_flop,
    "convolution": convolution_flop,
}
_REPEATED: Mapping[str, Callable[[Computation, Instruction], int]] = {
    "map": _map_flop,
    "reduce": _reduce_flop,
    "reduce-window": _in_windows,
    "scatter": _scatter_flop,
    "select-and-scatter": _select_flop,  # with the sum of what is scattered instead of the first comparison
}
"""How often an instruction runs the computation that it calls."""


def _collective(program: Program, computation: Computation, one: Instruction, kind: str) -> InstructionWork:
    taken = sum(total_bytes(arrays) for arrays in computation.operands(one))
    devices = 2 if kind == "collective-permute" else _group_size(program, one)
    if devices is None or devices < 1:
        return InstructionWork(0, None, taken)
    made = {"all-gather": taken * devices, "reduce-scatter": taken // devices}.get(kind, taken)
    return InstructionWork(0, None, taken, made, _BUS[kind](taken, devices))


_BUS: Mapping[str, Callable[[int, int], int]] = {  # by the bytes that a device brings and the devices of a group
    "all-reduce": lambda taken, devices: 2 * taken * (devices - 1) // devices,
    "reduce-scatter": lambda taken, devices: taken * (devices - 1) // devices,
    "all-to-all": lambda taken, devices: taken * (devices - 1) // devices,
    "all-gather": lambda taken, devices: taken * (devices - 1),
    "collective-permute": lambda taken, _: taken,
}


def _group_size(program: Program, one: Instruction) -> int | None:
    """Devices that work together, where the groups are alike; without groups all that run the program."""
    recorded = message("HloCollectiveDevices").FromString(one.message.collective_devices)
    groups = recorded.groups or one.message.replica_groups
    if recorded.regular_groups.devices_per_group:
        return int(recorded.regular_groups.devices_per_group)
    sizes = {len(group.replica_ids) for group in groups} - {0}
    if sizes:
        return sizes.pop() if len(sizes) == 1 else None
    return program.device_count
