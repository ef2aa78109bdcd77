"""Chrome's trace event JSON, for Perfetto and chrome://tracing, in the categories and arguments of PyTorch's traces.

Format: "Trace Event Format" (chromium.org). Times are microseconds with three decimals, exact to the nanosecond.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from xsp_analyze.export.chrome_tracks import Tracks
from xsp_analyze.export.rows import rows, text
from xsp_analyze.export.target import Exporter
from xsp_analyze.frames.timed_runs import capture_runs, timed_runs
from xsp_model import Kind, Level

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_analyze.export.rows import Row
    from xsp_analyze.export.target import Sink
    from xsp_model import Trace

__all__ = ["CHROME"]

_CATEGORIES: Mapping[str, str] = {
    Kind.STEP: "user_annotation",
    Kind.RANGE: "user_annotation",
    Kind.MODULE: "python_function",
    Kind.OPERATOR: "cpu_op",
    Kind.SYNC: "cuda_sync",
    Kind.KERNEL: "kernel",
    Kind.MEMCPY: "gpu_memcpy",
    Kind.MEMSET: "gpu_memset",
    Kind.GRAPH: "gpu_graph",
}
_DRIVER = re.compile(r"cu[A-Z]")
_HIP = re.compile(r"hip[A-Z]")
_ARGUMENTS: Mapping[str, str] = {
    # argument: the column it shows
    "level": "level",
    "phase": "phase",
    "step": "step",
    "layer": "own_layer",
    "attribution": "attribution",
    "device": "device_id",
    "context": "context_id",
    "stream": "stream_id",
    "correlation": "correlation_id",
    "External id": "external_id",
    "Sequence number": "sequence_number",
    "Fwd thread id": "forward_thread_id",
    "registers per thread": "registers_per_thread",
    "shared memory": "shared_bytes",
    "graph id": "graph_id",
    "graph node id": "graph_node_id",
    "bytes": "bytes",
    "path": "path",
    "allocated bytes": "allocated_bytes",
}
_JSON_ARGUMENTS = {"Input Dims": "input_shapes", "Input type": "input_dtypes", "Concrete Inputs": "concrete_inputs"}
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
    counters = _metrics(trace)
    of_captures = pl.col("run_id").is_in(list(capture_runs(trace)))
    for row in rows(
        trace, ~of_captures, launch=_launches(trace), twin=_twins(trace), own=_own_layers(trace), counted=counters
    ):
        yield from _span_events(row, tracks)
        yield from _launch_flow(row, tracks)
        yield from _backward_flow(row, tracks)
    yield from _counter_events(trace, tracks)


def _span_events(row: Row, tracks: Tracks) -> Iterator[dict[str, Any]]:
    pid, tid = tracks.of(row)
    event: dict[str, Any] = {
        "ph": "X",
        "cat": _category(row),
        "name": _name(row),
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


def _category(row: Row) -> str:
    if row["kind"] != Kind.CALL:
        return _CATEGORIES[row["kind"]]
    if row["level"] == Level.LIBRARY:
        return "library"
    if _HIP.match(row["name"]):
        return "hip_runtime"
    return "cuda_driver" if _DRIVER.match(row["name"]) else "cuda_runtime"


def _name(row: Row) -> str:
    if row["kind"] == Kind.MODULE:
        return f"nn.Module: {row['name']}"
    return str(row["text"] or row["name"])


def _args(row: Row) -> dict[str, Any]:
    args = {key: row[column] for key, column in _ARGUMENTS.items() if row[column] is not None}
    for what in ("grid", "block"):
        sizes = [row[f"{what}_{axis}"] for axis in "xyz"]
        if None not in sizes:
            args[what] = sizes
    for key, column in _JSON_ARGUMENTS.items():
        if row[column] is not None:
            args[key] = msgspec.Raw(row[column].encode()) if _is_json(row[column]) else row[column]
    for metric in row["metrics"] or ():
        args[metric["metric"]] = metric["value"]
    return args


@lru_cache(maxsize=65_536)
def _is_json(written: str) -> bool:
    try:
        msgspec.json.decode(written)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return False
    return True


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


def _launches(trace: Trace) -> pl.DataFrame:
    """For device work with a launch: where and when the launch began."""
    spans = trace.scan("spans")
    launch = spans.select(
        pl.col("span_id").alias("parent_id"),
        pl.col("start_ns").alias("launch_ns"),
        pl.col("process_id").alias("launch_process_id"),
        pl.col("thread_id").alias("launch_thread_id"),
    )
    work = spans.filter(pl.col("level").cast(pl.String) == Level.KERNEL).select("span_id", "parent_id")
    return work.join(launch, on="parent_id").drop("parent_id").collect()


def _twins(trace: Trace) -> pl.DataFrame:
    """For backward operators: where and when the forward twin began."""
    forward = trace.scan("spans").select(
        pl.col("span_id").alias("forward_id"),
        pl.col("start_ns").alias("forward_ns"),
        pl.col("process_id").alias("forward_process_id"),
        pl.col("thread_id").alias("forward_thread_id"),
    )
    twins = trace.scan("operators").select("span_id", "forward_id").drop_nulls()
    return twins.join(forward, on="forward_id").drop("forward_id").collect()


def _own_layers(trace: Trace) -> pl.DataFrame:
    """The name of the layer that each span belongs to."""
    names = trace.scan("layers").select(pl.col("span_id").alias("layer_id"), pl.col("layer_name").alias("own_layer"))
    return trace.scan("spans").select("span_id", "layer_id").join(names, on="layer_id").drop("layer_id").collect()


def _metrics(trace: Trace) -> pl.DataFrame:
    pairs = pl.struct(pl.col("metric").cast(pl.String), "value").alias("metrics")
    return trace.scan("metrics").group_by("span_id", maintain_order=True).agg(pairs).collect()


CHROME = Exporter("chrome", "Chrome trace events, for Perfetto and chrome://tracing", _write)
"""The format, as the registry lists it."""
