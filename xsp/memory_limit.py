"""A limit of memory that users or systems set (`ulimit -v`, `ulimit -d`), and the errors in which it shows."""

from __future__ import annotations

import errno
import re
import resource

__all__ = ["limit_of_memory", "ran_out"]

_KINDS = {"ulimit -v": resource.RLIMIT_AS, "ulimit -d": resource.RLIMIT_DATA}
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
