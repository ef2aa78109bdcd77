"""How many blocks of a kernel a multiprocessor holds at once, and what allows no more.

Source: NVIDIA's cuda_occupancy.h (CUDA 13.0), without preferences for caches and partitioned caching. AMD's generations
follow the same rules with wavefronts for warps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xsp_model.multiprocessors import Multiprocessor

__all__ = ["Occupancy", "occupancy"]


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
