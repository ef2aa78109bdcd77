"""Runs a program under NVIDIA Nsight Systems and leaves a file that XSP reads.

    python -m xsp_runners.nsys --out runs/nsys -- python train.py

`profile_command` gives the command alone, for whoever starts processes himself; `record` runs it and exports what it
left to SQLite.
On a machine without a GPU, `--device cpu` records NVTX ranges.
"""

from __future__ import annotations

import argparse
import re
import runpy
import shlex
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners.run_folder import RunnerError, make_room
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
    version_of,
)

__all__ = [
    "ASSUMED",
    "NAME",
    "VARIABLE",
    "Nsys",
    "Recorded",
    "export_command",
    "export_recording",
    "kernel_count",
    "main",
    "profile_command",
    "record",
]

GRAPHS = ("node", "graph")
"""What of a CUDA graph is recorded: each of its kernels, or the launch as a whole at the least overhead."""
CAPTURES = ("none", "cudaProfilerApi")
"""What is recorded: everything, or what runs between cudaProfilerStart and cudaProfilerStop."""
NAME = "trace"
"""The name of the files, without what nsys adds."""
VARIABLE = "XSP_NSYS"
"""The environment variable that names the nsys to use."""
_ON_GPU = ("cuda", "nvtx", "cudnn", "cublas")
_ON_CPU = ("nvtx",)
_OS_CALLS = "osrt"
_SWITCH = re.compile(r"(?m)^\s*(?:-\w, )?(--[a-z][a-z-]+)")
_TRACES = re.compile(r"(?s)--trace=\s.*?Possible values are(.*?)\.\s*\n")
_PYTORCH = re.compile(r"(?s)--pytorch=\s.*?Possible values are(.*?)\.\s*\n")
_QUOTED = re.compile(r"'([a-z0-9-]+)'")


@dataclass(frozen=True)
class Nsys:
    """An nsys and what it says it can: its switches, what it traces, its modes for PyTorch."""

    path: str
    version: tuple[int, ...] | None
    switches: frozenset[str]
    traces: frozenset[str]
    pytorch: frozenset[str] = frozenset()

    @classmethod
    def locate(cls, chosen: str | None = None) -> Nsys:
        """The nsys that is `chosen`, or of $XSP_NSYS, or of the PATH; RunnerError where there is none that answers."""
        path = find_tool("nsys", variable=VARIABLE, chosen=chosen)
        status, text = output_of([path, "profile", "--help"])
        switches = frozenset(_SWITCH.findall(text))
        if status or "--trace" not in switches:
            raise RunnerError(f"{path} does not answer as nsys does (nsys profile --help)")
        return cls(
            path,
            version_of(output_of([path, "--version"])[1]),
            switches,
            _listed_values(_TRACES, text),
            _listed_values(_PYTORCH, text),
        )


def _listed_values(values: re.Pattern[str], text: str) -> frozenset[str]:
    match = values.search(text)
    return frozenset(_QUOTED.findall(match[1])) if match else frozenset()


ASSUMED = Nsys(
    "nsys",
    None,
    frozenset({"--cuda-graph-trace", "--cuda-memory-usage", "--capture-range-end"}),
    frozenset({*_ON_GPU, _OS_CALLS}),
)
"""What is taken for granted where nsys is not at hand, as in a dry run: what it has had since 2022."""


def profile_command(
    target: Sequence[str],
    out: Path,
    *,
    nsys: Nsys = ASSUMED,
    on_gpu: bool = True,
    graph: str = "node",
    memory: bool = False,
    capture: str = "none",
    operators: bool = False,
    os_calls: bool = False,
) -> list[str]:
    """The command that runs `target` under nsys and writes `trace.nsys-rep` into the folder `out`.

    Samples of the CPU and context switches are off: they cost time and say nothing of layers. `memory` records
    allocations, `operators` lets nsys annotate PyTorch's operators where it can. `os_calls` records calls of the
    operating system's runtime, which doubles the time that Python takes to start; XSP leaves them out unless asked.
    """
    traces = [*(_ON_GPU if on_gpu else _ON_CPU), *([_OS_CALLS] if os_calls else [])]
    traced = [name for name in traces if not nsys.traces or name in nsys.traces]
    switches = [f"--trace={','.join(traced)}", "--sample=none", "--cpuctxsw=none"]
    if on_gpu:
        switches += _if_known(nsys, "--cuda-graph-trace", graph)
        switches += _if_known(nsys, "--cuda-memory-usage", "true") if memory else []
    if capture != "none":
        # The default ends the program with the range, before it has written what it knows.
        switches += [f"--capture-range={capture}", *_if_known(nsys, "--capture-range-end", "stop")]
    switches += _annotation_switches(nsys) if operators else []
    output = str(out / NAME).replace("%", "%%")  # nsys replaces %p, %h and so on
    return [nsys.path, "profile", *switches, "--force-overwrite=true", f"--output={output}", *target]


def _if_known(nsys: Nsys, switch: str, value: str) -> list[str]:
    return [f"{switch}={value}"] if switch in nsys.switches else []


def _annotation_switches(nsys: Nsys) -> list[str]:
    modes = [mode for mode in ("autograd-shapes-nvtx", "autograd-nvtx") if mode in nsys.pytorch]
    if not modes:
        raise RunnerError("this nsys cannot annotate PyTorch's operators: nsys 2024.5 or newer can (--pytorch)")
    return [f"--pytorch={modes[0]}"]


def export_command(report: Path, *, nsys: Nsys = ASSUMED) -> list[str]:
    """The command that writes the report's SQLite beside it."""
    database = report.with_suffix(".sqlite")
    return [nsys.path, "export", "--type=sqlite", "--force-overwrite=true", f"--output={database}", str(report)]


_FAILED = 1


@dataclass(frozen=True)
class Recorded:
    """What a recording left: the file for XSP (None: none that it reads yet) with its format, and a sentence on it."""

    path: Path | None
    format: str | None
    note: str


def export_recording(out: Path, *, nsys: Nsys) -> Recorded:
    """What XSP is to read of the recording in the folder `out`, exported where that can be done.

    RunnerError where nsys left nothing.
    """
    report, stream = out / f"{NAME}.nsys-rep", out / f"{NAME}.qdstrm"
    if not report.is_file():
        if not stream.is_file():
            raise RunnerError(f"nsys left no recording in {out}: its own messages say why")
        return Recorded(
            None,
            None,
            f"this nsys has no importer, so {stream.name} is what it recorded: open it with an nsys that has one "
            "(QdstrmImporter -i), which makes the .nsys-rep that XSP reads",
        )
    status, text = output_of(export_command(report, nsys=nsys), seconds=3600)
    database = report.with_suffix(".sqlite")
    if status or not database.is_file():
        last = next(iter(text.strip().splitlines()[-1:]), "no reason given")
        note = f"{report.name} could not be exported to SQLite ({last}); XSP reads it where an nsys can export it"
        return Recorded(report, "nsys_report", note)
    return Recorded(database, "nsys_sqlite", f"{database.name} is exported from {report.name}")


def kernel_count(database: Path) -> int | None:
    """Kernels and graphs in an exported recording; None where it cannot be read."""
    count = 0
    try:
        with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as file:
            tables = {name for (name,) in file.execute("SELECT name FROM sqlite_master")}
            for table in tables & {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"}:
                count += file.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]  # noqa: S608 (one of these two)
    except sqlite3.Error:
        return None
    return count


def record(
    target: Sequence[str], out: Path, *, nsys: Nsys, start: Callable[[list[str]], int] = run, **what: Any
) -> Recorded:
    """Runs `target` under nsys into the folder `out` and exports; RunnerError where the program failed.

    `what` to record, as `profile_command` takes it.
    """
    make_room(out, [out / f"{NAME}{suffix}" for suffix in (".nsys-rep", ".qdstrm", ".sqlite")])
    command = profile_command(target, out, nsys=nsys, **what)
    status = start(command)
    if status:
        raise RunnerError(f"the program under nsys ended with status {status}")
    return export_recording(out, nsys=nsys)


def _parser() -> argparse.ArgumentParser:
    what = "Runs a program under Nsight Systems and exports what it recorded."
    epilog = "Exit status: 0 recorded and readable by XSP, 1 recorded but not exported, 2 not recorded."
    parser = Parser("nsys", description=what, epilog=epilog)
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu: NVTX ranges and system calls only"
    )
    parser.add_argument("--graph", choices=GRAPHS, default="node", help="record a CUDA graph's kernels, or its launch")
    parser.add_argument("--memory", action="store_true", help="record allocations of device memory")
    parser.add_argument("--capture", choices=CAPTURES, default="none", help="record between its start and stop only")
    parser.add_argument("--operators", action="store_true", help="let nsys annotate PyTorch's operators")
    parser.add_argument("--os-calls", action="store_true", help="record calls of the operating system's runtime")
    parser.add_argument("--nsys", help=f"the nsys to use; else ${VARIABLE}, else the first on the PATH")
    add_program(parser)
    return parser


def _main(args: argparse.Namespace) -> int:
    target = program_of(args.program)
    what = {
        "on_gpu": args.device == "cuda",
        "graph": args.graph,
        "memory": args.memory,
        "capture": args.capture,
        "operators": args.operators,
        "os_calls": args.os_calls,
    }
    if args.dry_run:
        note = "nsys: {}; the commands are for one of 2022 or later"
        nsys = locate_or(lambda: Nsys.locate(args.nsys), ASSUMED, note=note)
        answer(shlex.join(profile_command(target, args.out, nsys=nsys, **what)))
        answer(shlex.join(export_command(args.out / f"{NAME}.nsys-rep", nsys=nsys)))
        return 0
    recorded = record(target, args.out, nsys=Nsys.locate(args.nsys), **what)
    answer(recorded.note if recorded.path is None else recorded.path)
    return 0 if recorded.path is not None and recorded.format == "nsys_sqlite" else _FAILED


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; 0 recorded, 1 recorded but not exported, 2 after a sentence on stderr."""
    args = _parser().parse_args(arguments)
    return exit_status("nsys", lambda: _main(args))


if __name__ == "__main__":
    sys.exit(main())
