"""A capture of a program that is slower by a known factor: a real one with its times stretched."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["stretched"]


def stretched(capture: Path, factor: float, target: Path) -> Path:
    """Writes the capture (json.gz of torch.profiler) with every start and duration times the factor; the target."""
    with gzip.open(capture, "rt", encoding="utf-8") as file:
        document = json.load(file)
    timed = [event for event in document["traceEvents"] if "ts" in event]
    first = min(event["ts"] for event in timed)
    for event in timed:
        event["ts"] = round(first + (event["ts"] - first) * factor, 3)
        if "dur" in event:
            event["dur"] = round(event["dur"] * factor, 3)
    with gzip.open(target, "wt", encoding="utf-8") as file:
        json.dump(document, file)
    return target
