"""A run set that is being filled: one run after the other, samplers beside it, and failed ones on record."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from xsp_runners import nvml, system, system_samples
from xsp_runners.run_folder import (
    LIKELY,
    RUN,
    RunnerError,
    clear,
    error_of,
    is_complete,
    put_error,
    put_json,
    read_json,
)
from xsp_runners.sets.level_process import PlannedRun, status_in_words
from xsp_runners.sets.plan import finish, forget, plan_runs, refusals
from xsp_runners.tools.programs import answer

__all__ = ["SAMPLING", "Collection", "add_system_samples", "note_system", "power_between", "sample_beside"]

_NS_PER_S = 1e9
_FEWEST = 2  # samples that span a time


def power_between(path: Path, begin_ns: int, end_ns: int) -> list[dict[str, Any]]:
    """Mean power of each GPU between two Unix times, by the trapezoidal rule over the samples that lie between.

    `covered_ns` is from the first of these samples to the last. A GPU with fewer than two is left out.
    """
    by_device: dict[int, list[tuple[int, float]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        sample = json.loads(line)
        if "power_w" in sample and begin_ns <= sample["time_ns"] <= end_ns:
            by_device.setdefault(sample["device"], []).append((sample["time_ns"], sample["power_w"]))
    return [
        {"device": device, **_of(samples)}
        for device, samples in sorted(by_device.items())
        if len(samples) >= _FEWEST and samples[-1][0] > samples[0][0]
    ]


def _of(samples: Sequence[tuple[int, float]]) -> dict[str, Any]:
    covered_ns = samples[-1][0] - samples[0][0]
    energy_j = sum(
        (later - time_ns) * (power + power_then) / 2 for (time_ns, power), (later, power_then) in pairwise(samples)
    )
    return {
        "mean_power_w": round(energy_j / covered_ns, 3),
        "energy_j": round(energy_j / _NS_PER_S, 6),
        "covered_ns": covered_ns,
        "samples": len(samples),
    }


SAMPLING = ("auto", "yes", "no")
"""Whether to sample beside runs: where it can be done, always (and fail where it cannot), never."""
_MIN_LINES = 3  # the header, a sample, the closing line
_MIN_LINES_OF_SHARES = 4  # of the machine the first sample has none


def note_system(out: Path, python: str) -> None:
    """Writes what this machine is, with the packages of that Python, into the run set; RunnerError where it cannot."""
    if python == sys.executable:
        put_json(out / system.NAME, system.system_facts(tools=False))
        return
    command = [python, str(Path(system.__file__).resolve()), "--no-tools", "--out", str(out / system.NAME)]
    try:
        subprocess.run(command, check=True)  # noqa: S603 (our own program under the user's Python)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RunnerError(f"{python} could not say what it has: {error}") from error


@contextmanager
def sampling(
    path: Path, beside: Callable[[Path], AbstractContextManager[None]], *, choice: str, what: str
) -> Iterator[None]:
    """Has a sampler write the file while open, as `choice` says; RunnerError where it must and cannot."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise RunnerError(f"the run cannot be written to {path.parent}: {error.strerror}") from error
    if choice == "no":
        yield
        return
    sampler = beside(path)
    try:
        sampler.__enter__()
    except RunnerError as error:
        if choice == "yes":
            raise
        print(f"collect: no samples of {what}: {error}", file=sys.stderr, flush=True)
        yield
        return
    try:
        yield
    finally:
        sampler.__exit__(None, None, None)


@contextmanager
def sample_beside(folder: Path, *, power: str, system: str) -> Iterator[None]:
    """Samples the GPUs and the machine into the run's folder while open; RunnerError where it must and cannot."""
    gpus = sampling(folder / nvml.NAME, nvml.beside, choice=power, what="power")
    machine = sampling(folder / system_samples.NAME, system_samples.beside, choice=system, what="the machine")
    with gpus, machine:
        yield


def add_samples(folder: Path) -> None:
    """Lists the samples in the folder's run.json, where there are any and a trace that they can join by its time.

    Of a run without a trace they are summed up over its recorded steps.
    """
    facts, path = read_json(folder / RUN), folder / nvml.NAME
    files = facts.get("files")
    if not isinstance(files, list) or not _has_samples(path):
        return
    if not files:
        recorded = facts.get("recorded_unix_ns")
        power = power_between(path, *recorded) if isinstance(recorded, list) else []
        put_json(folder / RUN, {**facts, "power": power, "power_samples": nvml.NAME})
        return
    _list(folder, {"path": nvml.NAME, "format": nvml.FORMAT})


def add_system_samples(folder: Path) -> None:
    """Lists the samples of the machine likewise."""
    if read_json(folder / RUN).get("files") and _has_samples(folder / system_samples.NAME, _MIN_LINES_OF_SHARES):
        _list(folder, {"path": system_samples.NAME, "format": system_samples.FORMAT})


def _list(folder: Path, entry: dict[str, str]) -> None:
    facts = read_json(folder / RUN)
    files = facts.get("files")
    if isinstance(files, list) and entry not in files:
        put_json(folder / RUN, {**facts, "files": [*files, entry]})


def _has_samples(path: Path, at_least: int = _MIN_LINES) -> bool:
    try:
        with path.open(encoding="utf-8") as lines:
            return sum(1 for _ in zip(range(at_least), lines, strict=False)) == at_least
    except OSError:
        return False


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
            forget(run)
        if run.tool == "ncu" and self.refused:
            return self._report_failure(
                run, self._put_on_record(run, f"not run, as ncu was refused before: {self.refused[0]}")
            )
        with sample_beside(run.folders[0], power=self._power(run), system=self._system(run)):
            status = self.start(run)
        sentence = next(filter(None, map(error_of, run.folders)), None)
        if sentence is None:
            sentence = self._finish(run, status)
        if sentence is None:
            add_samples(run.folders[0])
            add_system_samples(run.folders[0])
            for folder in run.folders:
                answer(f"{run.level}: {folder / RUN}")
            return True
        self.refused.extend(refusals(run))
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
                finish(run, status)
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
