"""CUPTI by NVIDIA's package cupti-python: its calls, the version that fits torch, and the dump of its records.

Any call may be refused: what was is noted, and no program sees it. The dump is as XSP reads it (docs/cupti-dump.md).
While records come in they are lines of JSON, so that a program that is stopped leaves all that it recorded.
"""

from __future__ import annotations

import ctypes
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata, util
from itertools import islice
from pathlib import Path
from typing import Any

from xsp_runners.run_folder import RunnerError

__all__ = [
    "FIELDS",
    "Clock",
    "CuptiCalls",
    "DumpWriter",
    "callback_names",
    "field_of",
    "installed_version",
    "record_of",
    "requirement",
    "wait_for_devices",
]

_TIMES = ("start", "end")
_LOCATION = ("deviceId", "contextId", "streamId", "correlationId")
_GRAPH = ("graphId", "graphNodeId")
_SIZES = tuple(f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ")
_SHARED = ("registersPerThread", "staticSharedMemory", "dynamicSharedMemory")
_COPY = (*_TIMES, *_LOCATION, "bytes", "copyKind", "srcKind", "dstKind", *_GRAPH)
_CALL = (*_TIMES, "processId", "threadId", "correlationId", "cbid")
FIELDS: Mapping[str, tuple[str, ...]] = {
    "CONCURRENT_KERNEL": (*_TIMES, *_LOCATION, "name", *_SIZES, *_SHARED, *_GRAPH),
    "MEMCPY": _COPY,
    "MEMCPY2": _COPY,
    "MEMSET": (*_TIMES, *_LOCATION, "bytes", "memoryKind", *_GRAPH),
    "GRAPH_TRACE": (*_TIMES, *_LOCATION, "graphId"),
    "RUNTIME": _CALL,
    "DRIVER": _CALL,
    "SYNCHRONIZATION": (*_TIMES, "contextId", "streamId", "correlationId", "type"),
    "EXTERNAL_CORRELATION": ("externalKind", "externalId", "correlationId"),
    "OVERHEAD": (*_TIMES, "overheadKind"),
    "DEVICE": (
        *("id", "name", "computeCapabilityMajor", "computeCapabilityMinor", "numMultiprocessors"),
        *("coreClockRate", "globalMemoryBandwidth", "globalMemorySize"),
    ),
}
"""What is written of a record of each kind, by the names of CUPTI's structures."""
_OPERATOR = (*_TIMES, "processId", "threadId", "name", "level", "externalKind", "externalId")
_TEXTS = frozenset({"kind", "name", "level"})
_KEY = b"xsp cupti dump"
_CAPITAL = re.compile(r"(?<!^)([A-Z])")
_ROWS_AT_ONCE = 50_000
_LINES_AT_ONCE = 1_000
_WAITING_BYTES = 1 << 20  # more than so many lines take


def field_of(name: str) -> str:
    """What cupti-python calls the field: `correlationId` is `correlation_id` there."""
    return _CAPITAL.sub(r"_\1", name).lower()


_ATTRIBUTES = {kind: [(name, field_of(name)) for name in names] for kind, names in FIELDS.items()}


def record_of(kind: str, activity: object) -> dict[str, Any]:
    """The record of an activity object of cupti-python; fields that its version does not have are left out."""
    record: dict[str, Any] = {"kind": kind}
    for name, attribute in _ATTRIBUTES[kind]:
        value = getattr(activity, attribute, None)
        if value is not None:
            record[name] = value if isinstance(value, str) else int(value)
    return record


class DumpWriter:
    """A dump under way; RunnerError where it cannot be written."""

    def __init__(self, path: Path, header: Mapping[str, object]) -> None:
        """Begins the dump `path` (`.jsonl`)."""
        self.path = path
        self.count = 0
        self._header = {"format": _KEY.decode(), "version": 1, **header}
        self._waiting: list[bytes] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("wb", buffering=_WAITING_BYTES)
        except OSError as error:
            raise RunnerError(f"the run cannot be written to {path.parent}: {error.strerror}") from error
        self._put(self._header)
        self.flush()

    def add(self, record: Mapping[str, object]) -> None:
        """Appends a record."""
        self._put(record)
        self.count += 1

    def _put(self, line: Mapping[str, object]) -> None:
        self._waiting.append(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        if len(self._waiting) >= _LINES_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Writes what waits, whole lines at once, so that a process that is killed leaves no half of one."""
        self._file.write(b"".join(self._waiting))
        self._file.flush()
        self._waiting.clear()

    def give_up(self) -> None:
        """Leaves the dump as it is."""
        with suppress(OSError):
            self._file.close()

    def close(self, *, dropped: int) -> Path:
        """Ends the dump; the file that holds it in the end, which is Parquet where pyarrow is installed."""
        try:
            self._put({"kind": "END", "records": self.count, "dropped": dropped})
            self.flush()
            self._file.close()
            return self._as_parquet({**self._header, "dropped": dropped})
        except OSError as error:
            raise RunnerError(f"the run cannot be written to {self.path.parent}: {error.strerror}") from error

    def _as_parquet(self, header: Mapping[str, object]) -> Path:
        try:
            import pyarrow as pa  # noqa: PLC0415 (installed on some machines only)
            import pyarrow.parquet as pq  # noqa: PLC0415
        except ImportError:
            return self.path
        names = dict.fromkeys(name for fields in (("kind",), *FIELDS.values(), _OPERATOR) for name in fields)
        schema = pa.schema([(name, pa.string() if name in _TEXTS else pa.int64()) for name in names])
        schema = schema.with_metadata({_KEY: json.dumps(header).encode()})
        path, unfinished = self.path.with_suffix(".parquet"), self.path.with_suffix(".parquet.part")
        try:
            with pq.ParquetWriter(unfinished, schema, compression="zstd") as file:
                for rows in self._read():
                    file.write_table(pa.Table.from_pylist(rows, schema=schema))
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
        self.path.unlink()
        return path

    def _read(self) -> Iterator[list[dict[str, Any]]]:
        with self.path.open(encoding="utf-8") as lines:
            next(lines)
            while rows := [json.loads(line) for line in islice(lines, _ROWS_AT_ONCE)]:
                yield [row for row in rows if row["kind"] != "END"]


def callback_names(name_of: Callable[[int, int], object], domain: int) -> Callable[[int], str | None]:
    """Names of a domain's callbacks by their numbers, each asked for once; None for one that CUPTI cannot name."""
    names: dict[int, str | None] = {}

    def name(cbid: int) -> str | None:
        if cbid not in names:
            names[cbid] = None
            with suppress(Exception):  # a number that this CUPTI does not know is no reason to lose the record
                names[cbid] = str(name_of(domain, cbid))
        return names[cbid]

    return name


_RELEASES = ((12, 6), (12, 8), (13, 0), (13, 2), (13, 3), (13, 4))  # of cupti-python until 13.4
_CUDA = re.compile(r"(?m)^cuda\b[^=\n]*=\s*['\"](\d+)\.(\d+)")


def torch_cuda() -> tuple[int, int] | None:
    """The CUDA that the torch at hand was built for, found without importing it; None of a CPU build or without."""
    try:
        spec = util.find_spec("torch")
        text = Path(spec.origin or "").with_name("version.py").read_text(encoding="utf-8") if spec else ""
    except (OSError, ValueError):
        return None
    match = _CUDA.search(text)
    return (int(match[1]), int(match[2])) if match else None


def installed_version() -> str | None:
    """The version of cupti-python here; None where it is not installed."""
    try:
        return metadata.version("cupti-python")
    except metadata.PackageNotFoundError:
        return None


def requirement(cuda: tuple[int, int] | None) -> str:
    """What to install: the last release that is not newer than this CUDA, of the same major version."""
    fitting = [each for each in _RELEASES if cuda and each[0] == cuda[0] and each <= cuda]
    if cuda is None or not fitting:
        return "cupti-python"
    major, minor = cuda if cuda > _RELEASES[-1] else fitting[-1]
    return f"'cupti-python=={major}.{minor}.*'"


def remedy() -> str:
    """What to install, and why that; empty where the version that is here is the one."""
    cuda, version = torch_cuda(), installed_version()
    needed = requirement(cuda)
    release = needed.partition("==")[2].removesuffix("*'")
    if version is not None and version.startswith(release):
        return ""
    of_torch = f", as torch here is built for CUDA {cuda[0]}.{cuda[1]}" if cuda else ""
    here = f" (here is {version})" if version and of_torch else ""
    return f"pip install {needed}{of_torch}{here}"


_LIBRARY = "libcuda.so.1"


def wait_for_devices() -> None:
    """Returns when every GPU with a context of this process is done; at once where there is no driver or no context."""
    try:
        driver = ctypes.CDLL(_LIBRARY)
    except OSError:
        return
    count = ctypes.c_int(0)
    if driver.cuDeviceGetCount(ctypes.byref(count)):  # not initialised: nothing ran
        return
    for number in range(count.value):
        _wait_for(driver, number)


def _wait_for(driver: ctypes.CDLL, number: int) -> None:
    """Waits in the device's primary context, which is the one that frameworks use; nothing where it has none."""
    device, flags, active = ctypes.c_int(0), ctypes.c_uint(0), ctypes.c_int(0)
    if driver.cuDeviceGet(ctypes.byref(device), number):
        return
    state = driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    context = ctypes.c_void_p()
    if state or not active.value or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device):
        return
    try:
        if not driver.cuCtxPushCurrent_v2(context):
            driver.cuCtxSynchronize()
            driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
    finally:
        driver.cuDevicePrimaryCtxRelease_v2(device)


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
    def module(self) -> Any:
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


def _clock_of(cupti: Any) -> Clock:
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


def _reason(cupti: Any, error: BaseException) -> str:
    """What CUPTI calls the error, else the first line of what it says."""
    try:
        return str(cupti.Result(error.status).name)  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        return next(iter(str(error).splitlines()), type(error).__name__)
