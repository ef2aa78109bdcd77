"""Chrome's trace event JSON, for Perfetto and chrome://tracing, in the categories and arguments of PyTorch's traces."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from xsp_analyze.export.part import (
    JSON_ARGUMENTS,
    arguments,
    category,
    launches,
    metrics,
    name,
    own_layers,
    rows,
    text,
    twins,
)
from xsp_analyze.export.target import Exporter
from xsp_analyze.trace.timed_runs import capture_runs, timed_runs, without_captures
from xsp_model import Kind, Level

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_analyze.export.part import Row
    from xsp_analyze.export.target import Sink
    from xsp_model import Trace

__all__ = ["CHROME", "Tracks"]

# The tracks of a Chrome trace: a process for each process and each device, a thread for each thread and stream.

_NOBODY = 0  # the thread or stream of what has none
_DEVICES_AFTER = 1_000_000  # sort index: devices below all processes
_Key = tuple[int, int | None]  # run, process or device


class Tracks:
    """Process and device numbers where they are unlike each other over all runs, else numbers above them."""

    def __init__(self, trace: Trace) -> None:
        spans = without_captures(trace, trace.scan("spans")).with_columns(_on_device().alias("on_device"))
        keys = ("run_id", "process_id", "device_id", "thread_id", "stream_id", "on_device")
        lanes = spans.select(keys).unique().sort(keys, nulls_last=True).collect()
        runs = timed_runs(trace).select("run_id", "rank").rows()
        self._rank = {run: rank for run, rank in runs if rank is not None} if len(runs) > 1 else {}
        self._several = len(runs) > 1
        host = lanes.filter(~pl.col("on_device"))
        device = lanes.filter(pl.col("on_device"))
        moments = trace.scan("counters").select("run_id", "device_id").unique().sort("run_id", "device_id").collect()
        on_device = moments.filter(pl.col("device_id").is_not_null())
        self._pids: dict[tuple[str, int, int | None], int] = {}
        processes = host.select("run_id", "process_id").unique(maintain_order=True).rows()
        sampled = moments.filter(pl.col("device_id").is_null())["run_id"].to_list()
        processes += [(run, None) for run in sampled if run not in {with_spans for with_spans, _ in processes}]
        self._number("process", processes)
        self._number("device", [*device.select("run_id", "device_id").rows(), *on_device.rows()])
        self._device_pids = frozenset(pid for (kind, _, _), pid in self._pids.items() if kind == "device")
        self._threads = host.select("run_id", "process_id", "thread_id").unique(maintain_order=True).rows()
        self._streams = device.select("run_id", "device_id", "stream_id").unique(maintain_order=True).rows()
        self._device_names = {
            (run, number): name
            for run, number, name in trace.frame("devices").select("run_id", "device_id", "name").rows()
        }

    def _number(self, kind: str, keys: list[_Key]) -> None:
        for run, device in dict.fromkeys(keys):
            taken = set(self._pids.values())
            free = device is not None and device not in taken
            number = device if free and device is not None else max(taken, default=0) + 1
            self._pids[kind, run, device] = number

    @property
    def device_pids(self) -> frozenset[int]:
        """The pids that stand for devices."""
        return self._device_pids

    def of(self, row: Row) -> tuple[int, int]:
        """The pid and tid of a span."""
        if row["level"] == Level.KERNEL or row["kind"] == Kind.SYNC:
            return self._pids["device", row["run_id"], row["device_id"]], _or_nobody(row["stream_id"])
        return self.host(row)

    def host(self, row: Mapping[str, Any]) -> tuple[int, int]:
        """The pid and tid of a thread."""
        return self._pids["process", row["run_id"], row["process_id"]], _or_nobody(row["thread_id"])

    def of_counter(self, row: Row) -> tuple[int, int]:
        """The pid and tid of a sample; host samples go to the run's first process."""
        if row["device_id"] is not None:
            return self._pids["device", row["run_id"], row["device_id"]], _NOBODY
        own = [pid for (kind, run, _), pid in self._pids.items() if kind == "process" and run == row["run_id"]]
        return (own[0] if own else _NOBODY), _NOBODY

    def names(self) -> Iterator[dict[str, Any]]:
        """The metadata events that name and order the tracks."""
        for position, ((kind, run, number), pid) in enumerate(self._pids.items()):
            yield _metadata("process_name", pid, _NOBODY, name=self._process_name(kind, run, number))
            order = position + (_DEVICES_AFTER if kind == "device" else 0)
            yield _metadata("process_sort_index", pid, _NOBODY, sort_index=order)
        for run, process, thread in self._threads:
            pid = self._pids["process", run, process]
            yield _metadata("thread_name", pid, _or_nobody(thread), name=f"thread {_number_or_unknown(thread)}")
        for run, device, stream in self._streams:
            pid = self._pids["device", run, device]
            yield _metadata("thread_name", pid, _or_nobody(stream), name=f"stream {_number_or_unknown(stream)}")

    def _process_name(self, kind: str, run: int, number: int | None) -> str:
        called = self._device_names.get((run, number)) if kind == "device" else None
        name = f"{kind} {_number_or_unknown(number)}{f' ({called})' if called else ''}"
        if not self._several:
            return name
        return f"rank {self._rank[run]}: {name}" if run in self._rank else f"run {run}: {name}"


def _on_device() -> pl.Expr:
    return (pl.col("level").cast(pl.String) == Level.KERNEL) | (pl.col("kind").cast(pl.String) == Kind.SYNC)


def _or_nobody(number: int | None) -> int:
    return _NOBODY if number is None else number


def _number_or_unknown(number: int | None) -> str:
    return "unknown" if number is None else str(number)


def _metadata(event: str, pid: int, tid: int, **args: object) -> dict[str, Any]:
    return {"ph": "M", "name": event, "pid": pid, "tid": tid, "ts": 0, "args": args}


# Format: "Trace Event Format" (chromium.org). Times are microseconds with three decimals, exact to the nanosecond.

_NS_PER_US = 1000
_START_END = "StartEnd"


def _write(trace: Trace, file: Sink) -> None:
    tracks = Tracks(trace)
    file.write(_head(trace))
    first = True
    for event in _events(trace, tracks):
        file.write((b"" if first else b",\n") + msgspec.json.encode(event))
        first = False
    file.write(b"\n]}\n")


def _head(trace: Trace) -> bytes:
    runs = timed_runs(trace).to_dicts()
    head: dict[str, object] = {"schemaVersion": 1, "displayTimeUnit": "ns", "deviceProperties": _devices(trace)}
    if runs and runs[0]["epoch_ns"] is not None:
        head["baseTimeNanoseconds"] = runs[0]["epoch_ns"]
    if len(runs) == 1 and runs[0]["rank"] is not None:
        head["distributedInfo"] = {"rank": runs[0]["rank"], "world_size": runs[0]["world_size"]}
    return msgspec.json.encode(head)[:-1] + b',"traceEvents":[\n'


def _devices(trace: Trace) -> list[dict[str, object]]:
    names = {"id": "device_id", "name": "name", "totalGlobalMem": "memory_bytes", "numSms": "multiprocessor_count"}
    devices = trace.scan("devices").unique("device_id", keep="first", maintain_order=True).collect()
    return [{key: row[column] for key, column in names.items()} for row in devices.iter_rows(named=True)]


def _microseconds(time_ns: int) -> msgspec.Raw:
    """The exact decimal; a float would lose nanoseconds of long traces."""
    microseconds, rest = divmod(abs(time_ns), _NS_PER_US)
    return msgspec.Raw(f"{'-' if time_ns < 0 else ''}{microseconds}.{rest:03d}".encode())


def _events(trace: Trace, tracks: Tracks) -> Iterator[dict[str, Any]]:
    yield from tracks.names()
    counters = metrics(trace)
    of_captures = pl.col("run_id").is_in(list(capture_runs(trace)))
    for row in rows(
        trace, ~of_captures, launch=launches(trace), twin=twins(trace), own=own_layers(trace), counted=counters
    ):
        yield from _span_events(row, tracks)
        yield from _launch_flow(row, tracks)
        yield from _backward_flow(row, tracks)
    yield from _counter_events(trace, tracks)


def _span_events(row: Row, tracks: Tracks) -> Iterator[dict[str, Any]]:
    pid, tid = tracks.of(row)
    event: dict[str, Any] = {
        "ph": "X",
        "cat": category(row),
        "name": name(row),
        "pid": pid,
        "tid": tid,
        "ts": _microseconds(row["start_ns"]),
        "args": _args(row),
    }
    if row["duration_ns"] is None:
        yield event | {"ph": "B"}  # never closed
    elif row["end_thread_id"] is not None or row["style"] == _START_END:
        # An arrow of time of its own: such a range need not nest in what its thread runs.
        end = row["start_ns"] + row["duration_ns"]
        yield event | {"ph": "b", "id": row["span_id"]}
        yield event | {"ph": "e", "id": row["span_id"], "ts": _microseconds(end), "args": {}}
    else:
        yield event | {"dur": _microseconds(row["duration_ns"])}


def _args(row: Row) -> dict[str, Any]:
    return {key: _raw(value) if key in JSON_ARGUMENTS else value for key, value in arguments(row)}


@lru_cache(maxsize=65_536)
def _raw(written: str) -> object:
    """JSON as it is written; what is none is a text."""
    try:
        msgspec.json.decode(written)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return written
    return msgspec.Raw(written.encode())


def _launch_flow(row: Row, tracks: Tracks) -> Iterator[dict[str, Any]]:
    """The arrow from a launch to its work."""
    if row["level"] != Level.KERNEL or row["launch_ns"] is None:
        return
    launch = {"run_id": row["run_id"], "process_id": row["launch_process_id"], "thread_id": row["launch_thread_id"]}
    yield from _flow("ac2g", row["span_id"], (tracks.host(launch), row["launch_ns"]), (tracks.of(row), row["start_ns"]))


def _backward_flow(row: Row, tracks: Tracks) -> Iterator[dict[str, Any]]:
    """The arrow from a forward operator to its backward one."""
    if row["forward_ns"] is None:
        return
    forward = {"run_id": row["run_id"], "process_id": row["forward_process_id"], "thread_id": row["forward_thread_id"]}
    tail = (tracks.host(forward), row["forward_ns"])
    yield from _flow("fwdbwd", row["span_id"], tail, (tracks.of(row), row["start_ns"]))


def _flow(
    name: str, identity: int, tail: tuple[tuple[int, int], int], head: tuple[tuple[int, int], int]
) -> Iterator[dict[str, Any]]:
    for ph, ((pid, tid), time_ns), more in (("s", tail, {}), ("f", head, {"bp": "e"})):
        event = {"ph": ph, "id": identity, "cat": name, "name": name, "pid": pid, "tid": tid}
        yield event | {"ts": _microseconds(time_ns), **more}


def _counter_events(trace: Trace, tracks: Tracks) -> Iterator[dict[str, Any]]:
    for row in text(trace.scan("counters")).collect().iter_rows(named=True):
        pid, tid = tracks.of_counter(row)
        name = row["counter"] if row["device_id"] is not None else f"{row['counter']} (host)"
        event = {"ph": "C", "name": name, "pid": pid, "tid": tid, "ts": _microseconds(row["time_ns"])}
        yield event | {"args": {row["unit"]: row["value"]}}


CHROME = Exporter("chrome", "Chrome trace events, for Perfetto and chrome://tracing", _write)
"""The format, as the registry lists it."""
