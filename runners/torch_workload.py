"""What a PyTorch runner runs: a model of the zoo or the user's own function; and the device it runs on.

torch is imported when a run starts, so that this module can be read without it.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xsp_runners.level_process import MODES
from xsp_runners.outputs import UNKNOWN_INPUTS, StepInputs
from xsp_runners.own_workload import own_step
from xsp_runners.run_folder import RunnerError
from xsp_runners.torch_inputs import Inputs, Loss, random_inputs
from xsp_runners.torch_sources import build
from xsp_runners.torch_steps import inference_step, step_as_run, training_step
from xsp_runners.zoo import find

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from xsp_runners.compiled_code import CompiledCode

__all__ = [
    "DTYPES",
    "MODES",
    "ZOO",
    "TorchWorkload",
    "device_of",
    "import_torch",
    "own_work",
    "serialise",
    "small_work",
    "zoo_work",
]

DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""Precisions by the names that command lines take, with torch's types of weights and inputs."""

ZOO = ("mlp", "convnet", "transformer")
"""Our small models; `xsp_runners.torch_zoo` builds them."""

_BLOCKING = "CUDA_LAUNCH_BLOCKING"


@dataclass(frozen=True)
class TorchWorkload:
    """A step to run again and again, with the name and task of its model and what else is known of it."""

    name: str
    task: str
    step: Callable[[], object]
    facts: Mapping[str, object] = field(default_factory=dict)
    step_inputs: StepInputs = UNKNOWN_INPUTS


def import_torch() -> Any:  # noqa: ANN401 (torch is not installed everywhere, so its types are not known here)
    """The module torch; RunnerError where it is not installed."""
    try:
        import torch  # noqa: PLC0415 (heavy, and wanted only when a run starts)
        import torch.profiler  # noqa: PLC0415
    except ImportError as error:
        raise RunnerError("torch is not installed: pip install torch") from error
    return torch


def serialise(torch: Any) -> None:  # noqa: ANN401
    """Makes each launch wait for its kernel; RunnerError where CUDA is in use already."""
    if os.environ.get(_BLOCKING) == "1":
        return
    if torch.cuda.is_initialized():
        raise RunnerError(f"a serialised capture needs {_BLOCKING}=1 in the environment before CUDA is first used")
    os.environ[_BLOCKING] = "1"


def device_of(torch: Any, requested: str) -> str:  # noqa: ANN401
    """`cpu` or `cuda`: what `auto` stands for here; RunnerError where there is no such device."""
    available = bool(torch.cuda.is_available())
    if requested == "cuda" and not available:
        raise RunnerError("torch sees no CUDA device here: choose --device cpu")
    return "cuda" if available and requested == "auto" else requested.replace("auto", "cpu")


def zoo_work(
    torch: Any,  # noqa: ANN401
    name: str,
    *,
    mode: str,
    batch: int,
    device: str,
    precision: str,
    execution: str = "eager",
    shape: Sequence[int] | None = None,
    compiled_code: CompiledCode | None = None,
    capturing: AbstractContextManager[object] | None = None,
) -> TorchWorkload:
    """A step of a model of the zoo, with random weights and inputs that torch's seed decides.

    `shape` is that of one input, where it is not to be the model's usual one; `compiled_code` watches the model be
    compiled, `capturing` is entered while a graph is captured. RunnerError where the model cannot be had here.
    """
    entry = find(name)
    training = mode == "training"
    dtype = getattr(torch, DTYPES[precision])
    built = build(entry)
    model = built.model.to(device=device, dtype=dtype)
    input_shape = tuple(shape or built.shape)
    inputs = random_inputs(
        torch, model, built.input, batch=batch, shape=input_shape, device=device, dtype=dtype, training=training
    )
    called = _compile_model(torch, model.train(training), inputs, compiled_code) if execution == "compile" else model
    graph = execution == "cudagraph"
    if training:
        step = training_step(torch, called, inputs, Loss(torch, entry.task), graph=graph)
    else:
        step = inference_step(torch, called, inputs)
    source = {"source": built.library, **({"source_version": built.version} if built.version else {})}
    facts: dict[str, object] = {"model": {"name": entry.name, "task": entry.task, **source}, "input_shape": input_shape}
    facts |= {"optimizer": "AdamW"} if training else {}
    with capturing or nullcontext():
        ready = step_as_run(torch, execution, step, device=device)
    step_inputs = StepInputs(
        [*inputs.positional, *([inputs.named] if inputs.named else [])], dict(model.named_parameters())
    )
    return TorchWorkload(entry.name, entry.task, ready, facts, step_inputs)


def _compile_model(torch: Any, model: Any, inputs: Inputs, compiled_code: CompiledCode | None) -> Any:  # noqa: ANN401
    if compiled_code is None:
        return torch.compile(model)
    compiled_code.call_once(model, lambda: inputs.call(model))
    return compiled_code.compile(model)


def small_work(
    torch: Any,  # noqa: ANN401
    workload: str,
    *,
    mode: str,
    batch: int,
    device: str,
    dtype: str,
    checkpointing: bool = False,
) -> TorchWorkload:
    """A step of one of our small models; `checkpointing` recomputes blocks in the backward pass."""
    from xsp_runners.torch_zoo import WORKLOADS, Recipe  # noqa: PLC0415 (imports torch)

    recipe = Recipe(batch, torch.device(device), getattr(torch, DTYPES[dtype]), checkpointing)
    built = WORKLOADS[workload](recipe)
    inputs = Inputs((built.inputs,))
    if mode != "training":
        return TorchWorkload(built.name, built.task, inference_step(torch, built.model, inputs))
    loss = Loss(torch, built.task, built.labels.flatten())
    return TorchWorkload(built.name, built.task, training_step(torch, built.model, inputs, loss))


def own_work(workload: str, *, batch: int, device: str) -> TorchWorkload:
    """The step that the user's `module:function` returns when called with batch and device."""
    return TorchWorkload(workload, "", own_step(workload, batch=batch, device=device))
