"""An event of Chrome's trace event format, which many profilers write: any of its values may be of any type."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["TraceEvent"]


class TraceEvent(msgspec.Struct):
    """One event; `ts` and `dur` are microseconds, from wherever the profiler counts."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    id: Any = None
    args: Any = None
