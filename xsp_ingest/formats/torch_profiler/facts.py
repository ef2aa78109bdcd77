"""What the top of a trace says of the run and of its devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_ingest.files.values import int64
from xsp_ingest.staging.raw import RunFacts, frame_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import polars as pl

__all__ = ["devices", "facts"]


def facts(head: Mapping[str, object]) -> RunFacts:
    """Profiler, rank and epoch; without `baseTimeNanoseconds` the time stamps themselves count from 1970."""
    distributed = head.get("distributedInfo")
    job = distributed if isinstance(distributed, dict) else {}
    return RunFacts(
        rows_nest=False,
        profiler="PyTorch profiler (Kineto)",
        framework="pytorch",
        rank=int64(job.get("rank")),
        world_size=int64(job.get("world_size")),
        epoch_ns=int64(head.get("baseTimeNanoseconds")) or 0,
    )


def devices(head: Mapping[str, object], used: Iterable[int]) -> pl.DataFrame:
    """The staging table `devices`; Kineto writes neither clock nor bandwidth.

    On ROCm what ran names its device by the number of the agent, which counts processors too, and the list by that of
    the GPU: a device that is `used` and not listed is what all that are listed are, where these are of one kind.
    """
    listed = head.get("deviceProperties")
    written = [d for d in listed if isinstance(d, dict)] if isinstance(listed, list) else []
    rows = [*written, *_not_listed(written, used)]
    columns: dict[str, object] = {
        "device_id": [int64(d.get("id")) for d in rows],
        "name": [str(d.get("name", "")) or None for d in rows],
        "multiprocessor_count": [int64(d.get("numSms")) for d in rows],
        "compute_capability": [_capability(d) for d in rows],
        "memory_bytes": [int64(d.get("totalGlobalMem")) for d in rows],
    }
    rows_of_devices = frame_of("devices", columns) if rows else frame_of("devices")
    return rows_of_devices.drop_nulls("device_id").unique("device_id", keep="first", maintain_order=True)


def _not_listed(rows: Sequence[Mapping[str, object]], used: Iterable[int]) -> list[Mapping[str, object]]:
    kinds = [{key: value for key, value in row.items() if key != "id"} for row in rows]
    if not kinds or any(kind != kinds[0] for kind in kinds):
        return []
    return [{**kinds[0], "id": each} for each in sorted(set(used) - {int64(row.get("id")) for row in rows})]


def _capability(device: Mapping[str, object]) -> str | None:
    major, minor = (int64(device.get(key)) for key in ("computeMajor", "computeMinor"))
    return None if major is None or minor is None else f"{major}.{minor}"
