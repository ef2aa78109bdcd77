"""Runs a program under NVIDIA Nsight Compute, once for each group of counters, and leaves CSV files that XSP reads.

    python -m xsp_runners.ncu --out runs/counters --range step -- python train.py

leaves runs/counters/flops/counters.csv and so on; `xsp merge --counters` ties them to a run with kernels. The
counters are those that `runners/data/ncu_metrics.toml` lists for the chip, and ncu is asked first whether it has them.
The program must do the same work every time. Kernels run one by one, some of them several times, so that times in these
files are no latencies, and XSP takes none from them.
"""

from __future__ import annotations

import argparse
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners.run_folder import RunnerError, make_room
from xsp_runners.tools.counter_lists import Architecture, architecture_of, default_groups, groups_of
from xsp_runners.tools.programs import (
    Parser,
    add_program,
    answer,
    exit_status,
    find_gpu,
    find_tool,
    output_of,
    program_of,
    run,
    text_of,
    version_of,
)

__all__ = [
    "LOG",
    "NO_PERMISSION",
    "VARIABLE",
    "Ncu",
    "Plan",
    "checked_plan",
    "counters_file",
    "is_refusal",
    "main",
    "plan",
    "problem_in",
    "problem_of",
    "profile_command",
    "ready",
    "refusal",
]

VARIABLE = "XSP_NCU"
"""The environment variable that names the ncu to use."""
NO_PERMISSION = (
    "the driver lets only administrators read hardware counters (ERR_NVGPUCTRPERM): run as root, or let everybody by "
    "the line `options nvidia NVreg_RestrictProfilingToAdminUsers=0` in a file of /etc/modprobe.d and a reboot; a "
    "container needs --cap-add=SYS_ADMIN"
)
"""What to do where counters may not be read."""
_NO_DRIVER = "ncu finds no CUDA driver and no GPU"
_BUSY = "another program holds the GPU's counters: end other profilers, and pause dcgm (`dcgmi profiling --pause`)"
_REFUSALS = (NO_PERMISSION, _NO_DRIVER, _BUSY)
_METRIC = re.compile(r"(?m)^([a-z][A-Za-z0-9]*__\w+)\s")
_LISTED_CHIPS = re.compile(r"\b[a-z]{2}\d{2,3}[a-z0-9]\b")
_PROBLEMS = (
    (re.compile(r"ERR_NVGPUCTRPERM|does not have permission to access NVIDIA GPU Performance Counters"), NO_PERMISSION),
    (re.compile(r"failed to connect to the CUDA driver|no CUDA-capable device"), _NO_DRIVER),
    (re.compile(r"[Dd]river resource was unavailable|ERR_NVGPUCTRBUSY"), _BUSY),
    (re.compile(r"==ERROR== (Failed to find metric [^\n]*|.*[Ii]nvalid metric[^\n]*)"), None),
    (
        re.compile(r"==ERROR== (unrecognised option[^\n]*|the argument for option[^\n]*|Invalid configuration[^\n]*)"),
        None,
    ),
    (
        re.compile(r"No kernels were profiled"),
        "ncu saw no kernel in the ranges asked for (`step` is a start/end range, `step/` a push/pop range)",
    ),
    (re.compile(r"==ERROR== ([^\n]*)"), None),
)


@dataclass(frozen=True)
class Ncu:
    """An ncu and the chips that it knows."""

    path: str
    version: tuple[int, ...] | None
    chips: frozenset[str]

    @classmethod
    def locate(cls, chosen: str | None = None) -> Ncu:
        """The ncu that is `chosen`, or of $XSP_NCU, or of the PATH; RunnerError where there is none that answers."""
        path = find_tool("ncu", variable=VARIABLE, chosen=chosen)
        status, text = output_of([path, "--list-chips"])
        chips = frozenset(chip.upper() for chip in _LISTED_CHIPS.findall(text))
        if status or not chips:
            raise RunnerError(f"{path} does not answer as ncu does (ncu --list-chips)")
        return cls(path, version_of(output_of([path, "--version"])[1]), chips)

    def unknown(self, metrics: Sequence[str], architecture: Architecture) -> list[str]:
        """The metrics that this ncu does not have for the chips; RunnerError where it knows none of them."""
        chip = next((chip for chip in architecture.chips if chip in self.chips), None)
        if chip is None:
            raise RunnerError(
                f"this ncu is too old for {architecture.chips[0]}: it knows {', '.join(sorted(self.chips))}"
            )
        status, text = output_of([self.path, "--query-metrics", "--chips", chip.lower()])
        names = set(_METRIC.findall(text))
        if status or not names:
            raise RunnerError(f"this ncu does not say which metrics {chip} has (ncu --query-metrics --chips)")
        return [metric for metric in metrics if metric.partition(".")[0] not in names]


def profile_command(
    target: Sequence[str],
    log: Path,
    metrics: Sequence[str],
    *,
    ncu: str = "ncu",
    ranges: Sequence[str] = (),
    capture: str = "none",
) -> list[str]:
    """The command that counts `metrics` of every kernel `target` runs, and leaves the raw page as CSV in `log`.

    `ranges`: NVTX ranges around the kernels to count, as ncu writes them: `step` is a start/end range, of all threads,
    `step/` a push/pop range, of its thread only (`regex:` before a regular expression); none: every kernel. `capture`
    is `cudaProfilerApi` where only what runs between its start and stop counts. Clocks and caches are left as the
    program has them: only so do counts hold for the run without ncu.
    """
    switches = ["--target-processes", "all", "--clock-control", "none", "--cache-control", "none"]
    switches += ["--nvtx"]  # kernels of CUDA graphs one by one is what ncu does by itself
    switches += [part for name in ranges for part in ("--nvtx-include", name)]
    switches += ["--profile-from-start", "off"] if capture != "none" else []
    page = ["--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(metrics), "--log-file", str(log)]
    return [ncu, *switches, *page, *target]


def problem_in(text: str) -> str | None:
    """What ncu's messages say went wrong, as a sentence for the user; None where nothing did."""
    for pattern, sentence in _PROBLEMS:
        if match := pattern.search(text):
            return sentence or f"ncu says: {match[1].strip()}"
    return None


def is_refusal(sentence: str) -> bool:
    """Whether a run failed for a reason that stands in the way of all counters."""
    return any(reason in sentence for reason in _REFUSALS)


_DRIVER = Path("/proc/driver/nvidia/params")
_PROCESS = Path("/proc/self/status")
_ADMINISTRATORS_ONLY = re.compile(r"(?m)^RmProfilingAdminOnly:\s*1\s*$")
_CAPABILITIES = re.compile(r"(?m)^CapEff:\s*([0-9a-fA-F]+)\s*$")
_SYS_ADMIN = 21  # CAP_SYS_ADMIN, which root in a container does not have


def refusal(driver: Path = _DRIVER, process: Path = _PROCESS) -> str | None:
    """Why counters may not be read here, by what the driver and the kernel say; None where they may, or say nothing."""
    if not _ADMINISTRATORS_ONLY.search(text_of(driver)):
        return None
    held = _CAPABILITIES.search(text_of(process))
    return NO_PERMISSION if held and not int(held[1], 16) >> _SYS_ADMIN & 1 else None


LOG = "counters.csv"
"""The file that a group leaves in its folder."""


@dataclass(frozen=True)
class Plan:
    """What is counted on which chip: counters by group."""

    architecture: Architecture
    groups: Mapping[str, tuple[str, ...]]

    @property
    def passes(self) -> int | None:
        """Times that a kernel runs in all; None where that is not known of every group."""
        counts = [self.architecture.passes.get(name) for name in self.groups]
        return None if None in counts else sum(filter(None, counts))


def plan(
    *, chip: str | None = None, groups: Sequence[str] = (), gpu: tuple[str | None, str | None] | None = None
) -> Plan:
    """The plan for a chip (`GH100`) or device name (`H100`), else for the GPU of this machine; RunnerError without.

    `gpu`: name and compute capability of the one that the work will run on, where that is known.
    """
    name, capability = (chip, None) if chip else gpu or find_gpu()
    architecture = architecture_of(device=name, capability=capability)
    return Plan(architecture, groups_of(architecture, groups))


def checked_plan(ncu: Ncu, requested: Plan) -> Plan:
    """The same plan; RunnerError where this ncu lacks one of its counters."""
    every = [metric for metrics in requested.groups.values() for metric in metrics]
    if unknown := ncu.unknown(every, requested.architecture):
        raise RunnerError(f"this ncu has no {', '.join(unknown)} for {requested.architecture.chips[0]}")
    return requested


def ready(chosen: str | None, requested: Plan) -> Ncu:
    """The ncu to use; RunnerError where it lacks one of the plan's counters, or where counters may not be read."""
    ncu = Ncu.locate(chosen)
    checked_plan(ncu, requested)
    if sentence := refusal():
        raise RunnerError(sentence)
    return ncu


def counters_file(log: Path, status: int, target: Sequence[str]) -> Path:
    """The file with counters that ncu left; RunnerError with its reason where it left none."""
    text = text_of(log)
    rows = any(line.startswith('"0",') for line in text.splitlines())
    problem = problem_in(text)
    if problem and not rows:
        raise RunnerError(f"{problem}; it ended with status {status}" if status else problem)
    if status:
        raise RunnerError(f"{target[0]} under ncu ended with status {status}")
    if not rows:
        raise RunnerError(f"ncu left no counters in {log}")
    return log


def problem_of(log: Path) -> str | None:
    """What ncu says in its log went wrong."""
    return problem_in(text_of(log))


def record(
    target: Sequence[str],
    out: Path,
    requested: Plan,
    *,
    ncu: str,
    ranges: Sequence[str] = (),
    capture: str = "none",
    start: Callable[[list[str]], int] = run,
) -> list[Path]:
    """Runs `target` once for each group; the files with counters. RunnerError where one could not be counted."""
    logs = []
    for name, metrics in requested.groups.items():
        log = out / name / LOG
        make_room(log.parent, [log])
        command = profile_command(target, log, metrics, ncu=ncu, ranges=ranges, capture=capture)
        logs.append(counters_file(log, start(command), target))
    return logs


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "ncu",
        description="Counts what the kernels of a program do, in one run of it for each group of counters.",
        epilog="Exit status: 0 all groups were counted, 2 not.",
    )
    parser.add_argument("--groups", default="", help=f"comma-separated; default {','.join(default_groups())}")
    parser.add_argument("--chip", help="chip or GPU, as GH100 or H100; default: the GPU of this machine")
    parser.add_argument(
        "--range",
        action="append",
        default=[],
        help="count kernels in such NVTX ranges only: step for start/end, step/ for push/pop, which is of one thread",
    )
    parser.add_argument(
        "--capture", choices=("none", "cudaProfilerApi"), default="none", help="count between its calls"
    )
    parser.add_argument("--ncu", help=f"the ncu to use; else ${VARIABLE}, else the first on the PATH")
    add_program(parser, out="folder; each group gets a folder in it")
    return parser


def _dry_run(args: argparse.Namespace, target: Sequence[str], requested: Plan) -> int:
    ncu = "ncu"
    try:
        tool = Ncu.locate(args.ncu)
        ncu = tool.path
        checked_plan(tool, requested)
    except RunnerError as error:
        print(f"ncu: {error}; the counters were not checked", file=sys.stderr)
    for name, metrics in requested.groups.items():
        log = args.out / name / LOG
        answer(shlex.join(profile_command(target, log, metrics, ncu=ncu, ranges=args.range, capture=args.capture)))
    return 0


def _main(args: argparse.Namespace) -> int:
    target = program_of(args.program)
    groups = [name.strip() for name in args.groups.split(",") if name.strip()]
    requested = plan(chip=args.chip, groups=groups)
    if args.dry_run:
        return _dry_run(args, target, requested)
    ncu = ready(args.ncu, requested)
    passes = f", in which each kernel runs {requested.passes} times in all" if requested.passes else ""
    print(f"{requested.architecture.name}: {len(requested.groups)} runs of the program{passes}", flush=True)
    for log in record(target, args.out, requested, ncu=ncu.path, ranges=args.range, capture=args.capture):
        print(log)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; 0 when every group was counted, 2 after a sentence on stderr."""
    args = _parser().parse_args(arguments)
    return exit_status("ncu", lambda: _main(args))


if __name__ == "__main__":
    sys.exit(main())
