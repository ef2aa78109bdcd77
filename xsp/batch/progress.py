"""A bar over the units of a batch on a terminal; elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from xsp.batch.unit import Status
from xsp.cli.output import note

if TYPE_CHECKING:
    from types import TracebackType

    from rich.progress import Progress, TaskID

    from xsp.batch.unit import UnitOutcome

__all__ = ["BatchProgress"]

_EVERY_S = 30


class BatchProgress:
    """Within `with`, `count` says that a unit has come to an end."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._ended = self._failed = 0
        self._noted_s = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if not sys.stderr.isatty():
            return self
        from rich.console import Console  # noqa: PLC0415 (nobody watches in most runs)
        from rich.progress import (  # noqa: PLC0415  # noqa: PLC0415
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=self._total)
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def count(self, outcome: UnitOutcome) -> None:
        """One unit more."""
        if outcome.status is Status.FAILED:
            self._failed += 1
        self._ended += 1
        if self._bar is None and time.monotonic() - self._noted_s > _EVERY_S:
            self._noted_s = time.monotonic()
            note(f"{self._ended:,} of {self._total:,}, {self._failed:,} failed")
        if self._bar is not None and self._task is not None:
            failed = f"{self._failed} failed, " if self._failed else ""
            self._bar.update(self._task, advance=1, description=f"{failed}last: {outcome.unit.name}")
