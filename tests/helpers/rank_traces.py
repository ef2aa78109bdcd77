"""The traces of ranks of one job, and what a batch leaves of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.helpers.synth import KinetoTrace
from xsp_analyze.ranks.facts import write_tables
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import bundle

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["REDUCE", "collective_args", "grouped_traces", "rank_trace", "write_rank", "write_ranks"]

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


def write_ranks(folder: Path, traces: Sequence[KinetoTrace]) -> list[Path]:
    """A file for each, which states its name as PyTorch's profiler has it: ranks may else be equal to the byte."""
    paths = []
    for rank, trace in enumerate(traces):
        name = f"rank{rank}.json"
        trace.head["traceName"] = name
        paths.append(trace.write(folder / name))
    return paths


def collective_args(
    collective: str, group: str, ranks: Sequence[int], elements: tuple[int, int], dtype: str = "Float"
) -> dict[str, object]:
    """What PyTorch writes beside a kernel of NCCL's; `elements` of input and output."""
    return {
        "Collective name": collective,
        "In msg nelems": elements[0],
        "Out msg nelems": elements[1],
        "Group size": len(ranks),
        "dtype": dtype,
        "Process Group Name": group,
        "Process Group Ranks": str(list(ranks)),
    }


_CALLS = {  # end of each group's call on all its ranks, then the duration on each rank
    ("tp", (0, 1)): ((1_000, (100, 40)), (5_000, (30, 80))),
    ("tp", (2, 3)): ((1_000, (20, 90)), (5_200, (25, 65))),
    ("dp", (0, 2)): ((3_000, (200, 150)),),
    ("dp", (1, 3)): ((3_500, (110, 300)),),
}
_ELEMENTS = {"tp": 1000, "dp": 400}


def grouped_traces(clocks_ns: Sequence[int] = (0, 0, 0, 0)) -> list[KinetoTrace]:
    """Four ranks, two by two tensor- and data-parallel, whose all-reduces have one name and interleave.

    Ranks 0 and 1 launch tp, dp, tp; ranks 2 and 3 launch dp, tp, tp. `clocks_ns`: how far each rank's clock is ahead.
    """
    traces = []
    for rank, clock in enumerate(clocks_ns):
        trace = KinetoTrace(process_id=100 + rank, distributedInfo={"rank": rank, "world_size": 4})
        calls = [(group, *call) for group in _CALLS if rank in group[1] for call in _CALLS[group]]
        if rank > 1:
            calls.sort(key=lambda call: call[0][0])  # dp first
        else:
            calls.sort(key=lambda call: call[1])
        trace.operator("aten::mm", 100 + clock, 50)
        for number, ((name, ranks), end, durations) in enumerate(calls):
            duration, elements = durations[ranks.index(rank)], _ELEMENTS[name]
            trace.kernel(
                REDUCE,
                clock + end - duration,
                duration,
                correlation=trace.runtime("cudaLaunchKernel", clock + 200 + 10 * number, 5),
                stream_id=20 if name == "tp" else 21,
                args=collective_args("allreduce", name, ranks, (elements, elements)),
            )
        traces.append(trace)
    return traces


def write_rank(folder: Path, rank: int, trace: KinetoTrace) -> None:
    """What `xsp batch` leaves of a rank."""
    folder.mkdir(parents=True)
    path = folder / "source.json"
    path.write_bytes(trace.to_bytes())
    bundle.write(convert([path], Options()), folder / "trace.xsp")
    facts = write_tables(bundle.read(folder / "trace.xsp"), folder, rank, path.name)
    (folder / "facts.json").write_text(json.dumps(facts))
