"""What batches are tested on: small traces, and the bytes that a batch left."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from tests.helpers.synth import KinetoTrace

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["bytes_below", "trace_of"]


def trace_of(scale: int, **head: object) -> KinetoTrace:
    """Two steps of one layer with one kernel of `scale` microseconds."""
    trace = KinetoTrace(**head)  # type: ignore[arg-type]
    for number, start in ((0, 1_000), (1, 2_000_000)):
        trace.step(number, start, 1_500_000)
        trace.module("Linear_0", start + 10_000, 900_000)
        trace.operator("aten::linear", start + 20_000, 800_000, shapes=[[8, 16], [4, 16]])
        trace.launch("gemm", start + 30_000, start + 60_000, scale * 1_000)
    return trace


def bytes_below(folder: Path, *, without: tuple[str, ...] = ("costs.json",)) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in without
    }
