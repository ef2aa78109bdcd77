"""Processes of our own: how each begins, and the one that those of a batch are forked off."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from contextlib import contextmanager
from multiprocessing import util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from multiprocessing.context import BaseContext

__all__ = ["ONE_THREAD", "begin", "context", "cores", "end", "for_own_processes"]

# A Python process of ours takes modules from where they are installed, never from the current folder, as `python -c` by
# which `multiprocessing` begins processes would: the folder that a user works in may be a stranger's.
_SAFE_PATH = {"PYTHONSAFEPATH": "1"}
_lock = threading.RLock()  # of two threads one would take back what the other needs


@contextmanager
def for_own_processes(
    defaults: Mapping[str, str] | None = None, always: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Within `with`, the environment is that of processes of ours, which all are to be begun there.

    It has these variables besides: `defaults` where the user has not said otherwise.
    """
    with _lock:
        before = dict(os.environ)
        os.environ.update({**(defaults or {}), **before, **(always or {}), **_SAFE_PATH})
        flags = util._args_from_interpreter_flags  # type: ignore[attr-defined] # noqa: SLF001 (see below)
        if sys.flags.ignore_environment:  # by `python -E`, which they are given too: only the flag tells them then
            util._args_from_interpreter_flags = lambda: [*flags(), "-P"]  # type: ignore[attr-defined] # noqa: SLF001
        try:
            yield
        finally:
            util._args_from_interpreter_flags = flags  # type: ignore[attr-defined] # noqa: SLF001
            for name in {*(defaults or {}), *(always or {}), *_SAFE_PATH}:
                if name in before:
                    os.environ[name] = before[name]
                else:
                    del os.environ[name]


# Processes of a batch are forked off one that has imported what every trace needs: that takes longer than a small
# trace. It does nothing else, so that no pool of threads and no lock of one is copied, and begins while the batch still
# looks for its inputs.

ONE_THREAD = dict.fromkeys(("POLARS_MAX_THREADS", "NUMBA_NUM_THREADS", "OMP_NUM_THREADS"), "1")
"""What has a process's libraries compute in one thread, unless the user has said it otherwise: more would get in each
other's way."""
_NEEDED = (
    "xsp.cli.main",
    "xsp.batch.pool",
    "xsp_ingest.convert",
    "xsp_ingest.run_set",
    "xsp_ingest.formats.torch_profiler.shape",
    "xsp_ingest.formats.torch_profiler.compiled.columns",
    "xsp_analyze.cohort.facts",
    "xsp_analyze.pages.report.page",
    "xsp_ingest.machine.native",
    "pyarrow.compute",
)
_QUIET = {  # libraries whose threads would be there before any work is
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
_OF_POLARS = "_RJEM_MALLOC_CONF"  # as `memory.before_polars` has it, to which is added:
_NO_THREAD = "background_thread:false"


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def context() -> BaseContext:
    """How processes are started on this system."""
    # Elsewhere a process may not be forked once libraries of the system are loaded, or not at all.
    return multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")


def begin() -> None:
    """Starts the process that others will be forked off, without waiting for it; nothing where it runs already."""
    if sys.platform != "linux":
        return
    from multiprocessing import forkserver, resource_tracker  # noqa: PLC0415 (there is none on Windows)

    multiprocessing.set_forkserver_preload(list(_NEEDED))
    malloc = ",".join(filter(None, (os.environ.get(_OF_POLARS), _NO_THREAD)))
    with for_own_processes({**ONE_THREAD, **_QUIET}, {_OF_POLARS: malloc}):
        resource_tracker.ensure_running()  # by itself, as it lets interrupts through again
        with _without_interrupts():
            forkserver.ensure_running()


def end() -> None:
    """Ends it and waits for it, so that what it and all workers took counts as this process's."""
    if sys.platform == "linux":
        from multiprocessing import forkserver  # noqa: PLC0415 (likewise)

        forkserver._forkserver._stop()  # type: ignore[attr-defined] # noqa: SLF001 (else it ends some time after us)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes started within `with` never see Ctrl-C: who started them ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
