"""Words for the codes of CUDA's profilers, as Nsight Systems has them in its ENUM tables (which may be missing)."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["COPY_DIRECTIONS", "COPY_KINDS", "MEMORY_KINDS", "RANGE_STYLES", "SYNC_KINDS"]

COPY_KINDS: Mapping[int, str] = {
    0: "Unknown",
    1: "Host-to-Device",
    2: "Device-to-Host",
    3: "Host-to-Array",
    4: "Array-to-Host",
    5: "Array-to-Array",
    6: "Array-to-Device",
    7: "Device-to-Array",
    8: "Device-to-Device",
    9: "Host-to-Host",
    10: "Peer-to-Peer",
    11: "Unified Host-to-Device",
    12: "Unified Device-to-Host",
    13: "Unified Device-to-Device",
}
COPY_DIRECTIONS: Mapping[str, str] = {
    f"{source[0]}{to}{target[0]}": f"{source}-to-{target}"
    for source, target in (*product(("Host", "Device", "Array"), repeat=2), ("Peer", "Peer"))
    for to in ("to", "2")
}
"""The same as frameworks write them into names: `Memcpy HtoD`, `MemcpyH2D`."""
MEMORY_KINDS: Mapping[int, str] = {
    0: "Pageable",
    1: "Pinned",
    2: "Device",
    3: "Array",
    4: "Managed",
    5: "Device Static",
    6: "Managed Static",
    7: "Unknown",
}
SYNC_KINDS: Mapping[int, str] = {
    1: "Event sync",
    2: "Stream wait sync",
    3: "Stream sync",
    4: "Context sync",
}
RANGE_STYLES: Mapping[int, str] = {  # NVTX_EVENTS.eventType of those that have a start and an end
    59: "PushPop",
    60: "StartEnd",
    70: "PushPop",  # NVTXT, the text form of NVTX
    71: "StartEnd",
}
