"""Collects a leveled run set: each level of a workload in a fresh process, one after the other.

    python runners/collect.py --workload zoo:resnet18 --levels M,ML,MLG --steps 10 --out runs/resnet18

leaves runs/resnet18/m, ml and mlg, each with its run.json and raw files, for `xsp merge runs/resnet18`.
"""

from __future__ import annotations

import argparse
import runpy
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners.run_folder import LIKELY, RunnerError, put_json
from xsp_runners.sets.collection import SAMPLING, Collection, note_system
from xsp_runners.sets.level_process import RECORDING, PlannedRun, add_options, check_options, to_its_end, zoo_name
from xsp_runners.sets.plan import (
    ALL_LEVELS,
    COUNTERS,
    LEVEL_PROCESSES,
    SWEEP,
    as_shell,
    batch_sizes_of,
    check_tools,
    counter_plan,
    levels_of,
    plan_runs,
    run_sweep,
)
from xsp_runners.sets.target import ASSUMED, Target, probe
from xsp_runners.tools.programs import Parser, answer
from xsp_runners.zoo.models import find

__all__ = ["main"]

_GPU_WARMUP_S = 1.0  # clocks take about as long from idle to where they stay
_FEWEST_RANKS = 2
_FAILED = 1
_USER_ERROR = 2
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_ENDED = 143  # 128 + SIGTERM
_EPILOG = "Exit status: 0 all runs are there, 1 some failed (see their error.json), 2 wrong arguments."


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "collect",
        description="Runs a workload at several levels, each in a fresh process, and leaves a run set for xsp merge.",
        epilog=_EPILOG,
    )
    parser.add_argument("--levels", default="M,ML,MLG", help=f"of {', '.join(ALL_LEVELS)}, in the order to run them")
    parser.add_argument("--framework", choices=tuple(LEVEL_PROCESSES), default="torch")
    parser.add_argument("--python", default=sys.executable, help="the Python that has the framework; default: this one")
    add_options(parser)
    parser.set_defaults(**RECORDING)
    parser.add_argument(
        "--nproc-per-node", type=int, help="run as that many ranks under torchrun; each leaves rank-K/", metavar="N"
    )
    sweep = parser.add_argument_group("batch sizes", "a sweep at level M, then the other levels at the size it finds")
    sweep.add_argument("--batch-sizes", help="1..256 for doublings, or 1,2,8", metavar="SIZES")
    sweep.add_argument("--sweep", action="store_true", help="the model's usual ones")
    tools = parser.add_argument_group("tools")
    tools.add_argument(
        "--kernels",
        choices=("framework", "nsys", "cupti", "rocprof"),
        default="framework",
        help="who records level MLG",
    )
    tools.add_argument("--chip", help=f"for {COUNTERS}: the GPU, such as H100; default: the one here")
    tools.add_argument("--counters", default="", help=f"for {COUNTERS}: groups of counters", metavar="GROUPS")
    tools.add_argument("--power", choices=SAMPLING, default="auto", help="sample power beside runs on a GPU")
    tools.add_argument(
        "--system", choices=SAMPLING, default="auto", help="sample processors, memory, network and disks beside runs"
    )
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the run set")
    parser.add_argument("--resume", action="store_true", help="skip runs that are there, made with the same options")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and run nothing")
    return parser


def _levels_to_run(args: argparse.Namespace) -> list[str]:
    """The levels, where everything that was asked for can be meant; RunnerError else."""
    if str(args.out) == "-":
        raise RunnerError("`-` is standard output, and a run set is a folder: name one with -o")
    levels = levels_of(args.levels)
    name = zoo_name(args.workload) if args.workload else None
    if (args.sweep or args.batch_sizes) and args.batch_size is not None:
        raise RunnerError("--batch-size is one, --batch-sizes and --sweep are many: give one of them")
    if (args.sweep or args.batch_sizes) and args.script:
        raise RunnerError("a script decides on its own batch size, so that it cannot be swept")
    check_options(args)
    _check_ranks(args, levels)
    if name is not None and args.framework == "torch":
        find(name)
    return levels


def _check_ranks(args: argparse.Namespace, levels: Sequence[str]) -> None:
    """RunnerError where several ranks are asked for and something that is for one process."""
    if args.nproc_per_node is None:
        return
    if args.nproc_per_node < _FEWEST_RANKS:
        raise RunnerError(f"--nproc-per-node must be at least {_FEWEST_RANKS}")
    if args.framework != "torch" or args.kernels != "framework" or COUNTERS in levels:
        raise RunnerError("--nproc-per-node is for torch and its own profiler: tools are put around a single process")
    if args.sweep or args.batch_sizes:
        raise RunnerError("--nproc-per-node is for one batch size: a sweep is of a single process")
    if args.workload and zoo_name(args.workload) is not None:
        raise RunnerError("--nproc-per-node is for work of your own: models of the zoo do not talk to each other")
    if args.warmup_seconds:
        raise RunnerError("--warmup-seconds would let ranks run different numbers of steps, and wait for each other")


def _collect(args: argparse.Namespace, start: Callable[[PlannedRun], int], ask: Callable[[str, str], Target]) -> int:
    warmup_seconds = args.warmup_seconds
    levels = _levels_to_run(args)
    collection = Collection(args, start)
    name = zoo_name(args.workload) if args.workload else None
    sweeps = args.sweep or args.batch_sizes is not None
    sizes = batch_sizes_of(args.batch_sizes, zoo=name if args.framework == "torch" else None) if sweeps else []
    args.target = _dry_run_target(args, levels, ask) if args.dry_run else ask(args.python, args.framework)
    alone = args.workload and not args.nproc_per_node
    if warmup_seconds is None and alone and args.target.on_gpu(args.device):
        args.warmup_seconds = _GPU_WARMUP_S
    if args.dry_run:
        _print_commands(args, levels, sizes)
        return 0
    tools = {run.tool for level in levels for run in plan_runs(args, level, batch_size=args.batch_size)}
    args.target.check(args.device, tools=sorted(tools))
    check_tools(sorted(tools), lambda: counter_plan(args.chip, args.counters, args.target.gpu))
    for sentence in args.target.sentences(args.device):
        print(f"collect: {sentence}", file=sys.stderr, flush=True)
    note_system(args.out, args.python)
    done, batch_size = [], args.batch_size
    if sizes:
        sweep = run_sweep(sizes, collection.swept_size)
        put_json(args.out / SWEEP, sweep.as_json())
        if not sweep.throughput_per_s:
            print("collect: no batch size could be run, so the other levels are not run either", file=sys.stderr)
            return _FAILED
        done.append(sweep.ended_by != "failure")
        batch_size = sweep.chosen_size
        ended = "memory, likely" if sweep.memory_full == LIKELY else sweep.ended_by
        answer(f"batch sizes: ended by {ended}; the other levels are run at {batch_size}")
        levels = [level for level in levels if level != "M"]
    done += [collection.level(level, batch_size) for level in levels]
    return 0 if all(done) else _FAILED


def _dry_run_target(args: argparse.Namespace, levels: Sequence[str], ask: Callable[[str, str], Target]) -> Target:
    """What a dry run is for: a GPU, unless the CPU was named; one here is asked for where counters need its chip."""
    if COUNTERS not in levels or args.chip or args.device == "cpu":
        return ASSUMED
    here = ask(args.python, args.framework)
    if here.gpu is None:
        raise RunnerError("no GPU is known here: name the chip (--chip)")
    return here


def _print_commands(args: argparse.Namespace, levels: Sequence[str], sizes: Sequence[int]) -> None:
    for size in sizes:
        for run in plan_runs(args, "M", batch_size=size, folder=f"m-batch-{size}"):
            answer(as_shell(run))
    if sizes:
        answer("# until throughput gains 5 % or less; then at the batch size found, here the largest:")
        levels = [level for level in levels if level != "M"]
    for level in levels:
        for run in plan_runs(args, level, batch_size=sizes[-1] if sizes else args.batch_size):
            answer(as_shell(run))


def _end(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(_ENDED)


def main(
    arguments: Sequence[str] | None = None,
    *,
    start: Callable[[PlannedRun], int] = to_its_end,
    ask: Callable[[str, str], Target] = probe,
) -> int:
    """Runs the command line; 0 when every run is there, 1 when some failed, 2 after a sentence on stderr.

    `start` runs the command of one level and returns its exit status; `ask` says what a Python has for a framework.
    """
    args = _parser().parse_args(arguments)
    try:
        return _collect(args, start, ask)
    except RunnerError as error:
        print(f"collect: {error}", file=sys.stderr)
        return _USER_ERROR
    except KeyboardInterrupt:
        return _INTERRUPTED


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main())
