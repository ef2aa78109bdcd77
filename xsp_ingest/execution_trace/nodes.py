"""The nodes of an execution trace, as far as they say more of an operator than torch.profiler's file."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import polars as pl

from xsp_ingest.content import cut_off, whole
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Nodes", "read_nodes"]

_MOST_BYTES = 1 << 30
_INT64 = range(1, 1 << 63)
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


class _Document(msgspec.Struct, frozen=True):
    schema: str
    nodes: list[_Node]
    pid: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] | None = None


class Nodes(msgspec.Struct, frozen=True):
    """`table`: record_function_id, name, caller (a record function id), input_shapes, input_dtypes; one row a call."""

    table: pl.DataFrame
    process_id: int | None


_COLUMNS = {
    "record_function_id": pl.Int64,
    "name": pl.String,
    "caller": pl.Int64,
    "input_shapes": pl.String,
    "input_dtypes": pl.String,
}


def read_nodes(path: Path) -> Nodes:
    """The calls of the file; XspError where it is cut off, no execution trace, or longer than 1 GiB."""
    content = whole(path, _MOST_BYTES).decode("utf-8", errors="replace")
    try:
        document = msgspec.json.decode(content, type=_Document)
    except msgspec.ValidationError as error:
        raise XspError(f"the execution trace is not as PyTorch writes it ({error})", path=path) from error
    except (msgspec.DecodeError, RecursionError) as error:
        if "truncated" in str(error):
            raise cut_off(path, "its JSON does not end") from error
        raise XspError("the execution trace is no valid JSON", path=path, advice="Write it again") from error
    ids = {_key(node.id): _record_function(node) for node in document.nodes}
    rows = [_row(node, ids) for node in document.nodes if _record_function(node) is not None]
    table = pl.DataFrame(rows, schema=_COLUMNS, orient="row").unique("record_function_id", keep="none")
    return Nodes(table, document.pid)


def _row(node: _Node, ids: dict[str, int | None]) -> tuple[object, ...]:
    caller = ids.get(_key(node.ctrl_deps if node.parent is None else node.parent))
    shapes, types = node.input_shapes, node.input_types
    if isinstance(node.inputs, dict):
        nested = msgspec.convert(node.inputs, _Values, strict=False)
        shapes, types = nested.shapes, nested.types
    words = [_plain_type(each) for each in types]
    return (_record_function(node), node.name, caller, _plain_shapes(shapes, words), json.dumps(words))


def _record_function(node: _Node) -> int | None:
    value = next((a.value for a in node.attrs if a.name == "rf_id"), node.rf_id)
    return value if isinstance(value, int) and not isinstance(value, bool) and value in _INT64 else None


def _key(value: object) -> str:
    return json.dumps(value)


def _plain_type(said: object) -> str:
    """In the words of torch.profiler: `float` for `Tensor(float)`, TensorList, ScalarList, Scalar, or nothing."""
    text = said if isinstance(said, str) else ""
    if match := _TENSOR.fullmatch(text):
        return match[1]
    if text.startswith("GenericList["):
        return "TensorList" if "Tensor(" in text else "ScalarList"
    return "Scalar" if text in _SCALARS else ""


def _plain_shapes(shapes: Sequence[Any], words: Sequence[str]) -> str:
    """Of tensors and lists of tensors; of anything else an empty one, as torch.profiler has it."""
    none = {"Scalar", "ScalarList", ""}
    return json.dumps([[] if word in none else shape for shape, word in zip(shapes, words, strict=False)])
