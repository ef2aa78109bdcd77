"""One fresh process of a leveled set as data: what is planned, started, recorded and resumed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from xsp_runners.ranks import folder_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["PlannedRun"]


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
