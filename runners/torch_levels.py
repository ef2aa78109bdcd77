"""Runs one level of a leveled set on a PyTorch workload, in this process, and leaves a run.

    python -m runners.torch_levels --level ML --workload convnet --steps 10 --out runs/convnet/ml

M has no profiler. ML records modules, with the device synchronised after each where there is a GPU. MLG adds shapes,
memory and, on a GPU, kernels. All time their steps in the same way, with the same weights, inputs and settings.
`runners.collect` runs several levels, each in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.run_folder import ERROR, RUN, SCHEMA_VERSION, RunnerError, clear, put_json
from runners.torch_profiler import TRACE, Session, write_trace
from runners.torch_workload import DTYPES, MODES, ZOO, device_of, import_torch, own_work, serialise, zoo_work

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runners.torch_workload import Work

__all__ = ["LEVELS", "add_options", "checked", "main", "options_of"]

_OPTIONS = ("workload", "mode", "batch", "steps", "warmup", "device", "dtype", "threads", "seed")
_FAILED = 2
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"  # without it cuBLAS may choose another algorithm in every run


@dataclass(frozen=True)
class _Level:
    """What a level records beside step times."""

    name: str  # as run.json has it
    profiled: bool = False
    detailed: bool = False  # shapes, memory, device
    blocking: bool = False  # each launch waits for its kernel


LEVELS = {
    "M": _Level("M"),
    "ML": _Level("ML", profiled=True),
    "MLG": _Level("MLG", profiled=True, detailed=True),
    "MLG-serialised": _Level("MLG", profiled=True, detailed=True, blocking=True),
}
"""Levels by the names that command lines take."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that every run of a set has in common."""
    parser.add_argument("--workload", default="convnet", help=f"{', '.join(ZOO)}, or your own as module:function")
    parser.add_argument("--mode", choices=MODES, default="inference", help="of our own models")
    parser.add_argument("--batch", type=int, default=8, help="inputs per step")
    parser.add_argument("--steps", type=int, default=10, help="steps recorded")
    parser.add_argument("--warmup", type=int, default=3, help="steps before them, not recorded")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="fp32", help="of our own models")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads of one operator; 0: as torch chooses")
    parser.add_argument("--seed", type=int, default=0, help="of weights and inputs")


def options_of(args: argparse.Namespace) -> dict[str, object]:
    """The options that `add_options` added, by name."""
    return {name: getattr(args, name) for name in _OPTIONS}


def checked(args: argparse.Namespace) -> argparse.Namespace:
    """The same arguments; RunnerError where a number cannot be meant."""
    for name in ("batch", "steps", "warmup"):
        if getattr(args, name) < 1:
            raise RunnerError(f"--{name} must be at least 1")
    if args.threads < 0:
        raise RunnerError("--threads must be at least 0")
    if args.workload not in ZOO and ":" not in args.workload:
        raise RunnerError(f"{args.workload!r} is no workload: choose {', '.join(ZOO)} or give module:function")
    return args


def _measure(args: argparse.Namespace) -> None:
    level = LEVELS[args.level]
    os.environ.setdefault(_CUBLAS, ":4096:8")
    torch = import_torch()
    device = device_of(torch, args.device)
    on_gpu = device == "cuda"
    if level.blocking:
        if not on_gpu:
            raise RunnerError(f"{args.level} needs a GPU: on the CPU every run is serialised as it is")
        serialise(torch)
    settings = _fixed(torch, args)
    work = _work(torch, args, device)
    layers_wait = level.name == "ML" and on_gpu
    profiler = _profiler(torch, args, on_gpu=on_gpu) if level.profiled else None
    session = Session(
        args.warmup, args.steps, profiler.step if profiler else _nothing, torch.cuda.synchronize if on_gpu else _nothing
    )
    with _waiting_layers(torch) if layers_wait else nullcontext(), profiler or nullcontext():
        session.begin()
        while not session.finished:
            work.step()
            session.step()
    if profiler:
        write_trace(profiler, args.out)
    facts = {
        "schema_version": SCHEMA_VERSION,
        "level": level.name,
        "counters": [],
        "serialized": layers_wait or level.blocking or not on_gpu,  # a CPU operator has ended when its call returns
        "model": {"name": work.name, "task": work.task},
        "framework": {"name": "pytorch", "version": str(torch.__version__)},
        "batch_size": args.batch,
        "device": {"name": torch.cuda.get_device_name() if on_gpu else "cpu"},
        "warmup_steps": args.warmup,
        "steps": args.steps,
        "step_durations_ns": session.durations_ns,
        "files": [{"path": TRACE, "format": "torch_profiler"}] if profiler else [],
        "runner_level": args.level,
        "deepest_level": _deepest(level, on_gpu=on_gpu),
        "settings": settings,
        "options": options_of(args),
    }
    put_json(args.out / RUN, facts)


def _nothing() -> None:
    pass


def _deepest(level: _Level, *, on_gpu: bool) -> str:
    """What the run holds at the bottom: on the CPU operators stand in for kernels."""
    if not level.profiled:
        return "model"
    return "kernel" if level.detailed and on_gpu else "operator"


def _fixed(torch: Any, args: argparse.Namespace) -> dict[str, object]:  # noqa: ANN401
    """Takes away what would let two runs choose other kernels, and says how."""
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    return {
        "seed": args.seed,
        "cudnn_benchmark": False,
        "cudnn_deterministic": True,
        "cublas_workspace_config": os.environ[_CUBLAS],
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "threads": torch.get_num_threads(),
    }


def _work(torch: Any, args: argparse.Namespace, device: str) -> Work:  # noqa: ANN401
    if args.workload not in ZOO:
        return own_work(args.workload, batch=args.batch, device=device)
    return zoo_work(torch, args.workload, mode=args.mode, batch=args.batch, device=device, dtype=args.dtype)


def _profiler(torch: Any, args: argparse.Namespace, *, on_gpu: bool) -> Any:  # noqa: ANN401
    detailed = LEVELS[args.level].detailed
    kinds = torch.profiler.ProfilerActivity
    return torch.profiler.profile(
        activities=[kinds.CPU, kinds.CUDA] if detailed and on_gpu else [kinds.CPU],
        schedule=torch.profiler.schedule(wait=args.warmup - 1, warmup=1, active=args.steps, repeat=1),
        record_shapes=detailed,
        profile_memory=detailed,
        with_stack=True,  # module rows exist only with stacks
    )


@contextmanager
def _waiting_layers(torch: Any) -> Iterator[None]:  # noqa: ANN401
    """Every module, whoever made it, waits for the device before its call ends, and so inside its own row."""

    def wait(*_: object) -> None:
        torch.cuda.synchronize()

    hook = torch.nn.modules.module.register_module_forward_hook(wait)
    try:
        yield
    finally:
        hook.remove()


def _sentence(error: BaseException) -> str:
    """The error in one line that names nobody's folders."""
    if isinstance(error, RunnerError):
        return str(error)
    first = next(iter(str(error).strip().splitlines()), "")
    text = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return text.replace(str(Path.cwd()), ".").replace(str(Path.home()), "~")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m runners.torch_levels", description="Runs one level of a leveled set.")
    parser.add_argument("--level", choices=tuple(LEVELS), required=True)
    add_options(parser)
    parser.add_argument("--out", type=Path, required=True, help="folder for run.json and the trace")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; 0 when the run was written, 2 after a sentence on stderr, which error.json has too."""
    args = _parser().parse_args(arguments)
    try:
        checked(args)
        clear(args.out)
        _measure(args)
    except Exception as error:  # noqa: BLE001 (a workload is the user's code: whatever it raises is recorded)
        if not isinstance(error, RunnerError):
            traceback.print_exc()
        sentence = _sentence(error)
        print(f"torch_levels: {sentence}", file=sys.stderr)
        _record(args, sentence)
        return _FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _record(args: argparse.Namespace, sentence: str) -> None:
    try:
        put_json(args.out / ERROR, {"schema_version": SCHEMA_VERSION, "level": args.level, "error": sentence})
    except RunnerError as error:
        print(f"torch_levels: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
