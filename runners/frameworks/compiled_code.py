"""Watches torch.compile, and says whose work each kernel is that Inductor generated: compiled_code.json.

A model is compiled as it always is, but what Inductor knows while it does so is kept: the nodes of the graph that
became a kernel, and the modules that each node comes from. On the CPU, kernels are given a profiler's mark, without
which a trace does not show them. docs/compiled-code.md has the file's form.
"""

from __future__ import annotations

import hashlib
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from xsp_runners.run_folder import RunnerError
from xsp_runners.tools.nvtx_ranges import StepRanges

__all__ = ["COMPILED_CODE", "FORMAT", "CompiledCode"]


def mark_calls(output: Any, region: str, marks: StepRanges) -> None:
    """From now on each call of the graph is a range in the recorded steps, and each call of a library in it."""
    call = output.current_callable

    def call_in_range(inputs: Any) -> Any:
        with marks.range(f"## Call CompiledFxGraph {region} ##"):
            return call(inputs)

    output.current_callable = call_in_range
    names = getattr(call, "__globals__", {})  # of the generated module
    for name, replaced in (("extern_kernels", _library), ("torch", _torch)):
        if name in names and not isinstance(names[name], (_Library, _Instead)):
            names[name] = replaced(names[name], marks)


def _library(kernels: Any, marks: StepRanges) -> _Library:
    return _Library(kernels, marks)


def _torch(torch: Any, marks: StepRanges) -> _Instead:
    """The module, with `torch.ops.aten` marked: operators for which no kernel is generated are called there."""
    return _Instead(torch, ops=_Instead(torch.ops, aten=_Library(torch.ops.aten, marks)))


class _Instead:
    """An object with some of its attributes replaced."""

    def __init__(self, inner: Any, **others: object) -> None:
        self._inner = inner
        self.__dict__ |= others

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Library:
    """A namespace of operators whose calls are ranges."""

    def __init__(self, inner: Any, marks: StepRanges) -> None:
        self._inner = inner
        self._marks = marks

    def __getattr__(self, name: str) -> Any:
        return _Operator(getattr(self._inner, name), f"aten::{name}", self._marks)


class _Operator:
    """An operator or one of its overloads."""

    def __init__(self, inner: Any, name: str, marks: StepRanges) -> None:
        self._inner = inner
        self._name = name
        self._marks = marks

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        with self._marks.range(self._name):
            return self._inner(*arguments, **options)

    def __getattr__(self, overload: str) -> Any:
        return _Operator(getattr(self._inner, overload), self._name, self._marks)


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


def module_calls(node: Any) -> list[ModuleCall]:
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
    graph: Any,
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


def _traced_nodes(node: Any) -> list[str]:
    """The nodes of the graph that Dynamo traced which this one was made from."""
    return [made.name for made in node.meta.get("from_node") or () if made.pass_name.startswith("Interpreter")]


def _pre_grad(node: Any, twins: Twins, graph_id: object) -> list[str]:
    return _traced_nodes(node) or twins.nodes.get((graph_id, node.meta.get("seq_nr", -1)), [])


def _qualified_name(target: Any) -> str:
    """`aten::add` of `aten.add.Tensor`."""
    schema = getattr(target, "_schema", None)
    return str(schema.name) if schema is not None else getattr(target, "__name__", str(target))


def _operator(node: Any) -> str:
    """The operator as it was before it was taken apart."""
    return _qualified_name(node.meta.get("original_aten") or node.target)


def _source(node: Any) -> list[str]:
    """`model.py:12`, of the innermost line that is the model's own."""
    lines = _SOURCE.findall(node.meta.get("stack_trace") or "")
    return [f"{PurePath(lines[-1][0]).name}:{lines[-1][1]}"] if lines else []


def _is_view(node: Any) -> bool:
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


def _storage_of(node: Any) -> Any:
    """The node whose result a view shows."""
    while node.op == "call_function" and _is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _users(node: Any) -> set[Any]:
    """Who reads the node's result, also through views; a view without a reader is its own."""
    users, waiting = set(), list(node.users)
    while waiting:
        user = waiting.pop()
        if user.op == "call_function" and _is_view(user) and user.users:
            waiting += user.users
        else:
            users.add(user)
    return users


def _bytes(node: Any) -> int | None:
    value = node.meta.get("val")
    tensors = value if isinstance(value, (list, tuple)) else [value]
    try:
        return sum(int(t.numel()) * int(t.element_size()) for t in tensors if t is not None and hasattr(t, "numel"))
    except (TypeError, ValueError, RuntimeError):  # a size that is a symbol
        return None


COMPILED_CODE = "compiled_code.json"
"""The file that holds the mapping, beside the trace."""
FORMAT = "compiled_code"
"""The name of its format in run.json."""
_VERSION = 1
_REGION_DIGITS = 40
_PREFIX = re.compile(r"^L\['self'\]\.?")
_STEP = re.compile(r"\._modules\['([^']+)'\]|\[(\d+)\]")  # other ways to write `.name`
_CONFIG = {"trace.provenance_tracking_level": 1, "fx_graph_cache": False, "cpp.enable_kernel_profile": True}


class CompiledCode:
    """The record of one model's compilation: `call_once`, then `compile`, and `document` when it has run."""

    def __init__(self, torch: Any, marks: StepRanges | None = None) -> None:
        """`marks`: where a tool records from outside, the ranges in which it is to see calls of graphs."""
        self._torch = torch
        self._marks = marks
        self._names: dict[str, str] = {}  # an instance's name, by its id
        self._qualified: dict[str, str] = {}  # `blocks.0.norm`, by id
        self._classes: dict[str, str] = {}
        self._root = ""
        self._modules: dict[tuple[str, ...], int] = {}
        self._graphs: list[dict[str, object]] = []
        self._twins = Twins()

    def call_once(self, model: Any, call: Callable[[], object]) -> None:
        """Runs the model uncompiled, for the names that a profiler gives to modules, in the order of first calls.

        What it would change (buffers, random numbers) is put back.
        """
        torch = self._torch
        self._root = str(id(model))
        for name, module in model.named_modules():
            self._qualified[str(id(module))] = name
            self._classes[str(id(module))] = type(module).__name__
        numbers: dict[str, int] = {}

        def number(module: object, _inputs: object) -> None:
            if str(id(module)) not in self._names:
                kind = type(module).__name__
                self._names[str(id(module))] = f"{kind}_{numbers.get(kind, 0)}"
                numbers[kind] = numbers.get(kind, 0) + 1

        hook = torch.nn.modules.module.register_module_forward_pre_hook(number)
        try:
            with _keeping_state(torch, model):
                call()
        finally:
            hook.remove()

    def compile(self, model: Any) -> Any:
        """The model as torch.compile makes it, watched."""
        return self._torch.compile(model, backend=self._backend)

    def document(self) -> dict[str, object]:
        """What compiled_code.json holds."""
        modules = [self._module_facts(chain) for chain in self._modules]
        return {
            "schema": "xsp compiled code",
            "version": _VERSION,
            "torch": str(self._torch.__version__),
            "modules": modules,
            "graphs": self._graphs,
        }

    def _backend(self, graph_module: Any, inputs: Any) -> Any:
        inductor, _, functorch_config = _inside(self._torch)
        with inductor.config.patch(_CONFIG), functorch_config.patch(enable_autograd_cache=False):
            return inductor.compile_fx.compile_fx(graph_module, inputs, inner_compile=self._inner)

    def _inner(self, graph_module: Any, inputs: Any, **options: Any) -> Any:
        inductor, debug, _ = _inside(self._torch)
        with inductor.config.patch(_CONFIG), debug.reset_provenance_globals():
            output = inductor.compile_fx.compile_fx_inner(graph_module, inputs, **options)
            nodes_of_kernel = dict(debug._inductor_triton_kernel_to_post_grad_node_info)  # noqa: SLF001
        code = getattr(output, "source_code", "")
        if code:
            self._keep(graph_module.graph, nodes_of_kernel, output, options)
        return output

    def _keep(self, graph: Any, nodes_of_kernel: dict[str, list[str]], output: Any, options: dict[str, Any]) -> None:
        ordinal = len(self._graphs)
        region = hashlib.sha256(f"{ordinal} {output.source_code}".encode()).hexdigest()[:_REGION_DIGITS]
        output._fx_graph_cache_key = region  # noqa: SLF001 (the name of the region in a trace; unset without a cache)
        if self._marks:
            mark_calls(output, region, self._marks)
        top = self._top(graph)
        kernels = kernels_of(
            graph,
            nodes_of_kernel,
            output.source_code,
            self._twins,
            options.get("graph_id"),
            lambda call: self._index_of(call, top),
        )
        direction = "backward" if options.get("is_backward") else "forward"
        self._graphs.append(
            {"region": region, "graph_id": options.get("graph_id"), "direction": direction, "kernels": kernels}
        )

    def _top(self, graph: Any) -> tuple[str, ...]:
        """The module that is `self` where the graph begins: the model, but for what follows a break inside of one."""
        ids = {name: key for key, name in self._qualified.items()}
        for node in graph.nodes:
            stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
            for key, entry in stack.items():
                module = self._qualified.get(str(key).partition("@")[0])
                written = _plain(entry[0])
                if module is not None and written and (module == written or module.endswith("." + written)):
                    top = module[: -len(written)].rstrip(".")
                    return tuple(self._chain(ids[top])) if top in ids else ()
        return (self._root,)

    def _chain(self, key: str) -> list[str]:
        """The called modules around this one and itself, from the model's root, by their qualified names."""
        ids = {name: each for each, name in self._qualified.items()}
        parts = self._qualified[key].split(".") if self._qualified[key] else []
        above = [".".join(parts[:n]) for n in range(len(parts) + 1)]
        return [ids[name] for name in above if name in ids and ids[name] in self._names]

    def _index_of(self, call: ModuleCall, top: tuple[str, ...]) -> int | None:
        chain = list(top)
        for each in call:
            key, _, written = each.partition("|")
            module = key if key in self._names else self._by_name(_plain(written))
            if module is None:
                return None
            if module not in chain:
                chain.append(module)
        return self._modules.setdefault(tuple(chain), len(self._modules)) if chain else None

    def _by_name(self, written: str) -> str | None:
        return next((key for key, name in self._qualified.items() if name == written and key in self._names), None)

    def _module_facts(self, chain: tuple[str, ...]) -> dict[str, object]:
        key = chain[-1]
        return {
            "name": self._names[key],
            "class": self._classes[key],
            "qualified_name": self._qualified[key],
            "path": ".".join(self._names[each] for each in chain),
        }


def _plain(written: str) -> str:
    """`blocks.0.norm` of `L['self'].blocks.0.norm` or `L['self']._modules['blocks']...`."""
    return _PREFIX.sub("", _STEP.sub(lambda match: f".{match[1] or match[2]}", written)).strip(".")


def _inside(torch: Any) -> tuple[Any, Any, Any]:
    """Inductor, what it notes of kernels, and the settings of autograd's cache; RunnerError where they are not there.

    torch gives this no public way.
    """
    try:
        import torch._functorch.config as functorch_config  # noqa: PLC0415 (heavy, and wanted only to compile)
        from torch import _inductor as inductor  # noqa: PLC0415
        from torch._inductor import compile_fx, debug  # noqa: PLC0415

        compile_fx.compile_fx_inner, debug.reset_provenance_globals  # noqa: B018 (whether they are there)
        debug._inductor_triton_kernel_to_post_grad_node_info  # noqa: B018, SLF001
    except (ImportError, AttributeError) as error:
        raise RunnerError(
            f"torch {torch.__version__} does not say what its compiled kernels are made of: use 2.13 or run eagerly"
        ) from error
    return inductor, debug, functorch_config


@contextmanager
def _keeping_state(torch: Any, model: Any) -> Iterator[None]:
    """Buffers and random numbers are afterwards what they were."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    kept = [(buffer, buffer.clone()) for buffer in model.buffers()]
    with torch.random.fork_rng(devices), torch.no_grad():
        try:
            yield
        finally:
            for buffer, before in kept:
                buffer.copy_(before)
