"""Rules on ranks that work together: those that are waited for, and what they say to each other."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.advice import Evidence, Observation, rule
from xsp_analyze.formulas import mean_of
from xsp_analyze.text.units import count, duration, share, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_analyze.findings.facts import Facts

__all__ = ["exposed_communication", "small_collectives", "straggler", "unbalanced_pipeline", "uneven_devices"]

_POINT_TO_POINT = frozenset({"send_recv", "send", "recv"})
_NO_GRADIENTS = (
    "No backward pass is recorded, so these are no gradients that could go out earlier. What is not hidden is a"
    " transfer that compute depends on, or ranks that come at different times: record all ranks and see who is last;"
    " split the work into parts of which one computes while another communicates."
)


def _operations(facts: Facts) -> Sequence[Mapping[str, Any]]:
    """The rows of B08."""
    table = facts.table("B08")
    return [] if table is None else table.to_dicts()


@rule(
    "straggler",
    "Ranks wait for one that comes late",
    fires=f"Ranks wait in collectives for at least {limit.WAIT_SHARE:.0%} of a step, and most of that in operations to"
    f" which one rank comes last in at least {limit.STRAGGLER_LAST:.0%} of the calls.",
    why="A collective ends when the last rank has come. What looks like slow communication on all others is a late"
    " host, a slow device or more work on one.",
    gain="What a rank other than the last waits in a step, as far as nothing computes meanwhile.",
    do="Look at that rank alone: its input, its host, the clocks and the temperature of its device, its part of the"
    " data (long sequences, large tables), and whether its slot differs from the others'.",
    source="Our choice. All ranks leave a collective together, so the shortest kernel is that of the rank that came"
    " last.",
    needs=("timeline", "several devices"),
    explains=("exposed-communication", "uneven-devices", "dominant-kernel", "dominant-layer", "gpu-idle"),
)
def straggler(facts: Facts) -> Iterator[Observation]:
    """B08's waits, of the rank for which there are most."""
    waits: dict[int, list[Mapping[str, Any]]] = {}
    rows = [row for row in _operations(facts) if row["wait_ns"] and row["operation"] not in _POINT_TO_POINT]
    for row in rows:
        if row["straggler"] is not None and row["straggler_share"] >= limit.STRAGGLER_LAST:
            waits.setdefault(row["straggler"], []).append(row)
    total = sum(row["wait_ns"] for row in rows)
    if not waits:
        return
    rank, own = max(waits.items(), key=lambda item: sum(row["wait_ns"] for row in item[1]))
    wait = sum(row["wait_ns"] for row in own)
    if wait < limit.STRAGGLER_LAST * total or facts.share(wait) < limit.WAIT_SHARE:
        return
    longest = max(own, key=lambda row: row["wait_ns"])
    yield Observation(
        f"Rank {rank} comes last to {share(longest['straggler_share'])} of the calls of {longest['operation']}: of"
        f" {duration(longest['duration_ns'])} a step that the {longest['rank_count']} ranks spend in it on average,"
        f" {duration(longest['wait_ns'])} are waiting.",
        [Evidence(f"waiting in {row['operation']}, mean over ranks", row["wait_ns"]) for row in own],
        sum(_waited_by_others(row) for row in own),
        "B08",
        coverage=sum(row["matched_count"] for row in own) / sum(row["count"] for row in own),
    )


def _waited_by_others(row: Mapping[str, Any]) -> float:
    """The mean over ranks holds the one that waits for nobody."""
    others = row["rank_count"] / max(row["rank_count"] - 1, 1)
    return float(min(row["wait_ns"], row["exposed_ns"]) * others)


@rule(
    "unbalanced-pipeline",
    "Stages of the pipeline take unequally long",
    fires="Ranks pass work on from one to the next (send and receive take more time than collectives), and the one that"
    f" computes longest computes at least {limit.STAGE_IMBALANCE:.0%} longer than they do on average.",
    why="Micro-batches follow each other through the pipeline at the pace of its slowest stage; the others wait.",
    gain="Latency of a step, times the part by which the longest stage is above the mean: all of a step, its filling"
    " and its draining too, goes at the pace of that stage.",
    do="Move layers from the longest stage to the shortest (embedding and the head count too), or split by measured"
    " time instead of by number of layers.",
    source="Our choice.",
    needs=("timeline", "several devices"),
    explains=("exposed-communication", "uneven-devices", "straggler", "dominant-kernel", "gpu-idle", "uneven-steps"),
)
def unbalanced_pipeline(facts: Facts) -> Iterator[Observation]:
    """Compute time over the devices of ranks that send and receive."""
    rows = _operations(facts)
    passing = sum(row["duration_ns"] for row in rows if row["operation"] in _POINT_TO_POINT)
    if not passing or passing < sum(row["duration_ns"] for row in rows) / 2:
        return
    devices = facts.devices.with_columns(pl.col("compute_ns").cast(pl.Float64)).sort("compute_ns", descending=True)
    longest, mean = float(devices["compute_ns"][0]), mean_of(devices["compute_ns"])
    if not longest or longest < (1 + limit.STAGE_IMBALANCE) * mean:
        return
    yield Observation(
        f"The stage of rank {_rank(facts, devices['run_id'][0])} computes for {duration(longest)} a step, the"
        f" {devices.height} stages on average for {duration(mean)}.",
        (Evidence("longest stage", longest), Evidence("mean over stages", mean), Evidence("passing on", passing)),
        facts.latency_ns * (1 - mean / longest),
        "B03",
    )


def _rank(facts: Facts, run_id: int) -> int:
    runs = facts.frames.trace.frame("runs").filter(pl.col("run_id") == run_id)
    return int(runs.select(pl.coalesce("rank", "run_id")).item())


@rule(
    "small-collectives",
    "Many small collectives",
    fires=f"A rank makes at least {limit.SMALL_CALLS} collectives of one kind a step, of at most"
    f" {limit.SMALL_BYTES >> 20} MiB on average (or, where no size is recorded, {limit.SMALL_NS // 1000} \u00b5s),"
    f" and they run for at least {limit.WAIT_SHARE:.0%} of a step while nothing computes.",
    why="A small message takes as long as its latency, some tens of microseconds, whatever its size; a hundred of them"
    " take a hundred times as long as one of the same bytes.",
    gain="Their time in which nothing computes, less the part of it that as few calls as buckets of 25 MiB would take.",
    do="Put what is sent into buckets: gradients with bucket_cap_mb and gradient_as_bucket_view of"
    " DistributedDataParallel, fused or coalesced collectives elsewhere (torch.distributed._coalescing_manager,"
    " XLA's collective combiner).",
    source="Our choice; 25 MiB are the buckets of PyTorch's DistributedDataParallel.",
    needs=("timeline",),
    explains=("exposed-communication", "dominant-kernel", "straggler", "uneven-steps"),
)
def small_collectives(facts: Facts) -> Iterator[Observation]:
    """The operation of B08 with most calls that are small."""
    for row in _operations(facts):
        time, calls = float(row["duration_ns"]), float(row["count"])
        if row["operation"] in _POINT_TO_POINT or calls < limit.SMALL_CALLS:
            continue
        is_small = (
            row["bytes"] / calls <= limit.SMALL_BYTES if row["bytes"] is not None else time / calls <= limit.SMALL_NS
        )
        if not is_small or facts.share(row["exposed_ns"]) < limit.WAIT_SHARE:
            continue
        needed = ceil((row["bytes"] or 0) / limit.BUCKET_BYTES) or 1
        moved = f" of {size(row['bytes'] / calls)} each" if row["bytes"] is not None else ""
        yield Observation(
            f"A step has {count(round(calls))} calls of {row['operation']}{moved}; they take {duration(time)},"
            f" {duration(row['exposed_ns'])} of it while nothing computes.",
            (Evidence("calls", round(calls), ""), Evidence("a call", time / calls), Evidence("needed", needed, "")),
            row["exposed_ns"] * max(1 - needed / calls, 0),
            "B08",
        )


@rule(
    "uneven-devices",
    "Devices do unequal work",
    fires="The device that computes longest computes at least"
    f" {limit.IMBALANCE:.0%} longer than devices do on average (only with several devices).",
    why="Devices that train one model wait for the slowest at every collective.",
    gain="Compute time of the busiest device less the mean over devices.",
    do="Spread the work evenly: split by cost instead of by count, pad or sort sequences, balance pipeline stages"
    " and experts; or look for a slow device.",
    source="Our choice.",
    needs=("timeline",),
)
def uneven_devices(facts: Facts) -> Iterator[Observation]:
    """Compute time over devices."""
    times = facts.devices["compute_ns"].cast(pl.Float64)
    if len(times) < 2:  # noqa: PLR2004 (several)
        return
    longest, mean = float(times.max() or 0), float(times.mean() or 0)  # type: ignore[arg-type]
    if not longest or (longest - mean) / longest < limit.IMBALANCE:
        return
    yield Observation(
        f"The busiest of {len(times)} devices computes for {duration(longest)}, the average one for {duration(mean)}.",
        (Evidence("busiest device", longest), Evidence("mean over devices", mean)),
        longest - mean,
        "B03",
    )


@rule(
    "exposed-communication",
    "Communication is not hidden behind compute",
    fires=f"Communication kernels run at least {limit.EXPOSED_SHARE:.0%} of a step while nothing computes.",
    why="Collectives can run beside compute; where they do not, every device waits for the network, or for the rank"
    " that comes last: a kernel of communication spins until all are there.",
    gain="Communication time in which nothing computes, mean over devices.",
    do="In training, let gradients go out in buckets while the backward pass runs, and prefetch sharded weights. Else"
    " see whether it is waiting: traces of all ranks together say for whom.",
    source="Our choice.",
    needs=("timeline",),
)
def exposed_communication(facts: Facts) -> Iterator[Observation]:
    """Exposed communication of B03."""
    if facts.devices.is_empty():
        return
    columns = ("communication_ns", "exposed_communication_ns")
    every, time = (mean_of(facts.devices[column]) for column in columns)
    if facts.share(time) < limit.EXPOSED_SHARE:
        return
    waits = sum(float(row["wait_ns"] or 0) for row in _operations(facts))
    waiting = [Evidence("waiting for other ranks", waits)] if waits else []
    waited = f"; {duration(waits)} of it is waiting for other ranks" if waits else ""
    number = facts.devices.height
    yield Observation(
        f"Communication runs alone for {duration(time)}, {share(facts.share(time))} of the time, of {duration(every)}"
        f" in all{f' (mean over {number} devices)' if number > 1 else ''}{waited}.",
        (Evidence("communication", every), Evidence("of it exposed", time), *waiting),
        time,
        "B03",
        do=_NO_GRADIENTS if facts.context.is_inference else "",
    )
