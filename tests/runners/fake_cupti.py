"""Stands in for the package cupti-python: the calls that the runner makes, and a stream of activities to hand over.

Fields have the names of the real classes; `test_cupti.py` holds them against the real package where it is installed.
"""

from __future__ import annotations

import ctypes
import sys
import time
import types
from dataclasses import dataclass, field
from enum import IntEnum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

__all__ = ["ActivityKind", "FakeCupti", "FakeCuptiError", "Result"]


class ActivityKind(IntEnum):
    """CUPTI's numbers."""

    MEMCPY = 1
    MEMSET = 2
    DRIVER = 4
    RUNTIME = 5
    DEVICE = 8
    CONCURRENT_KERNEL = 10
    OVERHEAD = 17
    MEMCPY2 = 22
    SYNCHRONIZATION = 38
    EXTERNAL_CORRELATION = 39
    GRAPH_TRACE = 51


class Result(IntEnum):
    """CUPTI's numbers of the errors that tests raise."""

    ERROR_MAX_LIMIT_REACHED = 12
    ERROR_NOT_SUPPORTED = 27
    ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39


class FakeCuptiError(Exception):
    """As cupti.cuptiError."""

    def __init__(self, status: Result) -> None:
        """The status is the error's number."""
        super().__init__(status.name)
        self.status = int(status)


def _refuse(*_: object) -> None:
    raise FakeCuptiError(Result.ERROR_NOT_SUPPORTED)


@dataclass
class FakeCupti:
    """The module cupti.cupti: hands `stream` over at a flush; refuses what `refused`, `taken` and `failing` say."""

    stream: list[SimpleNamespace] = field(default_factory=list)
    refused: Sequence[ActivityKind] = ()
    taken: Result | None = None
    driver: bool = True
    dropped: int = 0
    clock: Callable[[], int] = time.time_ns
    failing: Sequence[str] = ()
    log: list[tuple[str, object]] = field(default_factory=list)
    _completed: Callable[[list[SimpleNamespace]], None] | None = None

    ActivityKind = ActivityKind
    Result = Result
    cuptiError = FakeCuptiError  # noqa: N815 (the package's own name)
    CallbackDomain = IntEnum("CallbackDomain", {"DRIVER_API": 1, "RUNTIME_API": 2})
    ExternalCorrelationKind = IntEnum("ExternalCorrelationKind", {"CUSTOM0": 3})
    ActivityThreadIdType = IntEnum("ActivityThreadIdType", {"DEFAULT": 0, "SYSTEM": 1})

    def install(self, monkeypatch: pytest.MonkeyPatch) -> FakeCupti:
        """Makes it what `from cupti import cupti` finds."""
        package: Any = types.ModuleType("cupti")
        package.cupti = self
        monkeypatch.setitem(sys.modules, "cupti", package)
        return self

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401
        """A call that is `failing` is there, and is refused."""
        return _refuse if name in object.__getattribute__(self, "failing") else object.__getattribute__(self, name)

    def get_timestamp(self) -> int:
        if not self.driver:
            raise RuntimeError("CUDA driver is not found (libcuda.so.1: cannot open shared object file)\nsecond line")
        return self.clock()

    def subscribe(self, callback: object, userdata: object) -> int:
        del callback, userdata
        if self.taken is not None:
            raise FakeCuptiError(self.taken)
        return 77

    def unsubscribe(self, subscriber: int) -> None:
        self.log.append(("unsubscribe", subscriber))

    def set_thread_id_type(self, kind: int) -> None:
        self.log.append(("thread ids", kind))

    def activity_register_callbacks(self, requested: Callable[[], tuple[int, int]], completed: Any) -> None:  # noqa: ANN401
        size, count = requested()
        assert size > 0
        assert count == 0
        self._completed = completed

    def activity_enable(self, kind: int) -> None:
        if kind in self.refused:
            raise FakeCuptiError(Result.ERROR_NOT_SUPPORTED)
        self.log.append(("enable", ActivityKind(kind).name))

    def activity_disable(self, kind: int) -> None:
        self.log.append(("disable", ActivityKind(kind).name))

    def activity_flush_all(self, flag: int) -> None:
        assert flag == 1
        self.log.append(("flush", flag))
        assert self._completed is not None
        self._completed(self.stream)
        for activity in self.stream:  # the buffer is CUPTI's again
            activity.__dict__.clear()
        self.stream = []

    def activity_push_external_correlation_id(self, kind: int, number: int) -> None:
        self.log.append(("push", (kind, number)))

    def activity_pop_external_correlation_id(self, kind: int) -> int:
        self.log.append(("pop", kind))
        return 0

    def activity_get_num_dropped_records(self, context: int, stream: int, dropped: int) -> None:
        assert (context, stream) == (0, 0)
        ctypes.c_size_t.from_address(dropped).value = self.dropped

    def get_callback_name(self, domain: int, cbid: int) -> str:
        return {(2, 211): "cudaLaunchKernel_v7000", (1, 307): "cuLaunchKernel"}[domain, cbid]
