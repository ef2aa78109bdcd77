"""Rules on a device that has nothing to do: launches, waits of the host, input data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.findings import thresholds as least
from xsp_analyze.findings.advice import Evidence, Observation, rule
from xsp_analyze.findings.phrases import times
from xsp_analyze.render.units import count, duration, share
from xsp_model import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.findings.facts import Facts

__all__ = ["data_wait", "gpu_idle", "host_sync", "launch_bound"]

_MAX_EVIDENCE = 3
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
    fires=f"The busiest device has nothing to do for at least {least.IDLE_SHARE:.0%} of a step.",
    why="A device that waits is paid for and does nothing. The host launches too late: it is busy with Python, with"
    " many small operators, with reading data, or it waits for the device itself.",
    gain="Latency of a step less the busy time of the busiest device: a step cannot be shorter than its device work.",
    do="Look at the timeline for where the gaps are. Take synchronisation out of the step, use larger batches, CUDA"
    " graphs or torch.compile, and prepare input in other processes.",
    source="Our choice; the rule gpu_time_util of Nsight Systems speaks below 50 % use.",
)
def gpu_idle(facts: Facts) -> Iterator[Observation]:
    """Idle time of the busiest device."""
    part = facts.share(facts.idle_ns)
    if facts.devices.is_empty() or part < least.IDLE_SHARE:
        return
    yield Observation(
        f"Even the busiest device is idle for {share(part)} of the time ({duration(facts.idle_ns)} of"
        f" {duration(facts.latency_ns)}).",
        (Evidence("latency", facts.latency_ns), Evidence("idle", facts.idle_ns), *_causes(facts)),
        facts.idle_ns,
        "B03",
    )


def _causes(facts: Facts) -> Iterator[Evidence]:
    """What B03 knows of the idle time of the device that is idle least; only causes that occur."""
    row = facts.devices.sort("waiting_ns").row(0, named=True)
    for column, sentence in _CAUSES.items():
        if row.get(column):
            yield Evidence(sentence, float(row[column]))


@rule(
    "launch-bound",
    "Kernels are shorter than their launches",
    fires=f"A step has at least {least.MANY_KERNELS} kernels, at least {least.SHORT_SHARE:.0%} of them are shorter than"
    f" an average launch call takes the host, and the device is idle for at least {least.IDLE_SHARE:.0%} of the step.",
    why="Each launch costs the host a few microseconds. Where kernels are shorter than that, the device outruns the"
    " host and waits for the next launch.",
    gain="The lesser of the idle time of the busiest device and the time the host spends in launch calls.",
    do="Launch less: CUDA graphs or torch.compile(mode='reduce-overhead') replay many kernels with one call, fusion"
    " makes fewer and longer kernels, larger batches make longer ones.",
    source="Our choice of shares; the length of a launch is measured in the trace itself.",
)
def launch_bound(facts: Facts) -> Iterator[Observation]:
    """Kernels shorter than the mean launch call of the same trace."""
    kernels = facts.work.filter(pl.col("kind") == str(Kind.KERNEL))
    launches = facts.launches["duration_ns"]
    number = kernels.height / facts.step_count
    if launches.is_empty() or number < least.MANY_KERNELS or facts.share(facts.idle_ns) < least.IDLE_SHARE:
        return
    one = float(launches.sum() or 0) / len(launches)
    short = kernels.filter(pl.col("duration_ns") < one).height / kernels.height
    if short < least.SHORT_SHARE:
        return
    launching = facts.per_step(launches)
    yield Observation(
        f"{share(short)} of {count(round(number))} kernels are shorter than the {duration(one)} that launching one"
        " takes the host.",
        (
            Evidence("kernels", round(number), ""),
            Evidence("time in launch calls", launching),
            Evidence("a launch", one),
        ),
        min(facts.idle_ns, launching),
        "A10",
    )


@rule(
    "host-sync",
    "The host waits for the device in the middle of a step",
    fires=f"After calls that wait for the device, it stays idle for at least {least.SYNC_SHARE:.0%} of a step.",
    why="While the host waits it launches nothing. When the wait ends the device has run dry, and stays so until the"
    " next launch arrives.",
    gain="Idle device time from the end of each wait to the next device work.",
    do="Find what waits: .item(), .cpu(), printing a tensor, comparisons in Python, nonzero(), copies that are not"
    " non_blocking. Keep such values on the device and read them once in many steps.",
    source="Our choice; the calls are those of the rule cuda_api_sync of Nsight Systems, with events, driver and HIP.",
)
def host_sync(facts: Facts) -> Iterator[Observation]:
    """Idle time that follows synchronisation."""
    lost = facts.idle_after(facts.syncs)
    if facts.share(lost) < least.SYNC_SHARE:
        return
    number, a_step = facts.syncs.height / facts.step_count, " a step" if facts.frames.averaged else ""
    names = facts.syncs.group_by("name").agg(pl.col("duration_ns").sum()).sort("duration_ns", descending=True)
    evidence = [
        Evidence(f"waited in {name}", time / facts.step_count)
        for name, time in names.head(_MAX_EVIDENCE).select("name", "duration_ns").iter_rows()
    ]
    yield Observation(
        f"The host waits for the device {times(number)}{a_step}; after that the device is idle for"
        f" {duration(lost)}, {share(facts.share(lost))} of the time.",
        evidence,
        lost,
        "timeline",
    )


@rule(
    "data-wait",
    "The device waits for input",
    fires=f"Devices are idle for at least {least.DATA_SHARE:.0%} of a step while the host fetches the next batch.",
    why="Reading, decoding and collating input takes the host longer than the device needs for a batch.",
    gain="Idle device time while a span of the data loader is open.",
    do="More num_workers, persistent_workers and prefetch_factor for PyTorch's DataLoader, prefetch() in tf.data;"
    " decode on the device or beforehand.",
    source="Our choice.",
)
def data_wait(facts: Facts) -> Iterator[Observation]:
    """Idle time inside spans of data loaders."""
    if facts.data_waits.is_empty():
        return
    lost = facts.idle_within(facts.data_waits)
    if facts.share(lost) < least.DATA_SHARE:
        return
    fetching = facts.per_step(facts.data_waits["duration_ns"])
    yield Observation(
        f"Devices are idle for {duration(lost)}, {share(facts.share(lost))} of the time, while the next batch is"
        " fetched.",
        (Evidence("fetching input", fetching), Evidence("idle meanwhile", lost)),
        lost,
        "timeline",
    )
