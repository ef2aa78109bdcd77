"""Time series: samples of GPU metrics, and device memory in use."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.nsys.tables.host import closed_duration
from xsp_ingest.formats.nsys.tables.interface import process_of
from xsp_ingest.formats.nsys.tables.rows import ExportRows
from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_ingest.formats.nsys.tables.interface import Tables

__all__ = ["counters"]

_GPU = 0xFF  # of a typeId: which GPU
_MEMORY = "CUDA_GPU_MEMORY_USAGE_EVENTS"
_FREED = 1
_DEVICE_MEMORY = 2
_SERIES: Mapping[int, str] = {  # by CUPTI's kind of memory
    1: "pinned_bytes",
    2: "allocated_bytes",
    4: "managed_bytes",
    5: "static_bytes",
    6: "managed_bytes",
}
_HOST_FAULTS, _DEVICE_FAULTS = (f"CUDA_UM_{which}_PAGE_FAULT_EVENTS" for which in ("CPU", "GPU"))
_UNIT = re.compile(r"^(?P<name>.*?)\s*\[(?P<unit>[^\[\]]*)\]\s*$")


def counters(export: Tables) -> Iterator[ExportRows]:
    """One part for each kind of samples that the export has."""
    yield _gpu_metrics(export)
    yield _memory(export)
    yield _host_faults(export)
    yield _device_faults(export)


def _gpu_metrics(export: Tables) -> ExportRows:
    """Samples as nsys took them; percentages are shares, other units stay as the metric's name has them."""
    which = {"typeId": "type_id", "metricId": "metric_id"}
    samples = export.integers("GPU_METRICS", ("timestamp", *which)).rename(which)
    if samples.is_empty():
        return ExportRows({})
    samples = samples.with_columns(export.numbers("GPU_METRICS", "value").alias("value"))
    metrics = export.integers("TARGET_INFO_GPU_METRICS", tuple(which)).rename(which)
    names = export.texts("TARGET_INFO_GPU_METRICS", "metricName")
    named = metrics.with_columns(*_read(names)).unique(["type_id", "metric_id"], keep="first", maintain_order=True)
    joined = samples.join(named, on=["type_id", "metric_id"], how="left", maintain_order="left")
    lost = joined.filter(pl.any_horizontal(pl.col("timestamp", "value", "counter").is_null())).height
    sound = joined.drop_nulls(["timestamp", "value", "counter"]).with_columns((pl.col("type_id") & _GPU).alias("gpu"))
    rows = _ordinals(export, sound).select(
        pl.col("timestamp").alias("time_ns"),
        "counter",
        "device_id",
        (pl.col("value") * pl.col("scale")).alias("value"),
        "unit",
    )
    detail = "Samples of GPU metrics without time, value or name, left out"
    return ExportRows({"counters": rows}, (Finding(LedgerKind.GPU_METRIC_UNUSABLE, detail, lost),) if lost else ())


def _read(names: pl.Series) -> tuple[pl.Series, pl.Series, pl.Series]:
    """Counter, unit and factor of each metric's name, as `SMs Active [Throughput %]`."""
    matches = [_UNIT.match(name or "") for name in names]
    titles = [match["name"] if match else name for match, name in zip(matches, names, strict=True)]
    units = [match["unit"].strip() if match else "" for match in matches]
    shares = [unit.endswith("%") for unit in units]
    return (
        pl.Series("counter", titles, dtype=pl.String),
        pl.Series("unit", ["share" if s else u or "1" for s, u in zip(shares, units, strict=True)], dtype=pl.String),
        pl.Series("scale", [0.01 if s else 1.0 for s in shares], dtype=pl.Float64),
    )


def _ordinals(export: Tables, rows: pl.DataFrame) -> pl.DataFrame:
    """Adds `device_id`: the number programs know the GPU by where all of them agree, else the GPU's own."""
    seen = export.integers("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId")).drop_nulls(["gpuId", "cudaId"])
    agreed = seen.group_by("gpuId").agg(pl.col("cudaId").unique()).filter(pl.col("cudaId").list.len() == 1)
    one = agreed.select(pl.col("gpuId").alias("gpu"), pl.col("cudaId").list.first().alias("ordinal"))
    joined = rows.join(one, on="gpu", how="left", maintain_order="left")
    return joined.with_columns(pl.coalesce("ordinal", "gpu").alias("device_id"))


def _memory(export: Tables) -> ExportRows:
    """Bytes in use of each device and kind of memory after each allocation and release that was recorded."""
    columns = ("start", "globalPid", "deviceId", "address", "bytes", "memKind", "memoryOperationType")
    rows = export.integers(_MEMORY, columns)
    if rows.is_empty():
        return ExportRows({})
    kind = pl.col("memKind").replace_strict(_SERIES, default="other_bytes", return_dtype=pl.String)
    usable = rows.drop_nulls(["start", "bytes", "memoryOperationType"]).filter(pl.col("bytes") >= 0)
    change = pl.when(pl.col("memoryOperationType") == _FREED).then(-pl.col("bytes")).otherwise(pl.col("bytes"))
    changes = usable.select(
        pl.col("start").alias("time_ns"),
        kind.alias("counter"),
        pl.col("deviceId").alias("device_id"),
        change.cast(pl.Float64).alias("change"),
    ).sort("time_ns", maintain_order=True)
    series = changes.with_columns(pl.col("change").cum_sum().over("counter", "device_id").alias("value"))
    low = pl.min_horizontal(pl.col("value").min().over("counter", "device_id"), 0.0)
    # What is released but was never seen allocated was in use when the capture began.
    lifted = series.with_columns((pl.col("value") - low).alias("value"), pl.lit("byte").alias("unit"))
    before = series.group_by("counter", "device_id").agg(pl.col("value").min()).filter(pl.col("value") < 0).height
    tables = {"counters": lifted.drop("change"), "allocations": _blocks(usable, change)}
    return ExportRows(tables, _doubts(rows.height - usable.height, before))


def _blocks(usable: pl.DataFrame, change: pl.Expr) -> pl.DataFrame:
    """The blocks of device memory that the driver gave out and took back."""
    return usable.filter(pl.col("memKind") == _DEVICE_MEMORY).select(
        pl.col("start").alias("time_ns"),
        process_of(pl.col("globalPid")).alias("process_id"),
        pl.col("deviceId").alias("device_id"),
        change.alias("bytes"),
        pl.when(pl.col("address") != 0).then(pl.col("address")).alias("address"),
    )


def _host_faults(export: Tables) -> ExportRows:
    rows = export.integers(_HOST_FAULTS, ("start", "globalPid", "address", "CpuInstruction"))
    instructions = export.strings.of(rows["CpuInstruction"]).cast(pl.String).alias("instruction")
    return _faults(rows.with_columns(instructions, count=pl.lit(1, pl.Int64)), _HOST_FAULTS)


def _device_faults(export: Tables) -> ExportRows:
    columns = ("start", "end", "globalPid", "deviceId", "address", "numberOfPageFaults")
    rows = export.integers(_DEVICE_FAULTS, columns).rename({"deviceId": "device_id", "numberOfPageFaults": "count"})
    return _faults(rows.with_columns(closed_duration()), _DEVICE_FAULTS)


def _faults(rows: pl.DataFrame, table: str) -> ExportRows:
    usable = rows.drop_nulls(["start", "count"])
    faults = usable.with_columns(pl.col("start").alias("time_ns"), process_of(pl.col("globalPid")).alias("process_id"))
    lost = Finding(LedgerKind.MISSING_TIME, f"Rows of {table} without time or number", rows.height - usable.height)
    return ExportRows({"page_faults": faults}, (lost,) if lost.count else ())


def _doubts(unusable: int, before: int) -> tuple[Finding, ...]:
    findings = (
        Finding(
            LedgerKind.UNUSABLE_MEMORY_EVENT, f"Rows of {_MEMORY} without time, size or operation, left out", unusable
        ),
        Finding(LedgerKind.MEMORY_IN_USE_BEFORE, count=before),
    )
    return tuple(f for f in findings if f.count)
