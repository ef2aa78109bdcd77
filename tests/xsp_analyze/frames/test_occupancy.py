"""Resident blocks: cases of NVIDIA's occupancy calculator, what its header answers, and AMD's by hand."""

from __future__ import annotations

import pytest

from xsp_analyze.frames.kernels.kernel_waves import Occupancy, occupancy
from xsp_model.devices import Multiprocessor, Vendor, multiprocessor_of


def _of(capability: str, vendor: Vendor = Vendor.NVIDIA) -> Multiprocessor:
    one = multiprocessor_of(vendor, capability)
    assert one is not None
    return one


@pytest.mark.parametrize(
    ("threads", "registers", "theoretical", "limits"),
    [
        (256, 32, 1.0, ("warps", "registers")),
        (256, 33, 0.75, ("registers",)),  # 40 a thread: 12 warps in a quarter of the registers
        (256, 64, 0.5, ("registers",)),
        (256, 128, 0.25, ("registers",)),
        (32, 16, 0.5, ("blocks",)),
        (1024, 32, 1.0, ("warps", "registers")),
        (96, 16, 63 / 64, ("warps",)),  # 21 blocks of 3 warps
    ],
)
def test_blocks_on_a_v100(threads: int, registers: int, theoretical: float, limits: tuple[str, ...]) -> None:
    one = occupancy(_of("7.0"), threads, registers, 0)
    assert one is not None
    assert (one.theoretical, one.limits) == (theoretical, limits)


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "blocks", "limits"),
    # what cudaOccMaxActiveBlocksPerMultiprocessor of CUDA 13.0 answers, shared memory preferred
    [
        ("5.2", 288, 40, 5000, 5, ("registers",)),
        ("6.0", 512, 40, 20000, 3, ("registers", "shared memory")),
        ("6.2", 1024, 33, 0, None, ()),
        ("7.0", 128, 40, 12288, 8, ("shared memory",)),
        ("7.5", 128, 64, 0, 8, ("warps", "registers")),
        ("8.0", 256, 230, 147456, 1, ("registers", "shared memory")),
        ("8.0", 64, 24, 0, 32, ("warps", "blocks")),
        ("8.6", 64, 24, 0, 16, ("blocks",)),
        ("8.9", 96, 80, 3000, 8, ("registers",)),
        ("9.0", 384, 168, 231424, 1, ("registers", "shared memory")),
        ("9.0", 128, 32, 1024, 16, ("warps", "registers")),
        ("12.0", 1024, 32, 8192, 1, ("warps",)),
    ],
)
def test_blocks_as_nvidias_header_counts_them(
    capability: str, threads: int, registers: int, shared: int, blocks: int | None, limits: tuple[str, ...]
) -> None:
    one = occupancy(_of(capability), threads, registers, shared)
    assert (one and one.resident_blocks, one.limits if one else ()) == (blocks, limits)


def test_a_block_of_more_than_there_is_does_not_fit() -> None:
    assert occupancy(_of("7.0"), 1024, 128, 0) is None
    assert occupancy(_of("7.0"), 64, 16, 100_000) is None


def test_registers_that_are_none_limit_nothing() -> None:
    assert occupancy(_of("7.0"), 256, 0, 0) == Occupancy(8, 1.0, ("warps",))


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "theoretical", "limits"),
    [
        (256, 64, 0, 1.0, ("warps", "registers")),  # 512 registers a lane: 8 wavefronts of 64
        (256, 65, 0, 0.875, ("registers",)),  # 72: 7 wavefronts in each of 4 SIMDs
        (256, 128, 0, 0.5, ("registers",)),
        (64, 24, 0, 1.0, ("warps", "blocks")),
        (256, 24, 32 * 1024, 0.25, ("shared memory",)),
    ],
)
def test_blocks_on_an_mi300(
    threads: int, registers: int, shared: int, theoretical: float, limits: tuple[str, ...]
) -> None:
    one = occupancy(_of("9.4", Vendor.AMD), threads, registers, shared)
    assert one is not None
    assert (one.theoretical, one.limits) == (theoretical, limits)
