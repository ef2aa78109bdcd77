"""Jaeger JSON: for Jaeger's UI, with the tags of MLModelScope, and exact enough to be read back.

Jaeger counts microseconds; the tags `start_ns` and `duration_ns` hold the time itself.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from xsp_analyze.export.part import DETAILS, rows
from xsp_analyze.export.target import Exporter
from xsp_model import Kind, Level, Phase
from xsp_model.schema import TABLES
from xsp_model.vocabulary import LEVELS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from xsp_analyze.export.part import Row
    from xsp_analyze.export.target import Sink
    from xsp_model import Trace

__all__ = [
    "EXPORT_VERSION",
    "JAEGER",
    "OTLP",
    "RUN_TAGS",
    "launched_kernels",
    "log_fields",
    "logged_metrics",
    "run_devices",
    "span_identity",
    "span_tags",
    "trace_identity",
]

_NS_PER_US = 1000
EXPORT_VERSION = 1
_TRACE_LEVELS: Mapping[str, str] = {
    Level.APPLICATION: "APPLICATION_TRACE",
    Level.MODEL: "MODEL_TRACE",
    Level.LAYER: "FRAMEWORK_TRACE",
    Level.OPERATOR: "FRAMEWORK_TRACE",
    Level.LIBRARY: "ML_LIBRARY_TRACE",
    Level.RUNTIME: "SYSTEM_LIBRARY_TRACE",
    Level.KERNEL: "SYSTEM_LIBRARY_TRACE",
}
_DEEPEST = {"M": "MODEL_TRACE", "ML": "FRAMEWORK_TRACE", "MLG": "SYSTEM_LIBRARY_TRACE"}
_PROCESS_OF = {str(level): f"p{n}" for n, level in enumerate(LEVELS, start=1)}
_SPAN_TAGS: Sequence[str] = (
    *("process_id", "thread_id", "device_id", "context_id", "stream_id", "correlation_id"),
    *("step", "phase", "attribution"),
)
_REFERENCES = ("forward_id", "captured_in_id")
_PROFILE_TAGS = ("role", "serialised")
_SOURCE_TAGS = ("profiler", "framework", "model", "batch_size", "rank", "world_size", "epoch_ns", "clock_origin_ns")
RUN_TAGS = (*_SOURCE_TAGS, *_PROFILE_TAGS)
_PEAKS = {"dram": "dram_byte_per_s", "fp32": "fp32_flop_per_s"}
_OF_FILE = "the profiler's file"
_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def _write(trace: Trace, file: Sink) -> None:
    file.write(b'{"data":[')
    metrics, kernels = logged_metrics(trace), launched_kernels(trace)
    with_spans = trace.frame("runs").join(trace.scan("spans").select("run_id").collect(), on="run_id", how="semi")
    for number, run_row in enumerate(with_spans.iter_rows(named=True)):
        run = {**run_row, "trace_id": trace_identity(run_row)}
        file.write((b"," if number else b"") + _head(trace, run))
        for index, row in enumerate(rows(trace, run_id=run["run_id"], launched=kernels, logs=metrics)):
            file.write((b",\n" if index else b"\n") + msgspec.json.encode(_span(row, run)))
        file.write(b'],"warnings":null}')
    file.write(b'],"total":0,"limit":0,"offset":0,"errors":null}\n')


def _head(trace: Trace, run: Row) -> bytes:
    tags = [
        _tag("xsp.export_version", EXPORT_VERSION),
        *(_tag(key, run[key]) for key in RUN_TAGS if run[key] is not None),
    ]
    tags.append(_tag("devices", msgspec.json.encode(run_devices(trace, run["run_id"])).decode()))
    processes = {name: {"serviceName": level, "tags": tags} for level, name in _PROCESS_OF.items()}
    identity, written = (msgspec.json.encode(value).decode() for value in (run["trace_id"], processes))
    return f'{{"traceID":{identity},"processes":{written},"spans":['.encode()


def run_devices(trace: Trace, run_id: int) -> list[Row]:
    """The run's devices; peaks only where its own files gave them: others are looked up again by whoever reads."""
    devices = trace.scan("devices").filter(pl.col("run_id") == run_id).drop("run_id").collect().to_dicts()
    recorded = trace.frame("peaks").filter(pl.col("source") == _OF_FILE) if "peaks" in TABLES else pl.DataFrame()
    of_file = set(recorded.select("device_id", "quantity").rows()) if recorded.height else set()
    for device in devices:
        for quantity, column in _PEAKS.items():
            if (device["device_id"], quantity) not in of_file:
                device[column] = None
        if all(device[column] is None for column in _PEAKS.values()):
            device["peak_source"] = None
    return devices


def trace_identity(run: Row) -> str:
    """16 hexadecimal digits, the same for the same run each time."""
    identity = f"{run['source_sha256']} {run['run_id']} {run['clock_origin_ns']}"
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def span_identity(number: int) -> str:
    """16 hexadecimal digits, none of which are all 0."""
    return f"{number + 1:016x}"


def _tag(key: str, value: object) -> dict[str, object]:
    kinds = {bool: "bool", int: "int64", float: "float64"}
    if isinstance(value, float) and not math.isfinite(value):
        value = _NOT_FINITE.get(value, "NaN")
    return {"key": key, "type": kinds.get(type(value), "string"), "value": value}


def _span(row: Row, run: Row) -> dict[str, Any]:
    identity = run["trace_id"]
    start = (run["epoch_ns"] or 0) + row["start_ns"]
    parent = row["parent_id"]
    references = (
        [] if parent is None else [{"refType": "CHILD_OF", "traceID": identity, "spanID": span_identity(parent)}]
    )
    microseconds = start // _NS_PER_US
    return {
        "traceID": identity,
        "spanID": span_identity(row["span_id"]),
        "operationName": row["name"],
        "references": references,
        "startTime": microseconds,
        "duration": (row["duration_ns"] or 0) // _NS_PER_US,
        "tags": [_tag(key, value) for key, value in span_tags(row, run) if value is not None],
        "logs": [{"timestamp": microseconds, "fields": fields} for fields in log_fields(row)],
        "processID": _PROCESS_OF[row["level"]],
        "warnings": None,
    }


def span_tags(row: Row, run: Row) -> Iterator[tuple[str, object]]:
    """What is known of the span, as MLModelScope and our own reader look for it; None where it is not."""
    yield "trace_level", _TRACE_LEVELS[row["level"]]
    yield "level", row["level"]
    yield "kind", row["kind"]
    yield "start_ns", row["start_ns"]
    yield "duration_ns", row["duration_ns"]
    for key in _SPAN_TAGS:
        yield key, row[key]
    there = [name for name in DETAILS if row[f"in_{name}"]]
    yield "xsp.details", " ".join(there) or None
    for name in there:
        for column in TABLES[name].columns:
            if column.name != "span_id" and column.name not in _REFERENCES:
                yield column.name, row[column.name]
    for key in _REFERENCES:
        yield key.replace("_id", "_span"), None if row[key] is None else span_identity(row[key])
    yield "backward", _starts_backward(row) or None
    yield from _as_mlmodelscope(row, run)


def _starts_backward(row: Row) -> bool:
    """Whether reading the span back needs to be told that it is a backward operator."""
    in_backward = bool(row["parent_phase"] == Phase.BACKWARD)
    return row["level"] == Level.OPERATOR and row["phase"] == Phase.BACKWARD and not in_backward


def _as_mlmodelscope(row: Row, run: Row) -> Iterator[tuple[str, object]]:
    """The tags that MLModelScope's own analysis looks for."""
    if row["kind"] == Kind.STEP:
        yield "evaluation_trace_level", _DEEPEST.get(run["level_captured"])
        yield "batch_size", run["batch_size"]
    if row["in_layers"]:
        yield "layer_sequence_index", row["layer_index"]
        yield "op_name", row["layer_type"]
        yield "shape", row["shapes"]
    if row["kind"] == Kind.KERNEL:
        yield "kernel_name", row["name"]
        yield "grid_dim", _sizes(row, "grid")
        yield "block_dim", _sizes(row, "block")
    if row["kernel_launched"] is not None:
        yield "function_name", row["name"]
        yield "kernel", row["kernel_launched"]


def _sizes(row: Row, what: str) -> str | None:
    sizes = [row[f"{what}_{axis}"] for axis in "xyz"]
    return None if None in sizes else f"[{' '.join(map(str, sizes))}]"


def log_fields(row: Row) -> Iterator[list[dict[str, object]]]:
    """The fields of each metric of the span, and of the kernels that it launched."""
    for one in row["logged"] or ():
        yield [
            _tag(one["metric"], one["value"]),
            _tag("unit", one["unit"]),
            _tag("source", one["source"]),
            _tag("span", span_identity(one["owner"])),
        ]


def logged_metrics(trace: Trace) -> pl.DataFrame:
    """Each span's log: its own metrics, and those of the kernels it launched, where MLModelScope put them."""
    spans = trace.scan("spans").select("span_id", "parent_id", "kind")
    is_kernel = pl.col("kind").cast(pl.String) == Kind.KERNEL
    at = pl.when(is_kernel).then(pl.coalesce("parent_id", "span_id")).otherwise(pl.col("span_id"))
    labels = (pl.col(c).cast(pl.String) for c in ("metric", "unit", "source"))
    return (
        trace.scan("metrics")
        .join(spans, on="span_id", how="left", maintain_order="left")
        .select(at.alias("at"), pl.struct(pl.col("span_id").alias("owner"), "value", *labels).alias("logged"))
        .group_by(pl.col("at").alias("span_id"), maintain_order=True)
        .agg("logged")
        .collect()
    )


def launched_kernels(trace: Trace) -> pl.DataFrame:
    """For each span the first kernel that it launched, and the phase of its parent."""
    spans = trace.scan("spans")
    launched = (
        spans.filter(pl.col("kind").cast(pl.String) == Kind.KERNEL, pl.col("parent_id").is_not_null())
        .group_by(pl.col("parent_id").alias("span_id"))
        .agg(pl.col("name").cast(pl.String).first().alias("kernel_launched"))
    )
    above = spans.select(pl.col("span_id").alias("parent_id"), pl.col("phase").cast(pl.String).alias("parent_phase"))
    return (
        spans.select("span_id", "parent_id")
        .join(above, on="parent_id", how="left")
        .join(launched, on="span_id", how="left")
        .drop("parent_id")
        .collect()
    )


JAEGER = Exporter("jaeger", "Jaeger JSON with MLModelScope's tags; xsp reads it back", _write)
"""The format, as the registry lists it."""


# OpenTelemetry's spans as OTLP JSON: a resource a run, what is known as attributes, exact enough to be read back.
# Encoding: opentelemetry-proto's `trace/v1` in JSON: keys in camel case, ids hexadecimal, 64-bit integers as texts.

_INTERNAL, _PRODUCER, _CONSUMER = 1, 4, 5  # kinds of spans; of work that is launched to run later the latter two


def _write_otlp(trace: Trace, file: Sink) -> None:
    file.write(b'{"resourceSpans":[')
    metrics, kernels, launches = logged_metrics(trace), launched_kernels(trace), _launching(trace)
    for number, run in enumerate(trace.frame("runs").iter_rows(named=True)):
        file.write((b"," if number else b"") + _otlp_head(trace, run))
        spans = rows(trace, run_id=run["run_id"], launched=kernels, logs=metrics, launches=launches)
        for index, row in enumerate(spans):
            file.write((b",\n" if index else b"\n") + msgspec.json.encode(_otlp_span(row, run)))
        file.write(b"]}]}")
    file.write(b"]}\n")


def _otlp_head(trace: Trace, run: Row) -> bytes:
    about = [
        ("service.name", run["model"] or "xsp"),
        ("xsp.export_version", EXPORT_VERSION),
        *((key, run[key]) for key in RUN_TAGS if run[key] is not None),
        ("devices", msgspec.json.encode(run_devices(trace, run["run_id"])).decode()),
    ]
    resource = msgspec.json.encode({"attributes": _attributes(about)}).decode()
    return f'{{"resource":{resource},"scopeSpans":[{{"scope":{{"name":"xsp"}},"spans":['.encode()


def _otlp_span(row: Row, run: Row) -> dict[str, Any]:
    start = (run["epoch_ns"] or 0) + row["start_ns"]
    span: dict[str, Any] = {
        "traceId": f"{trace_identity(run):0>32}",
        "spanId": span_identity(row["span_id"]),
        "name": row["name"],
        "kind": _kind(row),
        "startTimeUnixNano": str(start),
        "attributes": _attributes((key, value) for key, value in span_tags(row, run) if value is not None),
    }
    if row["parent_id"] is not None:
        span["parentSpanId"] = span_identity(row["parent_id"])
    if row["duration_ns"] is not None:
        span["endTimeUnixNano"] = str(start + row["duration_ns"])
    events = [_event(fields, start) for fields in log_fields(row)]
    return span | ({"events": events} if events else {})


def _kind(row: Row) -> int:
    if row["level"] == Level.KERNEL:
        return _CONSUMER
    return _PRODUCER if row["in_launches"] else _INTERNAL


def _event(fields: Iterable[dict[str, Any]], time_ns: int) -> dict[str, Any]:
    pairs = [(field["key"], _plain(field)) for field in fields]
    return {"timeUnixNano": str(time_ns), "name": "metric", "attributes": _attributes(pairs)}


def _plain(field: dict[str, Any]) -> object:
    return float(field["value"]) if field["type"] == "float64" else field["value"]


def _attributes(pairs: Iterable[tuple[str, object]]) -> list[dict[str, object]]:
    return [{"key": key, "value": _value(value)} for key, value in pairs]


def _value(value: object) -> dict[str, object]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        finite = value - value == 0
        return {"doubleValue": value if finite else "NaN" if value != value else f"{'-' * (value < 0)}Infinity"}  # noqa: PLR0124
    return {"stringValue": str(value)}


def _launching(trace: Trace) -> pl.DataFrame:
    """The spans that launched device work."""
    work = trace.scan("spans").filter(pl.col("level").cast(pl.String) == Level.KERNEL)
    return work.select(pl.col("parent_id").alias("span_id")).drop_nulls().unique().collect()


OTLP = Exporter("otlp", "OpenTelemetry spans as OTLP JSON; xsp reads it back", _write_otlp)
"""The format, as the registry lists it."""
