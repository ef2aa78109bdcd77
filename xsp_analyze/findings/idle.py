"""Rules on a device that has nothing to do: launches, waits of the host, input data, copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.advice import Evidence, Observation, rule, times
from xsp_analyze.needs import holds
from xsp_analyze.text.shown import clean
from xsp_analyze.text.units import count, count_of, duration, share, size
from xsp_model import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.findings.facts import Facts

__all__ = ["copies_in_step", "data_wait", "gpu_idle", "host_sync", "launch_bound", "pageable_copies"]

_BETWEEN_REPLAYS = (
    "Most device work is in replays of graphs already. Look at the timeline for what the host does between them:"
    " sampling, scheduling, input, waits."
)
_CAUSES = {
    "idle_sync_ns": "idle while the host waited for a device",
    "idle_initialisation_ns": "idle while the host started something up or compiled",
    "idle_input_ns": "idle while the host fetched input",
    "idle_host_ns": "idle while the host did other work",
    "idle_launch_ns": "idle between launch call and start",
}
"""Causes of idle time, by their columns in B03."""


@rule(
    "gpu-idle",
    "The device waits for the host",
    fires=f"The busiest device has nothing to do for at least {limit.IDLE_SHARE:.0%} of a step.",
    why="A device that waits is paid for and does nothing. The host launches too late: it is busy with Python, with"
    " many small operators, with reading data, or it waits for the device itself.",
    gain="Latency of a step (of a profile of levels, without a profiler) less the busy time of the busiest device: a"
    " step cannot be shorter than its device work.",
    do="Look at the timeline for where the gaps are, and at what the host does in them. Take synchronisation out of the"
    " step, use larger batches, prepare input in other processes, and let fewer launches do more.",
    source="Our choice; the rule gpu_time_util of Nsight Systems speaks below 50 % use.",
    needs=("timeline",),
)
def gpu_idle(facts: Facts) -> Iterator[Observation]:
    """Idle time of the busiest device."""
    part = facts.idle_share(facts.idle_ns)
    replays = not holds(facts.frames.of_trace, "few replays")
    if facts.devices.is_empty() or part < limit.IDLE_SHARE or not (replays or _is_of_host(facts)):
        return
    yield Observation(
        f"Even the busiest device is idle for {share(part)} of the time ({duration(facts.idle_ns)} of"
        f" {duration(facts.idle_window_ns)}{_kernels_profiled_words(facts)}{_start_up_words(facts)}){_calls(facts)}.",
        (Evidence("latency", facts.latency_ns), Evidence("idle", facts.idle_ns), *_causes(facts)),
        facts.idle_gain_ns(facts.idle_ns),
        "B03",
        do=_BETWEEN_REPLAYS if replays else "",
    )


def _start_up_words(facts: Facts) -> str:
    return " without start-up" if facts.start_up_ns else ""


def _kernels_profiled_words(facts: Facts) -> str:
    return " with kernels profiled" if facts.idle_window_ns != facts.latency_ns else ""


def _is_of_host(facts: Facts) -> bool:
    """Whether the host explains most of the idle time, not launched work that waits or what the trace does not tell."""
    row = facts.devices.sort("waiting_ns").row(0, named=True)
    other = (row.get("idle_launch_ns") or 0) + (row.get("idle_unknown_ns") or 0)
    return bool(other <= row["idle_ns"] / 2)


def _calls(facts: Facts) -> str:
    """The calls of the host that explain most of the idle time of that device, where any explains much."""
    table, busiest = facts.table("B16"), facts.devices.sort("waiting_ns").row(0, named=True)
    if table is None:
        return ""
    of_device = pl.col("device_id").eq_missing(pl.lit(busiest["device_id"], pl.Int64))
    rows = table.filter(pl.col("run_id") == busiest["run_id"], of_device)
    if facts.start_up_ns:
        rows = rows.filter(pl.col("cause") != "initialisation")
    waiting_ns = busiest["waiting_ns"]
    parts = [f"{clean(call)} ({share(ns / waiting_ns)})" for call, ns in facts.main_calls(rows, waiting_ns)]
    return f", of which the host spends much in {', '.join(parts)}" if parts else ""


def _causes(facts: Facts) -> Iterator[Evidence]:
    """What B03 knows of the idle time of the device that is idle least; only causes that occur."""
    row = facts.devices.sort("waiting_ns").row(0, named=True)
    for column, sentence in _CAUSES.items():
        if row.get(column) and not (facts.start_up_ns and column == "idle_initialisation_ns"):
            yield Evidence(sentence, float(row[column]))


@rule(
    "launch-bound",
    "The device idles between short kernels",
    fires=f"A step has at least {limit.MANY_KERNELS} kernels, and gaps of at most {limit.LAUNCH_GAP_NS // 1000} \u00b5s"
    " between device work, in which the host was held up by no wait, no input and no compilation, take at least"
    f" {limit.LAUNCH_SHARE:.0%} of it and {limit.LAUNCH_IDLE_SHARE:.0%} of the time in which the device is idle.",
    why="Each launch costs the host several microseconds, and an operator of the framework some tens of them. Where"
    " kernels are shorter than that, the device outruns the host and waits for the next launch.",
    gain="The sum of these gaps.",
    do="Launch less: fusion (torch.compile) makes fewer and longer kernels, graphs (torch.compile with"
    " mode='reduce-overhead', torch.cuda.graph) replay many with one call, larger batches make longer ones.",
    source="Our choice. A launch takes 5 to 10 \u00b5s, an operator in Python with its profiler some tens.",
    needs=("timeline", "launches", "few replays"),
    explains=("gpu-idle",),
)
def launch_bound(facts: Facts) -> Iterator[Observation]:
    """Short gaps in which the host only launched."""
    kernels = facts.work.filter(pl.col("kind").cast(pl.String) == str(Kind.KERNEL))
    number = kernels.height / facts.step_count
    lost = facts.host.idle_between(limit.LAUNCH_GAP_NS)
    lower_ns = max(limit.LAUNCH_SHARE * facts.idle_window_ns, limit.LAUNCH_IDLE_SHARE * facts.idle_ns)
    if number < limit.MANY_KERNELS or not lost or lost < lower_ns:
        return
    launches = kernels.drop_nulls("call_end_ns").unique("parent_id")
    evidence = [Evidence("kernels", round(number), ""), Evidence("idle between them", lost)]
    if launches.height:
        spent = facts.per_step(launches["call_end_ns"] - launches["call_start_ns"])
        evidence.append(Evidence("time in launch calls", spent))
    median = float(kernels["duration_ns"].median() or 0)  # type: ignore[arg-type]
    yield Observation(
        f"Between {count(round(number))} kernels, half of them of at most {duration(median)}, the device is idle for"
        f" {duration(lost)}, {share(facts.idle_share(lost))} of the time, in gaps of at most"
        f" {duration(limit.LAUNCH_GAP_NS)}.",
        evidence,
        facts.idle_gain_ns(lost),
        "A10",
    )


@rule(
    "host-sync",
    "The host waits for the device in the middle of a step",
    fires=f"After calls that wait for the device, it stays idle for at least {limit.SYNC_SHARE:.0%} of a step.",
    why="While the host waits it launches nothing. When the wait ends the device has run dry, and stays so until the"
    " next launch arrives.",
    gain="Idle device time from the end of each wait to the next device work, without what the host then spends on"
    " input or compilation, and no more than the wait took: so much earlier the host would be. Waits before"
    " the first device work or after the last do not count: profilers make them.",
    do="Find what waits: .item(), .cpu(), printing a tensor, comparisons in Python, nonzero(), copies that are not"
    " non_blocking. Keep such values on the device and read them once in many steps.",
    source="Our choice; the calls are those of the rule cuda_api_sync of Nsight Systems, with events, driver and HIP.",
)
def host_sync(facts: Facts) -> Iterator[Observation]:
    """Idle time that follows synchronisation."""
    lost = facts.host.idle_after(facts.host.syncs)
    if facts.idle_share(lost) < limit.SYNC_SHARE:
        return
    number, a_step = facts.host.syncs.height / facts.step_count, " a step" if facts.frames.is_mean else ""
    names = facts.host.syncs.group_by("name").agg(pl.col("duration_ns").sum()).sort("duration_ns", descending=True)
    evidence = [
        Evidence(f"waited in {name}", time / facts.step_count)
        for name, time in names.head(limit.MAX_EVIDENCE).select("name", "duration_ns").iter_rows()
    ]
    yield Observation(
        f"The host waits for the device {times(number)}{a_step}; after that the device is idle for"
        f" {duration(lost)}, {share(facts.idle_share(lost))} of the time.",
        evidence,
        facts.idle_gain_ns(lost),
        "timeline",
    )


@rule(
    "data-wait",
    "The device waits for input",
    fires=f"Devices are idle for at least {limit.DATA_SHARE:.0%} of a step while the host fetches the next batch.",
    why="Reading, decoding and collating input takes the host longer than the device needs for a batch.",
    gain="Idle device time while a span of the data loader is open.",
    do="More num_workers, persistent_workers and prefetch_factor for PyTorch's DataLoader, prefetch() in tf.data;"
    " decode on the device or beforehand.",
    source="Our choice.",
    needs=("timeline",),
    explains=("gpu-idle", "uneven-steps"),
)
def data_wait(facts: Facts) -> Iterator[Observation]:
    """Idle time inside spans of data loaders."""
    if facts.host.data_waits.is_empty():
        return
    lost = facts.host.idle_within(facts.host.data_waits)
    if facts.idle_share(lost) < limit.DATA_SHARE:
        return
    fetching = facts.per_step(facts.host.data_waits["duration_ns"])
    yield Observation(
        f"Devices are idle for {duration(lost)}, {share(facts.idle_share(lost))} of the time, while the next batch is"
        " fetched.",
        (Evidence("fetching input", fetching), Evidence("idle meanwhile", lost)),
        facts.idle_gain_ns(lost),
        "timeline",
    )


# Rules on copies: those that nothing runs beside, those of pageable memory.

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
