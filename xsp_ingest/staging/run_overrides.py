"""What is known of a run besides its files: from its description, or from the user."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

__all__ = ["NOTHING", "RunOverrides"]


@dataclass(frozen=True, slots=True)
class RunOverrides:
    """Facts that override what a file says of its run; None and empty: no override. Times in ns."""

    level: str | None = None
    role: str | None = None
    model: str | None = None
    framework: str | None = None
    batch_size: int | None = None
    serialised: bool | None = None
    counters: Sequence[str] = ()
    deepest_level: str | None = None  # that the files should hold
    warmup_steps: int | None = None
    rank: int | None = None
    world_size: int | None = None
    device_name: str | None = None
    peaks: Mapping[str, float] = field(default_factory=dict)
    step_durations_ns: Sequence[int] = ()
    results: Mapping[str, pl.DataFrame] = field(default_factory=dict)  # accuracies, tensors, output_distances
    folder: str | None = None  # of the run within its run set: tells files of one name apart

    def shown_name(self, file: str) -> str:
        """The file's name as messages and provenance show it."""
        return f"{self.folder}/{file}" if self.folder else file


NOTHING = RunOverrides()
"""Nothing is known besides the files."""
