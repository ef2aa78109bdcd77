"""What `xsp collect` has running beside a run, and notes of the machine: samples of power, facts of the system."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from xsp_runners import nvml, system
from xsp_runners.run_folder import RUN, RunnerError, put_json, read_json

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["POWER_CHOICES", "add_samples", "note_system", "sampling"]

POWER_CHOICES = ("auto", "yes", "no")
"""Whether to sample the GPUs' power beside runs: where it can be done, always (and fail where it cannot), never."""

_MIN_LINES = 3  # the header, a sample, the closing line


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
def sampling(folder: Path, *, power: str) -> Iterator[None]:
    """Samples the GPUs into the run's folder while open, as `power` says; RunnerError where it must and cannot."""
    try:
        (folder / nvml.NAME).unlink(missing_ok=True)
    except OSError as error:
        raise RunnerError(f"the run cannot be written to {folder}: {error.strerror}") from error
    if power == "no":
        yield
        return
    sampler = nvml.beside(folder / nvml.NAME)
    try:
        sampler.__enter__()
    except RunnerError as error:
        if power == "yes":
            raise
        print(f"collect: no samples of power: {error}", file=sys.stderr, flush=True)
        yield
        return
    try:
        yield
    finally:
        sampler.__exit__(None, None, None)


def add_samples(folder: Path) -> None:
    """Lists the samples in the folder's run.json, where there are any and a trace that they can join by its time."""
    facts, path = read_json(folder / RUN), folder / nvml.NAME
    files = facts.get("files")
    if not isinstance(files, list) or not files or not _has_samples(path):
        return
    entry = {"path": nvml.NAME, "format": nvml.FORMAT}
    if entry not in files:
        put_json(folder / RUN, {**facts, "files": [*files, entry]})


def _has_samples(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8") as lines:
            return sum(1 for _ in zip(range(_MIN_LINES), lines, strict=False)) == _MIN_LINES
    except OSError:
        return False
