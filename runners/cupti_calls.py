"""Calls of NVIDIA's package cupti-python, any of which may be refused: what was is noted, and no program sees it."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from xsp_runners.cuda_driver import wait_for_devices
from xsp_runners.cupti_dump import FIELDS
from xsp_runners.cupti_version import remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Clock", "CuptiCalls"]

_BUFFER_BYTES = 8 << 20
_FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
_TAKEN = ("ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", "ERROR_MAX_LIMIT_REACHED")
_NEEDED = "CONCURRENT_KERNEL"
_CUSTOM0 = 3  # CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0: ids that are ours
_SLACK_NS = 1_000_000  # that two readings of one clock may differ by
_CLOCKS = ("CLOCK_REALTIME", "CLOCK_MONOTONIC_RAW", "CLOCK_MONOTONIC")


@dataclass(frozen=True)
class Clock:
    """What CUPTI's time stamps count, what Unix time it was at their 0, and how a moment of this program is read."""

    name: str
    epoch_ns: int
    now: Callable[[], int]
    read_by: str  # `program`: the same clock; `CUPTI`: asked for each moment


@dataclass
class CuptiCalls:
    """CUPTI in this process. `problem` is why it records nothing, or not all that a run needs."""

    refused: list[str] = field(default_factory=list)
    problem: str | None = None
    _cupti: Any = None
    _subscriber: Any = None
    _enabled: list[int] = field(default_factory=list)

    @property
    def module(self) -> Any:  # noqa: ANN401 (the package is not installed everywhere, so its types are not known)
        """The module cupti.cupti; None where it is of no use."""
        return self._cupti

    def open(self) -> Clock | None:
        """Imports the package and keeps the process's one place for a subscriber; the clock of its records.

        None, with a problem, where that cannot be.
        """
        try:
            from cupti import cupti  # noqa: PLC0415 (installed on machines with a GPU only)

            clock = _clock_of(cupti)
        except ModuleNotFoundError:
            self.problem = f"cupti-python is not installed: {remedy()}"
        except Exception as error:  # noqa: BLE001 (libraries and drivers of all versions: none may end the program)
            advice = remedy()
            self.problem = f"CUPTI cannot be used here: {_reason(None, error)}{f'; {advice}' if advice else ''}"
        else:
            self._cupti = cupti
            self._subscribe()
            return clock if self._cupti else None
        return None

    def _subscribe(self) -> None:
        """So that nobody else turns our records off."""
        try:
            self._subscriber = self._cupti.subscribe(_nothing, None)
        except Exception as error:  # noqa: BLE001
            reason = _reason(self._cupti, error)
            self.problem = f"CUPTI cannot be used here: {reason}"
            if reason in _TAKEN:
                self.problem = (
                    "another user of CUPTI is in this process, which can have one only: run without nsys and ncu "
                    "around it and without torch.profiler on the GPU in it"
                )
            self._cupti = None

    def start(self, completed: Callable[[Sequence[Any]], None], *, graph: str) -> None:
        """Turns on records of all kinds wanted; those that this device or driver does not have are left out."""
        self._refusal("ids of threads", self._number_threads_as_python)
        if refusal := self._refusal("buffers", partial(self._call, "activity_register_callbacks", _buffer, completed)):
            self.problem = f"CUPTI hands over no records here: {refusal}"
        for name in FIELDS:
            if name == "GRAPH_TRACE" and graph == "node":
                continue  # with it, the kernels of a graph are not recorded
            refusal = self._refusal(name, partial(self._enable, name))
            if refusal and name == _NEEDED:
                self.problem = self.problem or f"CUPTI records no kernels here: {refusal}"

    def push(self, number: int) -> int | None:
        """Ties what this thread launches to the number; the kind of number, None where CUPTI refused."""
        push = partial(self._call, "activity_push_external_correlation_id", _CUSTOM0, number)
        return None if self._refusal("external ids", push) else _CUSTOM0

    def pop(self) -> None:
        """Ends what was pushed last."""
        self._refusal("external ids", partial(self._call, "activity_pop_external_correlation_id", _CUSTOM0))

    def close(self) -> int:
        """Waits for the devices, has every record handed over, and lets go of CUPTI; how many it dropped."""
        wait_for_devices()  # a record is whole only when its work is done
        if refusal := self._refusal("the last records", partial(self._call, "activity_flush_all", _FORCED)):
            self.problem = self.problem or f"CUPTI could not hand over its last records: {refusal}"
        for kind in self._enabled:
            self._refusal("an end", partial(self._call, "activity_disable", kind))
        count = ctypes.c_size_t(0)
        at = ctypes.addressof(count)
        self._refusal("dropped records", partial(self._call, "activity_get_num_dropped_records", 0, 0, at))
        self._refusal("an end", partial(self._call, "unsubscribe", self._subscriber))
        return count.value

    def _number_threads_as_python(self) -> None:
        """Threads as the operating system has them."""
        self._cupti.set_thread_id_type(int(self._cupti.ActivityThreadIdType.SYSTEM))

    def _enable(self, name: str) -> None:
        kind = int(self._cupti.ActivityKind[name])
        self._cupti.activity_enable(kind)
        self._enabled.append(kind)

    def _call(self, name: str, *arguments: object) -> None:
        getattr(self._cupti, name)(*arguments)

    def _refusal(self, what: str, call: Callable[[], None]) -> str | None:
        """What CUPTI said instead of doing it, which is noted once; None where it did."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 (whatever CUPTI says, the program runs)
            refusal = f"{what} ({_reason(self._cupti, error)})"
            if refusal not in self.refused:
                self.refused.append(refusal)
            return refusal
        return None


def _buffer() -> tuple[int, int]:
    """Size of a buffer, and how many records it may hold: as many as fit."""
    return _BUFFER_BYTES, 0


def _clock_of(cupti: Any) -> Clock:  # noqa: ANN401
    """Which clock CUPTI reads: on Linux CLOCK_REALTIME, under WSL CLOCK_MONOTONIC_RAW (cupti_activity.h)."""
    for name in _CLOCKS:
        number = getattr(time, name, None)
        if number is None:
            continue
        before, stamp, after = time.clock_gettime_ns(number), int(cupti.get_timestamp()), time.clock_gettime_ns(number)
        if before - _SLACK_NS <= stamp <= after + _SLACK_NS:
            epoch_ns = 0 if name == "CLOCK_REALTIME" else time.time_ns() - time.clock_gettime_ns(number)
            return Clock(name, epoch_ns, partial(time.clock_gettime_ns, number), "program")
    return Clock("CUPTI", time.time_ns() - int(cupti.get_timestamp()), lambda: int(cupti.get_timestamp()), "CUPTI")


def _nothing(*_: object) -> None:
    pass


def _reason(cupti: Any, error: BaseException) -> str:  # noqa: ANN401
    """What CUPTI calls the error, else the first line of what it says."""
    try:
        return str(cupti.Result(error.status).name)  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        return next(iter(str(error).splitlines()), type(error).__name__)
