"""Runs a PyTorch workload under torch.profiler and leaves a run: trace.json.gz and run.json.

    python -m xsp_runners.torch_profiler --workload transformer --mode training --steps 3 --out DIR

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
import runpy
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners.answers import Parser
from xsp_runners.kineto_text import without_private_data
from xsp_runners.run_folder import RUN, SCHEMA_VERSION, RunnerError, put, put_json
from xsp_runners.torch_recorded import Recorded, check_kernels, count_recorded
from xsp_runners.torch_workload import DTYPES, MODES, ZOO, device_of, import_torch, serialise, small_work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["CAPTURE", "TRACE", "Ranges", "RunnerError", "Session", "capture", "main", "write_trace"]

TRACE = "trace.json.gz"
"""The file that holds the profiler's trace, beside run.json."""

CAPTURE = "graph_capture.json.gz"
"""The file that holds how the graph was captured that the trace replays."""


_CUT_OFF = "the profiler's trace is not there or cut off: is the disk of temporary files full?"


class Ranges(Protocol):
    """Marks a step for a tool that records from outside."""

    def open(self) -> None:
        """A step begins."""

    def close(self) -> None:
        """The step ended."""


@dataclass
class Session:
    """A capture under way: `step` is called after each step, warm-up first."""

    warmup: int
    steps: int
    _advance: Callable[[], None]
    _synchronize: Callable[[], None]
    _ranges: Ranges | None = None
    durations_ns: list[int] = field(default_factory=list)
    _done: int = 0
    _begun_ns: int = 0
    _open: bool = False

    @property
    def is_finished(self) -> bool:
        """Whether all steps asked for have run."""
        return self._done >= self.warmup + self.steps

    @property
    def is_last(self) -> bool:
        """Whether the step under way is the last one."""
        return self._done + 1 >= self.warmup + self.steps

    def begin(self) -> None:
        """Starts the clock of the step, anew where it was started before."""
        self._synchronize()
        if self._ranges and not self._open:
            self._ranges.open()
            self._open = True
        self._begun_ns = time.perf_counter_ns()

    def close(self) -> bool:
        """Closes the step, waiting for the device; True once the capture has all it needs."""
        if self.is_finished:
            return True
        self._synchronize()
        now = time.perf_counter_ns()
        if self._ranges and self._open:
            self._ranges.close()
            self._open = False
        if self._done >= self.warmup:
            self.durations_ns.append(now - self._begun_ns)
        self._done += 1
        self._advance()
        return self.is_finished

    def step(self) -> bool:
        """Closes a step and opens the next; True once the capture has all it needs."""
        if not self.close():
            self.begin()
        return self.is_finished


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
    torch = import_torch()
    if serialised:
        serialise(torch)  # before anything asks CUDA for its devices
    on_gpu = device_of(torch, device) == "cuda"
    profiler = _profiler(torch, steps=steps, warmup=warmup, on_gpu=on_gpu)
    session = Session(warmup, steps, profiler.step, torch.cuda.synchronize if on_gpu else _nothing)
    with profiler:
        session.begin()
        yield session
    if not session.is_finished:
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
        "files": [{"path": TRACE, "format": "torch_profiler"}],
    }
    trace = _export_trace(profiler)
    if on_gpu:
        check_kernels(torch, count_recorded(trace))
    _put_trace(trace, Path(out), TRACE, python_calls=python_calls)
    put_json(Path(out) / RUN, facts)


def _nothing() -> None:
    pass


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


def write_trace(profiler: Any, out: Path, name: str = TRACE, *, python_calls: bool = False) -> Recorded:  # noqa: ANN401
    """Writes what the profiler recorded into the folder, without private data; RunnerError where it cannot be."""
    trace = _export_trace(profiler)
    _put_trace(trace, out, name, python_calls=python_calls)
    return count_recorded(trace)


def _export_trace(profiler: Any) -> str:  # noqa: ANN401
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(path))
            return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # the profiler itself says nothing where it cannot write
        raise RunnerError(_CUT_OFF) from error


def _put_trace(trace: str, out: Path, name: str, *, python_calls: bool) -> None:
    try:
        cleaned = without_private_data(trace, python_calls=python_calls)
    except (ValueError, IndexError) as error:
        raise RunnerError(_CUT_OFF) from error
    put(out / name, gzip.compress(cleaned.encode(), mtime=0))


def _run_workload(args: argparse.Namespace) -> None:
    torch = import_torch()
    if args.serialised:
        serialise(torch)
    device = device_of(torch, args.device)
    torch.manual_seed(0)
    work = small_work(
        torch,
        args.workload,
        mode=args.mode,
        batch=args.batch,
        device=device,
        dtype=args.dtype,
        checkpointing=args.checkpointing,
    )
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
            work.step()
            if session.step():
                break


def _parser() -> argparse.ArgumentParser:
    parser = Parser("xsp_runners.torch_profiler", description="Profiles a small PyTorch workload.")
    parser.add_argument("--workload", choices=ZOO, default="mlp")
    parser.add_argument("--mode", choices=MODES, default="inference")
    parser.add_argument("--batch", type=int, default=8, help="inputs per step")
    parser.add_argument("--steps", type=int, default=3, help="steps recorded")
    parser.add_argument("--warmup", type=int, default=1, help="steps before them, not recorded")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="fp32")
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
    print(args.out / RUN)
    return 0


if __name__ == "__main__":
    sys.exit(main())
