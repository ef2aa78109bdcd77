"""Memory that is free goes back to the system at once, and a limit that users or systems set shows as one error."""

from __future__ import annotations

import errno
import os
import re
import sys
import warnings

try:
    import resource
except ImportError:  # Windows sets no such limits
    _KINDS = {}
else:
    _KINDS = {"ulimit -v": resource.RLIMIT_AS, "ulimit -d": resource.RLIMIT_DATA}

__all__ = ["be_frugal", "be_small", "before_polars", "limit_of_memory", "ran_out"]

# Has memory that is free again go back to the system at once; a large trace would else keep twice what it needs.

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_MAPPED_BYTES = 1 << 25  # the most that this library takes: each mapping costs its pages anew
_KEPT_BYTES = 1 << 28  # pieces of columns come and go: to ask the system for their pages each time takes longer
_OF_POLARS = "_RJEM_MALLOC_CONF"  # read when polars is first imported
_OF_C = "MALLOC_MMAP_THRESHOLD_"
_M_ARENA_MAX = -8
_THREAD_BYTES = 1 << 30
_OF_ARROW = "ARROW_DEFAULT_MEMORY_POOL"


def before_polars() -> None:
    """What polars's allocator is to do, unless the user has said it."""
    os.environ.setdefault(_OF_POLARS, "dirty_decay_ms:50,muzzy_decay_ms:0")


def be_frugal() -> None:
    """Has large arrays be given back each by itself; nothing where this C library cannot, or the user has said it."""
    if sys.platform != "linux" or _OF_C in os.environ:
        return
    import ctypes  # noqa: PLC0415 (only where something is read)

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def be_small(limit_bytes: int) -> None:
    """Before polars, where address space is limited: each thread and each library's allocator reserves some."""
    warnings.filterwarnings("ignore", message="Polars binary is missing")  # there is no room to load it
    threads = str(max(1, min(limit_bytes // _THREAD_BYTES, os.cpu_count() or 1)))
    for name in ("POLARS_MAX_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, threads)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault(_OF_ARROW, "system")
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 (only here)

        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_ARENA_MAX, 1)


# A limit of memory that users or systems set (`ulimit -v`, `ulimit -d`), and the errors in which it shows.

_SAYS_SO = re.compile(
    r"cannot allocate memory|failed to map segment|can't (start|spawn) new thread|memory allocation|out of memory",
    re.IGNORECASE,
)


def limit_of_memory() -> tuple[str, int] | None:
    """The narrowest limit of this process's memory: who sets it, and bytes; null where there is none."""
    limits = [(resource.getrlimit(kind)[0], name) for name, kind in _KINDS.items()]
    limited = [(size, name) for size, name in limits if size != resource.RLIM_INFINITY]
    return (min(limited)[1], min(limited)[0]) if limited else None


def ran_out(error: BaseException | None) -> bool:
    """Whether it is for want of memory, as its type or a library's words have it, or what it came of is.

    Under a limit a library that cannot be loaded, or a call that failed without a word, is such.
    """
    silent = (SystemError, ImportError) if limit_of_memory() else ()
    while error is not None:
        if isinstance(error, silent):
            return True
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return True
        if not isinstance(error, OSError) and _SAYS_SO.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False
