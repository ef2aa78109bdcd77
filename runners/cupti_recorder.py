"""Records of CUPTI about this process, through NVIDIA's package cupti-python: a context manager that leaves a dump.

Times are Unix time, as those of torch.profiler, since CUPTI asks this program for them.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp_runners.cupti_dump import FIELDS, DumpWriter, callback_names, record_of
from xsp_runners.run_folder import RunnerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["CLOCKS", "GRAPHS", "NAME", "Recorder", "record"]

NAME = "cupti.jsonl"
"""The file of a recording under way; `.parquet` in the end where pyarrow is installed."""

CLOCKS = ("realtime", "cupti")
"""Who tells the time: this program (Unix time), or CUPTI itself, with an offset that is measured once."""

GRAPHS = ("node", "graph")
"""What of a CUDA graph is recorded: each of its kernels, or the launch as a whole at the least overhead."""

_BUFFER_BYTES = 8 << 20
_TAKEN = ("ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", "ERROR_MAX_LIMIT_REACHED")


def _import_cupti() -> Any:  # noqa: ANN401 (the package is not installed everywhere, so its types are not known here)
    """The module cupti.cupti; RunnerError where it is not installed or finds no driver."""
    try:
        from cupti import cupti  # noqa: PLC0415 (installed on machines with a GPU only)
    except ImportError as error:
        raise RunnerError("cupti-python is not installed: pip install cupti-python") from error
    try:
        cupti.get_timestamp()
    except RuntimeError as error:
        raise RunnerError(f"CUPTI cannot be used here: {_first_line(error)}") from error
    except cupti.cuptiError as error:
        raise RunnerError(f"CUPTI cannot be used here: {_name(cupti, error)}") from error
    return cupti


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _name(cupti: Any, error: Any) -> str:  # noqa: ANN401
    """What CUPTI calls the error."""
    try:
        return str(cupti.Result(error.status).name)
    except (AttributeError, ValueError):
        return _first_line(error)


@dataclass
class Recorder:
    """A recording under way; `range` marks steps and layers in it."""

    _cupti: Any
    _writer: DumpWriter
    _now: Callable[[], int]
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _open: threading.local = field(default_factory=threading.local)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def range(self, name: str, level: str = "layer") -> Iterator[None]:
        """The work inside is of this `layer`, step (`model`), `operator` or `library` call."""
        self.push(name, level)
        try:
            yield
        finally:
            self.pop()

    def push(self, name: str, level: str = "layer") -> None:
        """Opens a range on this thread."""
        number = next(self._ids)
        kind = int(self._cupti.ExternalCorrelationKind.CUSTOM0)
        self._cupti.activity_push_external_correlation_id(kind, number)
        self._stack().append((name, level, number, self._now()))

    def pop(self) -> None:
        """Closes the range that this thread opened last."""
        end = self._now()
        name, level, number, start = self._stack().pop()
        kind = int(self._cupti.ExternalCorrelationKind.CUSTOM0)
        self._cupti.activity_pop_external_correlation_id(kind)
        operator = {"kind": "FRAMEWORK_OPERATOR", "name": name, "level": level, "start": start, "end": end}
        thread = {"processId": os.getpid(), "threadId": threading.get_native_id()}
        self._add({**operator, **thread, "externalKind": kind, "externalId": number})

    def _stack(self) -> list[tuple[str, str, int, int]]:
        if not hasattr(self._open, "stack"):
            self._open.stack = []
        stack: list[tuple[str, str, int, int]] = self._open.stack
        return stack

    def _add(self, record: dict[str, Any]) -> None:
        with self._lock:  # CUPTI hands over full buffers on a thread of its own
            self._writer.add(record)

    def _written(self) -> None:
        with self._lock:
            self._writer.flush()


@contextmanager
def record(out: str | Path, *, graph: str = "node", clock: str = "realtime") -> Iterator[Recorder]:
    """Records all that this process does on the GPU while open, into the folder `out`.

    RunnerError where cupti-python, a driver or the right to subscribe is missing; nothing is written then.
    """
    cupti = _import_cupti()
    subscriber = _subscribed(cupti)
    now = time.time_ns if clock == "realtime" else cupti.get_timestamp
    header: dict[str, object] = {"pid": os.getpid(), "tool": "cupti-python", "clock": _CLOCK_NAMES[clock]}
    header["epoch_ns"] = 0 if clock == "realtime" else time.time_ns() - cupti.get_timestamp()
    try:
        path = Path(out) / NAME
        path.with_suffix(".parquet").unlink(missing_ok=True)  # so that an earlier run's is not taken for this one's
        writer = DumpWriter(path, header)
        recorder = Recorder(cupti, writer, now)
        enabled = _started(cupti, recorder, graph=graph, clock=clock)
        try:
            yield recorder
        finally:
            _stopped(cupti, enabled)
            recorder._writer.close(dropped=_dropped(cupti))  # noqa: SLF001 (its own recorder)
    finally:
        cupti.unsubscribe(subscriber)


_CLOCK_NAMES = {"realtime": "CLOCK_REALTIME", "cupti": "CUPTI"}


def _subscribed(cupti: Any) -> Any:  # noqa: ANN401
    """Keeps the process's one place for a subscriber, so that nobody else turns our records off."""
    try:
        return cupti.subscribe(_nothing, None)
    except cupti.cuptiError as error:
        name = _name(cupti, error)
        if name in _TAKEN:
            raise RunnerError(
                "another user of CUPTI is in this process, which can have one only: run without nsys and ncu around it "
                "and without torch.profiler on the GPU in it"
            ) from error
        raise RunnerError(f"CUPTI cannot be used here: {name}") from error


def _nothing(*_: object) -> None:
    pass


def _started(cupti: Any, recorder: Recorder, *, graph: str, clock: str) -> list[int]:  # noqa: ANN401
    """Turns on records of all kinds wanted; those that this device or driver does not have are left out, and said."""
    cupti.set_thread_id_type(int(cupti.ActivityThreadIdType.SYSTEM))  # as the operating system and Python have them
    if clock == "realtime":
        cupti.activity_register_timestamp_callback(time.time_ns)
    cupti.activity_register_callbacks(lambda: (_BUFFER_BYTES, 0), _completed(cupti, recorder))
    enabled, missing = [], []
    for name in FIELDS:
        if name == "GRAPH_TRACE" and graph == "node":
            continue  # with it, the kernels of a graph are not recorded
        try:
            kind = int(cupti.ActivityKind[name])
            cupti.activity_enable(kind)
            enabled.append(kind)
        except (KeyError, cupti.cuptiError):
            missing.append(name)
    if missing:
        print(f"cupti: no records of {', '.join(missing)} here", file=sys.stderr)
    return enabled


def _completed(cupti: Any, recorder: Recorder) -> Callable[[Sequence[Any]], None]:  # noqa: ANN401
    """What CUPTI calls with the records of a full buffer; they are its own again afterwards, so they are copied."""
    kinds = {int(cupti.ActivityKind[name]): name for name in FIELDS if name in cupti.ActivityKind.__members__}
    domains = {"RUNTIME": cupti.CallbackDomain.RUNTIME_API, "DRIVER": cupti.CallbackDomain.DRIVER_API}
    names = {kind: callback_names(cupti.get_callback_name, int(domain)) for kind, domain in domains.items()}

    def completed(activities: Sequence[Any]) -> None:
        for activity in activities:
            kind = kinds.get(int(activity.kind))
            if kind is None:
                continue
            record = record_of(kind, activity)
            if kind in names and (name := names[kind](record["cbid"])):
                record["name"] = name
            recorder._add(record)  # noqa: SLF001 (its own recorder)
        recorder._written()  # noqa: SLF001

    return completed


def _stopped(cupti: Any, enabled: Sequence[int]) -> None:  # noqa: ANN401
    try:
        for kind in enabled:
            cupti.activity_disable(kind)
        cupti.activity_flush_all(1)  # what is not full, too
    except cupti.cuptiError as error:
        raise RunnerError(f"CUPTI could not hand over its last records: {_name(cupti, error)}") from error


def _dropped(cupti: Any) -> int:  # noqa: ANN401
    count = ctypes.c_size_t(0)
    try:
        cupti.activity_get_num_dropped_records(0, 0, ctypes.addressof(count))
    except cupti.cuptiError:
        return 0
    return count.value
