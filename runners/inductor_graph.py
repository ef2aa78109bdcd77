"""What Inductor made of one graph: its kernels in the order of their calls, and whose work each of them does."""

from __future__ import annotations

import operator
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["ModuleCall", "Twins", "kernels_of", "module_calls"]

_HANDLE = re.compile(r"\[Provenance debug handles\] (\S+):(\d+)\s*$", re.MULTILINE)
_SOURCE = re.compile(r'File "([^"]+)", line (\d+)')
_VIEWS = ("aten::reshape", "aten::_unsafe_view", "aten::alias", "aten::detach")  # torch marks the others itself
_LOOKUPS = ("aten::embedding", "aten::index", "aten::gather", "aten::index_select")  # read some of their first input

ModuleCall = tuple[str, ...]
"""The keys of the modules that were being called, outermost first; empty at the top of the model."""


@dataclass
class Twins:
    """What forward nodes left for their backward twins, by graph and autograd's number."""

    nodes: dict[tuple[object, object], list[str]] = field(default_factory=dict)


def module_calls(node: Any) -> list[ModuleCall]:  # noqa: ANN401
    """The modules around the node, or around its forward twin.

    A sum of gradients, of a tensor that was used more than once, has no twin: it is the work of all whose gradients it
    adds, and so is what a pass of the compiler made of it.
    """
    calls, waiting, seen = [], [node], {node}
    while waiting:
        each = waiting.pop()
        backward = each.meta.get("partitioner_tag") == "is_backward"
        if each.meta.get("is_gradient_acc") or (backward and "fwd_nn_module_stack" not in each.meta):
            summed = [one for one in each.all_input_nodes if one.op == "call_function" and one not in seen]
            waiting += summed
            seen.update(summed)
            continue
        stack = each.meta.get("fwd_nn_module_stack" if backward else "nn_module_stack") or {}
        calls.append(tuple(f"{str(key).partition('@')[0]}|{entry[0]}" for key, entry in stack.items()))
    return calls


def kernels_of(
    graph: Any,  # noqa: ANN401
    nodes_of_kernel: Mapping[str, Iterable[str]],
    code: str,
    twins: Twins,
    graph_id: object,
    index_of: Callable[[ModuleCall], int | None],
) -> list[dict[str, object]]:
    """The generated calls in order, from the graph after its last pass; `nodes_of_kernel` by `name:handle`."""
    by_name = {node.name: node for node in graph.nodes if node.op == "call_function"}
    _remember(by_name.values(), twins, graph_id)
    calls: Counter[str] = Counter()
    kernels = []
    for name, handle in _HANDLE.findall(code):
        nodes = [by_name[each] for each in nodes_of_kernel.get(f"{name}:{handle}", ()) if each in by_name]
        work = [node for node in nodes if not _is_view(node)] or nodes
        weights, by = _weights(work, index_of)
        kernels.append(
            {
                "name": name,
                "debug_handle": int(handle),
                "call": calls[name],
                "nodes": [node.name for node in nodes],
                "pre_grad_nodes": _distinct(each for node in nodes for each in _pre_grad(node, twins, graph_id)),
                "operators": _distinct(map(_operator, work)),
                "sources": _distinct(source for node in nodes for source in _source(node)),
                "weights_by": by,
                "modules": [{"module": module, "weight": weight} for module, weight in sorted(weights.items())],
            }
        )
        calls[name] += 1
    return kernels


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _remember(nodes: Iterable[Any], twins: Twins, graph_id: object) -> None:
    for node in nodes:
        number = node.meta.get("seq_nr", -1)
        if node.meta.get("partitioner_tag") != "is_backward" and number >= 0:
            twins.nodes.setdefault((graph_id, number), _traced_nodes(node))


def _traced_nodes(node: Any) -> list[str]:  # noqa: ANN401
    """The nodes of the graph that Dynamo traced which this one was made from."""
    return [made.name for made in node.meta.get("from_node") or () if made.pass_name.startswith("Interpreter")]


def _pre_grad(node: Any, twins: Twins, graph_id: object) -> list[str]:  # noqa: ANN401
    return _traced_nodes(node) or twins.nodes.get((graph_id, node.meta.get("seq_nr", -1)), [])


def _qualified_name(target: Any) -> str:  # noqa: ANN401
    """`aten::add` of `aten.add.Tensor`."""
    schema = getattr(target, "_schema", None)
    return str(schema.name) if schema is not None else getattr(target, "__name__", str(target))


def _operator(node: Any) -> str:  # noqa: ANN401
    """The operator as it was before it was taken apart."""
    return _qualified_name(node.meta.get("original_aten") or node.target)


def _source(node: Any) -> list[str]:  # noqa: ANN401
    """`model.py:12`, of the innermost line that is the model's own."""
    lines = _SOURCE.findall(node.meta.get("stack_trace") or "")
    return [f"{PurePath(lines[-1][0]).name}:{lines[-1][1]}"] if lines else []


def _is_view(node: Any) -> bool:  # noqa: ANN401
    target = node.target
    return target is operator.getitem or bool(getattr(target, "is_view", False)) or _qualified_name(target) in _VIEWS


def _weights(nodes: Sequence[Any], index_of: Callable[[ModuleCall], int | None]) -> tuple[dict[int, float], str | None]:
    """Each module's share of the kernel: by the bytes that its part reads and writes; alike where one is unknown."""
    parts: dict[int, list[Any]] = defaultdict(list)
    for node in nodes:
        for module in {index for call in module_calls(node) if (index := index_of(call)) is not None}:
            parts[module].append(node)
    moved = {module: _moved_bytes(part) for module, part in parts.items()}
    total = sum(each or 0 for each in moved.values())
    if not moved:
        return {}, None
    if any(not each for each in moved.values()):
        return dict.fromkeys(moved, 1 / len(moved)), "equal"
    return {module: (each or 0) / total for module, each in moved.items()}, "bytes"


def _moved_bytes(part: Sequence[Any]) -> int | None:
    """What these nodes would read and write if they were one kernel of their own; None where a size is unknown."""
    own = set(part)
    read: dict[Any, int | None] = {}
    for node in part:
        inputs = [_storage_of(each) for each in node.all_input_nodes]
        looked_up = inputs[:1] if _qualified_name(node.target) in _LOOKUPS else []
        read |= {each: _bytes(node if each in looked_up else each) for each in inputs if each not in own}
    written = [_bytes(node) for node in part if any(user not in own for user in _users(node))]
    sizes = [*read.values(), *written]
    return None if None in sizes else sum(size or 0 for size in sizes)


def _storage_of(node: Any) -> Any:  # noqa: ANN401
    """The node whose result a view shows."""
    while node.op == "call_function" and _is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _users(node: Any) -> set[Any]:  # noqa: ANN401
    """Who reads the node's result, also through views; a view without a reader is its own."""
    users, waiting = set(), list(node.users)
    while waiting:
        user = waiting.pop()
        if user.op == "call_function" and _is_view(user) and user.users:
            waiting += user.users
        else:
            users.add(user)
    return users


def _bytes(node: Any) -> int | None:  # noqa: ANN401
    value = node.meta.get("val")
    tensors = value if isinstance(value, (list, tuple)) else [value]
    try:
        return sum(int(t.numel()) * int(t.element_size()) for t in tensors if t is not None and hasattr(t, "numel"))
    except (TypeError, ValueError, RuntimeError):  # a size that is a symbol
        return None
