"""What all level processes share: the options they take, how they end, and the run.json they leave."""

from __future__ import annotations

import argparse
import importlib
import os
import runpy
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from xsp_runners.outputs import CHOICES, Outputs
from xsp_runners.run_folder import (
    LEVEL,
    LIKELY,
    RUN,
    SCHEMA_VERSION,
    RunnerError,
    clear,
    device_memory,
    memory_is_full,
    public_options,
    put_error,
    put_json,
    without_private_folders,
)
from xsp_runners.steps import AllStepsDone, Recorder, recording
from xsp_runners.tools.programs import Parser

__all__ = [
    "LEVELS",
    "MODES",
    "RECORDING",
    "Level",
    "PlannedRun",
    "Rank",
    "add_options",
    "check_options",
    "flags_of",
    "folder_of",
    "main",
    "options_of",
    "outputs_of",
    "own_step",
    "rank_here",
    "run_script",
    "sentence_of",
    "shape_of",
    "status_in_words",
    "to_its_end",
    "under_torchrun",
    "zoo_name",
]

# The processes of a set: planned as data, started so that they end when we do, however we do; ranks of one job.

_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")


@dataclass(frozen=True)
class Rank:
    """The place of a process in its job."""

    rank: int
    local_rank: int
    world_size: int


def rank_here() -> Rank | None:
    """The place that torchrun, or who sets the same variables, gave this process; None where it is alone.

    RunnerError where the variables are no place.
    """
    values = [os.environ.get(name) for name in _VARIABLES]
    if values[0] is None or values[2] is None:
        return None
    try:
        rank, local_rank, world_size = (int(value or 0) for value in values)
    except ValueError as error:
        raise RunnerError(f"{', '.join(_VARIABLES)} are set and no numbers: {error}") from error
    if not 0 <= rank < world_size:
        raise RunnerError(f"RANK is {rank} and WORLD_SIZE {world_size}: ranks count from 0")
    return Rank(rank, local_rank, world_size) if world_size > 1 else None


def folder_of(run_folder: Path, rank: int) -> Path:
    """The folder of that rank's part of the run."""
    return run_folder.parent / f"rank-{rank}" / run_folder.name


def under_torchrun(command: Sequence[str], processes: int) -> list[str]:
    """The command of a Python program as so many processes of one job on this machine."""
    python, *program = command
    # With -P, as torchrun is not to take modules from the current folder; the ranks do where a workload is there.
    launcher = ["-P", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [python, *launcher, *program]


@dataclass(frozen=True)
class PlannedRun:
    """`options` are what run.json will report as requested, by which --resume knows the run again.

    `tool` names who records it: `own` the level process itself, else `nsys`, `cupti`, `ncu` or `rocprof` around it.
    """

    level: str
    folder: Path
    command: Sequence[str]
    options: Mapping[str, object]
    environment: Mapping[str, str] = field(default_factory=dict)
    tool: str = "own"
    counters: Sequence[str] = ()
    batch_size: int | None = None
    ranks: int = 0  # processes of one job, each with a folder of its own; 0: one process, and no job

    @property
    def folders(self) -> Sequence[Path]:
        """Where run.json will be: one folder, or one for each rank."""
        return [folder_of(self.folder, rank) for rank in range(self.ranks)] or [self.folder]


_GUARD = Path(__file__).resolve().with_name("guard.py")
_GRACE_S = 10.0  # for a tool to write what it has, before the processes are ended for good


def to_its_end(run: PlannedRun) -> int:
    """Exit status of the run's command; what ends us, were it SIGKILL, ends it with every process that it started."""
    if shutil.which(run.command[0]) is None:
        raise RunnerError(f"{run.command[0]} cannot be started: there is no such program")
    theirs, ours = os.pipe()  # ours is never written to, and ends with us
    command = [sys.executable, "-I", "-S", str(_GUARD), str(theirs), *run.command]
    try:
        process = subprocess.Popen(  # noqa: S603 (our own program, no shell)
            command, env={**os.environ, **run.environment}, start_new_session=True, pass_fds=(theirs,)
        )
    finally:
        os.close(theirs)
    try:
        return process.wait()
    except BaseException as error:
        _ask(process, signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM)
        raise
    finally:
        os.close(ours)
        process.wait()


def _ask(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """Asks the whole group to end, a tool and the process under it, and waits; the guard ends what does not."""
    try:
        os.killpg(process.pid, how)
        process.wait(_GRACE_S)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        return


def status_in_words(status: int) -> str:
    """Why a process that said nothing is thought to have ended."""
    if status >= 0:
        return f"the run ended with status {status}"
    ended = f"the run was ended by signal {-status}"
    if -status == signal.SIGKILL:
        return f"{ended}, as Linux does where memory is full"
    return f"{ended} ({signal.Signals(-status).name})" if -status in set(signal.Signals) else ended


def zoo_name(workload: str) -> str | None:
    """The model that `zoo:NAME` names; null where the workload is the user's own."""
    kind, mark, name = workload.partition(":")
    if mark and kind != "zoo":
        return None
    return name if mark else workload


def own_step(workload: str, *, batch: int, device: str) -> Callable[[], object]:
    """The step that the user's `module:function` returns when called with batch and device; RunnerError if none."""
    module, _, function = workload.partition(":")
    if not module or not function:
        raise RunnerError(f"{workload!r} is no workload: give zoo:NAME or module:function")
    _look_here_first()
    try:
        build = getattr(importlib.import_module(module), function, None)
    except ModuleNotFoundError as error:
        raise RunnerError(f"the workload {workload} cannot be imported: {error}") from error
    if not callable(build):
        raise RunnerError(f"the workload's module {module} has no function {function}")
    step: Any = build(batch=batch, device=device)
    if not callable(step):
        raise RunnerError(f"the workload {workload} must return a function that runs one step")
    return step  # type: ignore[no-any-return]


def run_script(path: str, arguments: Sequence[str], recorder: Recorder) -> None:
    """Runs the program as Python would, until the recorder has its steps; RunnerError where it ends before that."""
    script = Path(path)
    if not script.is_file():
        raise RunnerError(f"the script {path} is not there")
    before = sys.argv, [*sys.path]
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        with recording(recorder):
            runpy.run_path(path, run_name="__main__")
    except AllStepsDone:
        return
    except SystemExit as left:
        if left.code not in (None, 0):
            raise RunnerError(f"the script ended itself with {left.code!r} before all steps were recorded") from left
    finally:
        sys.argv, sys.path[:] = before
    raise RunnerError(
        "the script ended before all steps were recorded: mark each step by `with xsp_step():` (xsp_runners.steps),"
        " and ask for no more --warmup and --steps than it runs"
    )


def _look_here_first() -> None:
    """Does what `python -m` does; a level process that was started by its path has nothing of its own there."""
    here = os.getcwd()  # noqa: PTH109 (text, as sys.path has it)
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)


@dataclass(frozen=True)
class Level:
    """What a level records beside step times."""

    name: str  # as run.json has it
    profiled: bool = False
    detailed: bool = False  # shapes, device
    blocking: bool = False  # each launch waits for its kernel

    def deepest(self, *, profiled: bool, on_gpu: bool) -> str:
        """What a run holds at the bottom: on the CPU operators stand in for kernels."""
        if not profiled:
            return "model"
        return "kernel" if self.detailed and on_gpu else "operator"


LEVELS = {
    "M": Level("M"),
    "ML": Level("ML", profiled=True),
    "MLG": Level("MLG", profiled=True, detailed=True),
    "MLG-serialised": Level("MLG", profiled=True, detailed=True, blocking=True),
}
"""Levels by the names that command lines take."""
MODES = ("inference", "training")
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
EXECUTIONS = ("eager", "compile", "cudagraph")
SETTINGS = ("own", "reproducible")
"""Whether settings that decide on numerics stay the program's own, or are made the same in every run."""
RECORDING = {"recorder": "own", "annotate": "none"}
"""How a level process records unless it is told otherwise."""
_OPTIONS = (
    *("workload", "script", "mode", "execution", "batch-size", "input-shape", "steps", "warmup", "warmup-seconds"),
    *("device", "precision", "threads", "settings", "seed", "outputs", "recorder", "annotate"),
)
_OF_THE_ZOO = ("precision", "mode", "execution")  # work of the user's own decides on these itself
_USUAL = {"precision": "fp32", "mode": "inference", "execution": "eager", "input_shape": None}
_MAX_WARMUP_S = 3600
_FAILED = 2
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that every run of a set has in common, but for `add_recording_options`."""
    work = parser.add_argument_group("what runs")
    what = work.add_mutually_exclusive_group()
    what.add_argument("--workload", help="zoo:NAME, or your own as module:function")
    what.add_argument("--script", help="a program whose steps stand in `with xsp_step():`; its arguments follow --")
    work.add_argument("script_args", nargs="*", metavar="-- ARGS", help="arguments of the script")
    work.add_argument("--batch-size", "--batch", type=int, help="inputs per step; 8, of a script unknown", metavar="N")
    work.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    work.add_argument("--threads", type=int, default=0, help="of one operator on the CPU; 0: as usual", metavar="N")
    work.add_argument(
        "--settings",
        choices=SETTINGS,
        help="own: TF32, determinism, cuDNN's benchmark and seeds stay as the program has them, the default of your own"
        " work; reproducible: the same kernels in every run, the default of the zoo",
    )
    work.add_argument("--seed", type=int, help="of weights and inputs; of the zoo 0, else not set", metavar="N")
    work.add_argument(
        "--outputs", choices=CHOICES, help="what to keep of what comes out of a step at level M; default checksums"
    )
    zoo = parser.add_argument_group("models of the zoo")
    zoo.add_argument("--mode", choices=MODES, default="inference")
    zoo.add_argument("--precision", "--dtype", choices=PRECISIONS, default="fp32", help="tf32 on a GPU only")
    zoo.add_argument("--execution", choices=EXECUTIONS, default="eager", help="cudagraph on a GPU only")
    zoo.add_argument("--input-shape", help="of one input, such as 3x224x224 or 128 (tokens)", metavar="SHAPE")
    steps = parser.add_argument_group("steps")
    steps.add_argument("--steps", type=int, default=10, help="steps recorded; default 10", metavar="N")
    steps.add_argument("--warmup", type=int, default=3, help="steps before them; default 3", metavar="N")
    steps.add_argument("--warmup-seconds", type=float, help="and before those, as many as fill this time", metavar="S")


def add_recording_options(parser: argparse.ArgumentParser) -> None:
    """The options by which a tool around a level process takes its profiler's place; `RECORDING` is without."""
    parser.add_argument("--recorder", choices=("own", "none"), default="own", help="none: a tool around this process")
    parser.add_argument("--annotate", choices=("none", "nvtx"), default="none", help="ranges around steps and layers")


def options_of(args: argparse.Namespace) -> dict[str, object]:
    """The options that `add_options` added, by the names of their flags; those left open are left out."""
    values = {name: getattr(args, name.replace("-", "_")) for name in _OPTIONS}
    options = {name: value for name, value in values.items() if value is not None}
    return {**options, "script-args": list(args.script_args)} if args.script_args else options


def outputs_of(args: argparse.Namespace) -> Outputs:
    """What keeps checksums of this run's outputs: at level M, where nothing else is recorded that it could disturb."""
    kept = (args.outputs or "checksums") if args.level == "M" and args.recorder == "own" else "none"
    return Outputs(args.out, kept)


def flags_of(options: Mapping[str, object]) -> list[str]:
    """The arguments that give a level process these options; a script's own come last, so nothing may follow."""
    flags = [part for name, value in options.items() if name != "script-args" for part in (f"--{name}", str(value))]
    own = options.get("script-args")
    return [*flags, "--", *map(str, own)] if isinstance(own, list) else flags


def check_options(args: argparse.Namespace) -> argparse.Namespace:
    """The arguments with batch size, settings and seed settled; RunnerError where something cannot be meant."""
    if not args.workload and not args.script:
        raise RunnerError("what should run? Give --workload zoo:NAME, --workload module:function or --script FILE")
    if args.script_args and not args.script:
        raise RunnerError(f"{args.script_args[0]!r} is left over: arguments after -- belong to a --script")
    if args.workload and args.batch_size is None:
        args.batch_size = 8
    of_zoo = _is_of_zoo(args)
    args.settings = args.settings or ("reproducible" if of_zoo else "own")
    if args.seed is None and (of_zoo or args.settings == "reproducible"):
        args.seed = 0
    if not of_zoo:
        _check_own(args)
    args.warmup_seconds = args.warmup_seconds or 0.0
    if not 0 <= args.warmup_seconds <= _MAX_WARMUP_S:
        raise RunnerError(f"--warmup-seconds must be between 0 and {_MAX_WARMUP_S}")
    for name in ("batch-size", "steps", "warmup"):
        value = getattr(args, name.replace("-", "_"))
        if value is not None and value < 1:
            raise RunnerError(f"--{name} must be at least 1")
    shape_of(args.input_shape)
    if args.threads < 0:
        raise RunnerError("--threads must be at least 0")
    return args


def _check_own(args: argparse.Namespace) -> None:
    """RunnerError where the user's own work is told what it decides on itself."""
    for name, usual in _USUAL.items():
        if getattr(args, name) not in (usual, "tf32"):
            flag = name.replace("_", "-")
            raise RunnerError(f"--{flag} is for models of the zoo: work of your own decides on it itself")
    if args.precision == "tf32" and args.settings == "own":
        raise RunnerError("--precision tf32 needs --settings reproducible: else TF32 stays as your program has it")


def _check_ranks(args: argparse.Namespace) -> None:
    if args.warmup_seconds:
        raise RunnerError("--warmup-seconds would let ranks run different numbers of steps, and wait for each other")


def _is_of_zoo(args: argparse.Namespace) -> bool:
    return args.workload is not None and zoo_name(args.workload) is not None


def shape_of(text: str | None) -> tuple[int, ...] | None:
    """The sizes in `3x224x224`; RunnerError where the text is no shape."""
    if text is None:
        return None
    parts = text.lower().split("x")
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise RunnerError(f"--input-shape {text!r} is no shape: give sizes such as 3x224x224, or 128 for tokens")
    return tuple(int(part) for part in parts)


def main(
    name: str, measure: Callable[[argparse.Namespace], Mapping[str, object]], arguments: Sequence[str] | None = None
) -> int:
    """Runs the level that the command line names; 0 when the run was written, 2 after a sentence on stderr.

    The sentence stands in error.json too, so that whoever started this process need not read its output.
    """
    args = _parser(name).parse_args(arguments)
    try:
        check_options(args)
        args.rank = rank_here()
        if args.rank is not None:
            args.out = folder_of(args.out, args.rank.rank)
            _check_ranks(args)
        clear(args.out)
        facts = measure(args)
        put_json(args.out / (RUN if args.recorder == "own" else LEVEL), {**_common(args), **facts})
    except Exception as error:  # noqa: BLE001 (a workload is the user's code: whatever it raises is recorded)
        if not isinstance(error, RunnerError):
            traceback.print_exc()
        return _record_failure(name, args, error)
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _parser(name: str) -> argparse.ArgumentParser:
    parser = Parser(name, description="Runs one level of a leveled set, in this process.")
    parser.add_argument("--level", choices=tuple(LEVELS), required=True)
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for run.json and raw files")
    add_options(parser)
    add_recording_options(parser)
    return parser


def _common(args: argparse.Namespace) -> dict[str, object]:
    """What the command line says of the run; a level's own facts stand over it."""
    return {
        "schema_version": SCHEMA_VERSION,
        "level": args.level.partition("-")[0],
        "counters": [],
        "batch_size": args.batch_size,
        "warmup_steps": args.warmup,
        "steps": args.steps,
        "files": [],
        "runner_level": args.level,
        **({name: getattr(args, name) for name in _OF_THE_ZOO} if _is_of_zoo(args) else {}),
        "options": public_options(options_of(args)),
        **(asdict(args.rank) if args.rank is not None else {}),
    }


def _record_failure(name: str, args: argparse.Namespace, error: Exception) -> int:
    full, free = memory_is_full(error), device_memory()
    sentence = sentence_of(error) + (" (likely, but not surely, memory was full)" if full == LIKELY else "")
    print(f"{name}: {sentence}", file=sys.stderr)
    try:
        put_error(
            args.out,
            args.level,
            sentence,
            memory_full=full,
            batch_size=args.batch_size,
            options=options_of(args),
            more={"device_memory": free} if full and free else None,
        )
    except RunnerError as unwritable:
        print(f"{name}: {unwritable}", file=sys.stderr)
    return _FAILED


def sentence_of(error: BaseException) -> str:
    """The error in one line that names nobody's folders."""
    if isinstance(error, RunnerError):
        return str(error)
    first = next(iter(str(error).strip().splitlines()), "")
    text = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return without_private_folders(text)
