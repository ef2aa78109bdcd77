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
import json
import os
import re
import runpy
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Protocol

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners.frameworks.torch_workload import DTYPES, MODES, ZOO, device_of, import_torch, serialise, small_work
from xsp_runners.run_folder import RUN, SCHEMA_VERSION, RunnerError, put, put_json
from xsp_runners.tools.programs import Parser, exit_status

__all__ = [
    "CAPTURE",
    "TRACE",
    "Ranges",
    "Recorded",
    "RunnerError",
    "Session",
    "capture",
    "check_kernels",
    "count_recorded",
    "main",
    "new_profiler",
    "without_private_data",
    "write_trace",
]

_MODULE = "nn.Module: "
_PRIVATE_KEYS = ("host_name", "hostName", "user", "username")


def without_private_data(trace: str, *, python_calls: bool = False) -> str:
    """The trace without host and user names and folders; times stay character by character as they were.

    Without `python_calls`, Python functions that are no modules are left out too: they are most of a
    file and name the user's own sources.
    """
    decode = json.JSONDecoder().raw_decode
    parts: list[str] = []
    at = trace.index("{") + 1
    while (at := _skip(trace, at)) < len(trace) and trace[at] != "}":
        key, at = decode(trace, at)
        at = _skip(trace, at)
        if key == "traceEvents":
            events, at = _kept_events(trace, at + 1, python_calls=python_calls)
            parts.append('"traceEvents": [\n' + ",\n".join(events) + "\n]")
            continue
        value, at = decode(trace, at)
        if key not in _PRIVATE_KEYS:
            public = PurePath(value).name if key == "traceName" else value
            parts.append(f"{json.dumps(key)}: {json.dumps(public)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _skip(text: str, at: int) -> int:
    """The next position that is neither white space nor a separator."""
    while at < len(text) and text[at] in " \t\r\n,:":
        at += 1
    return at


def _kept_events(trace: str, at: int, *, python_calls: bool) -> tuple[list[str], int]:
    """The events' own text, and the position after their list."""
    decode = json.JSONDecoder().raw_decode
    kept = []
    while trace[at := _skip(trace, at)] != "]":
        event, end = decode(trace, at)
        text = trace[at:end]
        if event.get("cat") == "python_function" and not event["name"].startswith(_MODULE):
            text = _without_folders(text, event["name"]) if python_calls else ""
        if text:
            kept.append(" ".join(line.strip() for line in text.splitlines()))
        at = end
    return kept, at + 1


def _without_folders(text: str, name: str) -> str:
    """The event of a Python function with `/home/someone/train.py(3): f` as `train.py(3): f`."""
    source, mark, rest = name.partition("(")
    short = PurePath(source).name + mark + rest if source.startswith("/") else name
    return text.replace(json.dumps(name, ensure_ascii=False), json.dumps(short, ensure_ascii=False))


_CATEGORY = re.compile(r'"cat"\s*:\s*"(kernel|cuda_runtime|cuda_driver|hip_runtime)"', re.IGNORECASE)
_INJECTION = "CUDA_INJECTION64_PATH"
_ELSE = "--kernels nsys or cupti record in another way"


@dataclass(frozen=True)
class Recorded:
    """How many kernels, and how many calls of the runtime and the driver."""

    kernels: int
    calls: int


def count_recorded(trace: str) -> Recorded:
    """Counts in the text of a Kineto trace."""
    categories = [match[1].lower() for match in _CATEGORY.finditer(trace)]
    kernels = categories.count("kernel")
    return Recorded(kernels, len(categories) - kernels)


def check_kernels(torch: Any, recorded: Recorded, environment: Mapping[str, str] = os.environ) -> None:
    """RunnerError with the likely causes where steps on a GPU were recorded and none of its kernels."""
    if not recorded.kernels:
        raise RunnerError(f"the profiler recorded no kernel of the GPU: {_cause(torch, recorded, environment)}")


def _cause(torch: Any, recorded: Recorded, environment: Mapping[str, str]) -> str:
    if not torch.cuda.max_memory_allocated():
        return (
            "the program took no memory on it, so it ran on the CPU. Are its model and inputs on the device that it is"
            " given? --device cpu profiles it there"
        )
    if torch.profiler.ProfilerActivity.CUDA not in torch.profiler.supported_activities():
        return f"this torch ({torch.__version__}) was built without CUPTI. Install a build for CUDA, or {_ELSE}"
    if _INJECTION in environment:
        return f"{_INJECTION} is set, so that another profiler (nsys, ncu) has CUPTI, which takes one at a time"
    if recorded.calls:
        return (
            f"its {recorded.calls} launches and other calls are there, so CUPTI works but hands over no activities:"
            " the driver may be older than torch's CUDA, the GPU virtual (vGPU, WSL 2) or a slice (MIG) that may not be"
            f" profiled. {_ELSE}"
        )
    return (
        "CUPTI did not start. Another profiler may have it (nsys, ncu, DCGM:"
        " CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED), or it may lack the right to"
        " (CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: start a container with --cap-add=SYS_ADMIN, or let users profile by"
        " NVreg_RestrictProfilingToAdminUsers=0), or its library may not be loadable."
        f" KINETO_LOG_LEVEL=0 in the environment shows what it says; {_ELSE}"
    )


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
    profiler = new_profiler(torch, steps=steps, warmup=warmup, shapes=True, kernels=on_gpu)
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


def new_profiler(torch: Any, *, steps: int, warmup: int, shapes: bool, kernels: bool) -> Any:
    """A profiler of that many steps after the warm-up: modules, operators and memory; shapes and kernels if asked."""
    kinds = torch.profiler.ProfilerActivity
    return torch.profiler.profile(
        activities=[kinds.CPU, kinds.CUDA] if kernels else [kinds.CPU],
        schedule=torch.profiler.schedule(wait=warmup - 1, warmup=1, active=steps, repeat=1),
        record_shapes=shapes,
        profile_memory=True,  # an instant an allocation, which M does not pay: it has no profiler
        with_stack=True,  # module rows exist only with stacks
    )


def write_trace(profiler: Any, out: Path, name: str = TRACE, *, python_calls: bool = False) -> Recorded:
    """Writes what the profiler recorded into the folder, without private data; RunnerError where it cannot be."""
    trace = _export_trace(profiler)
    _put_trace(trace, out, name, python_calls=python_calls)
    return count_recorded(trace)


def _export_trace(profiler: Any) -> str:
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


def _run_workload(args: argparse.Namespace) -> int:
    if args.batch < 1:
        raise RunnerError("--batch must be at least 1")
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
        while not session.is_finished:
            work.step()
            session.step()
    print(args.out / RUN)
    return 0


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
    return exit_status("torch_profiler", lambda: _run_workload(args))


if __name__ == "__main__":
    sys.exit(main())
