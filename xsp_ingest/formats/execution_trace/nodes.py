"""The nodes of an execution trace, as far as they say more of an operator than torch.profiler's file."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import polars as pl

from xsp_ingest.files.json_window import Targets, walk
from xsp_ingest.files.values import int64, integer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Nodes", "read_nodes"]

_TENSOR = re.compile(r"Tensor\((.*)\)")
_SCALARS = {"Int", "Double", "Float", "Bool", "Complex", "SymInt", "SymFloat", "SymBool"}


class _Values(msgspec.Struct, frozen=True):
    shapes: list[Any] = []
    types: list[Any] = []


class _Attribute(msgspec.Struct, frozen=True):
    name: str = ""
    value: Any = None


class _Node(msgspec.Struct, frozen=True):
    """A call; schema 1.1 nests its inputs and attributes, 1.0 has them side by side."""

    id: Any = None
    name: str = ""
    ctrl_deps: Any = None
    parent: Any = None
    rf_id: Any = None
    inputs: Any = None
    input_shapes: list[Any] = []
    input_types: list[Any] = []
    attrs: list[_Attribute] = []


class Nodes(msgspec.Struct, frozen=True):
    """`table`: record_function_id, name, caller (a record function id), input_shapes, input_dtypes; one row a call."""

    table: pl.DataFrame
    process_id: int | None


_TARGETS = Targets(
    "the execution trace",
    lists={("nodes",): _Node},
    values={("schema",): str, ("pid",): Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] | None},
)
_CALLS = {
    "node": pl.Int64,
    "parent": pl.Int64,
    "record_function_id": pl.Int64,
    "name": pl.String,
    "input_shapes": pl.String,
    "input_dtypes": pl.String,
}


def read_nodes(path: Path) -> Nodes:
    """The calls of the file, which is read some nodes at a time; XspError where it is cut off or no execution trace."""
    frames, process_id = [pl.DataFrame(schema=_CALLS)], None
    for part in walk(path, _TARGETS):
        if part.location == ("pid",):
            process_id = part.content
        elif part.location == ("nodes",):
            frames.append(pl.DataFrame([_row(node) for node in part.content], schema=_CALLS, orient="row"))
    calls = pl.concat(frames)
    numbered = calls.drop_nulls("node").unique("node", keep="last", maintain_order=True)
    callers = numbered.select(parent="node", caller="record_function_id")
    joined = calls.drop_nulls("record_function_id").join(callers, on="parent", how="left", maintain_order="left")
    table = joined.select("record_function_id", "name", "caller", "input_shapes", "input_dtypes")
    return Nodes(table.unique("record_function_id", keep="none", maintain_order=True), process_id)


def _row(node: _Node) -> tuple[object, ...]:
    called = _record_function(node)
    parent = integer(node.ctrl_deps if node.parent is None else node.parent)
    if called is None:
        return integer(node.id), parent, None, None, None, None
    shapes, types = node.input_shapes, node.input_types
    if isinstance(node.inputs, dict):
        nested = _nested_inputs(node.inputs)
        shapes, types = nested.shapes, nested.types
    plain_types = [_plain_type(each) for each in types]
    return integer(node.id), parent, called, node.name, _plain_shapes(shapes, plain_types), json.dumps(plain_types)


def _nested_inputs(inputs: dict[str, Any]) -> _Values:
    shapes, types = inputs.get("shapes"), inputs.get("types")
    return _Values(shapes if isinstance(shapes, list) else [], types if isinstance(types, list) else [])


def _record_function(node: _Node) -> int | None:
    value = next((a.value for a in node.attrs if a.name == "rf_id"), node.rf_id)
    number = int64(value)
    return number if number is not None and number > 0 else None


def _plain_type(written: object) -> str:
    """In the terms of torch.profiler: `float` for `Tensor(float)`, TensorList, ScalarList, Scalar, or nothing."""
    text = written if isinstance(written, str) else ""
    if match := _TENSOR.fullmatch(text):
        return match[1]
    if text.startswith("GenericList["):
        return "TensorList" if "Tensor(" in text else "ScalarList"
    return "Scalar" if text in _SCALARS else ""


def _plain_shapes(shapes: Sequence[Any], types: Sequence[str]) -> str:
    """Of tensors and lists of tensors; of anything else an empty one, as torch.profiler has it."""
    none = {"Scalar", "ScalarList", ""}
    return json.dumps([[] if type_ in none else shape for shape, type_ in zip(shapes, types, strict=False)])
