"""A plane of a profile as columns: its lines, its events with the statistics XSP uses, its metadata.

The protobuf messages are described at run time: no generated code, no TensorFlow. Only what XSP uses is described, and
protobuf passes over the rest. Lines are scanned by `scan`, so a plane is parsed without them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from google.protobuf.message import DecodeError

from xsp_ingest.files.protobuf import Messages
from xsp_ingest.files.values import natural
from xsp_ingest.formats.xplane import wire
from xsp_ingest.formats.xplane.scan import scan_lines
from xsp_ingest.formats.xplane.sweep import EVENT, LINE, STAT
from xsp_model.columns.arrays import nullable_index
from xsp_model.columns.intervals import LATEST_NS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_model.columns.arrays import Ints

__all__ = ["AMOUNTS", "NUMBERS", "READ", "TEXTS", "Plane", "empty_plane", "message", "read_plane", "text_of"]

_PACKAGE = "xsp.xplane"
# message: field: number, type; `*` marks a repeated field, `?` one of the alternatives of a value
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "Stat": {
        "metadata_id": (1, "int64"),
        "double_value": (2, "double?"),
        "uint64_value": (3, "uint64?"),
        "int64_value": (4, "int64?"),
        "str_value": (5, "bytes?"),  # a string, which need not be UTF-8
        "bytes_value": (6, "bytes?"),
        "ref_value": (7, "uint64?"),
    },
    "EventMetadata": {
        "id": (1, "int64"),
        "name": (2, "bytes"),
        "display_name": (4, "bytes"),
        "stats": (5, "Stat*"),
    },
    "StatMetadata": {"id": (1, "int64"), "name": (2, "bytes")},
    "EventEntry": {"key": (1, "int64"), "value": (2, "EventMetadata")},
    "StatEntry": {"key": (1, "int64"), "value": (2, "StatMetadata")},
    "Plane": {
        "id": (1, "int64"),
        "name": (2, "bytes"),
        "event_metadata": (4, "EventEntry*"),
        "stat_metadata": (5, "StatEntry*"),
        "stats": (6, "Stat*"),
    },
    "HloProto": {"hlo_module": (1, "HloModule")},
    "HloModule": {
        "name": (1, "bytes"),
        "computations": (3, "HloComputation*"),
        "schedule": (7, "HloSchedule"),
        "device_assignment": (15, "HloDeviceAssignment"),
        "stack_frame_index": (17, "bytes"),  # HloStackFrames
    },
    "HloDeviceAssignment": {"replica_count": (1, "int32"), "computation_count": (2, "int32")},
    "HloSchedule": {"sequences": (1, "HloScheduleEntry*")},
    "HloScheduleEntry": {"key": (1, "int64"), "value": (2, "HloSequence")},  # by a computation's id
    "HloSequence": {"instruction_ids": (1, "int64*")},
    "HloComputation": {"instructions": (2, "HloInstruction*"), "id": (5, "int64"), "root_id": (6, "int64")},
    # what only some instructions have is kept as bytes: parsed where it is used, so that damage stays there
    "HloInstruction": {
        "name": (1, "bytes"),
        "opcode": (2, "bytes"),
        "shape": (3, "bytes"),  # HloShape
        "metadata": (7, "HloMetadata"),
        "parameter_number": (9, "int64"),
        "window": (15, "bytes"),  # HloWindow
        "convolution_dimensions": (16, "bytes"),  # HloConvolutionDimensions
        "custom_call_target": (28, "bytes"),
        "dot_dimensions": (30, "bytes"),  # HloDotDimensions
        "id": (35, "int64"),
        "operand_ids": (36, "int64*"),
        "called_computation_ids": (38, "int64*"),
        "backend_config": (43, "bytes"),  # JSON
        "replica_groups": (49, "HloReplicaGroup*"),  # before 2024
        "feature_group_count": (50, "int64"),
        "batch_group_count": (58, "int64"),
        "collective_devices": (87, "bytes"),  # HloCollectiveDevices
    },
    "HloMetadata": {
        "op_type": (1, "bytes"),
        "op_name": (2, "bytes"),
        "source_file": (3, "bytes"),
        "source_line": (4, "int32"),
        "stack_frame_id": (15, "int32"),
    },
    "HloShape": {"element_type": (2, "int64"), "dimensions": (3, "int64*"), "tuple_shapes": (4, "HloShape*")},
    "HloWindow": {"dimensions": (1, "HloWindowDimension*")},
    "HloWindowDimension": {
        "size": (1, "int64"),
        "stride": (2, "int64"),
        "padding_low": (3, "int64"),
        "padding_high": (4, "int64"),
        "window_dilation": (5, "int64"),
        "base_dilation": (6, "int64"),
    },
    "HloConvolutionDimensions": {
        "input_batch": (7, "int64"),
        "input_spatial": (11, "int64*"),
        "kernel_output_feature": (4, "int64"),
        "output_feature": (10, "int64"),
        "output_spatial": (12, "int64*"),
    },
    "HloDotDimensions": {"lhs_contracting": (1, "int64*"), "lhs_batch": (3, "int64*")},
    "HloReplicaGroup": {"replica_ids": (1, "int64*")},
    "HloCollectiveDevices": {"groups": (1, "HloReplicaGroup*"), "regular_groups": (2, "HloRegularGroups")},
    "HloRegularGroups": {"group_count": (1, "int64"), "devices_per_group": (2, "int64")},
    "HloStackFrames": {
        "file_names": (1, "bytes*"),
        "function_names": (2, "bytes*"),
        "locations": (3, "HloFileLocation*"),
        "frames": (4, "HloStackFrame*"),
    },
    "HloFileLocation": {"file": (1, "int32"), "function": (2, "int32"), "line": (3, "int32")},
    "HloStackFrame": {"location": (1, "int32"), "parent": (2, "int32")},
}

_XPLANE = Messages(_PACKAGE, _MESSAGES)


@cache
def message(name: str) -> Any:  # noqa: ANN401 (a class that protobuf makes)
    """The class of the message."""
    return _XPLANE.of(name)


# The statistics of events that XSP uses, as columns.

NUMBERS = (
    "correlation_id",
    "context_id",
    "program_id",
    "run_id",
    "group_id",
    "step_num",
    "graph_id",
    "graph_node_id",
    "cuda_graph_id",
    "cuda_graph_node_id",
    "bytes_allocated",
    "bytes_reserved",
    "allocation_bytes",
    "addr",
    "data_type",
)
"""Statistics read as integers."""
AMOUNTS = ("flops", "model_flops", "bytes_accessed")
"""Statistics read as numbers with a fraction."""
TEXTS = (
    "kernel_details",
    "memcpy_details",
    "memset_details",
    "hlo_op",
    "hlo_module",
    "tf_op",
    "name",
    "shape",
    "allocator_name",
    "region_type",
    "step_name",
)
"""Statistics read as texts."""
READ = frozenset((*NUMBERS, *AMOUNTS, *TEXTS))
"""All of them."""
_DOUBLE, _TEXT, _BYTES, _REFERENCE = 2, 5, 6, 7
_LAST_WHOLE = 1 << 62


def text_of(raw: bytes) -> str:
    return raw.decode(errors="replace")


def stat_columns(stat: Ints, height: int, names: Mapping[int, str], data: memoryview) -> list[pl.Series]:
    columns = dict(zip(STAT, stat, strict=True))
    result = []
    for key in np.unique(columns["metadata_id"]).tolist():
        here = columns["metadata_id"] == key
        rows = {name: values[here] for name, values in columns.items()}
        name = names[key]
        if name in TEXTS:
            result.append(_text_column(name, rows, height, names, data))
        else:
            result.append(_number_column(name, rows, height, names, data))
    return list({series.name: series for series in result}.values())


def _spread(values: pl.Series, rows: Ints, height: int) -> pl.Series:
    """The values at their rows, null elsewhere; of two for one row the last counts."""
    index = np.full(height, -1, dtype=np.int64)
    index[rows] = np.arange(len(rows))
    return values.gather(nullable_index(index)).alias(values.name)


def _text_column(
    name: str, rows: Mapping[str, Ints], height: int, names: Mapping[int, str], data: memoryview
) -> pl.Series:
    """Texts that stand in the file once and are referred to, or in every event."""
    referred = rows["field"] == _REFERENCE
    keys, inverse = np.unique(np.where(referred, rows["value"], -1), return_inverse=True)
    texts = pl.Series(name, [names.get(key) for key in keys.tolist()], dtype=pl.String).gather(inverse)
    inline = np.flatnonzero((rows["field"] == _TEXT) | (rows["field"] == _BYTES))
    if len(inline):
        spans = zip(rows["value"][inline].tolist(), rows["end"][inline].tolist(), strict=True)
        texts = texts.scatter(inline, [text_of(bytes(data[at:stop])) for at, stop in spans])
    return _spread(texts.cast(pl.Categorical), rows["event"], height).alias(name)


def _number_column(
    name: str, rows: Mapping[str, Ints], height: int, names: Mapping[int, str], data: memoryview
) -> pl.Series:
    """Whole numbers; also those written as a double, or as the digits of a text (`$$5` is 5)."""
    kind = pl.Float64 if name in AMOUNTS else pl.Int64
    values = pl.Series(name, rows["value"]).cast(kind)
    odd = np.flatnonzero((rows["field"] == _DOUBLE) | (rows["field"] >= _TEXT))
    if len(odd):
        fields, raw, ends = (rows[key][odd].tolist() for key in ("field", "value", "end"))
        mended = [_number(f, v, e, names, data) for f, v, e in zip(fields, raw, ends, strict=True)]
        if kind == pl.Int64:
            mended = [None if v is None else int(v) for v in mended]
        values = values.scatter(odd, pl.Series(mended, dtype=kind))
    return _spread(values, rows["event"], height).alias(name)


def _number(field: int, value: int, end: int, names: Mapping[int, str], data: memoryview) -> float | None:
    if field == _DOUBLE:
        number = float(np.int64(value).view(np.float64))
        return number if math.isfinite(number) and abs(number) < _LAST_WHOLE else None
    text = names.get(value, "") if field == _REFERENCE else text_of(bytes(data[value:end]))
    return natural(text.lstrip("$"))


_LINES = 3
_PS_PER_NS = 1000
_HLO_PROTO = ("hlo proto", "hlo_proto")


@dataclass(frozen=True, slots=True)
class Plane:
    """One plane; `events` stand in file order, each with `line`, `metadata_id`, times in ns and statistics.

    `metadata` says what the events of an id are called; a statistic's column is there only where the plane has it.
    `frames` counts events of the Python tracer, which are not among `events`; `untimed` those whose start is beyond
    what 64 bits of ns hold.
    """

    name: str
    stats: Mapping[str, int | float | str]
    metadata: pl.DataFrame
    lines: pl.DataFrame
    events: pl.DataFrame
    hlo_protos: Mapping[str, bytes]
    frames: int
    untimed: int

    def stat(self, name: str) -> pl.Expr:
        """The column of a statistic, null throughout where the plane has none."""
        kind = pl.Int64 if name in NUMBERS else pl.Float64 if name in AMOUNTS else pl.Categorical
        return (pl.col(name) if name in self.events.columns else pl.lit(None).alias(name)).cast(kind)


def empty_plane() -> Plane:
    """A plane without events: what there is where a profile has no plane of a kind."""
    none = memoryview(b"")
    return read_plane(none, 0, 0, Path())


def read_plane(data: memoryview, start: int, end: int, path: Path) -> Plane:
    """The plane that lies from `start` to `end`; XspError where it is damaged."""
    lines: list[tuple[int, int]] = []
    rest = bytearray()
    for field in wire.fields(data, start, end, path):
        if field.number == _LINES and field.is_message:
            lines.append((field.start, field.end))
        else:
            rest += data[field.key : field.end]
    try:
        head = message("Plane").FromString(bytes(rest))
    except DecodeError as error:
        raise wire.damaged_profile(path, start) from error
    names = {entry.key: text_of(entry.value.name) for entry in head.stat_metadata}
    stat_ids = sorted(key for key, name in names.items() if name in READ)
    starts, ends = [at for at, _ in lines], [at for _, at in lines]
    line, event, stat, damage, skipped = scan_lines(data, starts, ends, stat_ids, _frames(head))
    if damage >= 0:
        raise wire.damaged_profile(path, damage)
    table = _lines(line, data)
    events, untimed = _events(event, table)
    metadata = _metadata(head, names)
    columns = stat_columns(stat, events.height, names, data)
    events = events.with_columns(columns)
    return Plane(
        text_of(head.name),
        {names.get(s.metadata_id, ""): _value(s, names) for s in head.stats},
        metadata.select("metadata_id", "event_name", "display_name"),
        table,
        _with_shared(events, metadata).filter(pl.col("start_ns").is_not_null()),
        _hlo_protos(head, names),
        skipped,
        untimed,
    )


def _frames(head: Any) -> list[int]:  # noqa: ANN401 (a protobuf message)
    """Ids of the frames of Python functions: most events of many profiles, and never used."""
    return sorted(entry.key for entry in head.event_metadata if entry.value.name.startswith(b"$"))


def _value(stat: Any, names: Mapping[int, str]) -> int | float | str:  # noqa: ANN401 (a protobuf message)
    kind = stat.WhichOneof("value")
    if kind == "ref_value":
        return names.get(stat.ref_value, "")
    value: int | float | bytes = getattr(stat, kind) if kind else b""
    return text_of(value) if isinstance(value, bytes) else value


def _lines(line: Ints, data: memoryview) -> pl.DataFrame:
    columns = dict(zip(LINE, line, strict=True))
    text = {
        field: [
            text_of(bytes(data[at:stop]))
            for at, stop in zip(columns[f"{field}_at"], columns[f"{field}_end"], strict=True)
        ]
        for field in ("name", "display")
    }
    return pl.DataFrame(
        {
            "line": np.arange(line.shape[1], dtype=np.int64),
            "line_id": columns["line_id"],
            "timestamp_ns": columns["timestamp_ns"],
            "line_name": pl.Series(
                [d or n for n, d in zip(text["name"], text["display"], strict=True)], dtype=pl.String
            ),
        }
    )


def _events(event: Ints, lines: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Events with times: picoseconds are cut to whole ns, start and duration each for itself."""
    columns = dict(zip(EVENT, event, strict=True))
    origin = lines["timestamp_ns"].to_numpy()[columns["line"]]
    offset = columns["offset_ps"] // _PS_PER_NS
    sound = (np.abs(origin.astype(np.float64)) < LATEST_NS) & (origin != np.iinfo(np.int64).min)
    start = pl.Series(np.where(sound, origin, 0) + offset)
    frame = pl.DataFrame(
        {
            "line": columns["line"],
            "metadata_id": columns["metadata_id"],
            "start_ns": start,
            "duration_ns": columns["duration_ps"] // _PS_PER_NS,
        }
    )
    has_start = pl.Series(sound)
    return frame.with_columns(pl.when(has_start).then(pl.col("start_ns")).alias("start_ns")), int((~sound).sum())


def _metadata(head: Any, names: Mapping[int, str]) -> pl.DataFrame:  # noqa: ANN401
    """One row an event metadata: id, names, and the statistics read that all its events share."""
    columns: dict[str, list[object]] = {
        key: [] for key in ("metadata_id", "event_name", "display_name", *AMOUNTS, *TEXTS)
    }
    for entry in head.event_metadata:
        shared = {names.get(s.metadata_id, ""): _value(s, names) for s in entry.value.stats}
        columns["metadata_id"].append(entry.key)
        columns["event_name"].append(text_of(entry.value.name))
        columns["display_name"].append(text_of(entry.value.display_name))
        for key in (*AMOUNTS, *TEXTS):
            value = shared.get(key)
            columns[key].append(value if isinstance(value, (int, float) if key in AMOUNTS else str) else None)
    types = {key: pl.Float64() if key in AMOUNTS else pl.String() for key in columns}
    frame = pl.DataFrame(columns, schema=types | {"metadata_id": pl.Int64()}, strict=False)
    return frame.unique("metadata_id", keep="last", maintain_order=True)


def _with_shared(events: pl.DataFrame, metadata: pl.DataFrame) -> pl.DataFrame:
    """Events with the statistics of their metadata where they have none of their own."""
    shared = [key for key in (*AMOUNTS, *TEXTS) if metadata[key].null_count() < metadata.height]
    if not shared:
        return events
    joined = events.join(
        metadata.select("metadata_id", *shared), on="metadata_id", how="left", suffix="_shared", maintain_order="left"
    )
    twice = [key for key in shared if key in events.columns]
    return joined.with_columns(
        pl.coalesce(pl.col(key).cast(pl.String), f"{key}_shared") if key in TEXTS else pl.coalesce(key, f"{key}_shared")
        for key in twice
    ).drop(f"{key}_shared" for key in twice)


def _hlo_protos(head: Any, names: Mapping[int, str]) -> dict[str, bytes]:  # noqa: ANN401
    """By module: the compiled programs that the plane of metadata holds, serialised."""
    protos: dict[str, bytes] = {}
    for entry in head.event_metadata:
        for stat in entry.value.stats:
            if stat.WhichOneof("value") == "bytes_value" and names.get(stat.metadata_id, "").lower() in _HLO_PROTO:
                protos[text_of(entry.value.name)] = stat.bytes_value
    return protos
