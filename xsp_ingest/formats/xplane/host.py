"""The events of a host plane, each with what it is: a call, an operator, a step, a range, memory, or left out."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.values import natural
from xsp_ingest.formats.xplane.statistics import AMOUNTS, NUMBERS, TEXTS
from xsp_ingest.staging.intervals import MAX_DURATION_NS
from xsp_model import Finding, LedgerKind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xsp_ingest.formats.xplane.plane import Plane

__all__ = ["PLANE", "Role", "device_planes", "host_events", "left_out", "plausible"]

PLANE = "/host:CPU"
"""What the names of the planes of host threads begin with."""
_GPU = "/device:GPU:"
_MEMORY_EVENTS = ("MemoryAllocation", "MemoryDeallocation")
_OPERATOR = r"^([A-Za-z0-9._][\w.\\/>-]*):([A-Za-z_]\w*)$"
_DATASET = r"^Iterator::"
_MODULE = r"^(.+):XLA GPU module$"


class Role(StrEnum):
    """What an event of a host plane is."""

    MEMORY = "memory"
    CALL = "call"  # of the device's driver, as CUPTI or rocTracer saw it
    STEP = "step"
    OPERATOR = "operator"  # of TensorFlow
    THUNK = "thunk"  # one instruction of a compiled program
    MODULE = "module"  # one run of a compiled program
    END = "end"  # the end of a thunk, as an event of its own
    MOMENT = "moment"  # has no duration
    RANGE = "range"


_LEFT_OUT = {
    Role.END: "ends of thunks were not kept; the thunks were",
    Role.MOMENT: "events without a duration were not kept",
}


def device_planes(planes: Iterable[Plane]) -> list[tuple[int, Plane]]:
    """The planes of GPUs with the devices' numbers."""
    return [
        (number, plane)
        for plane in planes
        if plane.name.startswith(_GPU) and (number := natural(plane.name.removeprefix(_GPU))) is not None
    ]


def host_events(plane: Plane, process_id: int, known_ops: pl.Series) -> pl.DataFrame:
    """One row an event with `role`, `thread_id`, `operator` and `operator_type`, and every statistic.

    `known_ops` are names of instructions that device work refers to: an event of such a name ran one of them.
    """
    metadata = _meanings(plane.metadata, known_ops)
    lines = plane.lines.select("line", pl.col("line_id").alias("thread_id"))
    stats = [plane.stat(name) for name in (*NUMBERS, *AMOUNTS, *TEXTS)]
    role = (
        pl.when((pl.col("meaning") == Role.MEMORY) & pl.col("allocation_bytes").is_not_null())
        .then(pl.lit(str(Role.MEMORY)))
        .when(pl.col("meaning") == Role.END)
        .then(pl.col("meaning"))
        .when(pl.col("correlation_id").is_not_null())
        .then(pl.lit(str(Role.CALL)))
        .when(pl.col("step_num").is_not_null())
        .then(pl.lit(str(Role.STEP)))
        .when(pl.col("hlo_op").is_not_null())
        .then(pl.lit(str(Role.THUNK)))
        .when(pl.col("meaning").is_not_null() & (pl.col("meaning") != Role.MEMORY))
        .then(pl.col("meaning"))
        .when(pl.col("duration_ns") <= 0)
        .then(pl.lit(str(Role.MOMENT)))
        .otherwise(pl.lit(str(Role.RANGE)))
    )
    return (
        plane.events.select("line", "metadata_id", "start_ns", "duration_ns", *stats)
        .join(metadata, on="metadata_id", how="left", maintain_order="left")
        .join(lines, on="line", how="left", maintain_order="left")
        .with_columns(role.alias("role"), pl.lit(process_id, pl.Int64).alias("process_id"))
        .with_columns(pl.col("event_name", "operator").fill_null(""))  # of a name that the file does not hold
        .drop("meaning")
    )


def _meanings(metadata: pl.DataFrame, known_ops: pl.Series) -> pl.DataFrame:
    """What all events of a name are, as far as the name says."""
    name = pl.col("event_name")
    is_operator = name.str.contains(_OPERATOR) & ~name.str.contains("::", literal=True)
    meaning = (
        pl.when(name.is_in(_MEMORY_EVENTS))
        .then(pl.lit(str(Role.MEMORY)))
        .when(name.str.starts_with("end: "))
        .then(pl.lit(str(Role.END)))
        .when(name.str.contains(_MODULE))
        .then(pl.lit(str(Role.MODULE)))
        .when(is_operator | name.str.contains(_DATASET))
        .then(pl.lit(str(Role.OPERATOR)))
        .when(name.is_in(known_ops.implode()))
        .then(pl.lit(str(Role.THUNK)))
    )
    return metadata.select(
        "metadata_id",
        "event_name",
        meaning.alias("meaning"),
        pl.when(is_operator)
        .then(name.str.extract(_OPERATOR, 1))
        .otherwise(pl.coalesce(name.str.extract(_MODULE, 1), name))
        .alias("operator"),
        pl.when(is_operator).then(name.str.extract(_OPERATOR, 2)).otherwise(pl.lit("Dataset")).alias("operator_type"),
    )


def left_out(events: pl.DataFrame) -> list[Finding]:
    """Counts the events that are known and deliberately not kept."""
    counts = dict(events.group_by("role").len().iter_rows())
    return [Finding(LedgerKind.EVENTS_LEFT_OUT, why, counts.get(str(role), 0)) for role, why in _LEFT_OUT.items()]


def plausible(events: pl.DataFrame) -> tuple[pl.DataFrame, list[Finding]]:
    """The events with no negative duration and none of more than a day, and how many had to be mended."""
    negative, absurd = pl.col("duration_ns") < 0, pl.col("duration_ns") > MAX_DURATION_NS
    counts = events.select(negative.sum().alias("negative"), absurd.sum().alias("absurd")).row(0)
    mended = events.with_columns(
        pl.when(negative | absurd).then(0).otherwise(pl.col("duration_ns")).alias("duration_ns")
    )
    advice = "Their time is missing from every sum"
    details = (
        (LedgerKind.NEGATIVE_DURATION, "events with a negative duration were taken as 0 ns long", counts[0]),
        (LedgerKind.ABSURD_DURATION, "events longer than a day were taken as 0 ns long", counts[1]),
    )
    return mended, [Finding(kind, detail, count, Severity.ERROR, advice=advice) for kind, detail, count in details]
