"""The table of multiprocessors against published figures."""

from __future__ import annotations

import pytest

from xsp_model.devices import Vendor, device_table, multiprocessor_of, vendor_of

_KIB = 1024


@pytest.mark.parametrize(
    ("capability", "threads", "blocks", "shared_kib"),
    # CUDA Programming Guide, technical specifications per compute capability
    [
        ("5.2", 2048, 32, 96),
        ("6.0", 2048, 32, 64),
        ("6.1", 2048, 32, 96),
        ("7.0", 2048, 32, 96),
        ("7.5", 1024, 16, 64),
        ("8.0", 2048, 32, 164),
        ("8.6", 1536, 16, 100),
        ("8.9", 1536, 24, 100),
        ("9.0", 2048, 32, 228),
        ("10.0", 2048, 32, 228),
        ("11.0", 1536, 24, 228),
        ("12.0", 1536, 24, 100),
    ],
)
def test_nvidia_multiprocessors_hold_what_the_programming_guide_says(
    capability: str, threads: int, blocks: int, shared_kib: int
) -> None:
    one = multiprocessor_of(Vendor.NVIDIA, capability)
    assert one is not None
    assert (one.warps * one.warp_size, one.blocks, one.shared_bytes) == (threads, blocks, shared_kib * _KIB)
    assert one.registers == 64 * _KIB


def test_generations_of_two_vendors_have_the_same_number() -> None:
    hopper, cdna2 = multiprocessor_of(Vendor.NVIDIA, "9.0"), multiprocessor_of(Vendor.AMD, "9.0")
    assert hopper is not None
    assert cdna2 is not None
    assert (hopper.warp_size, cdna2.warp_size) == (32, 64)


def test_what_is_not_listed_is_unknown() -> None:
    assert multiprocessor_of(Vendor.NVIDIA, "4.2") is None
    assert multiprocessor_of(Vendor.AMD, "11.0") is None


@pytest.mark.parametrize(
    ("name", "vendor"),
    [
        ("NVIDIA H100 80GB HBM3", Vendor.NVIDIA),
        ("Tesla V100-SXM2-16GB", Vendor.NVIDIA),
        ("AMD Radeon Graphics", Vendor.AMD),
        ("Instinct MI300X", Vendor.AMD),
        ("gfx942", Vendor.AMD),
    ],
)
def test_a_vendor_is_told_by_the_name(name: str, vendor: Vendor) -> None:
    assert vendor_of(name) is vendor


def test_every_device_of_the_table_has_its_multiprocessor() -> None:
    named = [spec for spec in device_table() if spec.compute_capability]
    assert len(named) > 30
    missing = [s.name for s in named if multiprocessor_of(vendor_of(s.name), s.compute_capability or "") is None]
    assert missing == []
