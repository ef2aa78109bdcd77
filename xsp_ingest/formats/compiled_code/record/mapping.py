"""Reads compiled_code.json, which our own runner writes: see docs/compiled-code.md."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from xsp_ingest.files.content import read_all
from xsp_ingest.formats.compiled_code.code import CompiledCode, Graph, KernelCall, Module
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_mapping"]

_MAX_BYTES = 1 << 27
_VERSION = 1
_CLOSE = 1e-6

_Text = Annotated[str, msgspec.Meta(max_length=4096)]
_Index = Annotated[int, msgspec.Meta(ge=0, le=1 << 32)]


class _Share(msgspec.Struct, frozen=True):
    module: _Index
    weight: Annotated[float, msgspec.Meta(gt=0, le=1)]


class _Kernel(msgspec.Struct, frozen=True):
    name: _Text
    debug_handle: _Index | None = None
    call: _Index | None = None
    operators: list[_Text] = []
    sources: list[_Text] = []
    modules: list[_Share] = []


class _Graph(msgspec.Struct, frozen=True):
    region: _Text
    kernels: list[_Kernel]
    graph_id: _Index | None = None
    direction: Literal["forward", "backward"] = "forward"


class _Module(msgspec.Struct, frozen=True):
    name: _Text
    path: _Text
    layer_type: _Text = msgspec.field(name="class", default="")


class _Document(msgspec.Struct, frozen=True):
    version: int
    modules: list[_Module]
    graphs: list[_Graph]


def read_mapping(path: Path) -> CompiledCode:
    """The file's graphs; XspError where it is cut off, of another version, or says what cannot be."""
    try:
        document = msgspec.json.decode(read_all(path, _MAX_BYTES), type=_Document)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _unusable(path, str(error)) from error
    if document.version != _VERSION:
        raise XspError(
            f"the file is of version {document.version} of its format, and XSP reads version {_VERSION}", path=path
        )
    regions = Counter(graph.region for graph in document.graphs)
    if twice := next((region for region, times in regions.items() if times > 1), None):
        raise _unusable(path, f"graph {twice} is listed twice")
    graphs = {graph.region: _graph(graph, len(document.modules), path) for graph in document.graphs}
    modules = [Module(each.name, each.layer_type, each.path) for each in document.modules]
    return CompiledCode(modules, graphs)


def _unusable(path: Path, why: str) -> XspError:
    return XspError(
        f"the record of compiled code is damaged ({why})", path=path, advice="Copy it again, or leave it away"
    )


def _graph(graph: _Graph, modules: int, path: Path) -> Graph:
    _check_order(graph, path)
    kernels = []
    for kernel in graph.kernels:
        shares = [(share.module, share.weight) for share in kernel.modules]
        if any(module >= modules for module, _ in shares) or len({module for module, _ in shares}) != len(shares):
            raise _unusable(path, f"{kernel.name} is of modules that are not listed, or of one twice")
        total = math.fsum(weight for _, weight in shares)
        if shares and abs(total - 1) > _CLOSE:
            raise _unusable(path, f"the weights of {kernel.name} add up to {total:.6g}")
        kernels.append(KernelCall(kernel.name, kernel.operators, kernel.sources, shares))
    pair = None if graph.graph_id is None else str(graph.graph_id)
    return Graph(graph.region, pair, graph.direction == "backward", kernels)


def _check_order(graph: _Graph, path: Path) -> None:
    """XspError where kernels do not stand in the order of the generated code, by what they say of it themselves."""
    calls: Counter[str] = Counter()
    last = -1
    for kernel in graph.kernels:
        if kernel.call not in (None, calls[kernel.name]):
            raise _unusable(path, f"{kernel.name} is call {kernel.call} where call {calls[kernel.name]} of it stands")
        if kernel.debug_handle is not None and kernel.debug_handle <= last:
            raise _unusable(path, f"kernels do not stand in order: handle {kernel.debug_handle} comes behind {last}")
        calls[kernel.name] += 1
        last = last if kernel.debug_handle is None else kernel.debug_handle
