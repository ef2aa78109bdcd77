"""How long the capture was, and where the profiler's own work held the program up: counters that recipes ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.nsys.tables.facts import session_ns
from xsp_ingest.formats.nsys.tables.identifiers import process_of
from xsp_ingest.formats.nsys.tables.rows import ExportRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_ingest.formats.nsys.tables.interface import Tables

__all__ = ["capture"]

_OVERHEADS = ("CUDA profiling data flush overhead", "CUDA profiling stop overhead", "CUDA profiling overhead")
_NS = pl.lit("ns").alias("unit")


def capture(export: Tables, first: int | None, used: pl.DataFrame) -> Iterator[ExportRows]:
    """`capture_duration_ns` once, and `cuda_profiling_overhead_ns` for each stretch and device of its process.

    `first`: when the first span began, null: there is none; `used`: the devices that each process used.
    """
    duration = session_ns(export)
    if first is None:
        return
    if duration is not None:
        # At the first span: the trace's time begins there.
        values = {"time_ns": [first], "value": [float(duration)], "counter": ["capture_duration_ns"]}
        yield ExportRows({"counters": pl.DataFrame(values).with_columns(_NS)})
    yield _overheads(export, used)


def _overheads(export: Tables, used: pl.DataFrame) -> ExportRows:
    rows = export.integers("PROFILER_OVERHEAD", ("start", "end", "globalTid", "nameId"))
    ids = [string_id for name in _OVERHEADS if (string_id := export.strings.id_of(name)) is not None]
    rows = rows.filter(pl.col("nameId").is_in(ids), pl.col("end") >= pl.col("start"))
    rows = rows.with_columns(process_of(pl.col("globalTid")).alias("process_id"))
    # One thread's overhead holds up every device of its process.
    counted = rows.join(used, on="process_id", maintain_order="left_right").select(
        pl.col("start").alias("time_ns"),
        pl.lit("cuda_profiling_overhead_ns").alias("counter"),
        "device_id",
        (pl.col("end") - pl.col("start")).cast(pl.Float64).alias("value"),
        _NS,
    )
    return ExportRows({"counters": counted})
