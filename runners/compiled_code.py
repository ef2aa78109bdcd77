"""Watches torch.compile, and says whose work each kernel is that Inductor generated: compiled_code.json.

A model is compiled as it always is, but what Inductor knows while it does so is kept: the nodes of the graph that
became a kernel, and the modules that each node comes from. On the CPU, kernels are given a profiler's mark, without
which a trace does not show them. docs/compiled-code.md has the file's form.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from xsp_runners.compiled_marks import mark_calls
from xsp_runners.inductor_graph import ModuleCall, Twins, kernels_of
from xsp_runners.run_folder import RunnerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from xsp_runners.torch_ranges import StepRanges

__all__ = ["COMPILED_CODE", "FORMAT", "CompiledCode"]

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

    def __init__(self, torch: Any, marks: StepRanges | None = None) -> None:  # noqa: ANN401
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

    def call_once(self, model: Any, call: Callable[[], object]) -> None:  # noqa: ANN401
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

    def compile(self, model: Any) -> Any:  # noqa: ANN401
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

    def _backend(self, graph_module: Any, inputs: Any) -> Any:  # noqa: ANN401
        inductor, _, functorch_config = _inside(self._torch)
        with inductor.config.patch(_CONFIG), functorch_config.patch(enable_autograd_cache=False):
            return inductor.compile_fx.compile_fx(graph_module, inputs, inner_compile=self._inner)

    def _inner(self, graph_module: Any, inputs: Any, **options: Any) -> Any:  # noqa: ANN401
        inductor, debug, _ = _inside(self._torch)
        with inductor.config.patch(_CONFIG), debug.reset_provenance_globals():
            output = inductor.compile_fx.compile_fx_inner(graph_module, inputs, **options)
            nodes_of_kernel = dict(debug._inductor_triton_kernel_to_post_grad_node_info)  # noqa: SLF001
        code = getattr(output, "source_code", "")
        if code:
            self._keep(graph_module.graph, nodes_of_kernel, output, options)
        return output

    def _keep(self, graph: Any, nodes_of_kernel: dict[str, list[str]], output: Any, options: dict[str, Any]) -> None:  # noqa: ANN401
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

    def _top(self, graph: Any) -> tuple[str, ...]:  # noqa: ANN401
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


def _inside(torch: Any) -> tuple[Any, Any, Any]:  # noqa: ANN401
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
def _keeping_state(torch: Any, model: Any) -> Iterator[None]:  # noqa: ANN401
    """Buffers and random numbers are afterwards what they were."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    kept = [(buffer, buffer.clone()) for buffer in model.buffers()]
    with torch.random.fork_rng(devices), torch.no_grad():
        try:
            yield
        finally:
            for buffer, before in kept:
                buffer.copy_(before)
