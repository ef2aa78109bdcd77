"""Turns a timeline into the staging tables: its events as columns, what its lanes are, what it says of tensors."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.json_window import Entries
from xsp_ingest.files.values import integer, text
from xsp_ingest.staging.cuda_names import COPY_DIRECTIONS
from xsp_ingest.staging.intervals import MAX_DURATION_NS
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_ingest.staging.tensorflow_work import tensorflow_metrics
from xsp_ingest.trace_events import table_of_events
from xsp_model import Finding, Kind, LedgerKind, Level, Severity, XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.trace_events import TraceEvent

__all__ = ["shape"]


def load(path: Path) -> tuple[pl.DataFrame, Entries]:
    """The events as columns, and what was odd about their list; XspError where the file is no timeline."""
    seen = Entries()
    return table_of_events(path, seen, lambda events: [_row(event) for event in events], _SCHEMA), seen


def events_of(events: pl.DataFrame, ph: str) -> pl.DataFrame:
    """The events of a phase: pid, tid, id, times in ns, `cat`, and `name` with the texts of `args`."""
    return events.filter(pl.col("ph") == ph).drop("ph")


_SCHEMA = {
    "ph": pl.String(),
    "cat": pl.String(),
    "name": pl.String(),
    "pid": pl.Int64(),
    "tid": pl.Int64(),
    "id": pl.Int64(),
    "start_ns": pl.Int64(),
    "duration_ns": pl.Int64(),
    "node": pl.String(),  # args.name
    "op": pl.String(),
    "kernel": pl.String(),
    "inputs": pl.List(pl.String()),
    "value": pl.Int64(),  # a counter's
    "snapshot": pl.String(),
}


def _row(event: TraceEvent) -> tuple[object, ...]:
    args = event.arguments
    name = text(event.name) or ""
    snapshot = args.get("snapshot")
    described = snapshot.get("tensor_description") if isinstance(snapshot, dict) else None
    inputs = [tensor for n in range(len(args)) if (tensor := text(args.get(f"input{n}"))) is not None]
    return (
        text(event.ph),
        text(event.cat),
        name,
        integer(event.pid),
        integer(event.tid),
        integer(event.id),
        event.start_ns,
        event.duration_ns,
        text(args.get("name")),
        text(args.get("op")),
        text(args.get("kernel")),
        inputs,
        integer(args.get(name)),
        text(described),
    )


# What the processes of a timeline stand for: an executor's lanes, a device's streams, or its tensors.

OPERATORS, STREAM, STREAMS, COPIES, TENSORS = "operators", "stream", "all streams", "copies", "tensors"
_KIND = r"(?i)(?:^|[/:])(?:device:)?([a-z_]*[a-z]):(\d{1,6})(?:/(stream|memcpy)[^ ]*)?$"
_STREAM = r"/stream:(\d{1,9})"


def lanes(metadata: pl.DataFrame) -> pl.DataFrame:
    """One row a process: pid, `role`, device kind (`CPU`, `GPU`), device_id of a GPU, stream_id.

    A GPU has three kinds of processes: its operators as the host's executor ran them, one for each stream, and two
    that repeat what is in those, `stream:all` and `memcpy`.
    """
    named = metadata.filter(pl.col("name") == "process_name", pl.col("pid").is_not_null()).select(
        "pid", pl.col("node").alias("label")
    )
    device = pl.col("label").str.replace(r" (?:Compute|Tensors)$", "")
    of_tensors = pl.col("label").str.ends_with(" Tensors")
    kind = device.str.extract(_KIND, 1).str.to_uppercase()
    role = (
        pl.when(of_tensors)
        .then(pl.lit(TENSORS))
        .when(device.str.contains("/stream:all", literal=True))
        .then(pl.lit(STREAMS))
        .when(device.str.contains(_STREAM))
        .then(pl.lit(STREAM))
        .when(device.str.contains("/memcpy", literal=True))
        .then(pl.lit(COPIES))
        .when(pl.col("label").str.ends_with(" Compute"))
        .then(pl.lit(OPERATORS))
    )
    return named.select(
        "pid",
        device.alias("device"),
        role.alias("role"),
        kind.alias("device_kind"),
        pl.when(kind == "GPU").then(device.str.extract(_KIND, 2).cast(pl.Int64, strict=False)).alias("device_id"),
        device.str.extract(_STREAM).cast(pl.Int64, strict=False).alias("stream_id"),
    ).unique("pid", keep="last", maintain_order=True)


# What a timeline says of tensors: their shapes, where they were made, and how much memory is in use.

_TYPE = re.compile(r"dtype: DT_(\w+)")
_SIZE = re.compile(r"size: (-?\d{1,18})")
_SHAPE = re.compile(r"shape \{(.*?)\n\}", re.DOTALL)
_REQUESTED = r"requested_bytes: (\d{1,18})"
_DEVICE = r"(?i)^GPU_(\d{1,6})_"


def tensors(operators: pl.DataFrame, snapshots: pl.DataFrame) -> pl.DataFrame:
    """One row an operator (`row`) whose inputs' tensors are all described: their shapes and types as JSON.

    And those of the tensor that it made, `output_shape` and `output_dtype`; null: not described.
    """
    described = {
        name: _shape_and_type(text) for name, text in snapshots.select("name", "snapshot").drop_nulls().iter_rows()
    }
    rows = [
        (
            row,
            json.dumps([described[i][0] for i in inputs]),
            json.dumps([described[i][1] for i in inputs]),
            json.dumps(described[node][0]) if node in described else None,
            described[node][1] if node in described else None,
        )
        for row, node, inputs in operators.select("row", "node", "inputs").iter_rows()
        if inputs and all(i in described for i in inputs)
    ]
    texts = ("input_shapes", "input_dtypes", "output_shape", "output_dtype")
    schema = {"row": pl.Int64(), **dict.fromkeys(texts, pl.String())}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _shape_and_type(text: str) -> tuple[list[int], str]:
    shape, dtype = _SHAPE.search(text), _TYPE.search(text)
    return [int(size) for size in _SIZE.findall(shape[1])] if shape else [], dtype[1].lower() if dtype else ""


def memory(
    created: pl.DataFrame, snapshots: pl.DataFrame, counters: pl.DataFrame, processes: pl.DataFrame, process_id: int
) -> pl.DataFrame:
    """The staging table `allocations`: each tensor's bytes in the lane that made it, and memory in use over time."""
    requested = pl.col("snapshot").str.extract(_REQUESTED).cast(pl.Int64, strict=False)
    sizes = snapshots.select("pid", "id", requested.alias("bytes")).unique(
        ["pid", "id"], keep="first", maintain_order=True
    )
    compute = processes.filter(pl.col("role") != TENSORS).select(
        "device", pl.col("pid").alias("compute_pid"), "device_id"
    )
    made = (
        created.drop_nulls("start_ns")
        .join(sizes, on=["pid", "id"], how="inner", maintain_order="left")
        .join(
            processes.filter(pl.col("role") == TENSORS).select("pid", "device"),
            on="pid",
            how="inner",
            maintain_order="left",
        )
        .join(compute, on="device", how="inner", maintain_order="left")
        .filter(pl.col("bytes") > 0)
        .select(thread(pl.col("compute_pid"), pl.col("tid")), pl.col("start_ns").alias("time_ns"), "device_id", "bytes")
    )
    in_use = counters.drop_nulls(["start_ns", "value"]).select(
        pl.col("start_ns").alias("time_ns"),
        pl.col("name").str.extract(_DEVICE).cast(pl.Int64, strict=False).alias("device_id"),
        pl.col("value").alias("allocated_bytes"),
    )
    both = pl.concat([made, in_use], how="diagonal")
    return frame_of("allocations", both.with_columns(pl.lit(process_id, pl.Int64).alias("process_id")))


def thread(pid: pl.Expr, tid: pl.Expr) -> pl.Expr:
    """A number for a lane: timelines number lanes anew in each of their processes."""
    return (pid * (1 << 20) + tid).alias("thread_id")


# Turns a timeline's events into the staging tables that the linker takes.

_PROCESS = 0  # the file names no operating system's process
_BACKWARD = r"(?:^|/)gradients?(?:_tape)?(?:_\d+)?/"


def shape(path: Path) -> RawTrace:
    """The staging tables of one timeline; XspError where it holds no operator."""
    events, seen = load(path)
    processes = lanes(events_of(events, "M"))
    complete = events_of(events, "X")
    timed, lost = _timed_events(complete)
    placed = timed.join(processes, on="pid", how="left", maintain_order="left").with_row_index("row", offset=1)
    placed = placed.with_columns(pl.col("row").cast(pl.Int64), thread(pl.col("pid"), pl.col("tid")))
    operators = placed.filter(pl.col("role") == OPERATORS)
    work = _device_work(placed)
    if operators.is_empty() and work.is_empty():
        raise XspError("the timeline holds no operators", path=path, advice="Was RunOptions.trace_level FULL_TRACE?")
    snapshots = events_of(events, "O")
    layers = operators.select("row", pl.coalesce("op", "name").alias("layer_type"))
    shapes = tensors(operators, snapshots)
    tables = {
        "spans": frame_of("spans", _spans(operators, work)),
        "operators": frame_of("operators", _operator_facts(operators, shapes)),
        "layers": frame_of("layers", layers),
        "kernels": frame_of("kernels", work.filter(pl.col("kind") == str(Kind.KERNEL)).select("row")),
        "copies": frame_of("copies", _copies(work)),
        "metrics": frame_of("metrics", tensorflow_metrics(shapes.join(layers, on="row"))),
        "allocations": memory(events_of(events, "N"), snapshots, events_of(events, "C"), processes, _PROCESS),
    }
    tables |= {name: frame_of(name) for name in RAW_TABLES if name not in tables}
    findings = [*lost, *_omitted_events(placed, work, operators), *_notes(seen, work)]
    return RawTrace(tables, RunFacts("TensorFlow timeline", "tensorflow", epoch_ns=0, rows_nest=False), tuple(findings))


def _timed_events(events: pl.DataFrame) -> tuple[pl.DataFrame, list[Finding]]:
    timed = events.drop_nulls(["start_ns", "duration_ns", "pid"]).with_columns(pl.col("tid").fill_null(0))
    unsound = (pl.col("duration_ns") < 0) | (pl.col("duration_ns") > MAX_DURATION_NS)
    count = timed.filter(unsound).height
    return timed.with_columns(pl.when(unsound).then(0).otherwise(pl.col("duration_ns")).alias("duration_ns")), [
        Finding(
            LedgerKind.MISSING_START,
            "events without a start, a duration or a lane were left out",
            events.height - timed.height,
        ),
        Finding(
            LedgerKind.ABSURD_DURATION,
            "events with a negative duration or longer than a day were taken as 0 ns long",
            count,
            advice="Their time is missing from every sum",
        ),
    ]


def _device_work(placed: pl.DataFrame) -> pl.DataFrame:
    """What ran on the streams, each piece once: a numbered stream's event goes before what repeats it."""
    same = ["device_id", "start_ns", "duration_ns", "node", "name"]
    copies = placed.filter(pl.col("role") == COPIES)
    streams = placed.filter(pl.col("role") == STREAM)
    numbered = streams["device_id"].drop_nulls().unique().implode()
    unnumbered = placed.filter(pl.col("role") == STREAMS, ~pl.col("device_id").is_in(numbered))
    ran = pl.concat([streams, unnumbered])
    beside = copies.join(ran, on=same, how="anti", maintain_order="left", nulls_equal=True)
    is_copy = pl.concat([ran, beside]).join(copies.select(same).unique(), on=same, how="semi", nulls_equal=True)["row"]
    label = pl.concat_str("name", "node", separator=" ", ignore_nulls=True)
    kind = (
        pl.when(label.str.contains(r"(?i)\bmemset"))
        .then(pl.lit(str(Kind.MEMSET)))
        .when(pl.col("row").is_in(is_copy.implode()) | label.str.contains(r"(?i)\bmemcpy"))
        .then(pl.lit(str(Kind.MEMCPY)))
        .otherwise(pl.lit(str(Kind.KERNEL)))
    )
    return pl.concat([ran, beside]).with_columns(kind.alias("kind")).sort("row")


def _spans(operators: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """The step that the timeline is of, the operators by the names of their nodes, and the device work they issued."""
    end = (pl.col("start_ns") + pl.col("duration_ns")).max()
    step = pl.concat([operators, work], how="diagonal").select(
        pl.lit(0, pl.Int64).alias("row"),
        pl.lit("RunMetadata").alias("name"),
        pl.col("start_ns").min(),
        (end - pl.col("start_ns").min()).alias("duration_ns"),
        pl.lit(None, pl.Int64).alias("thread_id"),
        pl.lit(str(Level.MODEL)).alias("level"),
        pl.lit(str(Kind.STEP)).alias("kind"),
    )
    host = operators.select(
        "row",
        pl.coalesce("node", "name").alias("name"),
        "start_ns",
        "duration_ns",
        "thread_id",
        pl.lit(str(Level.OPERATOR)).alias("level"),
        pl.lit(str(Kind.OPERATOR)).alias("kind"),
    )
    device = _with_issuers(operators, work).select(
        "row",
        pl.coalesce("kernel", "name").alias("name"),
        "start_ns",
        "duration_ns",
        "device_id",
        "stream_id",
        "issued_by_row",
        "kind",
        pl.lit(str(Level.KERNEL)).alias("level"),
    )
    spans = pl.concat([step, host, device], how="diagonal")
    return spans.with_columns(pl.lit(_PROCESS, pl.Int64).alias("process_id"))


def _with_issuers(operators: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """The work with the row of its operator: the last of its node that began before it."""
    nodes = operators.select("node", "start_ns", pl.col("row").alias("issued_by_row")).drop_nulls("node")
    return work.sort("start_ns").join_asof(nodes.sort("start_ns"), on="start_ns", by="node", check_sortedness=False)


def _operator_facts(operators: pl.DataFrame, shapes: pl.DataFrame) -> pl.DataFrame:
    backward = pl.col("node").str.contains(_BACKWARD).fill_null(value=False)
    return operators.select("row", pl.when(backward).then(1).alias("forward_thread_id")).join(
        shapes.select("row", "input_shapes", "input_dtypes"), on="row", how="left", maintain_order="left"
    )


def _copies(work: pl.DataFrame) -> pl.DataFrame:
    label = pl.concat_str("name", "node", separator=" ", ignore_nulls=True)
    direction = label.str.extract(r"(?i)memcpy([HDP]to[HDP])").replace_strict(
        COPY_DIRECTIONS, default=None, return_dtype=pl.String
    )
    return work.filter(pl.col("kind") != str(Kind.KERNEL)).select("row", direction.alias("copy_kind"))


def _omitted_events(placed: pl.DataFrame, work: pl.DataFrame, operators: pl.DataFrame) -> list[Finding]:
    on_device = placed.filter(pl.col("role").is_in([STREAM, STREAMS, COPIES]))
    unknown = placed.height - on_device.height - operators.height
    repeated = "events of the lanes `stream:all` and `memcpy` repeat those of the streams and were read once"
    return [
        Finding(LedgerKind.EVENTS_LEFT_OUT, repeated, on_device.height - work.height),
        Finding(LedgerKind.UNKNOWN_LANE, count=unknown),
    ]


def _notes(seen: Entries, work: pl.DataFrame) -> list[Finding]:
    unnamed = work.filter(pl.col("kernel").is_null()).height
    return [
        Finding(LedgerKind.NOT_AN_EVENT, "entries of traceEvents are no objects", seen.foreign),
        Finding(
            LedgerKind.NOT_UTF8,
            "stretches of the file with bytes that are not UTF-8; those show as U+FFFD",
            seen.not_utf8,
            severity=Severity.WARNING,
        ),
        Finding(LedgerKind.KERNEL_WITHOUT_NAME, count=unnamed),
    ]
