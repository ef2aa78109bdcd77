"""Runs a command in a process of its own and says what it cost: processor time, wall time, peak memory."""

from __future__ import annotations

import compileall
import os
import re
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Cost", "Failed", "as_installed", "run"]

_SAMPLE_S = 0.01
_FOLDERS = re.compile(r"/(?:[^\s/'\"]+/)+")  # where things lie on this machine is nobody's business
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Failed(Exception):  # noqa: N818 (an answer, not an error)
    """The command failed or took too long; says how."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process and all its descendants used."""

    cpu_s: float  # user and system
    wall_s: float
    peak_bytes: int  # largest sum of resident memory
    private_bytes: int  # likewise, without pages of files, which processes share and the system can drop

    def __add__(self, other: Cost) -> Cost:
        """Two processes one after the other."""
        return Cost(
            self.cpu_s + other.cpu_s,
            self.wall_s + other.wall_s,
            max(self.peak_bytes, other.peak_bytes),
            max(self.private_bytes, other.private_bytes),
        )


_COMPILED = ("xsp", "xsp_model", "xsp_ingest", "xsp_analyze", "runners", "benchmarks")


def as_installed(environment: Mapping[str, str], tree: Path) -> dict[str, str]:
    """The environment, with bytecode of the tree at hand: peers have theirs, and so has whoever installed xsp.

    A start that compiles 530 modules costs a quarter more.
    """
    _compile(tree)
    unwanted = {"PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"}
    return {name: value for name, value in environment.items() if name not in unwanted}


@cache
def _compile(tree: Path) -> None:
    for package in _COMPILED:
        if (tree / package).is_dir():
            compileall.compile_dir(str(tree / package), quiet=2)


def run(command: Sequence[str], environment: Mapping[str, str], output: Path, *, limit_s: float = 3600) -> Cost:
    """Runs the command, its standard output into a file; Failed with the end of its errors where it fails.

    After `limit_s` of wall time it is ended, which is a failure too.
    """
    errors = output.with_suffix(".err")
    with output.open("wb") as out, errors.open("wb") as err:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err, env=dict(environment), start_new_session=True)
        late = threading.Event()
        timer = threading.Timer(limit_s, _end, (process.pid, late))
        timer.start()
        watch = _Watch(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        timer.cancel()
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        peak, private = watch.stop()
    if late.is_set():
        raise Failed(f"it took more than {limit_s:.0f} s")
    if process.returncode:
        lines = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        message = lines[-1] if lines else f"status {process.returncode}"
        raise Failed(f"it failed: {_FOLDERS.sub('.../', message)[-300:]}")
    return Cost(usage.ru_utime + usage.ru_stime, wall, max(peak, usage.ru_maxrss * 1024), private)


def _end(group: int, late: threading.Event) -> None:
    late.set()
    os.killpg(group, signal.SIGKILL)


class _Watch:
    """Samples the resident memory of a process tree."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._peak = 0
        self._private = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> tuple[int, int]:
        self._done.set()
        self._thread.join()
        return self._peak, self._private

    def _sample(self) -> None:
        while not self._done.wait(_SAMPLE_S):
            sizes = [_resident_bytes(pid) for pid in _tree(self._root)]
            self._peak = max(self._peak, sum(resident for resident, _ in sizes))
            self._private = max(self._private, sum(resident - shared for resident, shared in sizes))


def _tree(root: int) -> list[int]:
    pids = [root]
    for pid in pids:
        with suppress(OSError):  # it has just ended
            for children in list(Path(f"/proc/{pid}/task").glob("*/children")):
                pids += [int(child) for child in children.read_text().split()]
    return pids


def _resident_bytes(pid: int) -> tuple[int, int]:
    """Resident memory, and how much of it is of files."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0, 0
    return int(fields[1]) * _PAGE_BYTES, int(fields[2]) * _PAGE_BYTES
