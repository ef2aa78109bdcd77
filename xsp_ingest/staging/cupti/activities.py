"""Work of the device: kernels, copies, fills, whole graph replays; and waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.link.demangle import demangle_column
from xsp_ingest.staging.cuda_enums import COPY_KINDS, MEMORY_KINDS, SYNC_KINDS
from xsp_ingest.staging.intervals import with_times
from xsp_ingest.staging.raw import frame_of
from xsp_model import Kind, Level

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_ingest.staging.cupti.records import Records
    from xsp_model import Finding

__all__ = ["activities", "copies", "kernels", "waits"]

# CUPTI's codes of memory are one above those of Nsight's exports; its other codes are the same.
_MEMORY = {code + 1: label for code, label in MEMORY_KINDS.items()}
_UNKNOWN = "Unknown"
_NO_STREAM = 0xFFFFFFFF
_SIZES = {f"{what}{axis}": f"{what}_{axis.lower()}" for what in ("grid", "block") for axis in "XYZ"}


def activities(records: Records) -> tuple[pl.DataFrame, list[Finding]]:
    """The spans of everything that ran on a device."""
    kernel = records.of("CONCURRENT_KERNEL", "KERNEL")
    name = demangle_column(kernel["name"]).fill_null("[unnamed kernel]").alias("name")
    copy = records.of("MEMCPY", "MEMCPY2")
    copied = pl.format("[CUDA memcpy {}]", _label("copyKind", COPY_KINDS)).alias("name")
    graph = records.of("GRAPH_TRACE")
    replay = pl.when(pl.col("graphId").is_null()).then(pl.lit("[CUDA graph]"))
    parts = [
        _spans(kernel.with_columns(name), Kind.KERNEL, "kernels", records),
        _spans(copy.with_columns(copied), Kind.MEMCPY, "copies", records),
        _spans(records.of("MEMSET").with_columns(pl.lit("[CUDA memset]").alias("name")), Kind.MEMSET, "fills", records),
        _spans(
            graph.with_columns(replay.otherwise(pl.format("[CUDA graph {}]", "graphId")).alias("name")),
            Kind.GRAPH,
            "graph replays",
            records,
        ),
    ]
    return pl.concat([spans for spans, _ in parts]), [finding for _, findings in parts for finding in findings]


def _spans(rows: pl.DataFrame, kind: Kind, what: str, records: Records) -> tuple[pl.DataFrame, list[Finding]]:
    rows, findings = with_times(rows, what, device=True, zeros_unknown=True)
    spans = rows.select(
        "row",
        pl.lit(str(Level.KERNEL)).alias("level"),
        pl.lit(str(kind)).alias("kind"),
        "name",
        "start_ns",
        "duration_ns",
        records.process.alias("process_id"),
        pl.col("deviceId").alias("device_id"),
        pl.col("contextId").alias("context_id"),
        pl.col("streamId").alias("stream_id"),
        pl.when(pl.col("correlationId") != 0).then(pl.col("correlationId")).alias("correlation_id"),
    )
    return frame_of("spans", spans), findings


def kernels(records: Records) -> pl.DataFrame:
    """How kernels were launched."""
    rows = records.of("CONCURRENT_KERNEL", "KERNEL")
    return frame_of(
        "kernels",
        rows.select(
            "row",
            *(pl.col(theirs).alias(ours) for theirs, ours in _SIZES.items()),
            pl.col("registersPerThread").alias("registers_per_thread"),
            pl.col("staticSharedMemory").alias("static_shared_bytes"),
            pl.col("dynamicSharedMemory").alias("dynamic_shared_bytes"),
            (pl.col("staticSharedMemory") + pl.col("dynamicSharedMemory")).alias("shared_bytes"),
            pl.when(pl.col("graphId") != 0).then(pl.col("graphId")).alias("graph_id"),
            pl.when(pl.col("graphNodeId") != 0).then(pl.col("graphNodeId")).alias("graph_node_id"),
        ),
    )


def copies(records: Records) -> pl.DataFrame:
    """What was copied and filled."""
    copied = records.of("MEMCPY", "MEMCPY2").select(
        "row",
        "bytes",
        _label("copyKind", COPY_KINDS).alias("copy_kind"),
        _label("srcKind", _MEMORY).alias("source_kind"),
        _label("dstKind", _MEMORY).alias("destination_kind"),
    )
    filled = records.of("MEMSET").select("row", "bytes", _label("memoryKind", _MEMORY).alias("destination_kind"))
    return pl.concat([frame_of("copies", copied), frame_of("copies", filled)])


def waits(records: Records) -> tuple[pl.DataFrame, list[Finding]]:
    """Waits as the device reports them; their calls are among the runtime's."""
    rows, findings = with_times(records.of("SYNCHRONIZATION"), "waits", device=False, zeros_unknown=True)
    spans = rows.select(
        "row",
        pl.lit(str(Level.RUNTIME)).alias("level"),
        pl.lit(str(Kind.SYNC)).alias("kind"),
        _label("type", SYNC_KINDS).alias("name"),
        "start_ns",
        "duration_ns",
        records.process.alias("process_id"),
        pl.col("contextId").alias("context_id"),
        pl.when(pl.col("streamId") != _NO_STREAM).then(pl.col("streamId")).alias("stream_id"),
        pl.col("correlationId").alias("correlation_id"),
    )
    return frame_of("spans", spans), findings


def _label(column: str, labels: Mapping[int, str]) -> pl.Expr:
    return pl.col(column).replace_strict(labels, default=_UNKNOWN, return_dtype=pl.String)
