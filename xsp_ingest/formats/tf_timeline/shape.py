"""Turns a timeline's events into the staging tables that the linker takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.tf_timeline import lanes as lane
from xsp_ingest.formats.tf_timeline.document import events_of, load
from xsp_ingest.formats.tf_timeline.tensors import memory, tensors, thread
from xsp_ingest.staging.cuda_enums import COPY_DIRECTIONS
from xsp_ingest.staging.intervals import MAX_DURATION_NS
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_ingest.staging.tensorflow_work import tensorflow_metrics
from xsp_model import Finding, Kind, LedgerKind, Level, Severity, XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.files.json_window import Entries

__all__ = ["shape"]

_PROCESS = 0  # the file names no operating system's process
_BACKWARD = r"(?:^|/)gradients?(?:_tape)?(?:_\d+)?/"


def shape(path: Path) -> RawTrace:
    """The staging tables of one timeline; XspError where it holds no operator."""
    events, seen = load(path)
    lanes = lane.lanes(events_of(events, "M"))
    complete = events_of(events, "X")
    timed, lost = _timed(complete)
    placed = timed.join(lanes, on="pid", how="left", maintain_order="left").with_row_index("row", offset=1)
    placed = placed.with_columns(pl.col("row").cast(pl.Int64), thread(pl.col("pid"), pl.col("tid")))
    operators = placed.filter(pl.col("role") == lane.OPERATORS)
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
        "allocations": memory(events_of(events, "N"), snapshots, events_of(events, "C"), lanes, _PROCESS),
    }
    tables |= {name: frame_of(name) for name in RAW_TABLES if name not in tables}
    findings = [*lost, *_left_out(placed, work, operators), *_notes(seen, work)]
    return RawTrace(tables, RunFacts("TensorFlow timeline", "tensorflow", epoch_ns=0, rows_nest=False), tuple(findings))


def _timed(events: pl.DataFrame) -> tuple[pl.DataFrame, list[Finding]]:
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
    copies = placed.filter(pl.col("role") == lane.COPIES)
    streams = placed.filter(pl.col("role") == lane.STREAM)
    numbered = streams["device_id"].drop_nulls().unique().implode()
    unnumbered = placed.filter(pl.col("role") == lane.STREAMS, ~pl.col("device_id").is_in(numbered))
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
    device = _issued(operators, work).select(
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


def _issued(operators: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
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


def _left_out(placed: pl.DataFrame, work: pl.DataFrame, operators: pl.DataFrame) -> list[Finding]:
    on_device = placed.filter(pl.col("role").is_in([lane.STREAM, lane.STREAMS, lane.COPIES]))
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
