"""The traces of ranks of one job, and what a batch leaves of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.helpers.synth import KinetoTrace
from xsp_analyze.ranks.rank_facts import write_tables
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import bundle

if TYPE_CHECKING:
    from pathlib import Path


__all__ = ["REDUCE", "rank_trace", "write_rank"]

_MS = 1_000_000


REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def rank_trace(compute_ms: int, reduce_ms: int, *, steps: int = 2, length_ms: int = 20) -> KinetoTrace:
    """Steps of one product and one all-reduce after it, one after the other."""
    trace = KinetoTrace()
    for number in range(steps):
        start = number * length_ms * _MS
        trace.step(number, start, length_ms * _MS)
        trace.operator("aten::mm", start + 1_000, 1 * _MS)
        trace.launch("gemm", start + 2_000, start + _MS, compute_ms * _MS)
        trace.launch(REDUCE, start + 9_000, start + _MS * (1 + compute_ms), reduce_ms * _MS, stream_id=20)
    return trace


def write_rank(folder: Path, rank: int, trace: KinetoTrace) -> None:
    """What `xsp batch` leaves of a rank."""
    folder.mkdir(parents=True)
    path = folder / "source.json"
    path.write_bytes(trace.to_bytes())
    bundle.write(convert([path], Options()), folder / "trace.xsp")
    facts = write_tables(bundle.read(folder / "trace.xsp"), folder, rank, path.name)
    (folder / "facts.json").write_text(json.dumps(facts))
