"""Rules on copies: those that nothing runs beside, those of pageable memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.advice import Evidence, Observation, rule
from xsp_analyze.text.units import count_of, duration, share, size
from xsp_model import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.findings.facts import Facts

__all__ = ["copies_in_step", "pageable_copies"]

_PAGEABLE = "Pageable"


@rule(
    "pageable-copies",
    "Copies use pageable memory",
    fires=f"Copies from or to pageable host memory take at least {limit.PAGEABLE_SHARE:.0%} of a step.",
    why="The driver copies pageable memory through a pinned buffer of its own: slower, and never beside other work, as"
    " even an asynchronous call then waits.",
    gain="Device time of these copies, on the device where it is most.",
    do="Pin the host memory (pin_memory=True in PyTorch's DataLoader) and copy with non_blocking=True.",
    source="Our choice of share; CUDA C++ Best Practices Guide on pinned memory, rule cuda_memcpy_async of Nsight"
    " Systems.",
    needs=("timeline",),
    explains=("copies-in-step",),
)
def pageable_copies(facts: Facts) -> Iterator[Observation]:
    """Copies with a pageable end."""
    ends = pl.any_horizontal(pl.col("source_kind", "destination_kind").cast(pl.String) == _PAGEABLE)
    pageable = facts.frames.trace.scan("copies").filter(ends).select("span_id", "bytes").collect()
    rows = (
        facts.work.lazy().select("span_id", "run_id", "device_id", "ns").join(pageable.lazy(), on="span_id").collect()
    )
    time = facts.longest(rows)
    if facts.share(time) < limit.PAGEABLE_SHARE:
        return
    moved = facts.per_step(rows["bytes"])
    copies = count_of(round(rows.height / facts.step_count, 1), "copy", "copies")
    yield Observation(
        f"Device time of {copies} with pageable memory ({size(moved)}) is {duration(time)},"
        f" {share(facts.share(time))} of the time.",
        (Evidence("bytes moved", moved, "byte"), Evidence("device time", time)),
        time,
        "A10",
        "pageable",
    )


@rule(
    "copies-in-step",
    "The device copies while it could compute",
    fires=f"Copies and memsets that nothing else runs beside take at least {limit.COPY_SHARE:.0%} of a step.",
    why="Copy engines work beside the arithmetic units; a copy that runs alone is time in which nothing computes.",
    gain="Time of copies and memsets in which the device neither computes nor communicates, on the device where it is"
    " most.",
    do="Copy the next batch on a stream of its own while this one computes; keep what is used again on the device;"
    " allocate without filling.",
    source="Our choice.",
    needs=("timeline",),
)
def copies_in_step(facts: Facts) -> Iterator[Observation]:
    """Exposed copies of B03."""
    if facts.devices.is_empty():
        return
    time = float(facts.devices["exposed_memory_ns"].max() or 0)  # type: ignore[arg-type]
    if facts.share(time) < limit.COPY_SHARE or not facts.devices["compute_ns"].sum():
        return
    kinds = [str(Kind.MEMCPY), str(Kind.MEMSET)]
    copies = facts.work.filter(pl.col("kind").is_in(kinds))
    by_name = copies.group_by(pl.col("name").cast(pl.String)).agg(pl.col("ns").sum()).sort(-pl.col("ns"), "name")
    yield Observation(
        f"Copies and memsets run alone for {duration(time)}, {share(facts.share(time))} of the time.",
        [Evidence(name, ns) for name, ns in by_name.head(3).iter_rows()],
        time,
        "A10",
        "mem",
    )
