"""Chrome's trace event JSON, for Perfetto and chrome://tracing, in the categories and arguments of PyTorch's traces.

Format: "Trace Event Format" (chromium.org). Times are microseconds with three decimals, exact to the nanosecond.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from xsp_analyze.export.chrome_tracks import Tracks
from xsp_analyze.export.described import JSON_ARGUMENTS, arguments, category, launches, metrics, name, own_layers, twins
from xsp_analyze.export.rows import rows, text
from xsp_analyze.export.target import Exporter
from xsp_analyze.trace.timed_runs import capture_runs, timed_runs
from xsp_model import Level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.export.rows import Row
    from xsp_analyze.export.target import Sink
    from xsp_model import Trace

__all__ = ["CHROME"]

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
