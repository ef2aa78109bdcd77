"""Under a limit of memory (`ulimit -v`, `ulimit -d`): the command runs in a process that another one watches.

Libraries of machine code end the process where an allocation fails; whoever watches it then says so in a sentence.
"""

from __future__ import annotations

import os
import re
import resource
import select
import signal
import sys
from typing import TYPE_CHECKING

from xsp.cli.output import note
from xsp.memory import limit_of_memory

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["out_of_memory", "watch"]

_ENDED_BY = {signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGTRAP}
_USER_ERROR = 2
_OF_SIGNALS = 128
_PIECE_BYTES = 1 << 16
# What libraries write before they end the process, or go on without: the sentence says it.
_NOISE = re.compile(
    rb"memory allocation of |(?:\d+ )?bytes failed|skipping backtrace|thread '|note: run with|<jemalloc>|mimalloc|"
    rb"terminate called|"
    rb" *what\(\):|OpenBLAS |LLVM ERROR|Fatal Python error|called `Result::unwrap|stack backtrace|"
    rb" *\d+: |Rayon|\s*$|could not allocate|libgomp|Exception ignored"
)


_REASON = b"xsp ran out of memory"


def out_of_memory() -> str:
    """The sentence for users."""
    limit = limit_of_memory()
    if limit is None:
        return "xsp ran out of memory. Read less of the trace with --range, or where there is more memory"
    name, size = limit
    return (
        f"xsp ran out of memory: {size / 1e9:.2f} GB is what `{name}` leaves it. Raise that limit, or read less of the"
        " trace with --range"
    )


def watch() -> int | None:
    """Forks: null in the new process, which goes on; in the old one the status of the new, once it has ended."""
    sys.stdout.flush()
    sys.stderr.flush()
    ours, its = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(its, 2)
        os.close(ours)
        os.close(its)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        return None
    os.close(its)

    def pass_on(number: int, _: FrameType | None) -> None:
        os.kill(child, number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both
    gave_up, has_reason = _pass_on_lines(ours, child)
    return _exit_status(os.waitpid(child, 0)[1], gave_up=gave_up, has_reason=has_reason)


def _pass_on_lines(source: int, child: int) -> tuple[bool, bool]:
    """Writes what it says to our stderr, less the noise, until it has ended.

    Returns whether there was nothing but noise, and whether it said itself that memory is short. What it started may
    live on, and hold the pipe open.
    """
    ended = os.pidfd_open(child)
    left = b""
    is_noisy = has_output = has_reason = False
    while True:
        ready = select.select([source, ended], [], [])[0]
        piece = os.read(source, _PIECE_BYTES) if source in ready else b""
        *lines, left = (left + piece).split(b"\n")
        if not piece:
            lines.append(left)
        output = b"".join(line + b"\n" for line in lines if not _NOISE.match(line))
        is_noisy |= any(line and _NOISE.match(line) for line in lines)
        if output:
            has_output = True
            has_reason |= _REASON in output
            os.write(2, output)
        if not piece:
            return is_noisy and not has_output, has_reason


def _exit_status(status: int, *, gave_up: bool, has_reason: bool) -> int:
    """Its exit status; where it ended as for want of memory, the sentence is said, unless it has been."""
    if not os.WIFSIGNALED(status):
        if not (gave_up and os.WEXITSTATUS(status) == 1):  # some libraries exit by themselves
            return os.WEXITSTATUS(status)
    elif os.WTERMSIG(status) not in _ENDED_BY:
        return _OF_SIGNALS + os.WTERMSIG(status)
    if not has_reason:  # else it said so and was then ended by a library, while it let go of what it had
        note(f"error: {out_of_memory()}")
    return _USER_ERROR
