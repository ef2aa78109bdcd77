"""Work of the device: kernels, copies, fills, whole graph replays; and waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.cupti_dump.times import timed
from xsp_ingest.link.demangle import demangle_column
from xsp_ingest.raw import frame_of
from xsp_model import Kind, Level

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_ingest.cupti_dump.records import Dump
    from xsp_model import Finding

__all__ = ["copies", "kernels", "waits", "work"]

# The codes of CUpti_ActivityMemcpyKind and CUpti_ActivityMemoryKind; the words are those of every format.
_COPIES: Mapping[int, str] = {
    1: "Host-to-Device",
    2: "Device-to-Host",
    3: "Host-to-Array",
    4: "Array-to-Host",
    5: "Array-to-Array",
    6: "Array-to-Device",
    7: "Device-to-Array",
    8: "Device-to-Device",
    9: "Host-to-Host",
    10: "Peer-to-Peer",
}
_MEMORY: Mapping[int, str] = {
    1: "Pageable",
    2: "Pinned",
    3: "Device",
    4: "Array",
    5: "Managed",
    6: "Device Static",
    7: "Managed Static",
}
_WAITS: Mapping[int, str] = {1: "Event sync", 2: "Stream wait sync", 3: "Stream sync", 4: "Context sync"}
_UNKNOWN = "Unknown"
_NO_STREAM = 0xFFFFFFFF
_SIZES = {f"{what}{axis}": f"{what}_{axis.lower()}" for what in ("grid", "block") for axis in "XYZ"}


def work(dump: Dump) -> tuple[pl.DataFrame, list[Finding]]:
    """The spans of everything that ran on a device."""
    kernel = dump.of("CONCURRENT_KERNEL", "KERNEL")
    name = demangle_column(kernel["name"]).fill_null("[unnamed kernel]").alias("name")
    copy = dump.of("MEMCPY", "MEMCPY2")
    copied = pl.format("[CUDA memcpy {}]", _word("copyKind", _COPIES)).alias("name")
    graph = dump.of("GRAPH_TRACE")
    replay = pl.when(pl.col("graphId").is_null()).then(pl.lit("[CUDA graph]"))
    parts = [
        _spans(kernel.with_columns(name), Kind.KERNEL, "kernels", dump),
        _spans(copy.with_columns(copied), Kind.MEMCPY, "copies", dump),
        _spans(dump.of("MEMSET").with_columns(pl.lit("[CUDA memset]").alias("name")), Kind.MEMSET, "fills", dump),
        _spans(
            graph.with_columns(replay.otherwise(pl.format("[CUDA graph {}]", "graphId")).alias("name")),
            Kind.GRAPH,
            "graph replays",
            dump,
        ),
    ]
    return pl.concat([spans for spans, _ in parts]), [finding for _, found in parts for finding in found]


def _spans(rows: pl.DataFrame, kind: Kind, what: str, dump: Dump) -> tuple[pl.DataFrame, list[Finding]]:
    rows, found = timed(rows, what, device=True)
    spans = rows.select(
        "row",
        pl.lit(str(Level.KERNEL)).alias("level"),
        pl.lit(str(kind)).alias("kind"),
        "name",
        "start_ns",
        "duration_ns",
        dump.process.alias("process_id"),
        pl.col("deviceId").alias("device_id"),
        pl.col("contextId").alias("context_id"),
        pl.col("streamId").alias("stream_id"),
        pl.when(pl.col("correlationId") != 0).then(pl.col("correlationId")).alias("correlation_id"),
    )
    return frame_of("spans", spans), found


def kernels(dump: Dump) -> pl.DataFrame:
    """How kernels were launched."""
    rows = dump.of("CONCURRENT_KERNEL", "KERNEL")
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


def copies(dump: Dump) -> pl.DataFrame:
    """What was copied and filled."""
    copied = dump.of("MEMCPY", "MEMCPY2").select(
        "row",
        "bytes",
        _word("copyKind", _COPIES).alias("copy_kind"),
        _word("srcKind", _MEMORY).alias("source_kind"),
        _word("dstKind", _MEMORY).alias("destination_kind"),
    )
    filled = dump.of("MEMSET").select("row", "bytes", _word("memoryKind", _MEMORY).alias("destination_kind"))
    return pl.concat([frame_of("copies", copied), frame_of("copies", filled)])


def waits(dump: Dump) -> tuple[pl.DataFrame, list[Finding]]:
    """Waits as the device reports them; their calls are among the runtime's."""
    rows, found = timed(dump.of("SYNCHRONIZATION"), "waits", device=False)
    spans = rows.select(
        "row",
        pl.lit(str(Level.RUNTIME)).alias("level"),
        pl.lit(str(Kind.SYNC)).alias("kind"),
        _word("type", _WAITS).alias("name"),
        "start_ns",
        "duration_ns",
        dump.process.alias("process_id"),
        pl.col("contextId").alias("context_id"),
        pl.when(pl.col("streamId") != _NO_STREAM).then(pl.col("streamId")).alias("stream_id"),
        pl.col("correlationId").alias("correlation_id"),
    )
    return frame_of("spans", spans), found


def _word(column: str, words: Mapping[int, str]) -> pl.Expr:
    return pl.col(column).replace_strict(words, default=_UNKNOWN, return_dtype=pl.String)
