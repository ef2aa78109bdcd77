"""Records what a Python program does on the GPU through NVIDIA's package cupti-python, as a dump that XSP reads.

    python -m xsp_runners.cupti --out runs/cupti -- train.py --epochs 1

runs train.py in this process and leaves runs/cupti/cupti.parquet (cupti.jsonl without pyarrow); `record` is a context
manager around code of one's own. Times are Unix time, as those of torch.profiler, since CUPTI asks this program for
them. No other user of CUPTI can be in the process: no torch.profiler with CUDA, no nsys and no ncu around it.
"""

from __future__ import annotations

import argparse
import runpy
import shlex
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners.cupti_recorder import CLOCKS, GRAPHS, NAME, Recorder, record
from xsp_runners.nvtx_calls import NvtxCalls, providing
from xsp_runners.run_folder import RunnerError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

__all__ = ["NAME", "Recorder", "main", "record", "wrapped_command"]

_USER_ERROR = 2
_ENDED = 143  # 128 + SIGTERM, as shells have it
_STEP, _WARMUP = "step", "warmup"  # how level processes name the ranges of their steps


class _Ranges(threading.local):
    """What level processes push and pop, as NVTX has it, told apart by their names; warm-up steps are not marked."""

    def __init__(self, recorder: Recorder) -> None:
        """Called anew on each thread that has ranges."""
        super().__init__()
        self._recorder = recorder
        self._opened: list[str] = []

    def push(self, name: str) -> None:
        self._opened.append(name)
        if _WARMUP not in self._opened:
            self._recorder.push(name, "model" if name == _STEP else "layer")

    def pop(self) -> None:
        if _WARMUP not in self._opened:
            self._recorder.pop()
        self._opened.pop()


def wrapped_command(target: Sequence[str], out: Path, *, graph: str = "node", clock: str = "realtime") -> list[str]:
    """The command that runs `target`, a command of Python itself (`python FILE ...` or `python -m ...`), recorded."""
    python, *program = target
    options = ["--graph", graph, "--clock", clock, "--out", str(out)]
    return [python, str(Path(__file__).resolve()), *options, "--", *program]


def _run_program(program: Sequence[str]) -> None:
    """Runs `FILE ARGS` or `-m MODULE ARGS` as Python would; its SystemExit passes."""
    before = sys.argv, [*sys.path]
    try:
        if program[0] == "-m":
            sys.argv = list(program[1:])
            runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(program)
            sys.path.insert(0, str(Path(program[0]).resolve().parent))
            runpy.run_path(program[0], run_name="__main__")
    finally:
        sys.argv, sys.path[:] = before


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "cupti",
        description="Records what a Python program does on the GPU, by CUPTI in its own process.",
        epilog="Exit status: that of the program, or 2 where nothing could be recorded.",
    )
    parser.add_argument("--graph", choices=GRAPHS, default="node", help="record a CUDA graph's kernels, or its launch")
    parser.add_argument("--clock", choices=CLOCKS, default="realtime", help="who tells the time: this program or CUPTI")
    parser.add_argument("--dry-run", action="store_true", help="print the command and run nothing")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for the recording")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- FILE ARGS", help="or -- -m MODULE ARGS")
    return parser


def _checked_program(arguments: Sequence[str]) -> list[str]:
    program = list(arguments[1:] if arguments[:1] == ["--"] else arguments)
    if not program or program == ["-m"]:
        raise RunnerError("what should run? Give a file of Python after --, as in: -- train.py")
    if program[0] != "-m" and not Path(program[0]).is_file():
        raise RunnerError(f"the program {program[0]!r} is not there; it must be a file of Python")
    return program


def _end(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(_ENDED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; 0 when the program ended well, its own status where not, 2 after a sentence on stderr."""
    args = _parser().parse_args(arguments)
    try:
        program = _checked_program(args.program)
        if args.dry_run:
            print(shlex.join(wrapped_command([sys.executable, *program], args.out, graph=args.graph, clock=args.clock)))
            return 0
        signal.signal(signal.SIGTERM, _end)  # so that what was recorded is written
        with record(args.out, graph=args.graph, clock=args.clock) as recorder:
            ranges = _Ranges(recorder)
            with providing(NvtxCalls(ranges.push, ranges.pop)):
                _run_program(program)
    except RunnerError as error:
        print(f"cupti: {error}", file=sys.stderr)
        return _USER_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main())
