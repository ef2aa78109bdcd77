"""How many multiprocessors each device of a trace has, and what one of them holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_model.device_table import spec_for
from xsp_model.multiprocessors import Multiprocessor, Vendor, multiprocessor_of, vendor_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from xsp_model import Trace

__all__ = ["DeviceSize", "device_sizes"]

_Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class DeviceSize:
    """What a device is called and how large it is; None: unknown."""

    name: str | None = None
    multiprocessor_count: int | None = None
    multiprocessor: Multiprocessor | None = None


def device_sizes(trace: Trace, devices: pl.DataFrame) -> Sequence[DeviceSize]:
    """That of each of the devices, which are rows of run_id, process_id and device_id."""
    described = _device_rows(trace)
    runs = dict(trace.frame("runs").select("run_id", "device_name").rows())
    rows = devices.select("run_id", "process_id", "device_id").rows()
    return [
        _size(described.get((run, device, process)) or described.get((run, device, None)), runs.get(run))
        for run, process, device in rows
    ]


def _device_rows(trace: Trace) -> Mapping[tuple[int, int, int | None], _Row]:
    """The rows of `devices`, by run, device and process; of no process: those that hold for all."""
    rows = trace.frame("devices").iter_rows(named=True)
    return {(row["run_id"], row["device_id"], row["process_id"]): row for row in rows}


def _size(row: _Row | None, name_of_run: str | None) -> DeviceSize:
    facts = row or {}
    name, count, capability, memory = (
        facts.get(c) for c in ("name", "multiprocessor_count", "compute_capability", "memory_bytes")
    )
    name = _text(name) or name_of_run
    spec = spec_for(
        name, capability=_text(capability), multiprocessors=_positive(count), memory_bytes=_positive(memory)
    )
    vendor = vendor_of((spec.name if spec else name) or "")
    if spec is not None:
        count, capability = count or spec.multiprocessor_count, capability or spec.compute_capability
    elif vendor is Vendor.AMD:  # then its number of a generation is that of several
        capability = None
    multiprocessor = None if capability is None else multiprocessor_of(vendor, str(capability))
    return DeviceSize(name or (spec.name if spec else None), _positive(count), multiprocessor)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
