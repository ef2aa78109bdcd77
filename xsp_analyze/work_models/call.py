"""A call of an operator as the profiler recorded it: its inputs by the roles of a work model, and its work.

A model's `settings.outputs` lists the results of a call, each a table of

    like = "input"         # of this operand's shape; "broadcast" (the default): of that of all operands
    one = true             # one element; for a list one for each of its tensors
    parts = 2              # one element for so many
    channels = true        # one element for each of the second dimension
    without = "dims"       # not the dimensions that this input names; all where it names none
    resized = "k"          # with this many along the dimension `dim`, or the last
    over = "sizes"         # one element for so many as the product of this input
    product = ["n", "g"]   # as many elements as the product of these inputs, numbers or lists of them
    reduction = "r"        # one element, unless this input (an `at::Reduction`) is 0
    type = "int64"         # an element type, or an operand of that type; or
                           # "float": integers become fp32; "long": integers become int64; "wide": 16 bits become fp32
    when = "training"      # only if this input is true
    needed = 0             # only if the input `needed` (an output_mask) is true at this position, or was not recorded
"""

from __future__ import annotations

import json
from ast import literal_eval
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "ELEMENT_BITS",
    "NOTHING",
    "SCALAR_TYPES",
    "Arguments",
    "Call",
    "ModelledWork",
    "ServingLengths",
    "Shape",
    "Tensor",
    "broadcast",
    "call_of",
    "number",
    "numbers",
    "promoted_type",
    "result_elements",
    "result_type",
]

Shape = tuple[int, ...]
ELEMENT_BITS = {
    "fp64": 64, "fp32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "fp4": 4, "complex64": 64, "complex128": 128,
    "int64": 64, "int32": 32, "int16": 16, "int8": 8, "uint8": 8, "bool": 8, "e8m0": 8,
    "8 bit": 8, "16 bit": 16, "32 bit": 32, "64 bit": 64, "128 bit": 128,  # of which only the size is known
}  # fmt: skip
"""Bits of one element of each type that a tensor may have here."""
_TYPES = {  # as PyTorch's profiler writes them (`Input type`): names of C++ types
    "double": "fp64",
    "float": "fp32",
    "c10::Half": "fp16",
    "c10::BFloat16": "bf16",
    "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e4m3fnuz": "fp8",
    "c10::Float8_e5m2": "fp8",
    "c10::Float8_e5m2fnuz": "fp8",
    "c10::Float8_e8m0fnu": "e8m0",
    "c10::Float4_e2m1fn_x2": "uint8",  # two in a byte, and counted as that byte in shapes
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
    "long": "int64",
    "long int": "int64",
    "unsigned long": "int64",
    "int": "int32",
    "unsigned int": "int32",
    "short": "int16",
    "short int": "int16",
    "unsigned short": "int16",
    "char": "int8",
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
    "c10::qint8": "int8",
    "c10::quint8": "uint8",
    "c10::qint32": "int32",
} | {  # as XLA writes them
    "pred": "bool", "s8": "int8", "s16": "int16", "s32": "int32", "s64": "int64", "u8": "uint8", "u16": "int16",
    "u32": "int32", "u64": "int64", "f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "c64": "complex64",
    "c128": "complex128", "f8e5m2": "fp8", "f8e4m3": "fp8", "f8e4m3fn": "fp8", "f8e4m3b11fnuz": "fp8",
    "f8e5m2fnuz": "fp8", "f8e4m3fnuz": "fp8", "f8e3m4": "fp8", "f8e8m0fnu": "e8m0", "f4e2m1fn": "fp4",
} | {  # as TensorFlow does
    "float16": "fp16", "half": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "int8": "int8",
    "int16": "int16", "int32": "int32", "int64": "int64", "uint8": "uint8", "uint16": "int16", "uint32": "int32",
    "uint64": "int64", "complex64": "complex64", "complex128": "complex128",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor. `element_type`: a key of ELEMENT_BITS. `strides`: in elements; None: not recorded."""

    shape: Shape
    element_type: str
    strides: Shape | None = None

    @property
    def elements(self) -> int:
        """How many elements a reader of all its indices sees."""
        return prod(self.shape)

    @property
    def stored_elements(self) -> int:
        """How many different ones lie in memory: a dimension of stride 0, which was expanded, counts once."""
        if self.strides is None:
            return self.elements
        return prod(size for size, stride in zip(self.shape, self.strides, strict=True) if stride)

    @property
    def bytes(self) -> int:
        """Bytes of the elements stored."""
        return self.stored_elements * ELEMENT_BITS[self.element_type] // 8

    def like(self, shape: Shape) -> Tensor:
        """A new tensor of the same type."""
        return Tensor(shape, self.element_type)


@dataclass(frozen=True, slots=True)
class ServingLengths:
    """What the step that a call ran in says of its requests: q new tokens of each, k tokens that they attend to.

    Sums over requests, of prefill and decode together; None: the annotation does not say.
    """

    queries: int | None = None  # sum of q
    keys: int | None = None  # sum of k
    queries_squared: int | None = None  # sum of q * q
    queries_keys: int | None = None  # sum of q * k


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `inputs` in order: a tensor, a tuple of tensors (a list of them), or None for what is neither.

    `values`: beside them the inputs that are no tensors as Python values (None: absent or not recorded).
    `following`: the first tensor of the next operator of the thread. `kernel_precision`: what the names of the kernels
    that it launched tell. `lengths`: of calls inside a step of a serving engine. `inner`: the names of the operators
    directly inside, of calls whose model asks by `settings.inside`; `inner_calls`: different ones of the operators that
    this setting lists.
    """

    name: str
    inputs: Sequence[Tensor | tuple[Tensor, ...] | None] = ()
    values: Sequence[object] = ()
    following: Tensor | None = None
    kernel_precision: str | None = None
    lengths: ServingLengths | None = None
    inner: Sequence[str] = ()
    inner_calls: Sequence[Call] = ()


def call_of(
    name: str,
    shapes: str | None,
    dtypes: str | None,
    strides: str | None = None,
    concrete: str | None = None,
    *,
    following: Tensor | None = None,
    kernel_precision: str | None = None,
    lengths: ServingLengths | None = None,
    inner: Sequence[str] = (),
    inner_calls: Sequence[Call] = (),
) -> Call | None:
    """The call from the texts of its columns (JSON lists); None where shapes are missing or nothing tells types."""
    inputs = _inputs(shapes, dtypes, strides) or _inputs_without_types(shapes, dtypes, kernel_precision)
    if inputs is None:
        return None
    values = [_value(each) for each in _list(concrete)]
    values += [None] * (len(inputs) - len(values))
    return Call(name, inputs, tuple(values), following, kernel_precision, lengths, inner, inner_calls)


@lru_cache(maxsize=4096)
def _inputs(
    shapes: str | None, dtypes: str | None, strides: str | None
) -> tuple[Tensor | tuple[Tensor, ...] | None, ...] | None:
    dims, types, steps = _list(shapes), _list(dtypes), _list(strides)
    if not dims or len(dims) != len(types):
        return None
    steps = steps if len(steps) == len(dims) else [None] * len(dims)
    return tuple(_input(*each) for each in zip(dims, types, steps, strict=True))


@lru_cache(maxsize=4096)
def _inputs_without_types(
    shapes: str | None, dtypes: str | None, element: str | None
) -> tuple[Tensor | tuple[Tensor, ...] | None, ...] | None:
    """Inputs of a file that has shapes and not one type, as torch 1.8 wrote them: all of the type that kernels tell."""
    dims = _list(shapes)
    if not dims or _list(dtypes) or element not in ELEMENT_BITS:
        return None
    return tuple(_tensor(shape, str(element), None) if shape else None for shape in dims)


def _input(shape: object, kind: object, strides: object) -> Tensor | tuple[Tensor, ...] | None:
    if kind == "TensorList":  # whose types the profiler does not write
        return _tensors_of_list(shape, strides)
    element = _TYPES.get(kind) if isinstance(kind, str) else None
    return _tensor(shape, element, strides) if element else None


def _tensors_of_list(shapes: object, strides: object) -> tuple[Tensor, ...] | None:
    if not isinstance(shapes, list) or not shapes:  # older profilers write an empty list for every list of tensors
        return None
    steps = strides if isinstance(strides, list) and len(strides) == len(shapes) else [None] * len(shapes)
    tensors = [_tensor(shape, UNKNOWN_TYPE, step) for shape, step in zip(shapes, steps, strict=True)]
    return tuple(t for t in tensors if t is not None) if None not in tensors else None


def _tensor(shape: object, element: str, strides: object) -> Tensor | None:
    sizes = _sizes(shape)
    steps = _sizes(strides)
    if sizes is None:
        return None
    return Tensor(sizes, element, steps if steps is not None and len(steps) == len(sizes) else None)


def _sizes(value: object) -> Shape | None:
    if not isinstance(value, list) or not all(type(each) is int and each >= 0 for each in value):
        return None
    return tuple(value)


def _list(text: str | None) -> list[object]:
    try:
        value = json.loads(text) if text else []
    except ValueError:
        return []
    return value if isinstance(value, list) else []


def _value(text: object) -> object:
    """A concrete input as a Python value: numbers, booleans and lists from their texts; None where it is empty."""
    if not isinstance(text, str):
        return text
    if text in _NAMED_VALUES:
        return _NAMED_VALUES[text]
    for read in (json.loads, literal_eval):  # the second reads `[True, False]` and `0.`, and takes longer
        with suppress(ValueError, SyntaxError):
            return read(text)
    return text


_NAMED_VALUES = {"": None, "None": None, "True": True, "False": False}
UNKNOWN_TYPE = "unknown"
"""The element type of tensors in lists, which profilers do not write; `Arguments` puts in what kernels' names tell."""


# A call's inputs by the roles that a work model gives them.


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a formula sees of a call. Roles are those of the model's `operands`, each the number of an input."""

    call: Call
    operands: Mapping[str, int]
    settings: Mapping[str, object]

    @property
    def lengths(self) -> ServingLengths | None:
        """Of a call inside a step of a serving engine: the lengths of its requests."""
        return self.call.lengths

    def tensor(self, role: str) -> Tensor | None:
        """The tensor of this role; None where there is none, or none was recorded."""
        operand = self._input(role)
        return operand if isinstance(operand, Tensor) else None

    def tensors(self, role: str) -> tuple[Tensor, ...] | None:
        """The list of tensors of this role; None where it is none, or where the size of its elements is not known."""
        operand = self._input(role)
        if not isinstance(operand, tuple):
            return None
        return self._with_kernel_type(operand)

    def value(self, role: str, default: object = None) -> object:
        """The input of this role that is no tensor; `default` where it is absent or was not recorded."""
        index = self.operands.get(role)
        if index is None or index >= len(self.call.values) or self.call.values[index] is None:
            return default
        return self.call.values[index]

    def every_tensor(self) -> tuple[Tensor, ...]:
        """All tensors among the inputs in order, lists laid out; those whose elements have no known size left out."""
        laid_out: list[Tensor] = []
        for each in self.call.inputs:
            laid_out += [each] if isinstance(each, Tensor) else self._with_kernel_type(each or ()) or ()
        return tuple(laid_out)

    def _input(self, role: str) -> Tensor | tuple[Tensor, ...] | None:
        index = self.operands.get(role)
        return None if index is None or index >= len(self.call.inputs) else self.call.inputs[index]

    def _with_kernel_type(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        if all(t.element_type != UNKNOWN_TYPE for t in tensors):
            return tensors
        kind = self.call.kernel_precision
        if kind not in ELEMENT_BITS:
            return None
        return tuple(replace(t, element_type=kind) for t in tensors)


# What a call has to do at least.


@dataclass(frozen=True, slots=True)
class ModelledWork:
    """The least work of one call. A field that is None is not known; 0 says that there is none.

    `flop`: of products and convolutions, two a multiply-add: what matrix units can do, and what MFU counts.
    `vector_flop`: all other arithmetic, one an operation (an exponential or a root is one).
    `read_bytes`, `written_bytes`: each operand once, as if caches kept everything for the length of the call.
    `bus_bytes`: of collectives, what a rank must at least send to others.
    `precision`: what the products are computed in, as peaks are named without `_tensor`: fp32, bf16, fp8, int8, ...;
    None: as the first operand is.
    """

    flop: int | None = 0
    vector_flop: int = 0
    read_bytes: int | None = None
    written_bytes: int | None = None
    bus_bytes: int | None = None
    precision: str | None = None

    @property
    def bytes(self) -> int | None:
        """Bytes read and written; None where either is not known."""
        if self.read_bytes is None or self.written_bytes is None:
            return None
        return self.read_bytes + self.written_bytes


NOTHING = ModelledWork(0, 0, 0, 0)
"""Of calls that only look at their operands in another way."""


# What a call makes: the shape that operands are broadcast to, the type that they are promoted to, the bytes written.

SCALAR_TYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "fp16", 6: "fp32", 7: "fp64", 9: "complex64",
    10: "complex128", 11: "bool", 15: "bf16", 23: "fp8", 24: "fp8", 25: "fp8", 26: "fp8",
    27: "int16", 28: "int32", 29: "int64",
}  # fmt: skip
"""Element types by the numbers of c10::ScalarType, as which the profiler writes a `dtype`."""
_NOT_READ = ("out", "shape")
_BOOL, _INTEGER, _FLOAT, _COMPLEX = range(4)
_DEFAULTS = ("bool", "int64", "fp32", "complex64")


def broadcast(tensors: Sequence[Tensor]) -> tuple[int, ...] | None:
    """The shape that these are brought to; None where they cannot be."""
    rank = max((len(t.shape) for t in tensors), default=0)
    padded = [(1,) * (rank - len(t.shape)) + t.shape for t in tensors]
    sizes = [{d for d in dims if d != 1} for dims in zip(*padded, strict=True)]
    if any(len(size) > 1 for size in sizes):
        return None
    return tuple(size.pop() if size else 1 for size in sizes)


def promoted_type(tensors: Iterable[Tensor], scalars: Iterable[object] = ()) -> str | None:
    """The result type by torch: a scalar, and a tensor without dimensions, only counts if of a higher category.

    A double without dimensions counts as a Python number, which is what it nearly always is. None: there is no operand.
    """
    tensors = list(tensors)
    dimensioned = [t.element_type for t in tensors if t.shape]
    zero_dimensional = [t.element_type for t in tensors if not t.shape]
    numbers_of = [_DEFAULTS[_category_of_number(n)] for n in scalars if isinstance(n, bool | int | float)]
    of_scalars = [t if t != "fp64" or not dimensioned else "fp32" for t in zero_dimensional]
    result: str | None = None
    for types in (dimensioned, of_scalars, numbers_of):
        if types and (result is None or _category(reduce(_higher, types)) > _category(result)):
            result = reduce(_higher, types) if result is None else _higher(result, reduce(_higher, types))
    return result


def number(value: object) -> float | int | None:
    """The value as a number: the profiler writes 2.0 as `2.`; None where it is none."""
    if isinstance(value, int | float):
        return value
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None


def numbers(value: object) -> list[float | int] | None:
    """The value, a list or one number, as a list of numbers; None where it is none."""
    if isinstance(value, str) and value.startswith("["):
        value = [each.strip() for each in value.strip("[]").split(",")]
    listed = [number(each) for each in (value if isinstance(value, list) else [value])]
    return None if None in listed else [each for each in listed if each is not None]


def result_elements(
    arguments: Arguments, output: Mapping[str, object], operands: Mapping[str, Tensor | tuple[Tensor, ...]]
) -> int | None:
    """Elements of this result; 0 where it is not made; None where what was recorded does not tell."""
    if not _is_made(arguments, output):
        return 0
    if "product" in output:
        return _product(arguments, output["product"])
    base = _base(output, operands)
    if base is None:
        return None
    if isinstance(base, tuple):
        return len(base) if output.get("one") else sum(t.elements for t in base)
    if output.get("one") or _is_reduced(arguments, output):
        return 1
    return _elements(arguments, output, base)


def result_type(
    arguments: Arguments, output: Mapping[str, object], operands: Mapping[str, Tensor | tuple[Tensor, ...]]
) -> str | None:
    """The element type of this result. A `dtype` among the inputs decides that of those that name no element type."""
    kind, dtype = output.get("type"), number(arguments.value("dtype"))
    if kind in ELEMENT_BITS:
        return str(kind)
    if dtype is not None or arguments.value("half_to_float") is True:
        return "fp32" if dtype is None else SCALAR_TYPES.get(int(dtype))
    like = operands.get(str(kind), operands.get(str(output.get("like"))))
    listed = (like,) if isinstance(like, Tensor) else like
    types = promoted_type(listed) if listed else _operands_type(arguments, operands)
    return None if types is None else _wider_type(types, kind)


def _operands_type(arguments: Arguments, operands: Mapping[str, Tensor | tuple[Tensor, ...]]) -> str | None:
    tensors = [t for role, t in operands.items() if isinstance(t, Tensor) and not role.startswith((*_NOT_READ, "mask"))]
    scalars = [number(arguments.value(role)) for role in arguments.operands if role.startswith("input")]
    return promoted_type(tensors, scalars)


def _wider_type(element_type: str, kind: object) -> str:
    category, bits = _category(element_type), ELEMENT_BITS[element_type]
    if kind == "float" and category < _FLOAT:
        return "fp32"
    if kind == "long" and category < _FLOAT:
        return "int64"
    return "fp32" if kind == "wide" and category == _FLOAT and bits <= ELEMENT_BITS["fp16"] else element_type


def _is_made(arguments: Arguments, output: Mapping[str, object]) -> bool:
    needed, made = arguments.value("needed"), output.get("needed")
    if isinstance(needed, list) and isinstance(made, int) and made < len(needed) and not needed[made]:
        return False
    return "when" not in output or arguments.value(str(output["when"])) is True


def _is_reduced(arguments: Arguments, output: Mapping[str, object]) -> bool:
    return "reduction" in output and arguments.value(str(output["reduction"])) != 0


def _base(
    output: Mapping[str, object], operands: Mapping[str, Tensor | tuple[Tensor, ...]]
) -> Tensor | tuple[Tensor, ...] | None:
    if "like" in output:
        return operands.get(str(output["like"]))
    tensors = [t for role, t in operands.items() if isinstance(t, Tensor) and not role.startswith(_NOT_READ)]
    shape = broadcast(tensors) if tensors else None
    return None if shape is None else tensors[0].like(shape)


def _elements(arguments: Arguments, output: Mapping[str, object], base: Tensor) -> int | None:
    if output.get("channels"):
        return base.shape[1] if len(base.shape) > 1 else None
    if "without" in output:
        return _elements_left(base, numbers(arguments.value(str(output["without"]), [])))
    if "resized" in output:
        return _elements_resized(
            base, number(arguments.value("dim", -1)), number(arguments.value(str(output["resized"])))
        )
    parts = output.get("parts", 1)
    if "over" in output:
        sizes = numbers(arguments.value(str(output["over"])))
        parts = int(prod(sizes)) if sizes else None
    return base.elements // parts if isinstance(parts, int) and parts else None


def _elements_left(base: Tensor, dimensions: list[float | int] | None) -> int | None:
    rank = len(base.shape)
    if dimensions is None or any(not -rank <= d < rank for d in dimensions):
        return 1 if dimensions is not None and not rank else None
    reduced = {int(d) % rank for d in dimensions} or set(range(rank))
    return prod(size for at, size in enumerate(base.shape) if at not in reduced)


def _elements_resized(base: Tensor, dimension: float | None, size: float | None) -> int | None:
    rank = len(base.shape)
    if dimension is None or size is None or not -rank <= dimension < rank:
        return None
    shape = list(base.shape)
    shape[int(dimension)] = int(size)
    return prod(shape)


def _product(arguments: Arguments, roles: object) -> int | None:
    values = [numbers(arguments.value(role)) for role in roles] if isinstance(roles, list) else [None]
    return None if None in values else int(prod(n for each in values for n in each or ()))


def _category(element_type: str) -> int:
    if element_type.startswith("complex"):
        return _COMPLEX
    if element_type.startswith(("fp", "bf", "e8")):
        return _FLOAT
    return _BOOL if element_type == "bool" else _INTEGER


def _category_of_number(value: float) -> int:
    return _BOOL if isinstance(value, bool) else _INTEGER if isinstance(value, int) else _FLOAT


def _higher(one: str, other: str) -> str:
    """The type that elements of both become."""
    if one == other:
        return one
    low, high = sorted((one, other), key=lambda each: (_category(each), ELEMENT_BITS[each]))
    if {low, high} == {"fp16", "bf16"}:
        return "fp32"
    if {low, high} == {"int8", "uint8"}:
        return "int16"
    return "complex128" if high == "complex64" and low == "fp64" else high
