"""One fresh process of a leveled set as data: what is planned, started, recorded and resumed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["PlannedRun"]


@dataclass(frozen=True)
class PlannedRun:
    """`options` are what run.json will report as requested, by which --resume knows the run again.

    `tool` names who records it: `own` the level process itself, else `nsys`, `cupti` or `ncu` around it.
    """

    level: str
    folder: Path
    command: Sequence[str]
    options: Mapping[str, object]
    environment: Mapping[str, str] = field(default_factory=dict)
    tool: str = "own"
    counters: Sequence[str] = ()
    batch_size: int | None = None
