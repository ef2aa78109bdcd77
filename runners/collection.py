"""A run set that is being filled: one run after the other, those that failed on record in their folders."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from xsp_runners import side_cars, tool_runs
from xsp_runners.answers import answer
from xsp_runners.fresh_process import status_in_words
from xsp_runners.full_memory import LIKELY
from xsp_runners.plan import plan_runs
from xsp_runners.run_folder import RUN, RunnerError, clear, error_of, is_complete, put_error

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

    from xsp_runners.planned_run import PlannedRun

__all__ = ["Collection"]


@dataclass(frozen=True)
class Collection:
    """A run set being filled; `start` runs one process and gives its exit status."""

    args: argparse.Namespace
    start: Callable[[PlannedRun], int]
    refused: list[str] = field(default_factory=list)  # why counters were refused: once is enough

    def level(self, level: str, batch_size: int | None) -> bool:
        """Whether all runs of the level are there in the end."""
        done = [self.run(run) for run in plan_runs(self.args, level, batch_size=batch_size)]
        return all(done)

    def swept_size(self, batch_size: int) -> Path | None:
        """The folder of the run without a profiler at this batch size, finished or failed."""
        (run,) = plan_runs(self.args, "M", batch_size=batch_size, folder=f"m-batch-{batch_size}")
        self.run(run)
        return run.folder

    def run(self, run: PlannedRun) -> bool:
        """Whether the run is there in the end; one that failed is on record in its folder."""
        if self.args.resume and _is_complete(run):
            for folder in run.folders:
                answer(f"{run.level}: {folder / RUN} is there already")
            return True
        for folder in run.folders:
            clear(folder)
        if run.tool != "own":
            tool_runs.forget(run)
        if run.tool == "ncu" and self.refused:
            return self._report_failure(
                run, self._put_on_record(run, f"not run, as ncu was refused before: {self.refused[0]}")
            )
        with side_cars.sample_beside(run.folders[0], power=self._power(run), system=self._system(run)):
            status = self.start(run)
        sentence = next(filter(None, map(error_of, run.folders)), None)
        if sentence is None:
            sentence = self._finish(run, status)
        if sentence is None:
            side_cars.add_samples(run.folders[0])
            side_cars.add_system_samples(run.folders[0])
            for folder in run.folders:
                answer(f"{run.level}: {folder / RUN}")
            return True
        self.refused.extend(tool_runs.refusals(run))
        return self._report_failure(run, sentence)

    def _report_failure(self, run: PlannedRun, sentence: str) -> bool:
        print(f"collect: {run.level} failed: {sentence}", file=sys.stderr, flush=True)
        return False

    def _power(self, run: PlannedRun) -> str:
        """Whether to sample: GPUs of NVIDIA's, and not where kernels are counted one by one."""
        target = self.args.target
        useful = not run.counters and target.platform == "cuda" and target.on_gpu(self.args.device)
        return str(self.args.power) if useful else "no"

    def _system(self, run: PlannedRun) -> str:
        """Whether to sample the machine: not where no trace can take the samples, nor where kernels are counted.

        What rocprofv3 writes says at no place at which Unix time it was taken.
        """
        joins = run.level != "M" and not run.counters and run.tool != "rocprof"
        return str(self.args.system) if joins else "no"

    def _finish(self, run: PlannedRun, status: int) -> str | None:
        """Completes the run of a tool; why the run is not there, put on record, where it is not."""
        try:
            if run.tool != "own":
                tool_runs.finish(run, status)
            if _is_complete(run):
                return None
            sentence = status_in_words(status)
        except RunnerError as error:
            sentence = str(error)
        full = LIKELY if status == -signal.SIGKILL else None  # as Linux ends what takes the last of memory
        return self._put_on_record(run, sentence, full)

    def _put_on_record(self, run: PlannedRun, sentence: str, full: str | None = None) -> str:
        for folder in run.folders:
            if not is_complete(folder, run.level, run.options):
                put_error(folder, run.level, sentence, memory_full=full, batch_size=run.batch_size, options=run.options)
        return sentence


def _is_complete(run: PlannedRun) -> bool:
    return all(is_complete(folder, run.level, run.options) for folder in run.folders)
