"""Recordings by the real nsys: one at a time, and once more where its own parts have not found each other.

nsys starts a daemon that its command then speaks to. Two recordings at once, or a machine with much else to do, and it
gives up on that after a time of its own: then nothing was recorded, which says nothing of what is tested.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["heard", "record"]

_ATTEMPTS = 5
_LOST = ("Local Endpoint is not available", "Connection to Agent lost")
_LOCK = Path(tempfile.gettempdir()) / "xsp-tests-nsys.lock"


@contextmanager
def _alone() -> Iterator[None]:
    """No other test records meanwhile."""
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _lost(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether the parts of nsys lost each other."""
    return any(complaint in done.stdout + done.stderr for complaint in _LOST)


def record(
    command: Sequence[str], *, made: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What became of the command, which records into `made`: a folder or a file that a lost attempt leaves anew."""
    for done in _attempts(command, environment):
        if made.exists() and not _lost(done):
            break
        if made.is_dir():
            shutil.rmtree(made)
    return _unless_lost(done)


def heard(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """What nsys itself says to the command."""
    for done in _attempts(command, None):
        if not _lost(done):
            break
    return _unless_lost(done)


def _attempts(
    command: Sequence[str], environment: Mapping[str, str] | None
) -> Iterator[subprocess.CompletedProcess[str]]:
    with _alone():
        for _ in range(_ATTEMPTS):
            yield subprocess.run(command, check=False, capture_output=True, text=True, env=environment)


def _unless_lost(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    if _lost(done):
        pytest.skip(f"the parts of nsys lost each other {_ATTEMPTS} times of {_ATTEMPTS}")
    return done
