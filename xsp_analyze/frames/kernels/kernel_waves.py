"""How the blocks of kernels fill their device: resident blocks, waves, and what the last wave leaves empty."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.formulas import quotient
from xsp_analyze.frames.group_ids import group_ids, groups, numbers_by_appearance, running_max
from xsp_analyze.frames.kernels.activities import AXES
from xsp_model.columns.arrays import lookup, nullable_index
from xsp_model.devices import Multiprocessor, Vendor, multiprocessor_of, spec_for, vendor_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_model import Trace
    from xsp_model.columns.arrays import Bools, Ints
    from xsp_model.devices import Multiprocessor

__all__ = [
    "CONFIGURATION",
    "DeviceSize",
    "Occupancy",
    "device_sizes",
    "has_grids",
    "launch_configurations",
    "occupancy",
    "ran_alone",
]

# How many multiprocessors each device of a trace has, and what one of them holds.

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


# How many blocks of a kernel a multiprocessor holds at once, and what allows no more.
#
# Source: NVIDIA's cuda_occupancy.h (CUDA 13.0), without preferences for caches and partitioned caching. AMD's
# generations
# follow the same rules with wavefronts for warps.


@dataclass(frozen=True, slots=True)
class Occupancy:
    """`theoretical`: warps of the resident blocks over the most possible; `limits`: what allows no more blocks."""

    resident_blocks: int
    theoretical: float
    limits: tuple[str, ...]


def occupancy(multiprocessor: Multiprocessor, threads: int, registers: int, shared_bytes: int) -> Occupancy | None:
    """Of blocks of so many threads, with registers of a thread and shared memory of a block; None: not one fits."""
    warps = _quotient_up(threads, multiprocessor.warp_size)
    allowed = {
        "warps": multiprocessor.warps // warps,
        "blocks": multiprocessor.blocks,
        "registers": _by_registers(multiprocessor, warps, registers),
        "shared memory": _by_shared_memory(multiprocessor, shared_bytes),
    }
    resident = min(allowed.values())
    if not resident:
        return None
    limits = tuple(what for what, blocks in allowed.items() if blocks == resident)
    return Occupancy(resident, resident * warps / multiprocessor.warps, limits)


def _by_registers(multiprocessor: Multiprocessor, warps: int, registers: int) -> int:
    """A warp's registers lie in one partition; a block must fit as if each partition held as many of its warps."""
    partitions = multiprocessor.partitions
    of_warp = _multiple_up(registers * multiprocessor.warp_size, multiprocessor.register_unit)
    if not of_warp:
        return multiprocessor.blocks + 1  # it does not limit
    if of_warp * _multiple_up(warps, partitions) > multiprocessor.block_registers:
        return 0
    resident_warps = multiprocessor.registers // partitions // of_warp * partitions
    return resident_warps // warps


def _by_shared_memory(multiprocessor: Multiprocessor, shared_bytes: int) -> int:
    of_block = _multiple_up(shared_bytes + multiprocessor.reserved_shared_bytes, multiprocessor.shared_unit)
    return multiprocessor.shared_bytes // of_block if of_block else multiprocessor.blocks + 1


def _quotient_up(amount: int, unit: int) -> int:
    return -(-amount // unit)


def _multiple_up(amount: int, unit: int) -> int:
    return _quotient_up(amount, unit) * unit


CONFIGURATION = (*AXES, "registers_per_thread", "shared_bytes")
"""The columns of `kernels` that, with the device, say how blocks fill it."""
_ROUNDING_NS = 1000  # profilers write whole microseconds
_DEVICE = ("run_id", "process_id", "device_id")
_RESIDENT = {
    "device_name": pl.String(),
    "multiprocessor_count": pl.Int64(),
    "resident_blocks": pl.Int64(),
    "theoretical_occupancy": pl.Float64(),
    "limits": pl.String(),
}


def has_grids(trace: Trace) -> bool:
    """Whether the size of any kernel's grid is recorded."""
    return bool(trace.scan("kernels").select(pl.col("grid_x").count() > 0).collect().item())


def launch_configurations(trace: Trace, activities: pl.DataFrame) -> tuple[Ints, pl.DataFrame]:
    """A number for each activity, and for each number a row: CONFIGURATION, the device, and how blocks fill it.

    `waves` are blocks over what all multiprocessors hold at once. `tail_share`: the part of its time that a kernel
    would not take if its last wave were as full as the others, all waves taken as equally long; 0 where there is but
    one. `unused_share`: of the multiprocessors, those that get no block. Unknown is null.
    """
    devices, device = _devices(trace, activities)
    kernels = trace.scan("kernels").select("span_id", *CONFIGURATION).with_columns(_whole_sizes()).collect()
    shape, first = numbers_by_appearance(*group_ids(kernels.select(CONFIGURATION)))
    at = lookup(kernels["span_id"].to_numpy(), activities["span_id"].to_numpy())
    shape_of = pl.Series(shape).gather(nullable_index(at))
    number, rows = numbers_by_appearance(*group_ids([shape_of, pl.Series(device)]))
    shapes = pl.DataFrame([kernels[c].gather(first).gather(shape_of.gather(rows)) for c in CONFIGURATION])
    resident = [_resident(devices[d], row) for d, row in zip(device[rows], shapes.iter_rows(named=True), strict=True)]
    return number, _with_waves(shapes.hstack(pl.DataFrame(resident, schema=_RESIDENT, orient="row")))


def _whole_sizes() -> Iterator[pl.Expr]:
    """The sizes of grids and blocks, unknown along every axis where they are along one: who reads them sees no more."""
    for axes in (AXES[:3], AXES[3:]):
        yield pl.when(pl.all_horizontal(pl.col(axes).is_not_null())).then(pl.col(axes)).name.keep()


def _devices(trace: Trace, activities: pl.DataFrame) -> tuple[Sequence[DeviceSize], Ints]:
    """What the devices of the activities are, and the number of each activity's; alike are those of a name and size."""
    number, first = numbers_by_appearance(*group_ids(activities.select(_DEVICE)))
    sizes = device_sizes(trace, activities.select(_DEVICE)[first])
    alike: dict[tuple[object, ...], DeviceSize] = {}
    for size in sorted(sizes, key=lambda size: size.multiprocessor is None):
        alike.setdefault((size.name, size.multiprocessor_count), size)
    index_of = {key: index for index, key in enumerate(alike)}
    indices = [index_of[size.name, size.multiprocessor_count] for size in sizes]
    return list(alike.values()), np.array(indices, dtype=np.int64)[number]


def _resident(device: DeviceSize, configuration: dict[str, int | None]) -> tuple[object, ...]:
    """The values of _RESIDENT of a kernel of this configuration."""
    x, y, z, registers, shared = (configuration[c] for c in CONFIGURATION[3:])
    resident = None
    if device.multiprocessor and x and y and z and registers is not None and shared is not None:
        resident = _occupancy(device.multiprocessor, x * y * z, registers, shared)
    return (device.name, device.multiprocessor_count, *(resident or (None, None, None)))


@cache
def _occupancy(device: Multiprocessor, threads: int, registers: int, shared: int) -> tuple[int, float, str] | None:
    resident = occupancy(device, threads, registers, shared)
    return None if resident is None else (resident.resident_blocks, resident.theoretical, ", ".join(resident.limits))


def _with_waves(kernels: pl.DataFrame) -> pl.DataFrame:
    """The rows with all that follows from grid, multiprocessors and resident blocks."""
    blocks, count = pl.col("blocks"), pl.col("multiprocessor_count")
    at_once = count * pl.col("resident_blocks")
    last = blocks % at_once
    empty = pl.when(last > 0).then(1 - quotient(last, at_once)).when(last == 0).then(0.0)
    begun = pl.col("full_waves") + (last > 0)
    tail = pl.when(pl.col("full_waves") > 0).then(quotient(empty, begun)).when(pl.col("full_waves") == 0).then(0.0)
    limited_by = pl.when(blocks < at_once).then(pl.lit("grid")).when(blocks >= at_once).then("limits")
    return kernels.with_columns(
        pl.col("grid_x").mul(pl.col("grid_y")).mul(pl.col("grid_z")).alias("blocks")
    ).with_columns(
        quotient(blocks, count).alias("blocks_per_multiprocessor"),
        quotient(blocks, at_once).alias("waves"),
        (blocks // at_once).alias("full_waves"),
    ).with_columns(
        empty.alias("last_wave_empty_share"),
        tail.alias("tail_share"),
        (1 - quotient(blocks, count)).clip(lower_bound=0).alias("unused_share"),
        limited_by.alias("limited_by"),
    )  # fmt: skip


def ran_alone(kernels: pl.DataFrame) -> Bools:
    """Whether, but for rounding, no other of the kernels ran on the device at the same time; in order of start."""
    _, order, starts = groups(kernels, ("run_id", "device_id"))
    begin = kernels["start_ns"].to_numpy()[order]
    end = begin + kernels["duration_ns"].to_numpy()[order]
    is_first, is_last = np.zeros((2, len(order)), dtype=np.bool_)
    is_first[starts[:-1]], is_last[starts[1:] - 1] = True, True
    latest = running_max(end, starts[:-1])
    alone = np.empty(len(order), dtype=np.bool_)
    alone[order] = (is_first | (begin + _ROUNDING_NS >= np.roll(latest, 1))) & (
        is_last | (end <= np.roll(begin, -1) + _ROUNDING_NS)
    )
    return alone
