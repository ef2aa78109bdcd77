"""The planes of GPUs: what ran on their streams, and what the devices are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.xplane.statistics import AMOUNTS, NUMBERS, TEXTS
from xsp_ingest.staging.raw import frame_of
from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from xsp_ingest.formats.xplane.plane import Plane

__all__ = ["DERIVED", "activities", "devices", "lines_not_read"]

_STREAM = r"^Stream #(\d{1,9})\b"
DERIVED = (
    "Steps",
    "XLA Modules",
    "XLA Ops",
    "XLA TraceMe",
    "Async XLA Ops",
    "Framework Ops",
    "TensorFlow Ops",
    "Framework Name Scope",
    "TensorFlow Name Scope",
    "Source code",
    "Source Code",
    "Launch Stats",
)
"""Lines that say again what the streams' lines say; their time is never summed with the streams'."""
_COPY, _FILL = r"(?i)^memcpy", r"(?i)^memset"
_HZ_PER_KHZ = 1000


def activities(device_id: int, plane: Plane, process_id: int) -> pl.DataFrame:
    """One row an event on a stream, with `kind`, `stream_id` and every statistic."""
    stream = pl.col("line_name").str.extract(_STREAM).cast(pl.Int64, strict=False)
    lines = plane.lines.select("line", "line_name", stream.alias("stream_id")).drop_nulls("stream_id")
    stats = [plane.stat(name) for name in (*NUMBERS, *AMOUNTS, *TEXTS)]
    rows = (
        plane.events.select("line", "metadata_id", "start_ns", "duration_ns", *stats)
        .join(lines, on="line", how="inner", maintain_order="left")
        .join(plane.metadata, on="metadata_id", how="left", maintain_order="left")
    )
    details = pl.coalesce(pl.col(name).cast(pl.String) for name in ("memcpy_details", "memset_details"))
    label = pl.concat_str("event_name", "line_name", separator=" ", ignore_nulls=True)
    kind = (
        pl.when(pl.col("kernel_details").is_not_null())
        .then(pl.lit("kernel"))
        .when(pl.col("memset_details").is_not_null() | pl.col("event_name").str.contains(_FILL))
        .then(pl.lit("memset"))
        .when(pl.col("memcpy_details").is_not_null() | pl.col("event_name").str.contains(_COPY))
        .then(pl.lit("memcpy"))
        .otherwise(pl.when(label.str.contains(r"(?i)\((?:memcpy)")).then(pl.lit("memcpy")).otherwise(pl.lit("kernel")))
    )
    return rows.with_columns(
        kind.alias("kind"),
        pl.col("event_name").fill_null("").alias("name_of_work"),
        details.alias("memcpy_details"),
        pl.lit(device_id, pl.Int64).alias("device_id"),
        pl.lit(process_id, pl.Int64).alias("process_id"),
        pl.coalesce("graph_id", "cuda_graph_id").alias("graph_id"),
        pl.coalesce("graph_node_id", "cuda_graph_node_id").alias("graph_node_id"),
    )


def devices(planes: Iterable[tuple[int, Plane]]) -> pl.DataFrame:
    """The staging table `devices`, from the planes' statistics; clocks are written in kHz."""
    rows = [_device(number, plane.stats) for number, plane in planes]
    columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else None
    return frame_of("devices", columns)


_MAX = 1 << 52  # of kHz, bytes and bytes a second; beyond, a number is none


def _device(number: int, stats: Mapping[str, int | float | str]) -> dict[str, object]:
    def integer(name: str) -> int | None:
        value = stats.get(name)
        return value if isinstance(value, int) and 0 < value < _MAX else None

    clock_khz, bandwidth = integer("clock_rate"), integer("memory_bandwidth")
    major, minor = stats.get("compute_cap_major"), stats.get("compute_cap_minor")
    named = stats.get("device_type_string") or stats.get("device_name")
    return {
        "device_id": number,
        "name": named if isinstance(named, str) else None,
        "multiprocessor_count": integer("core_count"),
        "compute_capability": f"{major}.{minor}" if isinstance(major, int) and isinstance(minor, int) else None,
        "clock_hz": clock_khz * _HZ_PER_KHZ if clock_khz else None,
        "memory_bytes": integer("memory_size"),
        "dram_byte_per_s": float(bandwidth) if bandwidth else None,
        "peak_source": "the profiler's plane of the device" if bandwidth else None,
    }


def lines_not_read(plane: Plane) -> list[Finding]:
    """Counts the events of a device's plane on lines that are no streams."""
    counts = plane.events.join(plane.lines, on="line").group_by("line_name").len()
    others = counts.filter(~pl.col("line_name").str.contains(_STREAM)).sort("line_name")
    derived, unknown = (
        others.filter(pl.col("line_name").is_in(DERIVED)),
        others.filter(~pl.col("line_name").is_in(DERIVED)),
    )
    return [
        Finding(
            LedgerKind.EVENTS_LEFT_OUT,
            "events of lines that the profiler derived from a device's streams were not summed with those",
            int(derived["len"].sum()),
        ),
        *(
            Finding(LedgerKind.UNKNOWN_LINE, f"events of a device's unknown line {name!r} were not read", count)
            for name, count in unknown.iter_rows()
        ),
    ]
