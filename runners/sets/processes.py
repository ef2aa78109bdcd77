"""The processes of a set: planned as data, started so that they end when we do, however we do; ranks of one job."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xsp_runners.run_folder import RunnerError

__all__ = ["PlannedRun", "Rank", "folder_of", "rank_here", "status_in_words", "to_its_end", "under_torchrun"]

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
