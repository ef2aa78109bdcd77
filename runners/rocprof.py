"""Runs a program under AMD's rocprofv3 and leaves files that XSP reads.

    python -m xsp_runners.rocprof --out runs/rocprof -- python train.py
    python -m xsp_runners.rocprof --counters --out runs/counters -- python train.py

The first records kernels, copies, HIP calls and roctx ranges; the second runs the program once for each group of
counters of `runners/data/rocprof_metrics.toml`. `record` and `count` do the same for whoever starts processes himself.
"""

from __future__ import annotations

import argparse
import runpy
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners.answers import Parser, answer
from xsp_runners.rocprof_command import ASSUMED, ENDINGS, NAME, VARIABLE, Rocprof, counter_command, trace_command
from xsp_runners.rocprof_content import counted_kernels, recorded_kernels
from xsp_runners.rocprof_metrics import chip_here, chip_of, groups_of
from xsp_runners.run_folder import RunnerError
from xsp_runners.tool import program_of, run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["count", "counter_groups", "files_in", "forget", "main", "record"]

_USER_ERROR = 2
_NO_KERNELS = (
    "rocprofv3 recorded no kernel: did the program use the GPU (for PyTorch a ROCm build, and HIP_VISIBLE_DEVICES not"
    " empty), and did it end by itself?"
)
_NO_COUNTERS = (
    "rocprofv3 counted nothing: its own messages say why (counters that the chip lacks, more than one pass can take, or"
    " no right to read them: CAP_PERFMON, or perf_event_paranoid of 2 or less)"
)


def files_in(out: Path) -> list[Path]:
    """What rocprofv3 left in the folder, a file a process, the largest first."""
    files = [file for ending in ENDINGS.values() for file in out.glob(f"{NAME}_*_results{ending}")]
    return sorted(files, key=lambda file: (-file.stat().st_size, file.name))


def forget(out: Path) -> None:
    """Takes away what an earlier run left, so that it is not taken for this one's; RunnerError where that fails."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for file in files_in(out):
            file.unlink()
    except OSError as error:
        raise RunnerError(f"the run cannot be written to {out}: {error.strerror}") from error


def files_with_kernels(out: Path, status: int, target: Sequence[str], *, counters: bool = False) -> list[Path]:
    """The files with kernels (`counters`: with counters of kernels); RunnerError where there are none."""
    if status:
        raise RunnerError(f"{target[0]} under rocprofv3 ended with status {status}")
    has = counted_kernels if counters else recorded_kernels
    files = [file for file in files_in(out) if has(file)]
    if not files:
        raise RunnerError(_NO_COUNTERS if counters else _NO_KERNELS)
    return files


def record(
    target: Sequence[str],
    out: Path,
    *,
    rocprof: Rocprof,
    start: Callable[[list[str]], int] = run,
    output_format: str = "json",
    hsa: bool = False,
) -> list[Path]:
    """Runs `target` under rocprofv3 into the folder `out`; the files it left. RunnerError where it recorded nothing."""
    forget(out)
    status = start(trace_command(target, out, rocprof=rocprof, output_format=output_format, hsa=hsa))
    return files_with_kernels(out, status, target)


def count(
    target: Sequence[str],
    out: Path,
    groups: Mapping[str, Sequence[str]],
    *,
    rocprof: Rocprof,
    start: Callable[[list[str]], int] = run,
    output_format: str = "json",
) -> list[Path]:
    """Runs `target` once for each group, into a folder each; RunnerError at the first that could not be counted."""
    files = []
    for group, metrics in groups.items():
        forget(out / group)
        command = counter_command(target, out / group, metrics, rocprof=rocprof, output_format=output_format)
        files += files_with_kernels(out / group, start(command), target, counters=True)
    return files


def counter_groups(chip: str | None, groups: str) -> dict[str, tuple[str, ...]]:
    """Counters of the chip (None: of this machine's GPU) by group; RunnerError where the chip is not known."""
    return groups_of(chip_of(chip or chip_here()), [name.strip() for name in groups.split(",") if name.strip()])


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "rocprof", description="Runs a program under AMD's rocprofv3.", epilog="Exit status: 0 recorded, 2 not."
    )
    parser.add_argument("--output-format", choices=tuple(ENDINGS), default="json", help="rocpd: a SQLite database")
    parser.add_argument("--hsa", action="store_true", help="record calls of HSA, of which there are many, too")
    parser.add_argument("--counters", action="store_true", help="count instead, in one run for each group")
    parser.add_argument("--groups", default="", help="with --counters: comma-separated; default all of the chip")
    parser.add_argument("--chip", help="with --counters: as gfx942 or MI300X; default: the GPU of this machine")
    parser.add_argument("--rocprofv3", help=f"the one to use; else ${VARIABLE}, the first on the PATH, or ROCm's own")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and run nothing")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for the files")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ARGS", help="what to run")
    return parser


def _commands(args: argparse.Namespace, target: Sequence[str], groups: Mapping[str, Sequence[str]]) -> list[list[str]]:
    try:
        rocprof = Rocprof.locate(args.rocprofv3)
    except RunnerError as error:
        print(f"rocprof: {error}; the commands are for one of ROCm 6.4 or later", file=sys.stderr)
        rocprof = ASSUMED
    how = {"rocprof": rocprof, "output_format": args.output_format}
    if not args.counters:
        return [trace_command(target, args.out, hsa=args.hsa, **how)]
    return [counter_command(target, args.out / group, metrics, **how) for group, metrics in groups.items()]


def _main(args: argparse.Namespace) -> int:
    target = program_of(args.program)
    groups = counter_groups(args.chip, args.groups) if args.counters else {}
    if args.dry_run:
        for command in _commands(args, target, groups):
            answer(shlex.join(command))
        return 0
    rocprof = Rocprof.locate(args.rocprofv3)
    if args.counters:
        print(f"{len(groups)} runs, one for each group of counters: {', '.join(groups)}", flush=True)
        files = count(target, args.out, groups, rocprof=rocprof, output_format=args.output_format)
    else:
        files = record(target, args.out, rocprof=rocprof, output_format=args.output_format, hsa=args.hsa)
    for file in files:
        print(file)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; 0 recorded, 2 after a sentence on stderr."""
    args = _parser().parse_args(arguments)
    try:
        return _main(args)
    except RunnerError as error:
        print(f"rocprof: {error}", file=sys.stderr)
        return _USER_ERROR
    except KeyboardInterrupt:
        return 130  # 128 + SIGINT, as shells have it


if __name__ == "__main__":
    sys.exit(main())
