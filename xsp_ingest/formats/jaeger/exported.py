"""From a trace that `xsp export --to jaeger` wrote to staging rows: exactly what was exported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from xsp_ingest.files.values import finite, integer, text
from xsp_ingest.formats.jaeger.document import parents, tags_of
from xsp_ingest.staging.intervals import Rows
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts
from xsp_model import Kind, Level, XspError
from xsp_model.vocabulary import LEVELS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.formats.jaeger.document import JaegerSpan, JaegerTrace

__all__ = ["facts_of_export", "read_exported"]

_VERSION = "1"
_DETAILS = ("layers", "operators", "ranges", "kernels", "copies")
_TEXT_COLUMNS = frozenset(
    {
        "layer_type",
        "path",
        "shapes",
        "dtypes",
        "input_shapes",
        "input_dtypes",
        "input_strides",
        "concrete_inputs",
        "source_lines",
        "text",
        "domain",
        "style",
    }
    | {"copy_kind", "source_kind", "destination_kind"}
)
_NUMBERS = ("process_id", "thread_id", "device_id", "context_id", "stream_id", "correlation_id")
_CATEGORIES = {"level": frozenset(map(str, LEVELS)), "kind": frozenset(map(str, Kind))}
_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def facts_of_export(trace: JaegerTrace) -> Mapping[str, Any] | None:
    """The run's tags where `xsp export` wrote the trace, else None."""
    for process in (trace.processes or {}).values():
        tags = tags_of(process.tags)
        if str(tags.get("xsp.export_version")) == _VERSION:
            return tags
    return None


def read_exported(trace: JaegerTrace, run: Mapping[str, Any], path: Path) -> RawTrace:
    """The rows of one exported run; XspError where a span lacks what the export writes."""
    rows = Rows()
    origin = integer(run.get("clock_origin_ns")) or 0
    parent, findings = parents(trace.spans)
    index_of = {span.spanID: i for i, span in enumerate(trace.spans)}
    tags = [tags_of(span.tags) for span in trace.spans]
    for i in _outer_first(parent):
        row = {**_span_row(trace.spans[i], tags[i], path), "row": i}
        row["start_ns"] += origin
        if row["level"] == Level.KERNEL and parent[i] >= 0:
            row["issued_by_row"] = parent[i]  # the launch, where that is in the file, is found by its correlation id
        rows.add("spans", **row)
        _add_details(rows, i, tags[i], index_of)
    for span in trace.spans:
        _add_metrics(rows, span, index_of)
    _add_devices(rows, text(run.get("devices")))
    return RawTrace(rows.frames(), _facts(run, origin), tuple(findings))


def _outer_first(parent: Sequence[int]) -> list[int]:
    """Positions by depth: of spans with the same times linking takes the first in the file for the outer one."""
    depth = [-1] * len(parent)
    for i in range(len(parent)):
        path = [i]
        while depth[path[-1]] < 0 and parent[path[-1]] >= 0:
            path.append(parent[path[-1]])
        base = max(depth[path[-1]], 0)
        for steps, at in enumerate(reversed(path)):
            depth[at] = base + steps
    return sorted(range(len(parent)), key=lambda i: (depth[i], i))


def _span_row(span: JaegerSpan, tags: Mapping[str, Any], path: Path) -> dict[str, Any]:
    start = integer(tags.get("start_ns"))
    categories = {key: text(tags.get(key)) for key in _CATEGORIES}
    if start is None or any(category not in _CATEGORIES[key] for key, category in categories.items()):
        raise XspError(
            f"span {span.spanID} lacks the tags level, kind and start_ns that `xsp export` writes",
            path=path,
            advice="Export the trace again",
        )
    return {
        "name": span.operationName,
        "start_ns": start,
        "duration_ns": integer(tags.get("duration_ns")),
        **categories,
        **{key: integer(tags.get(key)) for key in _NUMBERS},
    }


def _add_details(rows: Rows, i: int, tags: Mapping[str, Any], index_of: Mapping[str, int]) -> None:
    for table in (text(tags.get("xsp.details")) or "").split():
        if table not in _DETAILS:
            continue
        row = {column: _value(column, tags.get(column)) for column in RAW_TABLES[table]}
        row["row"] = i
        if table == "layers":
            row["sequence_index"] = integer(tags.get("layer_index"))
        elif table == "operators":
            row["forward_row"] = index_of.get(str(tags.get("forward_span")))
            row["forward_thread_id"] = 1 if tags.get("backward") is True else None
        elif table == "kernels":
            row["captured_in_row"] = index_of.get(str(tags.get("captured_in_span")))
        rows.add(table, **row)


def _value(column: str, value: Any) -> object:  # noqa: ANN401 (a tag's value)
    if column in _TEXT_COLUMNS:
        return value if isinstance(value, str) else None
    return integer(value)


def _add_metrics(rows: Rows, span: JaegerSpan, index_of: Mapping[str, int]) -> None:
    for log in span.logs or ():
        fields = tags_of(log.fields)
        owner = index_of.get(str(fields.pop("span", "")))
        unit, source = str(fields.pop("unit", "")), str(fields.pop("source", ""))
        for metric, written in fields.items():
            value = _NOT_FINITE.get(written) if isinstance(written, str) else finite(written)
            if owner is not None and value is not None:
                rows.add("metrics", row=owner, metric=metric, value=value, unit=unit, source=source)


def _add_devices(rows: Rows, written: str | None) -> None:
    for device in msgspec.json.decode(written or "[]", type=list[dict[str, Any]]):
        rows.add("devices", **{key: value for key, value in device.items() if key in RAW_TABLES["devices"]})


def _flag(written: object) -> bool | None:
    return written if isinstance(written, bool) else None


def _facts(run: Mapping[str, Any], origin: int) -> RunFacts:
    epoch = integer(run.get("epoch_ns"))
    return RunFacts(
        profiler=text(run.get("profiler")) or "",
        framework=text(run.get("framework")),
        model=text(run.get("model")),
        batch_size=integer(run.get("batch_size")),
        role=text(run.get("role")),
        serialised=_flag(run.get("serialised")),
        rank=integer(run.get("rank")),
        world_size=integer(run.get("world_size")),
        epoch_ns=None if epoch is None else epoch - origin,
    )
