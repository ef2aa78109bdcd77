"""What `xsp collect` has running beside a run, and notes of the machine: samples of power, facts of the system."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from xsp_runners import nvml, system, system_samples
from xsp_runners.power_summary import power_between
from xsp_runners.run_folder import RUN, RunnerError, put_json, read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

__all__ = ["CHOICES", "add_samples", "add_system_samples", "note_system", "sample_beside", "sampling"]

CHOICES = ("auto", "yes", "no")
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
