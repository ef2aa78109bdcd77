"""From the common columns to the staging tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.counters.amd_names import AMD, unit_of
from xsp_ingest.counters.formula import Measured, canonical
from xsp_ingest.formats.rocprofv3.records import DISPATCH
from xsp_ingest.link.range_rules import NVTX, classify, module_ranges, plain_name
from xsp_ingest.staging.intervals import with_times
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import Finding, Kind, LedgerKind, Level

if TYPE_CHECKING:
    from xsp_ingest.formats.rocprofv3.records import Records
    from xsp_ingest.ingester import Options

__all__ = ["shape"]

_TOOL = "rocprofv3"
_COMMON = ("row", "start_ns", "duration_ns")
_MARKER_RANGE = r"(?i)^MARKER_(?:CORE_RANGE_|CORE_|)API"
_MARKER_CALL = r"^roctx[A-Z]\w*$"  # the library's own functions, where the text of the range is not there
_LIBRARY = r"(?i)^(RCCL|ROCDECODE|ROCJPEG|OMPT)"


def shape(records: Records, options: Options) -> RawTrace:
    """The staging tables of one run."""
    findings = [_missing_dispatches(records.kernels)]
    first, parts = 0, []
    for rows, what, device in (
        (records.kernels, "kernels", True),
        (records.copies, "copies", True),
        (records.calls, "calls and markers", False),
    ):
        sound, odd = with_times(rows, what, device=device)
        parts.append(sound.with_columns(row=pl.int_range(pl.len(), dtype=pl.Int64) + first))
        first += sound.height
        findings += odd
    kernels, copies, calls = parts
    marks = pl.col("domain").str.contains(_MARKER_RANGE)
    named = calls.with_columns(pl.col("name").fill_null("[unnamed call]"))
    marked, layers, unread = _markers(named.filter(marks & ~pl.col("name").str.contains(_MARKER_CALL)), options)
    counted, uncounted = _metrics(kernels, records.counts)
    findings += uncounted
    tables = {name: frame_of(name) for name in RAW_TABLES} | {
        "spans": pl.concat([_kernels(kernels), _copies(copies), _calls(named.filter(~marks)), marked]),
        "kernels": _launches(kernels),
        "copies": _copy_facts(copies),
        "ranges": _range_facts(named.filter(marks & ~pl.col("name").str.contains(_MARKER_CALL))),
        "layers": frame_of("layers", layers),
        "devices": frame_of("devices", records.devices),
        "metrics": counted,
    }
    return RawTrace(
        tables, RunFacts(profiler="rocprofv3"), (*(f for f in (*records.findings, *findings) if f.count), *unread)
    )


def _missing_dispatches(kernels: pl.DataFrame) -> Finding:
    """How many numbers of dispatches lack between each process's first and last; the tool counts them one by one."""
    numbered = (
        kernels.drop_nulls("dispatch")
        .group_by("process")
        .agg((pl.col("dispatch").max() - pl.col("dispatch").min() + 1 - pl.col("dispatch").n_unique()).alias("missing"))
    )
    return Finding(LedgerKind.MISSING_DISPATCHES, count=int(numbered["missing"].sum()))


def _device_columns() -> list[pl.Expr]:
    return [
        pl.col("process").alias("process_id"),
        pl.col("agent").alias("device_id"),
        pl.col("stream").alias("stream_id"),
        pl.when(pl.col("correlation") != 0).then(pl.col("correlation")).alias("correlation_id"),
    ]


def _as(level: Level, kind: Kind) -> list[pl.Expr]:
    return [pl.lit(str(level)).alias("level"), pl.lit(str(kind)).alias("kind")]


def _kernels(rows: pl.DataFrame) -> pl.DataFrame:
    name = pl.col("name").fill_null("[unnamed kernel]")
    return frame_of("spans", rows.select(*_COMMON, name, *_as(Level.KERNEL, Kind.KERNEL), *_device_columns()))


def _launches(rows: pl.DataFrame) -> pl.DataFrame:
    """rocprofv3 counts a grid in threads; here, as everywhere, it is in blocks.

    Registers of a thread are those of both kinds, which share one file since CDNA 2.
    """
    grid = [
        pl.when(pl.col(f"block_{axis}") > 0)
        .then((pl.col(f"threads_{axis}") - 1) // pl.col(f"block_{axis}") + 1)
        .alias(f"grid_{axis}")
        for axis in "xyz"
    ]
    blocks = [pl.col(f"block_{axis}") for axis in "xyz"]
    registers = pl.col("registers") + pl.col("accumulation_registers").fill_null(0)
    sizes = [registers.alias("registers_per_thread"), pl.col("shared").alias("shared_bytes")]
    return frame_of("kernels", rows.select("row", *grid, *blocks, *sizes))


def _direction() -> pl.Expr:
    """`MEMORY_COPY_HOST_TO_DEVICE`, `HOST_TO_DEVICE`: as `Host-to-Device`."""
    ends = pl.col("direction").str.extract_groups(r"(?i)(HOST|DEVICE)_TO_(HOST|DEVICE)$")
    first, second = (ends.struct[n].str.to_titlecase() for n in range(2))
    return pl.format("{}-to-{}", first, second).fill_null("Unknown")


def _copies(rows: pl.DataFrame) -> pl.DataFrame:
    name = pl.format("[HIP memcpy {}]", _direction()).alias("name")
    return frame_of("spans", rows.select(*_COMMON, name, *_as(Level.KERNEL, Kind.MEMCPY), *_device_columns()))


def _copy_facts(rows: pl.DataFrame) -> pl.DataFrame:
    return frame_of("copies", rows.select("row", "bytes", _direction().alias("copy_kind")))


def _calls(rows: pl.DataFrame) -> pl.DataFrame:
    library = pl.col("domain").str.contains(_LIBRARY)
    level = pl.when(library).then(pl.lit(str(Level.LIBRARY))).otherwise(pl.lit(str(Level.RUNTIME))).alias("level")
    where = [pl.col("process").alias("process_id"), pl.col("thread").alias("thread_id")]
    correlation = pl.when(~library & (pl.col("correlation") != 0)).then(pl.col("correlation")).alias("correlation_id")
    kind = pl.lit(str(Kind.CALL)).alias("kind")
    return frame_of("spans", rows.select(*_COMMON, "name", level, kind, *where, correlation))


def _markers(rows: pl.DataFrame, options: Options) -> tuple[pl.DataFrame, pl.DataFrame, tuple[Finding, ...]]:
    """Spans of ranges, what those of modules say of layers, and what could not be read of it."""
    where = pl.col("process").alias("process_id"), pl.col("thread").alias("thread_id")
    named = rows.select(*_COMMON, plain_name(pl.col("name")), pl.col("name").alias("text"), *where)
    named = named.with_columns((pl.col("name") != pl.col("text")).alias("numbered"))
    named, layers, unread = module_ranges(named)
    levels = classify(named, NVTX, model_ranges=options.model_ranges, layer_ranges=options.layer_ranges)
    return frame_of("spans", named.hstack(levels)), layers, unread


def _range_facts(rows: pl.DataFrame) -> pl.DataFrame:
    facts = rows.select("row", pl.col("correlation").alias("range_id"), pl.col("name").alias("text"))
    return frame_of("ranges", facts)


def _metrics(kernels: pl.DataFrame, counts: pl.DataFrame) -> tuple[pl.DataFrame, list[Finding]]:
    """The staging table `metrics`, and what is of no kernel; a counter's instances are added up, as the tool does."""
    if counts.is_empty():
        return frame_of("metrics"), []
    sums = counts.group_by(*DISPATCH, "counter", maintain_order=True).agg(pl.col("value").sum())
    of_kernels = kernels.select("row", *DISPATCH).drop_nulls("dispatch").unique(DISPATCH, keep="first")
    placed = sums.drop_nulls("counter").join(of_kernels, on=DISPATCH, how="inner", nulls_equal=True)
    lost = Finding(LedgerKind.COUNTERS_OF_NO_KERNEL, count=sums.height - placed.height)
    if placed.is_empty():
        return frame_of("metrics"), [lost]
    wide = placed.sort("row", "counter").pivot("counter", index="row", values="value", maintain_order=True)
    names = sorted(name for name in wide.columns if name != "row")
    measured = Measured(wide.select("row", *names), {name: unit_of(name) for name in names}, _TOOL)
    return frame_of("metrics", canonical(measured, AMD)), [lost]
