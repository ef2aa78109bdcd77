"""Plans the runs of a leveled set: what is started, with which environment, and the folder that it fills."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path

from xsp_runners.frameworks.torch_workload import CUBLAS_WORKSPACE
from xsp_runners.run_folder import RunnerError
from xsp_runners.sets.level_process import LEVELS, flags_of, options_of
from xsp_runners.sets.processes import PlannedRun, under_torchrun
from xsp_runners.sets.tool_runs import counter_command, counter_groups, kernels_command

__all__ = ["ALL_LEVELS", "COUNTERS", "LEVEL_PROCESSES", "as_shell", "levels_of", "plan_runs"]

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
