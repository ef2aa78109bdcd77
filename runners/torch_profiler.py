"""Runs a PyTorch workload under torch.profiler and leaves a run: trace.json.gz and run.json.

    python -m runners.torch_profiler --workload transformer --mode training --steps 3 --out DIR

or, around a loop of one's own:

    with capture("DIR", steps=3, model="my model", batch_size=8) as session:
        for batch in batches:
            train(batch)
            if session.step():
                break

torch is imported when a capture starts, so that this module can be read without it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.kineto_text import without_private_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["RunnerError", "Session", "capture", "main"]

SCHEMA_VERSION = 1
_TRACE = "trace.json.gz"
_RUN = "run.json"
_BLOCKING = "CUDA_LAUNCH_BLOCKING"
_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


class RunnerError(Exception):
    """What kept a capture from being made, in one sentence for its user."""


@dataclass
class Session:
    """A capture under way: `step` is called after each step, warm-up first."""

    warmup: int
    steps: int
    _advance: Callable[[], None]
    _synchronize: Callable[[], None]
    durations_ns: list[int] = field(default_factory=list)
    _done: int = 0
    _begun_ns: int = 0

    @property
    def finished(self) -> bool:
        """Whether all steps asked for have run."""
        return self._done >= self.warmup + self.steps

    def begin(self) -> None:
        """Starts the clock of the first step."""
        self._synchronize()
        self._begun_ns = time.perf_counter_ns()

    def step(self) -> bool:
        """Closes a step (waiting for the device) and opens the next; True once the capture has all it needs."""
        if self.finished:
            return True
        self._synchronize()
        now = time.perf_counter_ns()
        if self._done >= self.warmup:
            self.durations_ns.append(now - self._begun_ns)
        self._done += 1
        self._advance()
        self._begun_ns = time.perf_counter_ns()
        return self.finished


@contextmanager
def capture(
    out: str | Path,
    *,
    steps: int = 3,
    warmup: int = 1,
    device: str = "auto",
    serialised: bool = False,
    python_calls: bool = False,
    model: str = "",
    task: str = "",
    batch_size: int | None = None,
) -> Iterator[Session]:
    """Profiles the steps run inside and writes the run into the folder `out` when they ended well.

    Records modules, shapes and memory on the CPU and, where `device` says so (`auto`: where there is one),
    the GPU. `serialised` makes each launch wait for its kernel; `python_calls` keeps every Python function,
    not only modules. Raises RunnerError where a capture cannot be made; nothing is written then.
    """
    if steps < 1 or warmup < 1:
        raise RunnerError("steps and warmup must be at least 1: the profiler's first step is never representative")
    torch = _import_torch()
    if serialised:
        _serialise(torch)  # before anything asks CUDA for its devices
    on_gpu = _device(torch, device) == "cuda"
    profiler = _profiler(torch, steps=steps, warmup=warmup, on_gpu=on_gpu)
    session = Session(warmup, steps, profiler.step, torch.cuda.synchronize if on_gpu else _nothing)
    with profiler:
        session.begin()
        yield session
    if not session.finished:
        raise RunnerError(f"the loop ended after {session._done} of {warmup + steps} steps, so nothing was written")  # noqa: SLF001
    facts: dict[str, object] = {
        "schema_version": SCHEMA_VERSION,
        "level": "MLG" if on_gpu else "ML",
        "counters": [],
        "serialized": serialised,
        "model": {"name": model, "task": task},
        "framework": {"name": "pytorch", "version": str(torch.__version__)},
        "batch_size": batch_size,
        "device": {"name": torch.cuda.get_device_name() if on_gpu else "cpu"},
        "warmup_steps": warmup,
        "steps": steps,
        "step_durations_ns": session.durations_ns,
        "files": [{"path": _TRACE, "format": "torch_profiler"}],
    }
    _write(Path(out), _exported(profiler), facts, python_calls=python_calls)


def _nothing() -> None:
    pass


def _import_torch() -> Any:  # noqa: ANN401 (torch is not installed everywhere, so its types are not known here)
    try:
        import torch  # noqa: PLC0415 (heavy, and wanted only when a capture starts)
        import torch.profiler  # noqa: PLC0415
    except ImportError as error:
        raise RunnerError("torch is not installed: pip install 'xsp[runners-torch]'") from error
    return torch


def _serialise(torch: Any) -> None:  # noqa: ANN401
    if os.environ.get(_BLOCKING) == "1":
        return
    if torch.cuda.is_initialized():
        raise RunnerError(f"a serialised capture needs {_BLOCKING}=1 in the environment before CUDA is first used")
    os.environ[_BLOCKING] = "1"


def _profiler(torch: Any, *, steps: int, warmup: int, on_gpu: bool) -> Any:  # noqa: ANN401
    activities = [torch.profiler.ProfilerActivity.CPU]
    if on_gpu:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    return torch.profiler.profile(
        activities=activities,
        schedule=torch.profiler.schedule(wait=warmup - 1, warmup=1, active=steps, repeat=1),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,  # module rows exist only with stacks
    )


def _exported(profiler: Any) -> str:  # noqa: ANN401
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return path.read_text(encoding="utf-8")


def _write(out: Path, trace: str, facts: dict[str, object], *, python_calls: bool) -> None:
    """The trace first and run.json last, each under its name only when whole."""
    cleaned = without_private_data(trace, python_calls=python_calls)
    try:
        out.mkdir(parents=True, exist_ok=True)
        _put(out / _TRACE, gzip.compress(cleaned.encode(), mtime=0))
        _put(out / _RUN, (json.dumps(facts, indent=2) + "\n").encode())
    except OSError as error:
        raise RunnerError(f"the run cannot be written to {out}: {error.strerror}") from error


def _put(path: Path, content: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.part")
    unfinished.write_bytes(content)
    unfinished.replace(path)


def _run_workload(args: argparse.Namespace) -> None:
    torch = _import_torch()
    from runners.torch_zoo import WORKLOADS, Recipe  # noqa: PLC0415 (imports torch)

    if args.serialised:
        _serialise(torch)
    device = _device(torch, args.device)
    torch.manual_seed(0)
    recipe = Recipe(args.batch, torch.device(device), getattr(torch, _DTYPES[args.dtype]), args.checkpointing)
    work = WORKLOADS[args.workload](recipe)
    step = _training(torch, work) if args.mode == "training" else _inference(torch, work)
    with capture(
        args.out,
        steps=args.steps,
        warmup=args.warmup,
        device=device,
        serialised=args.serialised,
        python_calls=args.python_calls,
        model=work.name,
        task=work.task,
        batch_size=args.batch,
    ) as session:
        while True:
            step()
            if session.step():
                break


def _device(torch: Any, wanted: str) -> str:  # noqa: ANN401
    available = bool(torch.cuda.is_available())
    if wanted == "cuda" and not available:
        raise RunnerError("torch sees no CUDA device here: choose --device cpu")
    return "cuda" if available and wanted == "auto" else wanted.replace("auto", "cpu")


def _inference(torch: Any, work: Any) -> Callable[[], object]:  # noqa: ANN401
    work.model.eval()

    def step() -> object:
        with torch.inference_mode():
            return work.model(work.inputs)

    return step


def _training(torch: Any, work: Any) -> Callable[[], object]:  # noqa: ANN401
    work.model.train()
    optimizer = torch.optim.AdamW(work.model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        logits = work.model(work.inputs)
        torch.nn.functional.cross_entropy(logits.flatten(0, -2).float(), work.labels.flatten()).backward()
        optimizer.step()

    return step


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("runners.torch_profiler", description="Profiles a small PyTorch workload.")
    parser.add_argument("--workload", choices=("mlp", "convnet", "transformer"), default="mlp")
    parser.add_argument("--mode", choices=("inference", "training"), default="inference")
    parser.add_argument("--batch", type=int, default=8, help="inputs per step")
    parser.add_argument("--steps", type=int, default=3, help="steps recorded")
    parser.add_argument("--warmup", type=int, default=1, help="steps before them, not recorded")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--dtype", choices=tuple(_DTYPES), default="fp32")
    parser.add_argument("--serialised", action="store_true", help="each launch waits for its kernel")
    parser.add_argument("--checkpointing", action="store_true", help="transformer: recompute blocks in the backward")
    parser.add_argument("--python-calls", action="store_true", help="keep every Python function, not only modules")
    parser.add_argument("--out", type=Path, required=True, help="folder for trace.json.gz and run.json")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; 0 when the run was written, 2 after a sentence on stderr."""
    args = _parser().parse_args(arguments)
    try:
        if args.batch < 1:
            raise RunnerError("--batch must be at least 1")  # noqa: TRY301 (one way out for every refusal)
        _run_workload(args)
    except RunnerError as error:
        print(f"torch_profiler: {error}", file=sys.stderr)
        return 2
    print(args.out / _RUN)
    return 0


if __name__ == "__main__":
    sys.exit(main())
