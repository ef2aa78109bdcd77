"""OpenTelemetry's spans as OTLP JSON: a resource a run, what is known as attributes, exact enough to be read back.

Encoding: opentelemetry-proto's `trace/v1` in JSON: keys in camel case, ids hexadecimal, 64-bit integers as texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from xsp_analyze.export.jaeger import (
    EXPORT_VERSION,
    RUN_TAGS,
    launched_kernels,
    log_fields,
    logged_metrics,
    run_devices,
    span_identity,
    span_tags,
    trace_identity,
)
from xsp_analyze.export.rows import rows
from xsp_analyze.export.target import Exporter
from xsp_model import Level

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xsp_analyze.export.rows import Row
    from xsp_analyze.export.target import Sink
    from xsp_model import Trace

__all__ = ["OTLP"]

_INTERNAL, _PRODUCER, _CONSUMER = 1, 4, 5  # kinds of spans; of work that is launched to run later the latter two


def _write(trace: Trace, file: Sink) -> None:
    file.write(b'{"resourceSpans":[')
    metrics, kernels, launches = logged_metrics(trace), launched_kernels(trace), _launching(trace)
    for number, run in enumerate(trace.frame("runs").iter_rows(named=True)):
        file.write((b"," if number else b"") + _head(trace, run))
        spans = rows(trace, run_id=run["run_id"], launched=kernels, logs=metrics, launches=launches)
        for index, row in enumerate(spans):
            file.write((b",\n" if index else b"\n") + msgspec.json.encode(_span(row, run)))
        file.write(b"]}]}")
    file.write(b"]}\n")


def _head(trace: Trace, run: Row) -> bytes:
    about = [
        ("service.name", run["model"] or "xsp"),
        ("xsp.export_version", EXPORT_VERSION),
        *((key, run[key]) for key in RUN_TAGS if run[key] is not None),
        ("devices", msgspec.json.encode(run_devices(trace, run["run_id"])).decode()),
    ]
    resource = msgspec.json.encode({"attributes": _attributes(about)}).decode()
    return f'{{"resource":{resource},"scopeSpans":[{{"scope":{{"name":"xsp"}},"spans":['.encode()


def _span(row: Row, run: Row) -> dict[str, Any]:
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


OTLP = Exporter("otlp", "OpenTelemetry spans as OTLP JSON; xsp reads it back", _write)
"""The format, as the registry lists it."""
