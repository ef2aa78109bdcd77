"""What the top of a trace says of the run and of its devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_ingest.staging.raw import RunFacts, frame_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

__all__ = ["devices", "facts"]

_INT64 = range(-(1 << 63), 1 << 63)


def facts(head: Mapping[str, object]) -> RunFacts:
    """Profiler, rank and epoch; without `baseTimeNanoseconds` the time stamps themselves count from 1970."""
    distributed = head.get("distributedInfo")
    job = distributed if isinstance(distributed, dict) else {}
    return RunFacts(
        profiler="PyTorch profiler (Kineto)",
        framework="pytorch",
        rank=_integer(job.get("rank")),
        world_size=_integer(job.get("world_size")),
        epoch_ns=_integer(head.get("baseTimeNanoseconds")) or 0,
    )


def devices(head: Mapping[str, object]) -> pl.DataFrame:
    """The staging table `devices`; Kineto writes neither clock nor bandwidth."""
    listed = head.get("deviceProperties")
    rows = [d for d in listed if isinstance(d, dict)] if isinstance(listed, list) else []
    columns: dict[str, object] = {
        "device_id": [_integer(d.get("id")) for d in rows],
        "name": [str(d.get("name", "")) or None for d in rows],
        "multiprocessor_count": [_integer(d.get("numSms")) for d in rows],
        "compute_capability": [_capability(d) for d in rows],
        "memory_bytes": [_integer(d.get("totalGlobalMem")) for d in rows],
    }
    rows_of_devices = frame_of("devices", columns) if rows else frame_of("devices")
    return rows_of_devices.drop_nulls("device_id").unique("device_id", keep="first", maintain_order=True)


def _capability(device: Mapping[str, object]) -> str | None:
    major, minor = (_integer(device.get(key)) for key in ("computeMajor", "computeMinor"))
    return None if major is None or minor is None else f"{major}.{minor}"


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value in _INT64 else None
