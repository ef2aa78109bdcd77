"""Runs a program under AMD's rocprofv3 and leaves files that XSP reads.

    python -m xsp_runners.rocprof --out runs/rocprof -- python train.py
    python -m xsp_runners.rocprof --counters --out runs/counters -- python train.py

The first records kernels, copies, HIP calls and roctx ranges; the second runs the program once for each group of
counters of `runners/data/rocprof_metrics.toml`. `record` and `count` do the same for whoever starts processes himself.
"""

from __future__ import annotations

import argparse
import re
import runpy
import shlex
import shutil
import sqlite3
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners.run_folder import RunnerError, make_room
from xsp_runners.tools.counter_lists import chip_here, chip_of, groups_of_chip
from xsp_runners.tools.programs import (
    Parser,
    add_program,
    answer,
    exit_status,
    find_tool,
    locate_or,
    output_of,
    program_of,
    run,
)

__all__ = [
    "ASSUMED",
    "Rocprof",
    "count",
    "counter_command",
    "counter_groups",
    "files_in",
    "main",
    "record",
    "trace_command",
]

ENDINGS = {"json": ".json", "rocpd": ".db"}
"""The outputs that are asked for, with how the names of their files end."""
NAME = "trace"
"""What the names of the files begin with; the process and `_results` follow."""
VARIABLE = "XSP_ROCPROFV3"
"""The environment variable that names the rocprofv3 to use."""
_USUAL = "/opt/rocm/bin/rocprofv3"  # which few have on their PATH
_SWITCH = re.compile(r"(--[a-z][a-z0-9-]+)")
_FORMATS = re.compile(r"--output-format\s+\{([a-z0-9,]+)\}")
_NEEDED = ("--kernel-trace", "--marker-trace", "--pmc")


@dataclass(frozen=True)
class Rocprof:
    """A rocprofv3 and what it says it can: its switches and its outputs."""

    path: str
    switches: frozenset[str]
    formats: frozenset[str]

    @classmethod
    def locate(cls, chosen: str | None = None) -> Rocprof:
        """The rocprofv3 that is `chosen`, of $XSP_ROCPROFV3, of the PATH or in /opt/rocm; RunnerError without."""
        try:
            path = find_tool("rocprofv3", variable=VARIABLE, chosen=chosen)
        except RunnerError:
            if chosen or shutil.which(_USUAL) is None:
                raise
            path = _USUAL
        status, text = output_of([path, "--help"])
        switches = frozenset(_SWITCH.findall(text))
        if status or not switches.issuperset(_NEEDED):
            raise RunnerError(f"{path} does not answer as rocprofv3 does (rocprofv3 --help): ROCm 6.2 or newer has it")
        formats = _FORMATS.search(text)
        return cls(path, switches, frozenset(formats[1].split(",")) if formats else frozenset({"json"}))


ASSUMED = Rocprof("rocprofv3", frozenset({*_NEEDED, "--hip-runtime-trace", "--rccl-trace"}), frozenset(ENDINGS))
"""What is taken for granted where rocprofv3 is not at hand, as in a dry run: what it has had since ROCm 6.4."""


def trace_command(
    target: Sequence[str], out: Path, *, rocprof: Rocprof = ASSUMED, output_format: str = "json", hsa: bool = False
) -> list[str]:
    """The command that runs `target` under rocprofv3 and writes `trace_PID_results.json` (or `.db`) into `out`.

    Kernels, copies, calls of HIP's runtime, roctx ranges and calls to RCCL are recorded, with `hsa` also those of HSA,
    which are many. Each process writes a file of its own.
    """
    hip = "--hip-runtime-trace" if "--hip-runtime-trace" in rocprof.switches else "--hip-trace"
    traces = ["--kernel-trace", "--memory-copy-trace", hip, "--marker-trace"]
    traces += ["--rccl-trace"] if "--rccl-trace" in rocprof.switches else []
    traces += ["--hsa-trace"] if hsa else []
    return [rocprof.path, *traces, *_output(out, rocprof, output_format), "--", *target]


def counter_command(
    target: Sequence[str], out: Path, metrics: Sequence[str], *, rocprof: Rocprof = ASSUMED, output_format: str = "json"
) -> list[str]:
    """The command that counts `metrics` of every kernel of `target`, in one pass: rocprofv3 replays nothing.

    Calls and roctx ranges are recorded beside them, so that counters have layers. Kernels run one at a time meanwhile.
    """
    traced = trace_command(target, out, rocprof=rocprof, output_format=output_format)
    return [traced[0], "--pmc", *metrics, *traced[1:]]


def _output(out: Path, rocprof: Rocprof, output_format: str) -> list[str]:
    if output_format not in rocprof.formats:
        raise RunnerError(f"this rocprofv3 does not write {output_format}: it has {', '.join(sorted(rocprof.formats))}")
    if "%" in str(out):
        raise RunnerError(f"rocprofv3 takes what stands between % signs for something to fill in: rename {out}")
    return ["--output-format", output_format, "--output-directory", str(out), "--output-file", f"{NAME}_%pid%"]


_PIECE_BYTES = 1 << 22


def recorded_kernels(file: Path) -> bool:
    """Whether any kernel was recorded, or counted."""
    return _has(file, b'"dispatch_info":', "rocpd_kernel_dispatch")


def counted_kernels(file: Path) -> bool:
    """Whether any counter of a kernel is there."""
    return _has(file, b'"counter_id":', "rocpd_pmc_event")


def _has(file: Path, key: bytes, view: str) -> bool:
    if file.suffix == ".db":
        return _rows(file, view)
    end = b""
    with file.open("rb") as content:
        while piece := content.read(_PIECE_BYTES):
            if key in end + piece:
                return True
            end = piece[-len(key) :]
    return False


def _rows(file: Path, view: str) -> bool:
    """Whether the database's view of that table, which is there whatever the GUID, has a row."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)) as connection:
            return connection.execute(f"SELECT 1 FROM {view} LIMIT 1").fetchone() is not None  # noqa: S608
    except sqlite3.Error:
        return False


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
    make_room(out, files_in(out))
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
        make_room(out / group, files_in(out / group))
        command = counter_command(target, out / group, metrics, rocprof=rocprof, output_format=output_format)
        files += files_with_kernels(out / group, start(command), target, counters=True)
    return files


def counter_groups(chip: str | None, groups: str) -> dict[str, tuple[str, ...]]:
    """Counters of the chip (None: of this machine's GPU) by group; RunnerError where the chip is not known."""
    return groups_of_chip(chip_of(chip or chip_here()), [name.strip() for name in groups.split(",") if name.strip()])


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
    add_program(parser, out="folder for the files")
    return parser


def _commands(args: argparse.Namespace, target: Sequence[str], groups: Mapping[str, Sequence[str]]) -> list[list[str]]:
    note = "rocprof: {}; the commands are for one of ROCm 6.4 or later"
    rocprof = locate_or(lambda: Rocprof.locate(args.rocprofv3), ASSUMED, note=note)
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
    return exit_status("rocprof", lambda: _main(args))


if __name__ == "__main__":
    sys.exit(main())
