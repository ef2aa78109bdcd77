"""CUPTI's activity records: one table a kind, and as rows of a trace what device and host did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.link.range_rules import NVTX, classify, is_backward, module_ranges, plain_name
from xsp_ingest.staging.cuda_names import COPY_KINDS, MEMORY_KINDS, SYNC_KINDS, demangle_column
from xsp_ingest.staging.intervals import with_times
from xsp_ingest.staging.raw import frame_of
from xsp_model import Finding, Kind, LedgerKind, Level
from xsp_model.devices import fp32_lanes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_ingest.ingester import Options

__all__ = [
    "END",
    "KINDS",
    "KNOWN_UNUSED",
    "TYPES",
    "Host",
    "Records",
    "activities",
    "calls",
    "copies",
    "devices",
    "kernels",
    "markers",
    "operator_facts",
    "operators",
    "waits",
]

# Work of the device: kernels, copies, fills, whole graph replays; and waits for it.


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


# The devices of a dump and the peak rates that follow from what CUPTI says of them.
_FLOP_PER_LANE = 2  # a fused multiply-add a cycle
_HZ_PER_KHZ = 1_000
_MAX = 1 << 40  # kHz, kB/s: beyond, a value is none


def devices(records: Records) -> pl.DataFrame:
    """One row a device; CUPTI gives its clock in kHz and its bandwidth in kB/s."""
    rows = records.of("DEVICE").drop_nulls("id").unique("id", keep="first", maintain_order=True)
    capability = pl.format("{}.{}", "computeCapabilityMajor", "computeCapabilityMinor")
    rated = rows.with_columns(
        pl.when(pl.col("computeCapabilityMajor") > 0).then(capability).alias("capability"),
        *(pl.when(pl.col(n).is_between(1, _MAX)).then(pl.col(n)) for n in ("coreClockRate", "globalMemoryBandwidth")),
    )
    lanes = pl.Series("lanes", [fp32_lanes(each) for each in rated["capability"].to_list()], dtype=pl.Int64)
    clock = pl.col("coreClockRate") * _HZ_PER_KHZ
    flop_per_s = (pl.col("numMultiprocessors") * pl.col("lanes") * _FLOP_PER_LANE).cast(pl.Float64) * clock
    text = pl.format("derived at {} MHz; bandwidth from the driver", pl.col("coreClockRate") // _HZ_PER_KHZ)
    return frame_of(
        "devices",
        rated.with_columns(lanes).select(
            pl.col("id").alias("device_id"),
            "name",
            pl.col("numMultiprocessors").alias("multiprocessor_count"),
            pl.col("capability").alias("compute_capability"),
            clock.alias("clock_hz"),
            pl.col("globalMemorySize").alias("memory_bytes"),
            pl.col("globalMemoryBandwidth").cast(pl.Float64).mul(_HZ_PER_KHZ).alias("dram_byte_per_s"),
            flop_per_s.alias("fp32_flop_per_s"),
            pl.when(flop_per_s.is_not_null())
            .then(text)
            .when(pl.col("globalMemoryBandwidth").is_not_null())
            .then(pl.lit("bandwidth from the driver"))
            .alias("peak_source"),
        ),
    )


# What the host did: calls into CUDA, marked ranges, operators of the framework.
_MARK, _STARTS, _ENDS = 1, 2, 4  # bits of CUpti_ActivityFlag for markers
_LEVELS = {
    "application": (Level.APPLICATION, Kind.RANGE),
    "model": (Level.MODEL, Kind.STEP),
    "layer": (Level.LAYER, Kind.MODULE),
    "operator": (Level.OPERATOR, Kind.OPERATOR),
    "library": (Level.LIBRARY, Kind.CALL),
}
Host = tuple[pl.DataFrame, list[Finding]]
"""Spans, and what was odd about their records."""


def calls(records: Records) -> Host:
    """Runtime and driver calls; one whose name is not given is named by its callback id."""
    parts = []
    findings: list[Finding] = []
    for kind in ("RUNTIME", "DRIVER"):
        rows, odd = with_times(records.of(kind), f"{kind.lower()} calls", device=False, zeros_unknown=True)
        findings += odd
        unnamed = pl.format("[" + kind.lower() + " call {}]", pl.col("cbid").cast(pl.String).fill_null("?"))
        spans = rows.select(
            "row",
            pl.lit(str(Level.RUNTIME)).alias("level"),
            pl.lit(str(Kind.CALL)).alias("kind"),
            pl.coalesce("name", unnamed).alias("name"),
            *_common(records),
            pl.when(pl.col("correlationId") != 0).then(pl.col("correlationId")).alias("correlation_id"),
        )
        parts.append(frame_of("spans", spans))
    return pl.concat(parts), findings


def _common(records: Records) -> list[pl.Expr]:
    return [
        pl.col("start_ns"),
        pl.col("duration_ns"),
        records.process.alias("process_id"),
        pl.col("threadId").alias("thread_id"),
    ]


def operators(records: Records, rows: pl.DataFrame) -> Host:
    """Spans of the framework: operators, and where the writer says so layers, steps or library calls."""
    rows, findings = with_times(rows, "framework operators", device=False, zeros_unknown=True)
    level_name = pl.col("level").fill_null("operator")
    unknown = rows.filter(~level_name.is_in(list(_LEVELS))).height
    findings.append(
        Finding(LedgerKind.UNKNOWN_LEVEL, "framework operators of no known level; taken for operators", unknown)
    )
    level, kind = (
        level_name.replace_strict({name: str(pair[n]) for name, pair in _LEVELS.items()}, default=str(default))
        for n, default in enumerate((Level.OPERATOR, Kind.OPERATOR))
    )
    spans = rows.select(
        "row",
        level.alias("level"),
        kind.alias("kind"),
        pl.col("name").fill_null("[unnamed operator]"),
        *_common(records),
    )
    return frame_of("spans", spans), findings


def operator_facts(rows: pl.DataFrame) -> pl.DataFrame:
    """What the framework said of its operators."""
    return frame_of(
        "operators",
        rows.filter(pl.col("level").fill_null("operator") == "operator").select(
            "row",
            pl.col("sequenceNumber").alias("sequence_number"),
            pl.when(is_backward(pl.col("name"))).then(1).alias("forward_thread_id"),
            pl.col("externalId").alias("external_id"),
            pl.col("inputShapes").alias("input_shapes"),
            pl.col("inputTypes").alias("input_dtypes"),
        ),
    )


def markers(records: Records, options: Options) -> tuple[dict[str, pl.DataFrame], list[Finding]]:
    """Spans, `ranges` and `layers` of markers: a start and an end with one id, in one process."""
    rows = records.of("MARKER").with_columns(records.process)
    flags = pl.col("flags").fill_null(0)
    begun = rows.filter((flags & _STARTS) > 0)
    ended = rows.filter((flags & _ENDS) > 0).unique(["processId", "id"], keep="first", maintain_order=True)
    ended = ended.select("processId", "id", pl.col("timestamp").alias("end"), pl.col("threadId").alias("end_thread"))
    pairs = begun.join(ended, on=["processId", "id"], how="left", maintain_order="left")
    pairs, findings = with_times(pairs.rename({"timestamp": "start"}), "markers", device=False, zeros_unknown=True)
    marks = rows.filter((flags & _MARK) > 0).height
    findings.append(Finding(LedgerKind.NVTX_MARKS_SKIPPED, count=marks))
    pairs = pairs.with_columns(plain_name(pl.col("name").fill_null("")), pl.col("name").alias("text"))
    pairs = pairs.with_columns((pl.col("name") != pl.col("text")).fill_null(value=False).alias("numbered"))
    pairs, layers, unread = module_ranges(pairs.with_columns(_common(records)))
    pairs = pairs.hstack(classify(pairs, NVTX, model_ranges=options.model_ranges, layer_ranges=options.layer_ranges))
    name = pl.when(pl.col("name") != "").then("name").otherwise(pl.lit("[unnamed range]")).alias("name")
    spans = pairs.with_columns(name)
    elsewhere = pl.when(pl.col("end_thread") != pl.col("threadId")).then(pl.col("end_thread"))
    facts = pairs.select("row", pl.col("id").alias("range_id"), "text", "domain", elsewhere.alias("end_thread_id"))
    tables = {"spans": spans, "ranges": facts, "layers": layers}
    return {table: frame_of(table, rows) for table, rows in tables.items()}, [*findings, *unread]


# The fields of each kind of record, and what each of them may hold.

_TIMES = ("start", "end")
_WHERE = ("deviceId", "contextId", "streamId")
_GRAPH = ("graphId", "graphNodeId")
_SIZED_FIELDS = tuple(f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ")
_SHARED = ("registersPerThread", "staticSharedMemory", "dynamicSharedMemory")
_KERNEL = (*_TIMES, *_WHERE, "correlationId", "processId", "name", *_SIZED_FIELDS, *_SHARED, *_GRAPH)
_MEMCPY = (*_TIMES, *_WHERE, "correlationId", "processId", "bytes", "copyKind", "srcKind", "dstKind", *_GRAPH)
_CALL = (*_TIMES, "processId", "threadId", "correlationId", "cbid", "name")
END = "END"
"""The record that closes a dump of JSON lines."""
KINDS: Mapping[str, tuple[str, ...]] = {
    "KERNEL": _KERNEL,
    "CONCURRENT_KERNEL": _KERNEL,
    "MEMCPY": _MEMCPY,
    "MEMCPY2": _MEMCPY,
    "MEMSET": (*_TIMES, *_WHERE, "correlationId", "processId", "bytes", "memoryKind", *_GRAPH),
    "GRAPH_TRACE": (*_TIMES, *_WHERE, "correlationId", "processId", "graphId"),
    "RUNTIME": _CALL,
    "DRIVER": _CALL,
    "SYNCHRONIZATION": (*_TIMES, "contextId", "streamId", "correlationId", "processId", "type"),
    "EXTERNAL_CORRELATION": ("externalKind", "externalId", "correlationId", "processId"),
    "FRAMEWORK_OPERATOR": (
        *_TIMES,
        *("processId", "threadId", "externalKind", "externalId", "name", "level"),
        *("sequenceNumber", "inputShapes", "inputTypes"),
    ),
    "MARKER": ("timestamp", "id", "flags", "processId", "threadId", "name", "domain"),
    "OVERHEAD": (*_TIMES, "overheadKind"),
    "DEVICE": (
        *("id", "name", "computeCapabilityMajor", "computeCapabilityMinor", "numMultiprocessors"),
        *("coreClockRate", "globalMemoryBandwidth", "globalMemorySize"),
    ),
    END: ("records", "dropped"),
}
"""What is read: kinds by CUPTI's name (CUPTI_ACTIVITY_KIND_ without its prefix) and two of the format's own."""
KNOWN_UNUSED = frozenset(
    {
        *("CONTEXT", "NAME", "STREAM", "MARKER_DATA", "ENVIRONMENT", "FUNCTION", "MODULE", "DEVICE_ATTRIBUTE"),
        *("UNIFIED_MEMORY_COUNTER", "CUDA_EVENT", "NVLINK", "PCIE", "MEMORY", "MEMORY2", "MEMORY_POOL", "JIT"),
        *("INTERNAL_LAUNCH_API", "DEVICE_GRAPH_TRACE", "GRAPH_HOST_NODE", "HOST_LAUNCH", "GREEN_CONTEXT"),
        *("OPENACC_DATA", "OPENACC_LAUNCH", "OPENACC_OTHER", "OPENMP", "PC_SAMPLING", "MEM_DECOMPRESS", "CDP_KERNEL"),
    }
)
"""Kinds of CUPTI that say nothing that XSP asks for; a dump may hold them."""
_TEXTS = frozenset({"name", "domain", "level", "inputShapes", "inputTypes"})
TYPES: Mapping[str, pl.DataType] = {
    "kind": pl.String(),
    **{
        field: pl.String() if field in _TEXTS else pl.Int64()
        for field in dict.fromkeys(field for fields in KINDS.values() for field in fields)
    },
}
"""Every field that is read, with its type: integers, and texts."""


# CUPTI's activity records, one table a kind.


@dataclass
class Records:
    """A file's records by kind, each with its index in the file as `row`; and what was odd."""

    process_id: int | None
    """The process that was profiled, for records that do not say theirs."""
    kinds: dict[str, pl.DataFrame] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def process(self) -> pl.Expr:
        """The process a record is of: its own, else the file's; as `processId`."""
        return pl.col("processId").fill_null(pl.lit(self.process_id, pl.Int64))

    def of(self, *kinds: str) -> pl.DataFrame:
        """The records of these kinds (which have the same fields), in the order of the file."""
        tables = [self.kinds[kind] for kind in kinds if kind in self.kinds]
        if not tables:
            return pl.DataFrame(schema={"row": pl.Int64, **{name: TYPES[name] for name in KINDS[kinds[0]]}})
        return pl.concat(tables).sort("row") if len(tables) > 1 else tables[0]
