"""What a multiprocessor of each generation of devices holds at once."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Multiprocessor", "Vendor", "multiprocessor_of", "vendor_of"]

_AMD = re.compile(r"(?i)\b(?:amd|radeon|instinct|gfx\d)")


class Vendor(StrEnum):
    """Who made a device: both number their generations alike."""

    NVIDIA = "NVIDIA"
    AMD = "AMD"


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """Its limits; registers are of 32 bits. See `data/multiprocessors.toml`."""

    warp_size: int
    warps: int
    blocks: int
    registers: int
    block_registers: int
    register_unit: int  # of a warp
    partitions: int  # among which registers are divided
    shared_bytes: int
    shared_unit: int  # of a block
    reserved_shared_bytes: int  # of each block


def vendor_of(device_name: str) -> Vendor:
    """By the name that a driver wrote, or of the table of devices."""
    return Vendor.AMD if _AMD.search(device_name) else Vendor.NVIDIA


def multiprocessor_of(vendor: Vendor, capability: str) -> Multiprocessor | None:
    """That of devices of this compute capability; None: not listed."""
    return _multiprocessors().get((vendor, capability))


@cache
def _multiprocessors() -> Mapping[tuple[Vendor, str], Multiprocessor]:
    text = resources.files("xsp_model").joinpath("data", "multiprocessors.toml").read_text(encoding="utf-8")
    content = tomllib.loads(text)
    return {
        (vendor, capability): Multiprocessor(**{name: facts[name] for name in Multiprocessor.__slots__})
        for vendor in Vendor
        for generation in content[vendor]["generation"]
        for facts in (content[vendor]["common"] | generation,)
        for capability in generation["capabilities"]
    }
