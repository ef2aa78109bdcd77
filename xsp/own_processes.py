"""How a Python process of ours is begun: it takes modules from where they are installed, never from the current folder.

`multiprocessing` begins processes by `python -c`, which looks there first, and the folder that a user works in may be a
stranger's: what lies in it beside the traces must not run.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager
from multiprocessing import util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["for_own_processes"]

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
