"""Each report of single events as rows of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.values import nanoseconds
from xsp_ingest.formats.nsys.tables.interface import ExportRows
from xsp_ingest.link.range_rules import NVTX, classify, module_ranges, operator_details, plain_name
from xsp_model import Finding, Kind, LedgerKind, Level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_ingest.formats.nsys.stats_csv.sections import Section
    from xsp_ingest.ingester import Options

__all__ = ["api_calls", "executions", "gpu_work", "numbered_calls", "range_rows"]

_FACTORS = {
    "": 1, "ns": 1, "nsec": 1, "us": 10**3, "usec": 10**3, "ms": 10**6, "msec": 10**6, "s": 10**9, "sec": 10**9,
    "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
}  # fmt: skip


def integers(section: Section, heading: str) -> pl.Series:
    """A column of numbers in ns, bytes or as they are; null where the cell is empty or no number."""
    cells = section.columns.get(heading)
    if cells is None:
        return pl.Series(heading, [None] * section.height, dtype=pl.Int64)
    factor = _FACTORS.get(section.units.get(heading, ""), 1)
    return pl.Series(heading, [nanoseconds(cell, factor) for cell in cells], dtype=pl.Int64)


def texts(section: Section, heading: str) -> pl.Series:
    """A column of texts, empty where there is no such column."""
    return pl.Series(heading, section.columns.get(heading) or [""] * section.height, dtype=pl.String)


_AXES = "xyz"
_COPY = "[CUDA memcpy "
_FILL = "[CUDA memset"
_MADE_UP = 1 << 40  # correlation ids of a report that has none


def _spans(frame: pl.DataFrame, level: Level, kind: pl.Expr, *more: str) -> pl.DataFrame:
    return frame.select(
        "row",
        pl.lit(str(level)).alias("level"),
        kind.alias("kind"),
        "name",
        "start_ns",
        _duration(),
        "process_id",
        *more,
    )


def _duration() -> pl.Expr:
    """The duration; a negative one is unknown."""
    return pl.when(pl.col("duration_ns") >= 0).then("duration_ns").alias("duration_ns")


def _number_rows(frame: pl.DataFrame, what: str) -> tuple[pl.DataFrame, tuple[Finding, ...]]:
    """The rows that have a start, numbered; the others are counted."""
    lost = frame["start_ns"].null_count()
    kept = frame.filter(pl.col("start_ns").is_not_null()).with_row_index("row")
    finding = Finding(LedgerKind.MISSING_TIME, f"Rows of {what} without a start, left out", lost)
    return kept.with_columns(pl.col("row").cast(pl.Int64)), (finding,) if lost else ()


def _correlation(section: Section, heading: str) -> pl.Series:
    ids = integers(section, heading)
    return pl.select(pl.when(ids != 0).then(ids)).to_series()


def api_calls(section: Section) -> pl.DataFrame:
    """The calls of cuda_api_trace, before they are numbered."""
    return pl.DataFrame(
        {
            "name": texts(section, "Name"),
            "start_ns": integers(section, "Start"),
            "duration_ns": integers(section, "Duration"),
            "process_id": integers(section, "Pid"),
            "thread_id": integers(section, "Tid"),
            "correlation_id": _correlation(section, "CorrID"),
        }
    )


def gpu_work(section: Section, calls: pl.DataFrame) -> ExportRows:
    """Kernels, copies and fills of cuda_gpu_trace; the process of each is that of the one call with its number."""
    device = pl.Series("device", texts(section, "Device"), dtype=pl.String)
    frame = pl.DataFrame(
        {
            "name": texts(section, "Name"),
            "start_ns": integers(section, "Start"),
            "duration_ns": integers(section, "Duration"),
            "correlation_id": _correlation(section, "CorrId"),
            "context_id": integers(section, "Ctx"),
            "stream_id": integers(section, "Strm"),
            "device_id": device.str.extract(r"\((\d+)\)\s*$").cast(pl.Int64, strict=False),
            **{f"grid_{axis}": integers(section, f"Grd{axis.upper()}") for axis in _AXES},
            **{f"block_{axis}": integers(section, f"Blk{axis.upper()}") for axis in _AXES},
            "registers_per_thread": integers(section, "Reg/Trd"),
            "static_shared_bytes": integers(section, "StcSMem"),
            "dynamic_shared_bytes": integers(section, "DymSMem"),
            "bytes": integers(section, "Bytes"),
            "source_kind": texts(section, "SrcMemKd"),
            "destination_kind": texts(section, "DstMemKd"),
        }
    )
    owners = calls.group_by("correlation_id").agg(pl.col("process_id").unique()).drop_nulls("correlation_id")
    one = owners.filter(pl.col("process_id").list.len() == 1).with_columns(pl.col("process_id").list.first())
    several = owners.filter(pl.col("process_id").list.len() > 1)
    unclear = frame.join(several, on="correlation_id", how="semi").height
    frame = frame.join(one, on="correlation_id", how="left", maintain_order="left")
    frame, findings = _number_rows(frame.with_columns(pl.col("duration_ns").clip(0).fill_null(0)), section.report)
    kind = (
        pl.when(pl.col("name").str.starts_with(_COPY))
        .then(pl.lit(str(Kind.MEMCPY)))
        .when(pl.col("name").str.starts_with(_FILL))
        .then(pl.lit(str(Kind.MEMSET)))
        .otherwise(pl.lit(str(Kind.KERNEL)))
    )
    spans = _spans(frame, Level.KERNEL, kind, "device_id", "context_id", "stream_id", "correlation_id")
    kinds = frame.select(kind.alias("kind"))["kind"]
    tables = {"spans": spans, "kernels": _kernels(frame.filter(kinds == Kind.KERNEL)), "copies": _copies(frame, kinds)}
    return ExportRows(tables, (*findings, *_unclear(unclear)))


def _unclear(count: int) -> tuple[Finding, ...]:
    finding = Finding(
        LedgerKind.UNCLEAR_PROCESS,
        "Device work whose correlation id several processes have: cuda_gpu_trace does not say which launched it",
        count,
        advice="Give the SQLite export of the report",
    )
    return (finding,) if count else ()


def _kernels(frame: pl.DataFrame) -> pl.DataFrame:
    shared = (pl.col("static_shared_bytes") + pl.col("dynamic_shared_bytes")).alias("shared_bytes")
    sizes = [f"{what}_{axis}" for what in ("grid", "block") for axis in _AXES]
    return frame.select("row", *sizes, "registers_per_thread", "static_shared_bytes", "dynamic_shared_bytes", shared)


def _copies(frame: pl.DataFrame, kinds: pl.Series) -> pl.DataFrame:
    filled = kinds == Kind.MEMSET
    # nsys prints the memory that a fill wrote under the source.
    source, target = (pl.col(c).replace("", None) for c in ("source_kind", "destination_kind"))
    moved = frame.with_columns(filled.alias("filled")).filter((kinds == Kind.MEMCPY) | filled)
    return moved.select(
        "row",
        "bytes",
        pl.col("name").str.extract(r"^\[CUDA memcpy (.*)\]$").alias("copy_kind"),
        pl.when(~pl.col("filled")).then(source).alias("source_kind"),
        pl.when(pl.col("filled")).then(pl.coalesce(target, source)).otherwise(target).alias("destination_kind"),
    )


def numbered_calls(calls: pl.DataFrame, what: str) -> ExportRows:
    """The calls as spans."""
    frame, findings = _number_rows(calls, what)
    kind = pl.lit(str(Kind.CALL))
    return ExportRows({"spans": _spans(frame, Level.RUNTIME, kind, "thread_id", "correlation_id")}, findings)


def executions(section: Section) -> Iterator[ExportRows]:
    """Calls and kernels of cuda_kern_exec_trace, which ties each kernel to its call; rows of one call are one."""
    both = pl.DataFrame(
        {
            "call": texts(section, "API Function"),
            "call_start_ns": integers(section, "API Start"),
            "call_ns": integers(section, "API Dur"),
            "name": texts(section, "Kernel Name"),
            "start_ns": integers(section, "Kernel Start"),
            "duration_ns": integers(section, "Kernel Dur"),
            "process_id": integers(section, "PID"),
            "thread_id": integers(section, "TID"),
            "device_id": integers(section, "DevId"),
            **_extents(section, "GridXYZ", "grid"),
            **_extents(section, "BlockXYZ", "block"),
        }
    )
    call = ["process_id", "thread_id", "call_start_ns", "call_ns", "call"]
    numbers = both.select(call).unique(maintain_order=True).with_row_index("n")
    numbers = numbers.with_columns((pl.col("n").cast(pl.Int64) + _MADE_UP).alias("correlation_id"))
    both = both.join(numbers, on=call, how="left", nulls_equal=True, maintain_order="left")
    renamed = {"call": "name", "call_start_ns": "start_ns", "call_ns": "duration_ns"}
    yield numbered_calls(numbers.rename(renamed), section.report)
    frame, findings = _number_rows(both.with_columns(pl.col("duration_ns").clip(0).fill_null(0)), section.report)
    spans = _spans(frame, Level.KERNEL, pl.lit(str(Kind.KERNEL)), "device_id", "correlation_id")
    sizes = [f"{what}_{axis}" for what in ("grid", "block") for axis in _AXES]
    yield ExportRows({"spans": spans, "kernels": frame.select("row", *sizes)}, findings)


def _extents(section: Section, heading: str, what: str) -> dict[str, pl.Series]:
    numbers = pl.Series(heading, texts(section, heading), dtype=pl.String).str.extract_all(r"\d+")
    return {
        f"{what}_{axis}": numbers.list.get(index, null_on_oob=True).cast(pl.Int64, strict=False)
        for index, axis in enumerate(_AXES)
    }


def range_rows(section: Section, options: Options, *, start: str, duration: str) -> ExportRows:
    """Named ranges, classified as those of any other export; a domain stands before the name and cannot be told."""
    frame = pl.DataFrame(
        {
            "text": texts(section, "Name"),
            "start_ns": integers(section, start),
            "duration_ns": integers(section, duration),
            "process_id": integers(section, "PID"),
            "thread_id": integers(section, "TID"),
            "range_id": integers(section, "RangeId"),
            "style": texts(section, "Style"),
        }
    )
    frame, findings = _number_rows(frame, section.report)
    frame = frame.with_columns(
        plain_name(pl.col("text")).alias("name"),
        pl.lit(None, dtype=pl.String).alias("domain"),
        pl.col("style").replace("", "PushPop"),
    )
    frame = frame.with_columns((pl.col("name") != pl.col("text")).alias("numbered"))
    frame, layers, unread = module_ranges(frame)
    frame = frame.hstack(classify(frame, NVTX, model_ranges=options.model_ranges, layer_ranges=options.layer_ranges))
    name = pl.when(pl.col("name") != "").then("name").otherwise(pl.lit("[unnamed range]"))
    spans = frame.with_columns(name.alias("name")).select(
        "row", "level", "kind", "name", "start_ns", _duration(), "process_id", "thread_id"
    )
    operators = frame.filter(pl.col("level").cast(pl.String) == Level.OPERATOR)
    tables = {
        "spans": spans,
        "ranges": frame.select("row", "range_id", "text", "domain", "style"),
        "operators": operators.select("row", *operator_details(pl.col("text"))),
        "layers": layers,
    }
    return ExportRows(tables, (*findings, *unread))
