"""An ONNX Runtime profile's events as columns, and the staging tables of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count, product
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from xsp_ingest.files.json_window import Entries
from xsp_ingest.files.values import integer, text
from xsp_ingest.staging.cuda_names import COPY_DIRECTIONS, demangle_column
from xsp_ingest.staging.intervals import MAX_DURATION_NS, beside
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_ingest.trace_events import table_of_events
from xsp_model import Finding, Kind, LedgerKind, Level, Severity, XspError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from xsp_ingest.trace_events import TraceEvent

__all__ = ["Profile", "shape"]

_SUFFIXES = ("_kernel_time", "_fence_before", "_fence_after")
_SIZES = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")
_NO_SIZES = (None,) * len(_SIZES)
_SCHEMA: Mapping[str, pl.DataType] = {
    "row": pl.Int64(),
    "cat": pl.String(),
    "name": pl.String(),
    "start_ns": pl.Int64(),
    "duration_ns": pl.Int64(),
    "process_id": pl.Int64(),
    "thread_id": pl.Int64(),
    "node_row": pl.Int64(),  # of a kernel: the event of the node that issued it
    "op_name": pl.String(),
    "provider": pl.String(),
    "node_index": pl.Int64(),
    "shapes": pl.String(),
    "dtypes": pl.String(),
    "held_bytes": pl.Int64(),
    "in_use_bytes": pl.Int64(),
    "taken_bytes": pl.Int64(),
    "stream_id": pl.Int64(),
    "correlation_id": pl.Int64(),
    **dict.fromkeys(_SIZES, pl.Int64()),
}


@dataclass(slots=True)
class Profile:
    """The complete events (`ph` X), and how many entries are none; `not_utf8` stretches had bytes replaced."""

    events: pl.DataFrame
    foreign: int
    not_utf8: int


@dataclass(slots=True)
class _Nodes:
    """The nodes met so far: the last of each name, and the last of all."""

    by_name: dict[str, int] = field(default_factory=dict)
    last: int | None = None
    last_operator: str | None = None


def load(path: Path) -> Profile:
    """The file's events in its order; XspError where it is cut off or no JSON list."""
    seen, nodes = Entries(), _Nodes()
    numbers = count()
    incomplete = 0

    def rows_of(events: list[TraceEvent]) -> list[tuple[object, ...]]:
        nonlocal incomplete
        complete = [event for event in events if event.ph == "X"]
        incomplete += len(events) - len(complete)
        return [_row(event, next(numbers), nodes) for event in complete]

    events = table_of_events(path, seen, rows_of, _SCHEMA, is_list=True)
    return Profile(events, incomplete + seen.foreign, seen.not_utf8)


def node_of(name: str) -> tuple[str, str]:
    """The node's name in an event's name, and which of its events it is: `_kernel_time`, ..., or nothing."""
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix), suffix
    return name, ""


def _row(event: TraceEvent, row: int, nodes: _Nodes) -> tuple[object, ...]:
    args = event.arguments
    category, name, operator = text(event.cat), text(event.name) or "", text(args.get("op_name"))
    if category == "Node" and node_of(name)[1] != _SUFFIXES[1]:
        nodes.by_name[node_of(name)[0]] = nodes.last = row
        nodes.last_operator = operator
    shapes, dtypes = _inputs(args.get("input_type_shape"))
    return (
        row,
        category,
        name,
        event.start_ns,
        event.duration_ns,
        integer(event.pid),
        integer(event.tid),
        _issuer(args, nodes) if category == "Kernel" else None,
        operator,
        text(args.get("provider")),
        integer(args.get("node_index")),
        shapes,
        dtypes,
        integer(args.get("mem_arena_held")),
        integer(args.get("mem_bytes_in_use")),
        integer(args.get("mem_in_use_delta")),
        _stream(args.get("stream")),
        integer(args.get("correlation_id")),
        *(_NO_SIZES if category != "Kernel" else (_size(args.get(size)) for size in _SIZES)),
    )


def _issuer(args: Mapping[str, Any], nodes: _Nodes) -> int | None:
    """A kernel stands behind its node in the file, and names it or the node's operator; else nothing ties them."""
    if parent := text(args.get("parent_name")):
        return nodes.by_name.get(node_of(parent)[0])
    operator = text(args.get("op_name"))
    return nodes.last if operator is not None and operator == nodes.last_operator else None


def _inputs(value: object) -> tuple[str | None, str | None]:
    """Shapes and element types of the inputs as JSON, from `[{"float": [4, 3]}, ...]`."""
    return _inputs_of(msgspec.json.encode(value)) if isinstance(value, list) else (None, None)


@lru_cache(maxsize=1 << 12)
def _inputs_of(encoded: bytes) -> tuple[str, str]:
    """The same nodes come in every run, with the same inputs."""
    entries_of: list[Any] = msgspec.json.decode(encoded)
    pairs = [next(iter(entry.items())) for entry in entries_of if isinstance(entry, dict) and entry]
    shapes = [shape if isinstance(shape, list) else [] for _, shape in pairs]
    return json.dumps(shapes), json.dumps([kind for kind, _ in pairs])


def _stream(value: object) -> int | None:
    """CUDA's number of the stream; ROCm gives an address."""
    if isinstance(value, str) and value.startswith("0x"):
        try:
            return integer(int(value, 16))
        except ValueError:
            return None
    return integer(value)


def _size(value: object) -> int | None:
    """Copies have -1 in place of a grid and a block."""
    size = integer(value)
    return size if size is not None and size >= 0 else None


# Turns a profile's events into the staging tables that the linker takes.

_WITH_SUBGRAPHS = ("If", "Loop", "Scan", "SequenceMap")  # each graph numbers its nodes from 0
_EXECUTORS = r"Executor::Execute$"
_MEMORIES = ("Host", "Device", "Array")
_CATEGORIES = ("Session", "Node", "Kernel", "Api")
_COPY_KINDS = {
    **COPY_DIRECTIONS,
    **{f"{source}To{target}": f"{source}-to-{target}" for source, target in product(_MEMORIES, repeat=2)},
}


def shape(path: Path) -> RawTrace:
    """The staging tables of one profile; XspError where it holds neither a run of the model nor a node."""
    profile = load(path)
    events, findings = _sound(profile.events)
    events, inner = _without_inner_executors(_with_levels(_with_titles(events)))
    if not events["level"].is_in([str(Level.MODEL), str(Level.LAYER)]).any():
        raise XspError(
            "the profile holds neither a run of the model nor a node",
            path=path,
            advice="Run the session at least once before `end_profiling()`",
        )
    nodes = events.filter(pl.col("level") == str(Level.LAYER))
    work = events.filter(pl.col("level") == str(Level.KERNEL))
    tables = {
        "spans": beside(_spans(events), (str(Level.LAYER),)),
        "layers": _layers(nodes),
        "kernels": frame_of("kernels", work.filter(pl.col("kind") == str(Kind.KERNEL)).select("row", *_SIZES)),
        "copies": _copies(work),
        "counters": _memory(nodes),
    }
    tables |= {name: frame_of(name) for name in RAW_TABLES if name not in tables}
    findings += [inner, *_notes(profile, work)]
    facts = RunFacts(profiler="ONNX Runtime profiler", framework="onnxruntime", rows_nest=False)
    return RawTrace(tables, facts, tuple(finding for finding in findings if finding.count))


def _sound(events: pl.DataFrame) -> tuple[pl.DataFrame, list[Finding]]:
    """The events of known categories with a start and a plausible duration."""
    usable = events.filter(pl.col("cat").is_in(_CATEGORIES))
    timed = usable.drop_nulls(["start_ns", "duration_ns"])
    is_work = pl.col("cat") == "Kernel"
    missing = usable.height - timed.height
    missing_work = usable.filter(is_work).height - timed.filter(is_work).height
    absurd = ~pl.col("duration_ns").is_between(0, MAX_DURATION_NS)
    findings = [
        Finding(LedgerKind.UNKNOWN_EVENT, count=events.height - usable.height),
        Finding(
            LedgerKind.MISSING_START, "device activities without a start or duration", missing_work, Severity.ERROR
        ),
        Finding(
            LedgerKind.MISSING_START, "host events without a start or a duration were left out", missing - missing_work
        ),
        Finding(
            LedgerKind.ABSURD_DURATION,
            "events with a negative duration or longer than a day were taken as 0 ns long",
            timed.filter(absurd).height,
            advice="Their time is missing from every sum",
        ),
    ]
    return timed.with_columns(pl.when(absurd).then(0).otherwise(pl.col("duration_ns")).alias("duration_ns")), findings


def _with_titles(events: pl.DataFrame) -> pl.DataFrame:
    """Adds `title`, the name to show, and `part`, which of a node's events it is."""
    distinct = events.filter(pl.col("cat") == "Node").select(pl.col("name").unique())
    pairs = [node_of(name) for name in distinct["name"]]
    parts = distinct.with_columns(
        pl.Series("node", [node for node, _ in pairs], dtype=pl.String),
        pl.Series("part", [part for _, part in pairs], dtype=pl.String),
    )
    joined = events.join(parts, on="name", how="left", maintain_order="left")
    is_node = pl.col("cat") == "Node"
    fence = pl.col("part").str.starts_with("_fence").fill_null(value=False)
    return joined.with_columns(
        pl.when(is_node & ~fence).then(pl.col("node")).otherwise(demangle_column(events["name"])).alias("title"),
        fence.alias("is_fence"),
    )


def _with_levels(events: pl.DataFrame) -> pl.DataFrame:
    category, title = pl.col("cat"), pl.col("title")
    level = (
        pl.when(category == "Kernel")
        .then(pl.lit(str(Level.KERNEL)))
        .when(category == "Api")
        .then(pl.lit(str(Level.RUNTIME)))
        .when(pl.col("is_fence"))
        .then(pl.lit(str(Level.LIBRARY)))
        .when(category == "Node")
        .then(pl.lit(str(Level.LAYER)))
        .when((title == "model_run") | title.str.contains(_EXECUTORS))
        .then(pl.lit(str(Level.MODEL)))
        .otherwise(pl.lit(str(Level.APPLICATION)))
    )
    kind = (
        pl.when((category == "Kernel") & title.str.contains(r"(?i)^\[?(CUDA |Hip)?memcpy|^Copy(Host|Device)"))
        .then(pl.lit(str(Kind.MEMCPY)))
        .when((category == "Kernel") & title.str.contains(r"(?i)^\[?(CUDA |Hip)?memset|^FillBuffer"))
        .then(pl.lit(str(Kind.MEMSET)))
        .when(category == "Kernel")
        .then(pl.lit(str(Kind.KERNEL)))
        .when((category == "Api") | pl.col("is_fence"))
        .then(pl.lit(str(Kind.CALL)))
        .when(category == "Node")
        .then(pl.lit(str(Kind.MODULE)))
        .when(title == "model_run")
        .then(pl.lit(str(Kind.STEP)))
        .otherwise(pl.lit(str(Kind.RANGE)))
    )
    return events.with_columns(level.alias("level"), kind.alias("kind"))


def _without_inner_executors(events: pl.DataFrame) -> tuple[pl.DataFrame, Finding]:
    """The events less those of executors that ran a graph inside a node, which stand between it and its nodes."""
    thread = ["process_id", "thread_id"]
    end = pl.col("start_ns") + pl.col("duration_ns")
    holders = (
        events.filter(pl.col("level") == str(Level.LAYER), pl.col("op_name").is_in(_WITH_SUBGRAPHS))
        .sort("start_ns", "row")
        .select(*thread, "start_ns", end.cum_max().over(thread).alias("until_ns"))
    )
    executors = events.filter(pl.col("level") == str(Level.MODEL), pl.col("kind") == str(Kind.RANGE)).sort("start_ns")
    held = executors.join_asof(holders, on="start_ns", by=thread, check_sortedness=False)
    inner = held.filter(pl.col("start_ns") < pl.col("until_ns"))["row"]
    detail = "executors of graphs inside nodes, whose time is that of the nodes around and inside them"
    return events.filter(~pl.col("row").is_in(inner.implode())), Finding(LedgerKind.EVENTS_LEFT_OUT, detail, len(inner))


def _spans(events: pl.DataFrame) -> pl.DataFrame:
    """Device work has -1 for its process, or the host's; it is of the process that ran the session."""
    on_host = pl.col("level") != str(Level.KERNEL)
    hosts = events.filter(on_host)["process_id"].drop_nulls().unique()
    process = int(hosts.min()) if len(hosts) else None  # type: ignore[arg-type]
    return frame_of(
        "spans",
        events.select(
            "row",
            "level",
            "kind",
            pl.when(pl.col("title") != "").then("title").otherwise(pl.lit("[unnamed]")).alias("name"),
            "start_ns",
            "duration_ns",
            pl.when(on_host).then("process_id").otherwise(pl.lit(process, pl.Int64)).alias("process_id"),
            pl.when(on_host).then("thread_id").alias("thread_id"),
            pl.when(~on_host).then("stream_id").alias("stream_id"),
            "correlation_id",
            pl.col("node_row").alias("issued_by_row"),
        ),
    )


def _layers(nodes: pl.DataFrame) -> pl.DataFrame:
    """What the profile says of each node; its number orders it where the model is one graph."""
    nested = nodes["op_name"].is_in(_WITH_SUBGRAPHS).any()
    return frame_of(
        "layers",
        nodes.select(
            "row",
            (pl.lit(None, pl.Int64) if nested else pl.col("node_index")).alias("sequence_index"),
            pl.col("op_name").alias("layer_type"),
            "shapes",
            "dtypes",
            pl.when(pl.col("taken_bytes").is_not_null())
            .then(pl.max_horizontal("taken_bytes", 0))
            .alias("allocated_bytes"),
        ),
    )


def _copies(work: pl.DataFrame) -> pl.DataFrame:
    direction = pl.col("title").str.extract(r"(?i)mem(?:cpy)?[ _]?(\w+to\w+)", 1)
    copy_kind = direction.replace_strict(_COPY_KINDS, default=None, return_dtype=pl.String)
    is_copy = pl.col("kind") == str(Kind.MEMCPY)
    return frame_of(
        "copies",
        work.filter(pl.col("kind") != str(Kind.KERNEL)).select(
            "row", pl.when(is_copy).then(copy_kind.fill_null("Unknown")).alias("copy_kind")
        ),
    )


def _memory(nodes: pl.DataFrame) -> pl.DataFrame:
    """Bytes in use and held by the arena of the node's provider when the node ended."""
    on_host = pl.col("provider").str.starts_with("CPU").fill_null(value=True)
    series = nodes.select(
        (pl.col("start_ns") + pl.col("duration_ns")).alias("time_ns"),
        pl.when(~on_host).then(pl.lit(0, pl.Int64)).alias("device_id"),
        pl.col("in_use_bytes").alias("allocated_bytes"),
        pl.col("held_bytes").alias("reserved_bytes"),
    ).unpivot(
        ["allocated_bytes", "reserved_bytes"],
        index=["time_ns", "device_id"],
        variable_name="counter",
        value_name="value",
    )
    return frame_of("counters", series.drop_nulls("value").with_columns(pl.lit("byte").alias("unit")))


def _notes(profile: Profile, work: pl.DataFrame) -> list[Finding]:
    return [
        Finding(LedgerKind.NOT_AN_EVENT, "entries that are no complete events", profile.foreign),
        Finding(LedgerKind.NOT_UTF8, "stretches of the file with bytes that are not UTF-8", profile.not_utf8),
        Finding(LedgerKind.KERNEL_WITHOUT_NODE, count=work.filter(pl.col("node_row").is_null()).height),
    ]
