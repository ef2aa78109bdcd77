"""The work of an instruction by the sizes of what it takes and makes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from xsp_ingest.formats.xplane.messages import message
from xsp_ingest.formats.xplane.programs.arrays import element_count, total_bytes
from xsp_ingest.formats.xplane.programs.products import convolution_flop, dot_flop, is_library_call, library_flop
from xsp_ingest.formats.xplane.programs.traffic import NO_WORK, traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from xsp_ingest.formats.xplane.programs.graph import Computation, Instruction, Program

__all__ = ["InstructionWork", "precision_of", "work_of"]

_MAX = 1 << 62
_MAX_DEPTH = 16
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
