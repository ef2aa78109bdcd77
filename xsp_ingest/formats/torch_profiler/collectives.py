"""What events say of collectives: which, in which process group, and how many bytes.

Since torch 2.1 the operator `record_param_comms`, since 2.3 the kernels too say all of it; before, only the annotation
around the call has the shape and type of what was sent, of a list of tensors that of the flat buffer made of them.
"""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.values import int64
from xsp_ingest.formats.torch_profiler import categories as cat
from xsp_ingest.staging.raw import frame_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["collective_facts"]

_OPERATIONS: Mapping[str, str] = {
    "allreduce": "all_reduce",
    "allreduce_sparse": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "allgather_coalesced": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_allv": "all_to_all",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
}
_CALLS = r"^(?:nccl|rccl|gloo|ucc|mpi):_?(\w+?)_*$"
_CALL = "record_param_comms"
_LIST = "TensorList"  # of newer versions with the shapes of its tensors, of older ones with none
_SIZES: Mapping[str, int] = {  # as the collective's `dtype` and as `Input type` spell them
    **dict.fromkeys(("Byte", "Char", "Bool", "QInt8", "QUInt8", "signed char", "unsigned char", "char", "bool"), 1),
    **dict.fromkeys(("Float8_e5m2", "Float8_e4m3fn", "Float8_e5m2fnuz", "Float8_e4m3fnuz", "Float8_e8m0fnu"), 1),
    **dict.fromkeys(("c10::Float8_e4m3fn", "c10::Float8_e5m2"), 1),
    **dict.fromkeys(("Short", "Half", "BFloat16", "UInt16", "short", "short int", "c10::Half", "c10::BFloat16"), 2),
    **dict.fromkeys(("Int", "Float", "UInt32", "ComplexHalf", "int", "float"), 4),
    **dict.fromkeys(
        ("Long", "Double", "UInt64", "ComplexFloat", "long", "long int", "double", "c10::complex<float>"), 8
    ),
    **dict.fromkeys(("ComplexDouble", "c10::complex<double>"), 16),
}


def collective_facts(events: pl.DataFrame, details: pl.DataFrame) -> pl.DataFrame:
    """The staging table `collectives` of sound events; `details` has `row` for the event."""
    recorded = events.filter(pl.col("collective").is_not_null())
    sizes = details.select("row", "group_size", "input_elements", "output_elements")
    described = recorded.join(sizes, on="row", how="left", maintain_order="left")
    each = _text("element_type").replace_strict(_SIZES, default=None, return_dtype=pl.Int64)
    rows = described.select(
        "row",
        _operation(_text("collective")),
        _text("group_name").alias("group_name"),
        _text("group_ranks").alias("group_ranks"),
        pl.when(pl.col("group_size") > 0).then("group_size"),
        _bytes("input", each),
        _bytes("output", each),
    )
    return pl.concat([frame_of("collectives", rows), _facts_from_shapes(events)])


def _text(column: str) -> pl.Expr:
    """The argument's text; null where it is none or empty."""
    text = pl.col(column).cast(pl.String)
    decoded = pl.when(text.str.starts_with('"')).then(text.str.json_decode(pl.String)).otherwise(text)
    return pl.when(~decoded.is_in(["", "null"])).then(decoded)


def _operation(name: pl.Expr) -> pl.Expr:
    return name.replace(_OPERATIONS).alias("operation")


def _bytes(side: str, element_bytes: pl.Expr) -> pl.Expr:
    elements = pl.col(f"{side}_elements")
    return pl.when(elements >= 0).then(elements * element_bytes).alias(f"{side}_bytes")


def _facts_from_shapes(events: pl.DataFrame) -> pl.DataFrame:
    """Calls that have only the shapes of what was handed over."""
    name = pl.col("name").cast(pl.String)
    is_annotation = pl.col("category").is_in(cat.ANNOTATION) & name.str.contains(_CALLS)
    is_call = pl.col("category").is_in(cat.OPERATOR) & (name == _CALL) & pl.col("collective").is_null()
    calls = events.filter(pl.col("input_dims").is_not_null(), is_annotation | is_call)
    described = calls.select(pl.col("input_dims", "input_types").cast(pl.String)).rows()
    sizes = {pair: _argument_bytes(*pair) for pair in dict.fromkeys(described)}
    rows = calls.select("row", _operation(name.str.extract(_CALLS)))
    sent = pl.Series("input_bytes", [sizes[pair] for pair in described], dtype=pl.Int64)
    return frame_of("collectives", rows.with_columns(sent))


def _argument_bytes(dims: str | None, types: str | None) -> int | None:
    """The bytes of all tensors together; None where the size of one is not known, or there is none."""
    shapes, kinds = (json.loads(text) if text else None for text in (dims, types))
    if not isinstance(shapes, list) or not isinstance(kinds, list) or len(shapes) != len(kinds):
        return None
    pairs = zip(shapes, kinds, strict=True)
    sizes = [_size(shape, kind) for shape, kind in pairs if shape or kind == _LIST or _element_bytes(kind)]
    sized = [size for size in sizes if size is not None]
    return int64(sum(sized)) if sized and len(sized) == len(sizes) else None


def _element_bytes(kind: object) -> int | None:
    return _SIZES.get(kind) if isinstance(kind, str) else None


def _size(shape: object, kind: object) -> int | None:
    """The bytes of a tensor, or of a list of tensors of one type."""
    element_bytes = _element_bytes(kind)
    if element_bytes is None or not isinstance(shape, list):
        return None
    tensors = shape if shape and isinstance(shape[0], list) else [shape]
    if any(not isinstance(each, list) or any(type(d) is not int or d < 0 for d in each) for each in tensors):
        return None
    return sum(prod(each) for each in tensors) * element_bytes
