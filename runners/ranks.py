"""Ranks of one job: what torchrun tells a process of its place, and where each rank's runs are left.

Each rank leaves a run set of its own, `rank-0/mlg`, `rank-1/mlg` and so on, instead of `mlg`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_runners.run_folder import RunnerError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Rank", "folder_of", "rank_here", "under_torchrun"]

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
