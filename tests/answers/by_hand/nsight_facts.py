"""Facts of Nsight Systems exports."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.answers.by_hand.intervals import common, length
from tests.answers.by_hand.nsight import read

if TYPE_CHECKING:
    from pathlib import Path

__all__: list[str] = []

_MS = 1e6
_PAGEABLE = 0  # ENUM_CUDA_MEM_KIND of the export
_TO_DEVICE = 1


def busy_percent(path: Path) -> list[float]:
    """Of each device: union of its work over its own first start to last end."""
    export = read(path)
    out = []
    for number in export.devices():
        work = export.of_device(number)
        elapsed = max(one.end for one in work) - min(one.start for one in work)
        out.append(100 * export.busy(number) / elapsed)
    return out


def busy_ms(path: Path) -> list[float]:
    """Of each device: the union of its work."""
    export = read(path)
    return [export.busy(number) / _MS for number in export.devices()]


def share_percent(path: Path, pattern: str) -> float:
    """Part of the summed device time in work whose name (for copies: `memcpy`) holds the pattern."""
    work = read(path).device
    return 100 * sum(one.duration for one in work if re.search(pattern, one.name)) / sum(one.duration for one in work)


def exposed_communication_ms(path: Path) -> list[float]:
    """Of each device: NCCL kernels while nothing else ran."""
    export, out = read(path), []
    for number in export.devices():
        inside = [one.interval for one in export.of_device(number) if "nccl" in one.name.lower()]
        others = [one.interval for one in export.of_device(number) if "nccl" not in one.name.lower()]
        out.append((length(inside) - length(common(inside, others))) / _MS)
    return out


def without_launch_percent(path: Path) -> float:
    """Device time for which no runtime call of its process has its correlation id."""
    export = read(path)
    launched = {(call.thread >> 24, call.correlation) for call in export.calls}
    lost = [one for one in export.device if (one.process >> 24, one.correlation) not in launched]
    return 100 * sum(one.duration for one in lost) / sum(one.duration for one in export.device)


def backward_kernels(path: Path) -> int:
    """Kernels with `backward` or `bwd` in their name."""
    return sum(bool(re.search(r"backward|bwd", one.name, re.IGNORECASE)) for one in read(path).device)


def pageable_to_device(path: Path) -> list[float]:
    """Copies from or to pageable memory: how many, MiB, ms."""
    mine = [
        one for one in read(path).device if one.kind == "memcpy" and _PAGEABLE in (one.source_kind, one.target_kind)
    ]
    return [len(mine), sum(one.bytes or 0 for one in mine) / 2**20, sum(one.duration for one in mine) / _MS]


def pinned_to_device_gb_per_s(path: Path) -> float:
    """Rate of copies from pinned host memory to a device."""
    mine = [one for one in read(path).device if one.copy_kind == _TO_DEVICE and one.source_kind == 1]
    return sum(one.bytes or 0 for one in mine) / sum(one.duration for one in mine)


def runtime_calls(path: Path) -> int:
    return len(read(path).calls)


def device_activities(path: Path) -> int:
    return len(read(path).device)


def copies_percent_of_busy(path: Path) -> float:
    """Copies alone, over busy."""
    export = read(path)
    copies = [one.interval for one in export.device if one.kind == "memcpy"]
    others = [one.interval for one in export.device if one.kind != "memcpy"]
    return 100 * (length(copies) - length(common(copies, others))) / export.busy()
