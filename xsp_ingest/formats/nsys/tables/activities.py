"""What the device did (kernels, copies, fills, whole graph replays), and the devices themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.nsys.tables.interface import ExportRows, label, process_of, rows_with_start
from xsp_ingest.staging.cuda_names import COPY_KINDS, MEMORY_KINDS
from xsp_model import Finding, Kind, LedgerKind, Level, XspError
from xsp_model.devices import FP32_LANES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_ingest.formats.nsys.tables.interface import Tables

__all__ = ["NAMES", "activities", "devices", "graph_traces", "memcpy", "memset", "repeated_rows"]

_COMMON = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
_SOURCE_COLUMNS = ("start", "end", "deviceId", "streamId", "correlationId")
NAMES = ("demangledName", "shortName", "mangledName")
"""A kernel's name is the first of these that is there."""
_LAUNCH = {
    "gridX": "grid_x",
    "gridY": "grid_y",
    "gridZ": "grid_z",
    "blockX": "block_x",
    "blockY": "block_y",
    "blockZ": "block_z",
    "registersPerThread": "registers_per_thread",
    "staticSharedMemory": "static_shared_bytes",
    "dynamicSharedMemory": "dynamic_shared_bytes",
}
MIGRATIONS = (11, 12, 13)
"""Kinds of copies by which unified memory moves."""
_GRAPH = ("graphId", "graphNodeId")


def activities(database: Tables) -> Iterator[ExportRows]:
    """One part for each table of device work that the file has."""
    yield _kernels(database)
    yield memcpy(database)
    yield memset(database)
    yield graph_traces(database)


def _kernels(database: Tables) -> ExportRows:
    rows, findings = _read(database, "KERNEL", (*NAMES, *_LAUNCH, *_GRAPH))
    ids = rows.select(pl.coalesce(NAMES).alias("name"))["name"]
    names = database.strings.of(ids).fill_null("[unnamed kernel]")
    shared = pl.col("staticSharedMemory") + pl.col("dynamicSharedMemory")
    details = rows.select(
        "row",
        *(pl.col(theirs).alias(ours) for theirs, ours in _LAUNCH.items()),
        shared.alias("shared_bytes"),
        *_graph_ids(),
    )
    return ExportRows({"spans": _spans(rows.with_columns(names), Kind.KERNEL), "kernels": details}, findings)


def _graph_ids() -> tuple[pl.Expr, pl.Expr]:
    # 0 stands for "of no graph".
    ids = {column: pl.when(pl.col(column) != 0).then(pl.col(column)) for column in _GRAPH}
    return ids["graphId"].alias("graph_id"), ids["graphNodeId"].alias("graph_node_id")


def memcpy(database: Tables) -> ExportRows:
    """Copies."""
    rows, findings = _read(database, "MEMCPY", ("bytes", "copyKind", "srcKind", "dstKind", "virtualAddress"))
    kind = label(pl.col("copyKind"), COPY_KINDS, otherwise="Unknown").fill_null("Unknown")
    details = rows.select(
        "row",
        "bytes",
        kind.alias("copy_kind"),
        label(pl.col("srcKind"), MEMORY_KINDS, otherwise="Unknown").alias("source_kind"),
        label(pl.col("dstKind"), MEMORY_KINDS, otherwise="Unknown").alias("destination_kind"),
        pl.when(pl.col("copyKind").is_in(MIGRATIONS)).then(pl.col("virtualAddress")).alias("virtual_address"),
    )
    named = rows.with_columns(pl.format("[CUDA memcpy {}]", kind).alias("name"))
    return ExportRows({"spans": _spans(named, Kind.MEMCPY), "copies": details}, findings)


def memset(database: Tables) -> ExportRows:
    """Fills."""
    rows, findings = _read(database, "MEMSET", ("bytes", "memKind"))
    where = label(pl.col("memKind"), MEMORY_KINDS, otherwise="Unknown")
    details = rows.select("row", "bytes", where.alias("destination_kind"))
    named = rows.with_columns(pl.lit("[CUDA memset]").alias("name"))
    return ExportRows({"spans": _spans(named, Kind.MEMSET), "copies": details}, findings)


def graph_traces(database: Tables) -> ExportRows:
    """Replays that were recorded whole: the kernels inside them are not in the file."""
    rows, findings = _read(database, "GRAPH_TRACE", ("graphId",))
    name = pl.when(pl.col("graphId").is_null()).then(pl.lit("[CUDA graph]"))
    named = rows.with_columns(name.otherwise(pl.format("[CUDA graph {}]", "graphId")).alias("name"))
    return ExportRows({"spans": _spans(named, Kind.GRAPH)}, findings)


def _read(database: Tables, which: str, columns: Sequence[str]) -> tuple[pl.DataFrame, tuple[Finding, ...]]:
    """The activities of one table, each once, `row` numbering them, with `duration_ns` that is never negative."""
    table = f"CUPTI_ACTIVITY_KIND_{which}"
    rows = database.integers(table, (*_COMMON, *columns))
    again = repeated_rows(database, table, rows)
    rows = rows.filter(~pl.col("rowid").is_in(again)) if again else rows
    negative = int((rows["end"] < rows["start"]).sum())
    unplaced = int((rows["start"].is_null() | rows["end"].is_null()).sum())
    rows = rows_with_start(rows).with_columns(
        pl.max_horizontal(pl.col("end") - pl.col("start"), pl.lit(0)).fill_null(0).alias("duration_ns")
    )
    findings = (
        Finding(
            LedgerKind.DUPLICATE_EVENT,
            f"Rows of {table} that repeat another one in every column; each activity was kept once",
            len(again),
        ),
        Finding(
            LedgerKind.NEGATIVE_DURATION,
            f"Activities of {table} that end before they start; kept with duration 0",
            negative,
        ),
        Finding(
            LedgerKind.MISSING_TIME,
            f"Activities of {table} without start (left out) or end (kept with duration 0)",
            unplaced,
        ),
    )
    return rows.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64)), tuple(f for f in findings if f.count)


def repeated_rows(database: Tables, table: str, rows: pl.DataFrame) -> list[int]:
    """Row ids of activities (with `start` and `end`) that equal an earlier one in every column of the file."""
    if _rises(rows["start"]):
        return []
    # Work on one device seldom starts twice in a nanosecond: few rows are left to look at in full.
    starts = rows["start"].sort()  # at once where the rows are sorted
    twice = starts.filter((starts == starts.shift()) | (starts.is_null() & starts.shift().is_null()))
    together = rows.filter(pl.col("start").is_in(twice.implode(), nulls_equal=True)) if len(twice) else rows.clear()
    if not together.select(pl.struct("start", "end").is_duplicated().any()).item():
        return []
    if not set(_SOURCE_COLUMNS).issubset(rows.columns):
        rows = database.integers(table, _SOURCE_COLUMNS)
        together = rows.filter(pl.col("rowid").is_in(together["rowid"].implode()))
    suspects = together.filter(pl.struct(_SOURCE_COLUMNS).is_duplicated())
    if suspects.is_empty():
        return []
    seen: set[tuple[object, ...]] = set()
    duplicates: list[int] = []
    rowids = suspects["rowid"].to_list()
    full_rows = database.whole_rows(table, rowids)
    if len(full_rows) != len(rowids):  # in a damaged file a row may be found by its position and not by its number
        raise XspError(f"the rows of {table} are not where the file's index has them", advice="Export it again")
    for suspect, values in zip(rowids, full_rows, strict=True):
        if values in seen:
            duplicates.append(suspect)
        seen.add(values)
    return duplicates


def _rises(start: pl.Series) -> bool:
    """Whether each one is greater than the one before, so that no two are the same."""
    if start.null_count():
        return False
    times = start.to_numpy()
    return bool((times[1:] > times[:-1]).all())


def _spans(rows: pl.DataFrame, kind: Kind) -> pl.DataFrame:
    # Correlation id 0 is what work has that no call of the host launched.
    correlation = pl.when(pl.col("correlationId") != 0).then(pl.col("correlationId"))
    return rows.select(
        "row",
        pl.lit(str(Level.KERNEL)).alias("level"),
        pl.lit(str(kind)).alias("kind"),
        "name",
        pl.col("start").alias("start_ns"),
        "duration_ns",
        process_of(pl.col("globalPid")).alias("process_id"),
        pl.col("deviceId").alias("device_id"),
        pl.col("contextId").alias("context_id"),
        pl.col("streamId").alias("stream_id"),
        correlation.alias("correlation_id"),
    )


# The GPUs of the file and the peak rates that follow from what it says about them.

_FLOP_PER_LANE = 2  # a fused multiply-add a cycle
_GPU = ("id", "totalMemory", "memoryBandwidth", "clockRate", "smCount", "cuDevice", "computeMajor", "computeMinor")


def devices(database: Tables) -> ExportRows:
    """One row a device as the program numbers it; a process that sees a subset of the GPUs has rows of its own."""
    gpus = database.integers("TARGET_INFO_GPU", _GPU)
    if gpus.is_empty():
        return ExportRows({})
    gpus = gpus.with_columns(database.texts("TARGET_INFO_GPU", "name"))
    return ExportRows({"devices": _with_device_ids(database, gpus).select(*_columns())})


def _with_device_ids(database: Tables, gpus: pl.DataFrame) -> pl.DataFrame:
    """Adds `device_id` (the CUDA ordinal) and `process_id`."""
    seen = database.integers("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"))
    seen = seen.drop_nulls(["gpuId", "cudaId"]).unique(["cudaId", "pid"], keep="first", maintain_order=True)
    if not seen.is_empty():
        return seen.join(gpus, left_on="gpuId", right_on="id", maintain_order="left").with_columns(
            pl.col("cudaId").alias("device_id"), pl.col("pid").alias("process_id")
        )
    # Older files do not map; there the driver's own ordinal is the program's, unless it chose among the GPUs.
    ordinal = pl.col("cuDevice") if gpus["cuDevice"].is_unique().all() else pl.col("id")
    numbered = gpus.with_columns(
        pl.coalesce(ordinal, "id").alias("device_id"), pl.lit(None, dtype=pl.Int64).alias("process_id")
    )
    return numbered.drop_nulls("device_id")


def _columns() -> list[pl.Expr]:
    capability = pl.when(pl.col("computeMajor") > 0).then(pl.format("{}.{}", "computeMajor", "computeMinor"))
    lanes = pl.coalesce(
        _lanes(pl.format("{}.{}", "computeMajor", "computeMinor")), _lanes(pl.col("computeMajor").cast(pl.String))
    )
    clock = pl.when(pl.col("clockRate") > 0).then(pl.col("clockRate"))
    bandwidth = pl.when(pl.col("memoryBandwidth") > 0).then(pl.col("memoryBandwidth")).cast(pl.Float64)
    flop_per_s = (pl.col("smCount") * lanes * _FLOP_PER_LANE).cast(pl.Float64) * clock
    megahertz = (clock / 1e6).round().cast(pl.Int64)
    text = pl.format(
        "derived at {} MHz: {} multiprocessors x {} FP32 lanes x 2; bandwidth from the driver",
        megahertz,
        "smCount",
        lanes,
    )
    return [
        pl.col("device_id"),
        pl.col("process_id"),
        pl.col("name"),
        pl.col("smCount").alias("multiprocessor_count"),
        capability.alias("compute_capability"),
        clock.alias("clock_hz"),
        pl.col("totalMemory").alias("memory_bytes"),
        bandwidth.alias("dram_byte_per_s"),
        flop_per_s.alias("fp32_flop_per_s"),
        pl.when(flop_per_s.is_not_null())
        .then(text)
        .when(bandwidth.is_not_null())
        .then(pl.lit("bandwidth from the driver"))
        .alias("peak_source"),
    ]


def _lanes(capability: pl.Expr) -> pl.Expr:
    return capability.replace_strict(FP32_LANES, default=None, return_dtype=pl.Int64)
