"""What is run: the levels and batch sizes of a set, in order."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from xsp_runners import cupti, ncu, nsys, rocprof
from xsp_runners.frameworks.torch_workload import CUBLAS_WORKSPACE
from xsp_runners.ncu import Ncu, is_refusal
from xsp_runners.nsys import Nsys
from xsp_runners.rocprof import Rocprof
from xsp_runners.run_folder import (
    CERTAIN,
    ERROR,
    LEVEL,
    RUN,
    RunnerError,
    make_room,
    public_options,
    put_json,
    read_json,
)
from xsp_runners.sets.level_process import LEVELS, PlannedRun, flags_of, options_of, under_torchrun
from xsp_runners.tools.nvtx_ranges import STEP
from xsp_runners.tools.programs import locate_or
from xsp_runners.zoo.models import find

__all__ = [
    "ALL_LEVELS",
    "COUNTERS",
    "LEVEL_PROCESSES",
    "SWEEP",
    "Sweep",
    "as_shell",
    "batch_sizes_of",
    "check_tools",
    "counter_command",
    "counter_groups",
    "counter_plan",
    "finish",
    "forget",
    "kernels_command",
    "levels_of",
    "plan_runs",
    "refusals",
    "run_sweep",
    "trimmed_mean",
]

# Plans the runs of a leveled set: what is started, with which environment, and the folder that it fills.
#
# That is a level process, or one of NVIDIA's and AMD's tools around it; `finish` makes run.json of what a tool left.

_CUPTI = (str(Path(cupti.NAME).with_suffix(".parquet")), cupti.NAME)  # the better of the two first
_NSYS = tuple(f"{nsys.NAME}{ending}" for ending in (".sqlite", ".nsys-rep", ".qdstrm"))


def kernels_command(tool: str, target: Sequence[str], folder: Path, *, on_gpu: bool) -> list[str]:
    """The level process under `nsys` or `rocprof` (the one at hand, else for a recent one), or with CUPTI in it."""
    if tool == "cupti":
        return cupti.wrapped_command(target, folder)
    if tool == "rocprof":
        return rocprof.trace_command(target, folder, rocprof=locate_or(Rocprof.locate, rocprof.ASSUMED))
    return nsys.profile_command(target, folder, nsys=locate_or(Nsys.locate, nsys.ASSUMED), on_gpu=on_gpu)


def counter_command(tool: str, target: Sequence[str], folder: Path, metrics: Sequence[str]) -> list[str]:
    """The level process under ncu, which counts in recorded steps only, or under rocprofv3, which counts in all."""
    if tool == "rocprof":
        return rocprof.counter_command(target, folder, metrics, rocprof=locate_or(Rocprof.locate, rocprof.ASSUMED))
    return ncu.profile_command(
        target, folder / ncu.LOG, metrics, ncu=locate_or(lambda: Ncu.locate().path, "ncu"), ranges=[STEP]
    )


def counter_plan(chip: str | None, groups: str, gpu: tuple[str | None, str | None] | None) -> ncu.Plan:
    """Counters of the chip (null: of the GPU) by group; RunnerError where it is not known."""
    return ncu.plan(chip=chip, groups=[name for name in groups.split(",") if name], gpu=gpu)


def counter_groups(
    tool: str, chip: str | None, groups: str, gpu: tuple[str | None, str | None] | None
) -> Mapping[str, Sequence[str]]:
    """Counters of the chip (null: of the GPU) by group; RunnerError where it is not known."""
    if tool == "rocprof":
        return rocprof.counter_groups(chip or (gpu[0] if gpu else None), groups)
    return counter_plan(chip, groups, gpu).groups


def check_tools(tools: Sequence[str], counters: Callable[[], ncu.Plan]) -> None:
    """RunnerError where one of `nsys`, `ncu` and `rocprof` is not there, or ncu may not or cannot count these."""
    if "nsys" in tools:
        Nsys.locate()
    if "ncu" in tools:
        ncu.ready(None, counters())
    if "rocprof" in tools:
        Rocprof.locate()


def forget(run: PlannedRun) -> None:
    """Takes away what a tool left of the run before, so that it is not taken for what it records now."""
    names = (*_CUPTI, *_NSYS, ncu.LOG)
    make_room(run.folder, (*(run.folder / name for name in names), *rocprof.files_in(run.folder)))


def refusals(run: PlannedRun) -> list[str]:
    """Why ncu was refused counters in this run, where that stands in the way of all others, too."""
    problem = ncu.problem_of(run.folder / ncu.LOG) if run.tool == "ncu" else None
    return [problem] if problem and is_refusal(problem) else []


def finish(run: PlannedRun, status: int) -> None:
    """Makes run.json of what the level process told and the tool recorded; RunnerError where either is missing."""
    description = read_json(run.folder / LEVEL)
    beside = description.get("files")  # what the process itself says of its work, as of compiled code
    file: dict[str, str | None]
    more: dict[str, object]
    if run.tool == "ncu":
        log = ncu.counters_file(run.folder / ncu.LOG, status, run.command[-1:])
        file, beside = {"path": log.name, "format": "ncu_csv"}, []
        more = {"counters": list(run.counters), "step_durations_ns": []}  # of replayed kernels, so no latencies
    else:
        if isinstance(problem := description.get(cupti.PROBLEM), str):
            raise RunnerError(problem)
        if status:
            raise RunnerError(f"the program under {run.tool} ended with status {status}")
        file, more = _RECORDINGS[run.tool](run.folder)
        if description.get("deepest_level") == "kernel" and file["format"] == "nsys_sqlite":
            _check_kernels(run.folder / str(file["path"]))
        if run.counters:  # of rocprofv3, under which kernels run one at a time: no latencies either
            (counted, *_) = rocprof.files_with_kernels(run.folder, status, run.command[-1:], counters=True)
            file, beside = {"path": counted.name, "format": "rocprofv3"}, []
            more = {**more, "counters": list(run.counters), "step_durations_ns": []}
    if not description:
        raise RunnerError(f"the level process under {run.tool} left no description of its run")
    files = [file, *(beside if isinstance(beside, list) else [])]
    put_json(
        run.folder / RUN,
        {**description, **more, "files": files, "runner_level": run.level, "options": public_options(run.options)},
    )
    (run.folder / LEVEL).unlink(missing_ok=True)


def _check_kernels(database: Path) -> None:
    """RunnerError where nsys recorded none of a run on a GPU."""
    if nsys.kernel_count(database) == 0:
        raise RunnerError(
            f"nsys recorded no kernel of the GPU: its own messages in {database.with_suffix('.nsys-rep').name} say why "
            "(another profiler in the process, a driver older than this nsys knows, or no right to profile), or the "
            "program ran on the CPU"
        )


def _of_nsys(folder: Path) -> tuple[dict[str, str | None], dict[str, object]]:
    left = nsys.export_recording(folder, nsys=Nsys.locate())
    if left.path is None:
        raise RunnerError(left.note)
    return {"path": left.path.name, "format": left.format}, {"recorder_note": left.note}


def _of_cupti(folder: Path) -> tuple[dict[str, str | None], dict[str, object]]:
    for name in _CUPTI:
        if (folder / name).is_file():
            return {"path": name, "format": "cupti_dump"}, {}
    raise RunnerError(f"CUPTI left no recording in {folder}: its own messages say why")


def _of_rocprof(folder: Path) -> tuple[dict[str, str | None], dict[str, object]]:
    """The largest file with kernels: a process that the work started may have left another one."""
    (largest, *others) = rocprof.files_with_kernels(folder, 0, ())
    note = {"recorder_note": f"{len(others)} other processes used the GPU; their files lie beside"} if others else {}
    return {"path": largest.name, "format": "rocprofv3"}, dict(note)


_RECORDINGS: dict[str, Callable[[Path], tuple[dict[str, str | None], dict[str, object]]]] = {
    "nsys": _of_nsys,
    "cupti": _of_cupti,
    "rocprof": _of_rocprof,
}

COUNTERS = "MLG+counters"
ALL_LEVELS = (*LEVELS, COUNTERS)
"""Levels that `xsp collect` knows; the last are several runs under ncu, or rocprofv3."""
LEVEL_PROCESSES = {"torch": "torch_levels.py", "tensorflow": "tf_profiler.py", "jax": "jax_profiler.py"}
"""The script that runs a level, by framework."""
_HERE = Path(__file__).resolve().parents[1]
_BLOCKING = {"CUDA_LAUNCH_BLOCKING": "1"}


def levels_of(text: str) -> list[str]:
    """The levels that a list such as `M,ML,mlg` names, each once; RunnerError where one is none."""
    names = {name.lower(): name for name in ALL_LEVELS}
    requested = [part.strip().lower() for part in text.split(",") if part.strip()]
    unknown = [name for name in requested if name not in names]
    if unknown or not requested:
        raise RunnerError(f"{', '.join(unknown) or 'nothing'} is no level: choose of {', '.join(ALL_LEVELS)}")
    return [names[name] for name in dict.fromkeys(requested)]


def plan_runs(
    args: argparse.Namespace, level: str, *, batch_size: int | None, folder: str | None = None
) -> list[PlannedRun]:
    """The runs of a level at this batch size, in order; RunnerError where a tool or chip they need is not there.

    `args.target` is what the work will run on.
    """
    options = options_of(args)
    if batch_size is not None:
        options["batch-size"] = batch_size
    run = PlannedRun(
        level,
        args.out / (folder or level.lower().replace("+", "-")),
        (),
        options,
        {**_reproducible(args), **(_BLOCKING if level.endswith("-serialised") else {})},
        batch_size=batch_size,
    )
    if level == COUNTERS:
        return _counter_runs(args, run)
    tool = args.kernels if level.startswith("MLG") and args.kernels != "framework" else "own"
    if tool == "own":
        command = _level_process(args, run)
        ranks: int = args.nproc_per_node or 0
        return [replace(run, command=under_torchrun(command, ranks) if ranks else command, ranks=ranks)]
    return [_run_under_tool(args, replace(run, tool=tool))]


def _reproducible(args: argparse.Namespace) -> dict[str, str]:
    return dict([CUBLAS_WORKSPACE]) if args.framework == "torch" and args.settings == "reproducible" else {}


def _level_process(args: argparse.Namespace, run: PlannedRun) -> list[str]:
    script = _HERE / LEVEL_PROCESSES[args.framework]
    level = "MLG" if run.level == COUNTERS else run.level
    return [args.python, str(script), "--level", level, "--out", str(run.folder), *flags_of(run.options)]


def _run_under_tool(args: argparse.Namespace, run: PlannedRun) -> PlannedRun:
    """The run with a tool around it that records what the level process marks."""
    marked = replace(run, options={**run.options, "recorder": "none", "annotate": "nvtx"})
    command = kernels_command(
        run.tool, _level_process(args, marked), run.folder, on_gpu=args.target.on_gpu(args.device)
    )
    return replace(marked, command=command, options={**marked.options, "kernels": run.tool})


def _counter_runs(args: argparse.Namespace, run: PlannedRun) -> list[PlannedRun]:
    """A run for each group of counters, of one step and with no warm-up by time: nothing in it is timed."""
    if not args.target.on_gpu(args.device):
        raise RunnerError(f"{COUNTERS} needs a GPU: leave it out of --levels on the CPU")
    once = {"steps": 1, "warmup-seconds": 0.0}
    tool = "rocprof" if args.target.platform == "rocm" or args.kernels == "rocprof" else "ncu"
    marked = replace(run, tool=tool, options={**run.options, "recorder": "none", "annotate": "nvtx", **once})
    runs = []
    for group, metrics in counter_groups(tool, args.chip, args.counters, args.target.gpu).items():
        one = replace(marked, folder=run.folder.with_name(f"{run.folder.name}-{group}"), counters=metrics)
        command = counter_command(tool, _level_process(args, one), one.folder, metrics)
        runs.append(replace(one, command=command, options={**one.options, "counters": ",".join(metrics)}))
    return runs


def as_shell(run: PlannedRun) -> str:
    """The command as one can paste it into a shell, with what it needs of the environment."""
    settings = [f"{name}={value}" for name, value in run.environment.items()]
    return shlex.join(["env", *settings, *run.command] if settings else run.command)


# A sweep over batch sizes: in doublings, until throughput gains 5 % or less or memory is full.

SWEEP = "sweep.json"
"""What a sweep found, in the folder of the run set."""
_SATURATED_GAIN = 1.05
_NS_PER_S = 1e9
_LARGEST = 1 << 20
_USUAL = (1, 256)


@dataclass
class Sweep:
    """Throughput by batch size, why the sweep ended, and the optimal batch size where it showed.

    `ended_by`: `saturation`, `memory`, `failure`, or `range` (every batch size asked for was run); `memory_full`: how
    sure it is that memory ended it, `certain` or `likely`.
    """

    throughput_per_s: dict[int, float] = field(default_factory=dict)
    ended_by: str = "range"
    optimal: int | None = None
    memory_full: str | None = None

    @property
    def chosen_size(self) -> int:
        """The batch size at which the other levels are run: the optimal one, else that of the highest throughput."""
        if not self.throughput_per_s:
            raise RunnerError("no batch size could be run, so that there is none to run the other levels at")
        return self.optimal or max(self.throughput_per_s, key=lambda batch: (self.throughput_per_s[batch], -batch))

    def as_json(self) -> dict[str, object]:
        """What sweep.json holds; `optimal_batch_size` is null where the sweep ended before it showed."""
        return {
            "schema_version": 1,
            "optimal_batch_size": self.optimal,
            "chosen_batch_size": self.chosen_size if self.throughput_per_s else None,
            "ended_by": self.ended_by,
            **({"memory_full": self.memory_full} if self.memory_full else {}),
            "throughput_per_s": {str(batch): value for batch, value in self.throughput_per_s.items()},
        }


def batch_sizes_of(text: str | None, *, zoo: str | None) -> list[int]:
    """The sizes in `1..256` (doublings, both ends included) or `1,2,8`, ascending; null: as the model's list says."""
    if text is None:
        first, last = find(zoo).batch_sizes if zoo else _USUAL
        return _doublings(first, last)
    parts = text.split("..") if ".." in text else text.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() for part in parts) or len(parts) > _LARGEST:
        raise RunnerError(f"--batch-sizes {text!r} cannot be read: give 1..256, for doublings, or 1,2,8")
    sizes = [int(part) for part in parts]
    if ".." in text and (len(sizes) != 2 or sizes[0] > sizes[1]):  # noqa: PLR2004 (both ends)
        raise RunnerError(f"--batch-sizes {text!r} cannot be read: give the smallest and the largest, such as 1..256")
    if not all(1 <= size <= _LARGEST for size in sizes):
        raise RunnerError(f"--batch-sizes must lie between 1 and {_LARGEST}")
    return _doublings(*sizes) if ".." in text else sorted(set(sizes))


def _doublings(first: int, last: int) -> list[int]:
    sizes = [first]
    while 2 * sizes[-1] <= last:
        sizes.append(2 * sizes[-1])
    return sizes


def run_sweep(sizes: Sequence[int], run: Callable[[int], Path | None]) -> Sweep:
    """Runs each size in turn until the rule ends it; `run` gives the folder of the finished or failed run.

    The optimal size is XSP's: the first whose doubling raises throughput by 5 % or less; where memory surely fills up
    before, the largest that fits.
    """
    sweep = Sweep()
    for batch in sizes:
        folder = run(batch)
        if folder is None or not (folder / RUN).is_file():
            return _ended_early(sweep, read_json(folder / ERROR) if folder else {})
        sweep.throughput_per_s[batch] = _throughput(batch, read_json(folder / RUN))
        half = sweep.throughput_per_s.get(batch // 2) if batch % 2 == 0 else None
        if half is not None and sweep.throughput_per_s[batch] <= _SATURATED_GAIN * half:
            sweep.ended_by, sweep.optimal = "saturation", batch // 2
            return sweep
    return sweep


def _ended_early(sweep: Sweep, error: Mapping[str, object]) -> Sweep:
    """The sweep whose next size failed: the largest that fits is optimal where memory surely was full."""
    full = error.get("memory_full")
    sweep.memory_full = full if isinstance(full, str) else None
    sweep.ended_by = "memory" if error.get("status") == "out_of_memory" else "failure"
    if sweep.memory_full == CERTAIN and sweep.throughput_per_s:
        sweep.optimal = max(sweep.throughput_per_s)
    return sweep


def _throughput(batch: int, description: Mapping[str, object]) -> float:
    durations = description.get("step_durations_ns")
    if not isinstance(durations, list) or not durations:
        raise RunnerError("a run of the sweep tells no step times")
    return batch / (trimmed_mean(durations) / _NS_PER_S)


def trimmed_mean(values: Sequence[int]) -> float:
    """The mean without the lowest and the highest fifth (of three, the middle one), as XSP takes it."""
    cut = 1 if len(values) == 3 else len(values) // 5  # noqa: PLR2004
    kept = sorted(values)[cut : len(values) - cut]
    return sum(kept) / len(kept)
