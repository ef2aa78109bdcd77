"""Power in the recorded steps of a run without a profiler, whose trace no samples could join."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["power_between"]

_NS_PER_S = 1e9
_FEWEST = 2  # samples that span a time


def power_between(path: Path, begin_ns: int, end_ns: int) -> list[dict[str, Any]]:
    """Mean power of each GPU between two Unix times, by the trapezoidal rule over the samples that lie between.

    `covered_ns` is from the first of these samples to the last. A GPU with fewer than two is left out.
    """
    by_device: dict[int, list[tuple[int, float]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        sample = json.loads(line)
        if "power_w" in sample and begin_ns <= sample["time_ns"] <= end_ns:
            by_device.setdefault(sample["device"], []).append((sample["time_ns"], sample["power_w"]))
    return [
        {"device": device, **_of(samples)}
        for device, samples in sorted(by_device.items())
        if len(samples) >= _FEWEST and samples[-1][0] > samples[0][0]
    ]


def _of(samples: Sequence[tuple[int, float]]) -> dict[str, Any]:
    covered_ns = samples[-1][0] - samples[0][0]
    energy_j = sum(
        (later - time_ns) * (power + power_then) / 2 for (time_ns, power), (later, power_then) in pairwise(samples)
    )
    return {
        "mean_power_w": round(energy_j / covered_ns, 3),
        "energy_j": round(energy_j / _NS_PER_S, 6),
        "covered_ns": covered_ns,
        "samples": len(samples),
    }
