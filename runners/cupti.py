"""Records what a Python program does on the GPU through NVIDIA's package cupti-python, as a dump that XSP reads.

    python -m xsp_runners.cupti --out runs/cupti -- train.py --epochs 1

runs train.py in this process and leaves runs/cupti/cupti.parquet (cupti.jsonl without pyarrow); `record` is a context
manager around code of one's own. The program runs whatever CUPTI refuses; a sentence in the end says what is missing.
Times are those of CUPTI's clock, on Linux Unix time, as those of torch.profiler. No other user of CUPTI can be in the
process: no torch.profiler with CUDA, no nsys and no ncu around it.
"""

from __future__ import annotations

import argparse
import runpy
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners.answers import Parser, answer
from xsp_runners.cupti_recorder import GRAPHS, NAME, Recorder, record
from xsp_runners.nvtx_calls import STEP, NvtxCalls, providing
from xsp_runners.run_folder import LEVEL, RunnerError, put_json, read_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

__all__ = ["NAME", "PROBLEM", "Recorder", "main", "record", "wrapped_command"]

PROBLEM = "recorder_problem"
"""Where a level process' description says why there is no recording of its run."""

_USER_ERROR = 2
_NO_KERNEL = (
    "CUPTI recorded no kernel of the GPU: the program may have run on the CPU or in another process, or the driver "
    "hands over no activities (as on a vGPU, or a MIG slice without the right to be profiled)"
)
_ENDED = 143  # 128 + SIGTERM, as shells have it


def _ranges_told_to(recorder: Recorder) -> NvtxCalls:
    """What level processes mark: steps are ranges of the process, layers of a thread."""
    return NvtxCalls(
        lambda name: recorder.push(name, _level_of(name)),
        recorder.pop,
        lambda name: recorder.start(name, "model" if name == STEP else "layer"),
        recorder.end,
    )


def _level_of(name: str) -> str:
    """Modules are layers; in compiled code (`compiled_marks`) operators and calls of graphs are marked."""
    if name.startswith("## "):
        return "application"
    return "operator" if name.startswith("aten::") else "layer"


def wrapped_command(target: Sequence[str], out: Path, *, graph: str = "node") -> list[str]:
    """The command that runs `target`, a command of Python itself (`python FILE ...` or `python -m ...`), recorded."""
    python, *program = target
    return [python, str(Path(__file__).resolve()), "--graph", graph, "--out", str(out), "--", *program]


def _run_program(program: Sequence[str]) -> SystemExit:
    """Runs `FILE ARGS` or `-m MODULE ARGS` as Python would; how it ended."""
    before = sys.argv, [*sys.path]
    try:
        if program[0] == "-m":
            sys.argv = list(program[1:])
            runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(program)
            sys.path.insert(0, str(Path(program[0]).resolve().parent))
            runpy.run_path(program[0], run_name="__main__")
    except SystemExit as ended:
        return ended
    finally:
        sys.argv, sys.path[:] = before
    return SystemExit(0)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "cupti",
        description="Records what a Python program does on the GPU, by CUPTI in its own process.",
        epilog="Exit status: that of the program, or 2 where nothing could be recorded.",
    )
    parser.add_argument("--graph", choices=GRAPHS, default="node", help="record a CUDA graph's kernels, or its launch")
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


def _problem(recorder: Recorder, folder: Path) -> str | None:
    """Why there is no recording, or no whole one, of what a level process says of its run; that is told there, too."""
    description = read_json(folder / LEVEL)
    problem = recorder.problem
    if problem is None and description.get("deepest_level") == "kernel" and not recorder.kernels:
        problem = _NO_KERNEL
        print(f"cupti: {problem}", file=sys.stderr)
    if problem and description:
        put_json(folder / LEVEL, {**description, PROBLEM: problem})
    return problem


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; raises the program's SystemExit, or returns 2 after a sentence on stderr."""
    args = _parser().parse_args(arguments)
    try:
        program = _checked_program(args.program)
    except RunnerError as error:
        print(f"cupti: {error}", file=sys.stderr)
        return _USER_ERROR
    if args.dry_run:
        answer(shlex.join(wrapped_command([sys.executable, *program], args.out, graph=args.graph)))
        return 0
    signal.signal(signal.SIGTERM, _end)  # so that what was recorded is written
    with record(args.out, graph=args.graph) as recorder, providing(_ranges_told_to(recorder)):
        ended = _run_program(program)
    if not ended.code and _problem(recorder, args.out):
        return _USER_ERROR
    raise ended


if __name__ == "__main__":
    sys.exit(main())
