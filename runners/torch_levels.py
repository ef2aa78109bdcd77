"""Runs one level of a leveled set on a PyTorch workload, in this process, and leaves a run.

    python runners/torch_levels.py --level ML --workload zoo:convnet --steps 10 --out runs/convnet/ml

M has no profiler. ML records modules and memory, with the device synchronised before and after each module where there
is a GPU. MLG adds shapes and, on a GPU, kernels. All time their steps in the same way, with the same weights, inputs
and settings. `xsp_runners.collect` runs several levels, each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MethodType
from typing import Any

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners.frameworks.compiled_code import COMPILED_CODE, FORMAT, CompiledCode
from xsp_runners.frameworks.torch_workload import (
    CUBLAS_WORKSPACE,
    TorchWorkload,
    apply_settings,
    device_of,
    import_torch,
    in_force,
    own_work,
    serialise,
    zoo_work,
)
from xsp_runners.outputs import Outputs
from xsp_runners.run_folder import RunnerError, put
from xsp_runners.sets import level_process
from xsp_runners.sets.level_process import LEVELS, Level, outputs_of, run_script, shape_of, zoo_name
from xsp_runners.sets.observed import Observed, ScriptSteps
from xsp_runners.tools.nvtx_ranges import StepRanges, module_ranges, nvtx_calls
from xsp_runners.torch_profiler import CAPTURE, TRACE, Ranges, Session, check_kernels, new_profiler, write_trace

__all__ = ["main", "measure", "recorded_capture", "waiting_layers", "waits_for_all"]


def waits_for_all(torch: Any) -> Callable[[], None]:
    """A function that waits for every GPU in use by this process, whichever is the current one."""
    cuda = torch.cuda

    def wait() -> None:
        cuda.synchronize()
        count = cuda.device_count()
        if count > 1:
            current = cuda.current_device()
            for device in range(count):
                if device != current and _in_use(torch, device):
                    cuda.synchronize(device)

    return wait


def _in_use(torch: Any, device: int) -> bool:
    """Whether this process has a context there; where torch does not tell, whether it holds memory."""
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)  # noqa: SLF001 (no public name)
    if has_context is not None:
        try:
            return bool(has_context(device))
        except RuntimeError:  # a torch for the CPU has the name alone
            pass
    return bool(torch.cuda.memory_reserved(device))


class _WaitingCall:
    """`Module.__call__` after a wait. Profilers ask it for the code by which they know a module's frame."""

    def __init__(self, call: Any, wait: Callable[[], None]) -> None:
        self._call = call
        self._wait = wait
        self.__code__ = call.__code__

    def __get__(self, module: object, _owner: object = None) -> Any:
        return self if module is None else MethodType(self, module)

    def __call__(self, module: object, *args: Any, **options: Any) -> Any:
        self._wait()
        return self._call(module, *args, **options)


@contextmanager
def waiting_layers(torch: Any) -> Iterator[None]:
    """Every module, whoever made it, begins and ends with nothing left to do on the device.

    A profiler's row of a module is the frame of `Module.__call__`. What runs on the device when a module is called is
    its parent's (attention between two projections, a sum of residuals), so it is waited for before that frame begins;
    what the module launched is waited for in a forward hook, which is called inside of it.

    While a program captures a graph or compiles, nothing waits: the one may not, the other would record it.
    """

    def wait(*_: object) -> None:
        if not torch.compiler.is_compiling() and not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()

    module = torch.nn.Module
    call = module.__call__
    module.__call__ = _WaitingCall(call, wait)
    hook = torch.nn.modules.module.register_module_forward_hook(wait)
    try:
        yield
    finally:
        hook.remove()
        module.__call__ = call


@dataclass
class _ProfilerSteps:
    """The spans of steps in a torch.profiler trace: exactly what is timed, not what lies between two steps."""

    _torch: Any
    _warmup: int
    _begun: int = 0
    _span: Any = None

    def open(self) -> None:
        if self._begun >= self._warmup:
            self._span = self._torch.profiler.record_function(f"ProfilerStep#{self._begun}")
            self._span.__enter__()
        self._begun += 1

    def close(self) -> None:
        if self._span is not None:
            self._span.__exit__(None, None, None)
            self._span = None


def measure(args: argparse.Namespace) -> dict[str, object]:
    """Runs the level, writes its trace, and says what is known of the run."""
    level = LEVELS[args.level]
    if args.settings == "reproducible":
        os.environ.setdefault(*CUBLAS_WORKSPACE)
    torch = import_torch()
    on_gpu = _is_on_gpu(torch, args, level)
    if on_gpu and args.rank is not None and not args.script:
        torch.cuda.set_device(args.rank.local_rank)  # a program does so itself
    apply_settings(torch, args)
    wait = waits_for_all(torch) if on_gpu else _nothing
    observed = Observed(args, on_gpu, lambda _: wait(), lambda: in_force(torch, args))
    own = level.profiled and args.recorder == "own"
    marked = StepRanges(nvtx_calls(), args.warmup) if args.annotate == "nvtx" else None
    compiled = level.profiled and args.execution == "compile"
    compiled_code = CompiledCode(torch, marked) if compiled else None
    captured = own and level.detailed and args.execution == "cudagraph" and not args.script
    capturing = recorded_capture(torch, args.out) if captured else None
    work = None if args.script else _work(torch, args, "cuda" if on_gpu else "cpu", compiled_code, capturing)
    observed.say_model(work.facts if work else {})
    layers_wait = level.name == "ML" and on_gpu and args.execution == "eager"  # compiled code calls no modules
    profiler = None
    if own:
        kernels = level.detailed and on_gpu
        profiler = new_profiler(torch, steps=args.steps, warmup=args.warmup, shapes=level.detailed, kernels=kernels)
        profiler.record_steps = False  # its own last from one call of step() to the next
    with ExitStack() as around:
        marks: Ranges | None = _ProfilerSteps(torch, args.warmup) if profiler else marked
        if marked and not compiled:
            around.enter_context(module_ranges(torch, marked))
        if layers_wait:
            around.enter_context(waiting_layers(torch))
        if profiler:
            around.enter_context(profiler)
        session = Session(
            args.warmup,
            args.steps,
            _both(profiler.step, observed.end_step) if profiler else observed.end_step,
            wait,
            marks,
        )
        outputs = outputs_of(args)
        batch_size = _run(args, session, work, outputs, observed)
    files = _write_files(torch, args, profiler, compiled_code, with_kernels=level.detailed and on_gpu)
    return {
        "serialized": layers_wait or level.blocking or not on_gpu,  # a CPU operator has ended when its call returns
        "model": {"name": work.name, "task": work.task} if work else {"name": Path(args.script).stem, "task": ""},
        "framework": {"name": "pytorch", "version": str(torch.__version__)},
        "batch_size": batch_size,
        "device": {"name": torch.cuda.get_device_name() if on_gpu else "cpu"},
        "step_durations_ns": session.durations_ns,
        "files": files,
        **({"graph_captures": [CAPTURE]} if captured else {}),
        "deepest_level": level.deepest(profiled=level.profiled, on_gpu=on_gpu),
        **observed.facts,
        **(work.facts if work else {}),
        **outputs.facts,
        **_memory(torch, on_gpu=on_gpu),
    }


def _write_files(
    torch: Any, args: argparse.Namespace, profiler: Any, compiled_code: CompiledCode | None, *, with_kernels: bool
) -> list[dict[str, str]]:
    """Writes what was recorded; the files as run.json lists them. RunnerError where kernels should be there."""
    files = []
    if profiler:
        recorded = write_trace(profiler, args.out)
        files.append({"path": TRACE, "format": "torch_profiler"})
        if with_kernels:
            check_kernels(torch, recorded)
    if compiled_code:
        put(args.out / COMPILED_CODE, json.dumps(compiled_code.document()).encode())
        files.append({"path": COMPILED_CODE, "format": FORMAT})
    return files


def _is_on_gpu(torch: Any, args: argparse.Namespace, level: Level) -> bool:
    """Whether the run is on a GPU; RunnerError where the level, precision or execution cannot be had there."""
    if level.blocking and args.device != "cpu":
        serialise(torch)  # before anything asks CUDA for its devices
    on_gpu = device_of(torch, args.device) == "cuda"
    if level.blocking and not on_gpu:
        raise RunnerError(f"{args.level} needs a GPU: on the CPU every run is serialised as it is")
    if args.execution == "cudagraph" and level.name == "ML":
        raise RunnerError("a replayed CUDA graph calls no modules, so that level ML holds no layers: choose M and MLG")
    if args.precision == "tf32" and not on_gpu:
        raise RunnerError("tf32 is a precision of GPUs: choose --precision fp32 on the CPU")
    return on_gpu


def _run(
    args: argparse.Namespace, session: Session, work: TorchWorkload | None, outputs: Outputs, observed: Observed
) -> int | None:
    """Runs all steps; the batch size as far as anyone told it."""
    if work is None:
        steps = ScriptSteps(observed, session.begin, lambda _: session.close())
        run_script(args.script, args.script_args, steps)
        return args.batch_size or steps.batch_size
    outputs.note_inputs(work.step_inputs)
    while observed.warming():
        observed.end_warmup_step(work.step())
    session.begin()
    result: object = None
    while not session.is_finished:
        is_kept = outputs.is_enabled and session.is_last
        result = work.step()
        result = result if is_kept else None  # what is not kept is freed within its step, as ever
        session.step()
    outputs.note_output(result, work.step_inputs, step=observed.step_count - 1)
    batch: int = args.batch_size
    return batch


def _nothing() -> None:
    pass


def _both(first: Callable[[], object], second: Callable[[], object]) -> Callable[[], None]:
    def both() -> None:
        first()
        second()

    return both


def _memory(torch: Any, *, on_gpu: bool) -> dict[str, object]:
    return {"peak_memory_bytes": int(torch.cuda.max_memory_allocated())} if on_gpu else {}


def _work(
    torch: Any,
    args: argparse.Namespace,
    device: str,
    compiled_code: CompiledCode | None,
    capturing: AbstractContextManager[object] | None,
) -> TorchWorkload:
    name = zoo_name(args.workload)
    if name is None:
        return own_work(args.workload, batch=args.batch_size, device=device)
    return zoo_work(
        torch,
        name,
        mode=args.mode,
        batch=args.batch_size,
        device=device,
        precision=args.precision,
        execution=args.execution,
        shape=shape_of(args.input_shape),
        compiled_code=compiled_code,
        capturing=capturing,
    )


@contextmanager
def recorded_capture(torch: Any, out: Path) -> Iterator[None]:
    """Records how a graph is captured: its launches, with the operators and modules around them, but no kernels.

    The steps before, which a capture needs anyway, show which kernels each operator launches. They are not timed.
    """
    kinds = torch.profiler.ProfilerActivity
    kept = [kinds.CPU, *([kinds.CUDA] if torch.cuda.is_available() else [])]
    profiler = torch.profiler.profile(activities=kept, record_shapes=True, with_stack=True)
    with profiler:
        yield
    write_trace(profiler, out, CAPTURE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; 0 when the run was written, 2 after a sentence on stderr, which error.json has too."""
    return level_process.main("torch_levels", measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
