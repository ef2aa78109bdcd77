"""Collects a leveled run set: each level of a workload in a fresh process, one after the other.

    python runners/collect.py --workload zoo:resnet18 --levels M,ML,MLG --steps 10 --out runs/resnet18

leaves runs/resnet18/m, ml and mlg, each with its run.json and raw files, for `xsp merge runs/resnet18`.
"""

from __future__ import annotations

import argparse
import runpy
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners import side_cars, tool_runs
from xsp_runners.fresh_process import status_in_words, to_its_end
from xsp_runners.level_process import RECORDING, add_options, checked
from xsp_runners.own_workload import zoo_name
from xsp_runners.plan import ALL_LEVELS, COUNTERS, LEVEL_PROCESSES, as_shell, levels_of, planned
from xsp_runners.run_folder import RUN, RunnerError, clear, error_of, is_complete, put_error, put_json
from xsp_runners.sweep import SWEEP, batch_sizes_of, swept
from xsp_runners.zoo import find

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from xsp_runners.planned_run import PlannedRun

__all__ = ["main"]

_FAILED = 1
_USER_ERROR = 2
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_ENDED = 143  # 128 + SIGTERM
_EPILOG = "Exit status: 0 all runs are there, 1 some failed (see their error.json), 2 wrong arguments."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "collect",
        description="Runs a workload at several levels, each in a fresh process, and leaves a run set for xsp merge.",
        epilog=_EPILOG,
    )
    parser.add_argument("--levels", default="M,ML,MLG", help=f"of {', '.join(ALL_LEVELS)}, in the order to run them")
    parser.add_argument("--framework", choices=tuple(LEVEL_PROCESSES), default="torch")
    parser.add_argument("--python", default=sys.executable, help="the Python that has the framework; default: this one")
    add_options(parser)
    parser.set_defaults(**RECORDING)
    sweep = parser.add_argument_group("batch sizes", "a sweep at level M, then the other levels at the size it finds")
    sweep.add_argument("--batch-sizes", help="1..256 for doublings, or 1,2,8", metavar="SIZES")
    sweep.add_argument("--sweep", action="store_true", help="the model's usual ones")
    tools = parser.add_argument_group("tools")
    tools.add_argument(
        "--kernels", choices=("framework", "nsys", "cupti"), default="framework", help="who records level MLG"
    )
    tools.add_argument("--chip", help=f"for {COUNTERS}: the GPU, such as H100; default: the one here")
    tools.add_argument("--counters", default="", help=f"for {COUNTERS}: groups of counters", metavar="GROUPS")
    tools.add_argument(
        "--power", choices=side_cars.POWER_CHOICES, default="auto", help="sample power beside runs on a GPU"
    )
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the run set")
    parser.add_argument("--resume", action="store_true", help="skip runs that are there, made with the same options")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and run nothing")
    return parser


@dataclass(frozen=True)
class _Collection:
    """A run set being filled; `start` runs one process and gives its exit status."""

    args: argparse.Namespace
    start: Callable[[PlannedRun], int]

    def level(self, level: str, batch_size: int | None) -> bool:
        """Whether all runs of the level are there in the end."""
        done = [self.run(run) for run in planned(self.args, level, batch_size=batch_size)]
        return all(done)

    def swept_size(self, batch_size: int) -> Path | None:
        """The folder of the run without a profiler at this batch size, finished or failed."""
        (run,) = planned(self.args, "M", batch_size=batch_size, folder=f"m-batch-{batch_size}")
        self.run(run)
        return run.folder

    def run(self, run: PlannedRun) -> bool:
        """Whether the run is there in the end; one that failed is on record in its folder."""
        if self.args.resume and is_complete(run.folder, run.level, run.options):
            print(f"{run.level}: {run.folder / RUN} is there already", flush=True)
            return True
        clear(run.folder)
        if run.tool != "own":
            tool_runs.forget(run)
        with side_cars.sampling(run.folder, power=self._power(run)):
            status = self.start(run)
        sentence = error_of(run.folder)
        if sentence is None:
            sentence = self._finished(run, status)
        if sentence is None:
            side_cars.add_samples(run.folder)
            print(f"{run.level}: {run.folder / RUN}", flush=True)
            return True
        print(f"collect: {run.level} failed: {sentence}", file=sys.stderr, flush=True)
        return False

    def _power(self, run: PlannedRun) -> str:
        """Whether to sample: not without a profiler, whose spans samples are of, and not where kernels are replayed."""
        useful = run.level != "M" and run.tool != "ncu" and tool_runs.on_gpu(self.args.device)
        return str(self.args.power) if useful else "no"

    def _finished(self, run: PlannedRun, status: int) -> str | None:
        """Completes the run of a tool; why the run is not there, put on record, where it is not."""
        try:
            if run.tool != "own":
                tool_runs.finish(run, status)
            if is_complete(run.folder, run.level, run.options):
                return None
            sentence = status_in_words(status)
        except RunnerError as error:
            sentence = str(error)
        put_error(run.folder, run.level, sentence, batch_size=run.batch_size, options=run.options)
        return sentence


def _checked(args: argparse.Namespace) -> list[str]:
    """The levels, where everything that was asked for can be meant; RunnerError else."""
    levels = levels_of(args.levels)
    name = zoo_name(args.workload) if args.workload else None
    if (args.sweep or args.batch_sizes) and args.batch_size is not None:
        raise RunnerError("--batch-size is one, --batch-sizes and --sweep are many: give one of them")
    if (args.sweep or args.batch_sizes) and args.script:
        raise RunnerError("a script decides on its own batch size, so that it cannot be swept")
    checked(args)
    if name is not None and args.framework == "torch":
        find(name)
    return levels


def _collect(args: argparse.Namespace, start: Callable[[PlannedRun], int]) -> int:
    levels = _checked(args)
    collection = _Collection(args, start)
    name = zoo_name(args.workload) if args.workload else None
    sweeps = args.sweep or args.batch_sizes is not None
    sizes = batch_sizes_of(args.batch_sizes, zoo=name if args.framework == "torch" else None) if sweeps else []
    if args.dry_run:
        _print_commands(args, levels, sizes)
        return 0
    tools = {run.tool for level in levels for run in planned(args, level, batch_size=args.batch_size)}
    tool_runs.check_tools(sorted(tools))
    done, batch_size = [], args.batch_size
    if sizes:
        sweep = swept(sizes, collection.swept_size)
        put_json(args.out / SWEEP, sweep.as_json())
        if not sweep.throughput_per_s:
            print("collect: no batch size could be run, so the other levels are not run either", file=sys.stderr)
            return _FAILED
        done.append(sweep.ended_by != "failure")
        batch_size = sweep.chosen
        print(f"batch sizes: ended by {sweep.ended_by}; the other levels are run at {batch_size}", flush=True)
        levels = [level for level in levels if level != "M"]
    done += [collection.level(level, batch_size) for level in levels]
    side_cars.note_system(args.out, args.python)
    return 0 if all(done) else _FAILED


def _print_commands(args: argparse.Namespace, levels: Sequence[str], sizes: Sequence[int]) -> None:
    for size in sizes:
        for run in planned(args, "M", batch_size=size, folder=f"m-batch-{size}"):
            print(as_shell(run))
    if sizes:
        print("# until throughput gains 5 % or less; then at the batch size found, here the largest:")
        levels = [level for level in levels if level != "M"]
    for level in levels:
        for run in planned(args, level, batch_size=sizes[-1] if sizes else args.batch_size):
            print(as_shell(run))


def _end(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(_ENDED)


def main(arguments: Sequence[str] | None = None, *, start: Callable[[PlannedRun], int] = to_its_end) -> int:
    """Runs the command line; 0 when every run is there, 1 when some failed, 2 after a sentence on stderr.

    `start` runs the command of one level and returns its exit status.
    """
    args = _parser().parse_args(arguments)
    try:
        return _collect(args, start)
    except RunnerError as error:
        print(f"collect: {error}", file=sys.stderr)
        return _USER_ERROR
    except KeyboardInterrupt:
        return _INTERRUPTED


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main())
