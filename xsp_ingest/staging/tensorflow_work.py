"""The least work of TensorFlow's operators, by their types and the tensors that they take and, where known, make."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["TensorflowWork", "tensorflow_metrics", "tensorflow_work"]

_MAX_ELEMENTS = 1 << 62
_SOURCE = "modelled by TensorFlow's shapes"
_BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8", "qint8", "quint8"), 1),
    **dict.fromkeys(("half", "float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("float", "float32", "int32", "uint32"), 4),
    **dict.fromkeys(("double", "float64", "int64", "uint64", "complex64"), 8),
    "complex128": 16,
}
_PRECISIONS = {
    **dict.fromkeys(("half", "float16"), "fp16"),
    "bfloat16": "bf16",
    **dict.fromkeys(("double", "float64"), "fp64"),
}
_ARITHMETIC = frozenset(
    {
        *("Abs", "Add", "AddV2", "BiasAdd", "Ceil", "Cos", "Div", "DivNoNan", "Elu", "EluGrad", "Erf", "Exp", "Expm1"),
        *("Floor", "FloorDiv", "FloorMod", "Inv", "InvGrad", "LeakyRelu", "Log", "Log1p", "Maximum", "Minimum", "Mod"),
        *("Mul", "MulNoNan", "Neg", "Pow", "RealDiv", "Reciprocal", "ReciprocalGrad", "Relu", "Relu6", "Relu6Grad"),
        *("ReluGrad", "Round", "Rsqrt", "RsqrtGrad", "Selu", "SeluGrad", "Sigmoid", "SigmoidGrad", "Sign", "Sin"),
        *("Softplus", "SoftplusGrad", "Sqrt", "SqrtGrad", "Square", "SquaredDifference", "Sub", "Tanh", "TanhGrad"),
        *("TruncateDiv", "Xdivy", "Xlogy"),
    }
)
"""One operation an element; the result is as wide as the widest input, and of the last input's type."""
_TRUTHS = frozenset(
    {
        *("Equal", "Greater", "GreaterEqual", "IsFinite", "IsInf", "IsNan", "Less", "LessEqual", "LogicalAnd"),
        *("LogicalNot", "LogicalOr", "NotEqual"),
    }
)
"""The same, but the result is one of truths."""
_REDUCTIONS = frozenset({"All", "Any", "BiasAddGrad", "Max", "Mean", "Min", "Prod", "Sum"})
_MOVES = frozenset(
    {
        *("BroadcastTo", "Cast", "Concat", "ConcatV2", "Fill", "Pack", "Pad", "PadV2", "RandomStandardNormal"),
        *("RandomUniform", "StatelessRandomUniformV2", "Tile", "Transpose", "TruncatedNormal", "ZerosLike"),
    }
)
_PARTS = frozenset({"Gather", "GatherV2", "ResourceGather", "Slice", "StridedSlice"})
"""Of the first input only what is taken is read."""
_WITHOUT_PRODUCTS = _ARITHMETIC | _TRUTHS | _REDUCTIONS | _MOVES | _PARTS
_PRODUCTS = frozenset({"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "MatMul"})
_CONVOLUTIONS = {"Conv2D": 3, "Conv3D": 4, "DepthwiseConv2dNative": 2}  # dimensions of the filter that are summed over


@dataclass(frozen=True, slots=True)
class _Tensor:
    sizes: tuple[int, ...]
    kind: str

    @property
    def elements(self) -> int:
        return prod(self.sizes)

    @property
    def is_sound(self) -> bool:
        return all(size >= 0 for size in self.sizes) and self.elements < _MAX_ELEMENTS

    @property
    def bytes(self) -> int | None:
        return self.elements * _BYTES[self.kind] if self.kind in _BYTES else None


@dataclass(frozen=True, slots=True)
class TensorflowWork:
    """What one call does at least; None: not known. Fields as those of the metrics, without `modelled_`."""

    flop: int | None = None
    vector_flop: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    precision: str | None = None


def tensorflow_metrics(operators: pl.DataFrame) -> pl.DataFrame:
    """Rows of the staging table `metrics` for operators whose type is known.

    Takes row, layer_type, input_shapes and input_dtypes (JSON), and of the first result output_shape (JSON) and
    output_dtype; each distinct one is modelled once.
    """
    call = ("layer_type", "input_shapes", "input_dtypes", "output_shape", "output_dtype")
    calls = operators.select("row", pl.col(call).cast(pl.String)).drop_nulls(["layer_type", "input_shapes"])
    distinct = calls.select(call).unique(maintain_order=True)
    rows = [
        (*key, metric, float(value), unit)
        for key in distinct.iter_rows()
        for metric, value, unit in _metrics(tensorflow_work(*key))
    ]
    schema = {**dict.fromkeys((*call, "metric"), pl.String()), "value": pl.Float64(), "unit": pl.String()}
    modelled = pl.DataFrame(rows, schema=schema, orient="row")
    joined = calls.join(modelled, on=list(call), how="inner", nulls_equal=True, maintain_order="left_right")
    return joined.select("row", "metric", "value", "unit", pl.lit(_SOURCE).alias("source"))


def _metrics(work: TensorflowWork) -> Iterator[tuple[str, int, str]]:
    flop = f"modelled_flop_{work.precision}" if work.precision and work.flop else "modelled_flop"
    amounts = {
        flop: work.flop,
        "modelled_vector_flop": work.vector_flop or None,
        "modelled_read_bytes": work.read_bytes,
        "modelled_written_bytes": work.written_bytes,
    }
    for metric, value in amounts.items():
        if value is not None:
            yield metric, value, "byte" if metric.endswith("bytes") else "flop"


def tensorflow_work(
    kind: str, shapes: str, kinds: str | None, output_shape: str | None = None, output_kind: str | None = None
) -> TensorflowWork:
    """The work of a call of an operator of this type; shapes and types as JSON."""
    pairs = zip(json.loads(shapes), json.loads(kinds or "[]"), strict=False)
    taken = [_Tensor(tuple(sizes), name) for sizes, name in pairs]
    recorded = _Tensor(tuple(json.loads(output_shape)), output_kind or "") if output_shape else None
    if not taken or not all(each.is_sound for each in (*taken, recorded or taken[0])):
        return TensorflowWork()
    made = recorded or _result_of(kind, taken)
    read = _known_sum([_part_read(kind, taken, made), *(each.bytes for each in taken[1:])])
    written = made.bytes if made else None
    if kind in _WITHOUT_PRODUCTS:
        return TensorflowWork(0, _operations(kind, taken[0], made), read, written)
    flop = _flop(kind, taken, made)
    if flop is None:
        return TensorflowWork()
    return TensorflowWork(flop, None, read, written, _PRECISIONS.get(taken[-1].kind))


def _operations(kind: str, first: _Tensor, made: _Tensor | None) -> int | None:
    if made and kind in _REDUCTIONS:
        return max(first.elements - made.elements, 0)
    return made.elements if made and kind in _ARITHMETIC | _TRUTHS else None


def _known_sum(amounts: Sequence[int | None]) -> int | None:
    present = [amount for amount in amounts if amount is not None]
    return sum(present) if len(present) == len(amounts) else None


def _part_read(kind: str, taken: Sequence[_Tensor], made: _Tensor | None) -> int | None:
    if kind not in _PARTS:
        return taken[0].bytes
    return _Tensor(made.sizes, taken[0].kind).bytes if made else None


def _result_of(kind: str, taken: Sequence[_Tensor]) -> _Tensor | None:
    """The result, where it follows from what is taken."""
    if kind in _ARITHMETIC:
        return _Tensor(_broadcast([each.sizes for each in taken]), taken[-1].kind)
    if kind in _TRUTHS:
        return _Tensor(_broadcast([each.sizes for each in taken]), "bool")
    if kind in _PRODUCTS and (common := _contraction_size(taken)):
        left, right = taken
        batch = _broadcast([left.sizes[:-2], right.sizes[:-2]])
        matrix = prod(left.sizes[-2:]) // common, prod(right.sizes[-2:]) // common
        return _Tensor((*batch, *matrix), left.kind)
    return None


def _broadcast(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*padded, strict=True))


def _contraction_size(taken: Sequence[_Tensor]) -> int | None:
    """The size that two matrices are contracted over, whichever is transposed; None where it could be either of two."""
    if len(taken) != 2 or min(len(each.sizes) for each in taken) < 2:  # noqa: PLR2004 (two matrices)
        return None
    left, right = (set(each.sizes[-2:]) for each in taken)
    common = left & right
    return common.pop() or None if len(common) == 1 else None


def _flop(kind: str, taken: Sequence[_Tensor], made: _Tensor | None) -> int | None:
    """Two a multiply-add of products; of convolutions those with padding as well."""
    if kind in _PRODUCTS and made and len(made.sizes) > 1 and made.sizes[-2] > 0:
        return 2 * made.elements * prod(taken[0].sizes[-2:]) // made.sizes[-2]
    for name, summed in _CONVOLUTIONS.items():
        if kind.startswith(name):
            ends = _ENDS.get(kind[len(name) :])
            filter_, output = ends(taken, made) if ends else (None, None)
            return 2 * output.elements * prod(filter_.sizes[:summed]) if filter_ and output else None
    return None


_Ends = tuple["_Tensor | None", "_Tensor | None"]


def _forward(taken: Sequence[_Tensor], made: _Tensor | None) -> _Ends:
    return taken[1] if len(taken) > 1 else None, made


def _of_input(taken: Sequence[_Tensor], _: _Tensor | None) -> _Ends:
    return (taken[1], taken[2]) if len(taken) > 2 else (None, None)  # noqa: PLR2004


def _of_filter(taken: Sequence[_Tensor], made: _Tensor | None) -> _Ends:
    return made, taken[2] if len(taken) > 2 else None  # noqa: PLR2004


_ENDS: Mapping[str, Callable[[Sequence[_Tensor], _Tensor | None], _Ends]] = {
    "": _forward,
    **dict.fromkeys(("BackpropInput", "BackpropInputV2"), _of_input),
    **dict.fromkeys(("BackpropFilter", "BackpropFilterV2"), _of_filter),
}
"""Filter, and result of the forward convolution, of each direction."""
