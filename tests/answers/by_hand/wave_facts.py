"""Facts on how blocks fill a device, of PyTorch traces: from grids and what a multiprocessor of Hopper holds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tests.answers.by_hand.kineto import read

if TYPE_CHECKING:
    from pathlib import Path

__all__: list[str] = []

_US = 1e3
_HOPPER = {"warps": 64, "blocks": 32, "quarter_of_registers": 16_384, "shared": 228 * 1024, "reserved": 1024}


def unused_us(path: Path) -> float:
    """Of kernels with fewer blocks than multiprocessors: their time times the part that has none."""
    trace = read(path)
    count = int(trace.document["deviceProperties"][0]["numSms"])
    lost = sum(e.duration * max(0.0, 1 - math.prod(e.args["grid"]) / count) for e in trace.kernels)
    return float(lost / _US)


def tail_us(path: Path) -> float:
    """Of kernels of more than one wave on a Hopper: their time times what the last wave lacks, of all waves begun."""
    trace = read(path)
    count = trace.document["deviceProperties"][0]["numSms"]
    lost = 0.0
    for event in trace.kernels:
        waves = math.prod(event.args["grid"]) / (count * _resident(event.args))
        if waves > 1:
            lost += event.duration * (math.ceil(waves) - waves) / math.ceil(waves)
    return lost / _US


def _resident(arguments: dict[str, Any]) -> int:
    warps = math.ceil(math.prod(arguments["block"]) / 32)
    of_warp = math.ceil(arguments["registers per thread"] / 8) * 8 * 32
    of_block = math.ceil((arguments["shared memory"] + _HOPPER["reserved"]) / 128) * 128
    by_registers = 4 * (_HOPPER["quarter_of_registers"] // of_warp) // warps
    return int(min(_HOPPER["warps"] // warps, _HOPPER["blocks"], by_registers, _HOPPER["shared"] // of_block))
