"""Units done by processes of this machine: a process that dies costs the one unit that it was doing."""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import queue
import signal
import threading
import warnings
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from xsp.batch.unit import Status, UnitOutcome
from xsp.batch.work import process
from xsp.memory import be_frugal
from xsp.processes import ONE_THREAD, begin, context, for_own_processes
from xsp_analyze.faults import FaultWarning
from xsp_model.limits import limit_bytes

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from xsp.batch.unit import Settings, Unit

__all__ = ["default_limit_bytes", "run_here"]

_WATCH_S = 0.1
_LESS = "Where memory is short, use fewer --jobs; else standard error may say why"
_RENEW_SHARE = 0.5  # a worker that keeps more than this part of its limit after a unit is replaced by a fresh one
_SYSTEM_SHARE = 0.85  # of the machine's memory, that all workers together may use


def default_limit_bytes(jobs: int) -> int:
    """A worker's part of the memory of the machine, or of the container that this runs in."""
    return int(limit_bytes() * _SYSTEM_SHARE / jobs)


def run_here(units: Sequence[Unit], settings: Settings, *, jobs: int, limit_bytes: int) -> Generator[UnitOutcome]:
    """The outcomes, in the order in which they come. Closing the iterator ends the workers.

    Raises nothing of a unit's own: a worker that was killed, or that took more memory, is a failed unit.
    """
    begin()
    waiting: queue.SimpleQueue[Unit] = queue.SimpleQueue()
    for unit in sorted(units, key=_size, reverse=True):  # the largest first, so that no worker is left with it alone
        waiting.put(unit)
    done: queue.SimpleQueue[UnitOutcome | BaseException] = queue.SimpleQueue()
    crew = [_Worker(waiting, done, settings, limit_bytes) for _ in range(min(jobs, len(units)))]
    for worker in crew:
        worker.start()
    try:
        for _ in units:
            outcome = done.get()
            if isinstance(outcome, BaseException):
                raise outcome
            yield outcome
    finally:
        for worker in crew:
            worker.end()
        for worker in crew:
            worker.join()


def _size(unit: Unit) -> float:
    """Bytes of the unit's files that lie here; folders come before all files."""
    try:
        return sum(math.inf if os.path.isdir(name) else os.path.getsize(name) for name in unit.inputs)  # noqa: PTH112, PTH202 (may be URLs)
    except OSError:
        return 0


class _Worker(threading.Thread):
    """Hands units to one process, one at a time, and starts another where that one dies."""

    def __init__(
        self,
        waiting: queue.SimpleQueue[Unit],
        done: queue.SimpleQueue[UnitOutcome | BaseException],
        settings: Settings,
        limit_bytes: int,
    ) -> None:
        super().__init__(daemon=True)
        self._waiting, self._done, self._settings = waiting, done, settings
        self._limit_bytes = limit_bytes
        self._ended = False
        self._pool: ProcessPoolExecutor | None = None
        self._pid = 0

    def run(self) -> None:
        """Until nothing waits, or `end` is called."""
        try:
            while not self._ended:
                try:
                    unit = self._waiting.get_nowait()
                except queue.Empty:
                    break
                self._done.put(self._outcome(unit))
        except BaseException as error:  # noqa: BLE001 (who waits for outcomes must hear of it)
            self._done.put(error)
        finally:
            self._drop()

    def end(self) -> None:
        """Kills what is being done; its unit has no outcome."""
        self._ended = True
        self._kill()

    def _outcome(self, unit: Unit) -> UnitOutcome:
        for first in (True, False):
            try:
                future = self._one_process().submit(process, unit, self._settings)
                break
            except (BrokenProcessPool, EOFError, OSError) as error:  # died while it had nothing to do, or never began
                self._drop()
                if not first:
                    reason = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":").rstrip(".")
                    sentence = f"{unit.inputs[0]}: no worker could be started for it, or it died at once ({reason})"
                    return UnitOutcome(unit, Status.FAILED, f"{sentence}. {_LESS}")
        peak = self._watch(future)
        try:
            outcome: UnitOutcome = future.result()
        except BrokenProcessPool:
            self._drop()
            return UnitOutcome(unit, Status.FAILED, self._why(unit, peak))
        if _resident_bytes(self._pid) > _RENEW_SHARE * self._limit_bytes:
            self._drop()
        return outcome

    def _why(self, unit: Unit, peak: int) -> str:
        if peak > self._limit_bytes:
            return (
                f"{unit.inputs[0]}: its worker was ended, as it took more than {self._limit_bytes / 1e9:.1f} GB of"
                " memory. Use fewer --jobs or a larger --memory"
            )
        return (
            f"{unit.inputs[0]}: its worker was killed by the system or died, at {peak / 1e9:.1f} GB of memory. Use"
            " fewer --jobs, or convert it by itself to see why"
        )

    def _one_process(self) -> ProcessPoolExecutor:
        if self._pool is None:
            with for_own_processes():  # should a process that workers are forked off have to be begun anew
                self._pool = ProcessPoolExecutor(1, context(), initializer=_prepare)
                pid = self._pool.submit(os.getpid)
            self._pid = pid.result()
        return self._pool

    def _watch(self, future: Future[UnitOutcome]) -> int:
        """The most memory seen while the future ran; a worker over its limit is killed."""
        peak = 0
        while not future.done():
            peak = max(peak, _resident_bytes(self._pid))
            if peak > self._limit_bytes:
                self._kill()
                break
            with suppress(TimeoutError):
                future.exception(_WATCH_S)
        return peak

    def _kill(self) -> None:
        if self._pid:
            with suppress(OSError):  # it has ended meanwhile
                os.kill(self._pid, getattr(signal, "SIGKILL", signal.SIGTERM))  # Windows ends it at once by any

    def _drop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool, self._pid = None, 0


def _prepare() -> None:
    """In a fresh worker: one processor, memory given back, no interrupts of the keyboard, an end with the parent's."""
    for name, value in ONE_THREAD.items():
        os.environ.setdefault(name, value)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    be_frugal()
    warnings.simplefilter("ignore", FaultWarning, append=True)  # the unit's outcome says it
    gc.freeze()  # what was imported stays: it need not be looked through again and again
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _resident_bytes(pid: int) -> int:
    """Resident memory of the process; 0 where the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0
