"""What a PyTorch runner runs, a model of the zoo or the user's own function: its device, its settings, its steps.

torch is imported when a run starts, so that this module can be read without it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from xsp_runners.frameworks.compiled_code import CompiledCode
from xsp_runners.outputs import UNKNOWN_INPUTS, StepInputs
from xsp_runners.run_folder import RunnerError
from xsp_runners.sets.level_process import MODES, own_step
from xsp_runners.zoo.models import Inputs, Loss, build, find, random_inputs

__all__ = [
    "CUBLAS_WORKSPACE",
    "DTYPES",
    "MODES",
    "ZOO",
    "TorchWorkload",
    "apply_settings",
    "device_of",
    "import_torch",
    "in_force",
    "own_work",
    "serialise",
    "small_work",
    "zoo_work",
]

_BEFORE_CAPTURE = 3  # steps on a stream of their own before a graph is captured, as PyTorch asks for


def inference_step(torch: Any, model: Any, inputs: Inputs) -> Callable[[], object]:
    """The model's forward pass, without what gradients would need."""
    model.eval()

    def step() -> object:
        with torch.inference_mode():
            return inputs.call(model)

    return step


def training_step(torch: Any, model: Any, inputs: Inputs, loss: Loss, *, graph: bool = False) -> Callable[[], object]:
    """Forward, loss, backward, and a step of AdamW; `graph`: in a form that a CUDA graph can hold."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **({"capturable": True} if graph else {}))

    def step() -> object:
        optimizer.zero_grad()
        error = loss.of(inputs.call(model))
        error.backward()
        optimizer.step()
        return error

    return step


def step_as_run(torch: Any, execution: str, step: Callable[[], object], *, device: str) -> Callable[[], object]:
    """The step as it is to be run; RunnerError where that cannot be here.

    Compiling is done to the model, not the step; see `zoo_work`.
    """
    if execution != "cudagraph":
        return step
    if device != "cuda":
        raise RunnerError("a CUDA graph needs a GPU: choose --execution eager or compile on the CPU")
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(_BEFORE_CAPTURE):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = step()

    def replay() -> object:
        graph.replay()
        return output

    return replay


DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""Precisions by the names that command lines take, with torch's types of weights and inputs."""
ZOO = ("mlp", "convnet", "transformer")
"""Our small models; `xsp_runners.zoo.networks` builds them."""
_BLOCKING = "CUDA_LAUNCH_BLOCKING"


@dataclass(frozen=True)
class TorchWorkload:
    """A step to run again and again, with the name and task of its model and what else is known of it."""

    name: str
    task: str
    step: Callable[[], object]
    facts: Mapping[str, object] = field(default_factory=dict)
    step_inputs: StepInputs = UNKNOWN_INPUTS


def import_torch() -> Any:
    """The module torch; RunnerError where it is not installed."""
    try:
        import torch  # noqa: PLC0415 (heavy, and wanted only when a run starts)
        import torch.profiler  # noqa: PLC0415
    except ImportError as error:
        raise RunnerError("torch is not installed: pip install torch") from error
    return torch


def serialise(torch: Any) -> None:
    """Makes each launch wait for its kernel; RunnerError where CUDA is in use already."""
    if os.environ.get(_BLOCKING) == "1":
        return
    if torch.cuda.is_initialized():
        raise RunnerError(f"a serialised capture needs {_BLOCKING}=1 in the environment before CUDA is first used")
    os.environ[_BLOCKING] = "1"


def device_of(torch: Any, requested: str) -> str:
    """`cpu` or `cuda`: what `auto` stands for here; RunnerError where there is no such device."""
    available = bool(torch.cuda.is_available())
    if requested == "cuda" and not available:
        raise RunnerError("torch sees no CUDA device here: choose --device cpu")
    return "cuda" if available and requested == "auto" else requested.replace("auto", "cpu")


def zoo_work(
    torch: Any,
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


def _compile_model(torch: Any, model: Any, inputs: Inputs, compiled_code: CompiledCode | None) -> Any:
    if compiled_code is None:
        return torch.compile(model)
    compiled_code.call_once(model, lambda: inputs.call(model))
    return compiled_code.compile(model)


def small_work(
    torch: Any, workload: str, *, mode: str, batch: int, device: str, dtype: str, checkpointing: bool = False
) -> TorchWorkload:
    """A step of one of our small models; `checkpointing` recomputes blocks in the backward pass."""
    from xsp_runners.zoo.networks import WORKLOADS, Recipe  # noqa: PLC0415 (imports torch)

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


CUBLAS_WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
"""Without it cuBLAS may choose another algorithm in every run."""
_ENVIRONMENT = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUDA_LAUNCH_BLOCKING")


def apply_settings(torch: Any, args: argparse.Namespace) -> None:
    """Does what `--settings`, `--threads` and `--seed` say, and nothing else.

    `reproducible`, of models of the zoo, takes away what would let two runs choose other kernels. `own`, of programs
    and functions of the user's own, changes nothing: not TF32, determinism, cuDNN's benchmark, cuBLAS's workspace, nor
    seeds.
    """
    if args.settings == "reproducible":
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = args.precision == "tf32"
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.seed is not None:
        torch.manual_seed(args.seed)


def in_force(torch: Any, args: argparse.Namespace) -> dict[str, object]:
    """The settings as they are now; what this torch does not tell is left out."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    getters: Mapping[str, Callable[[], object]] = {
        "cudnn_benchmark": lambda: cudnn.benchmark,
        "cudnn_deterministic": lambda: cudnn.deterministic,
        "cudnn_tf32": lambda: cudnn.allow_tf32,
        "matmul_tf32": lambda: matmul.allow_tf32,
        "matmul_fp16_reduced_precision": lambda: bool(matmul.allow_fp16_reduced_precision_reduction),
        "matmul_bf16_reduced_precision": lambda: bool(matmul.allow_bf16_reduced_precision_reduction),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
        "float32_matmul_precision": torch.get_float32_matmul_precision,
        "default_dtype": lambda: str(torch.get_default_dtype()).removeprefix("torch."),
        "threads": torch.get_num_threads,
    }
    values = {name: value for name, ask in getters.items() if (value := _answer(ask)) is not None}
    variables = {name.lower(): os.environ.get(name) for name in (CUBLAS_WORKSPACE[0], *_ENVIRONMENT)}
    return {
        "set_by": "program" if args.settings == "own" else "xsp",
        "seed": args.seed,
        **values,
        **{name: value for name, value in variables.items() if value is not None},
    }


def _answer(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except (RuntimeError, AttributeError):  # torch refuses old questions once a program has used its newer settings
        return None
