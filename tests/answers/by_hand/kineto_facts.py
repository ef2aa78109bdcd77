"""Facts of PyTorch traces: each function takes the file and gives the figure that a fact states."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tests.answers.by_hand.intervals import common, gaps, length, union
from tests.answers.by_hand.kineto import Event, Step, Trace, device_steps, read

if TYPE_CHECKING:
    from pathlib import Path

__all__: list[str] = []

_MS = 1e6


def step_latencies_ms(path: Path) -> list[float]:
    """One figure a `ProfilerStep#N`, by the definition of steps on the device."""
    return [step.latency / _MS for step in device_steps(read(path))]


def step_bases(path: Path) -> list[str]:
    return [step.basis for step in device_steps(read(path))]


def step_busy_percent(path: Path) -> float:
    """Busy time over time elapsed, of all steps that launched work, windows as the definition sets them."""
    steps = [step for step in device_steps(read(path)) if step.basis != "host"]
    return 100 * sum(step.busy for step in steps) / sum(step.latency for step in steps)


def _usual_iterations(trace: Trace, begins_with: str, ramp_up: int) -> list[Step]:
    """Iterations after those of ramp-up without the longest and shortest fifth (of three: but the middle one)."""
    steps = sorted(device_steps(trace, trace.iterations(begins_with))[ramp_up:], key=lambda step: step.latency)
    fifth = 1 if len(steps) == 3 else len(steps) // 5
    return steps[fifth : len(steps) - fifth]


def iteration_busy_percent(path: Path, begins_with: str, ramp_up: int) -> float:
    """Busy time over time elapsed, of the usual iterations."""
    steps = _usual_iterations(read(path), begins_with, ramp_up)
    return 100 * sum(step.busy for step in steps) / sum(step.latency for step in steps)


def iteration_idle_in_ranges_ms(path: Path, begins_with: str, ramp_up: int) -> float:
    """Idle time of a usual iteration while the host was in ranges of the name that iterations begin with."""
    trace = read(path)
    mine = [event.interval for event in trace.annotations if event.name.startswith(begins_with)]
    steps = _usual_iterations(trace, begins_with, ramp_up)
    idle = [gaps([event.interval for event in trace.device], step.window) for step in steps]
    return sum(length(common(mine, each)) for each in idle) / len(steps) / _MS


def iteration_launches(path: Path, begins_with: str) -> list[int]:
    """How much device work each iteration launched."""
    trace = read(path)
    launches = trace.launches()
    calls = [call for event in trace.device if (call := launches.get(event.args.get("correlation")))]
    return [sum(mark.start <= call.start < mark.end for call in calls) for mark in trace.iterations(begins_with)]


def step_idle_ms(path: Path) -> float:
    """Time of a mean step in which nothing ran on the device."""
    steps = [step for step in device_steps(read(path)) if step.basis != "host"]
    return sum(step.latency - step.busy for step in steps) / len(steps) / _MS


def capture_busy_percent(path: Path) -> float:
    """Union of device work over its first start to its last end."""
    trace = read(path)
    start, end = trace.first_to_last()
    return 100 * trace.busy() / (end - start)


def device_activities(path: Path) -> int:
    return len(read(path).device)


def share_percent(path: Path, pattern: str) -> float:
    """Part of the summed device time in activities whose name holds the pattern."""
    device = read(path).device
    mine = sum(event.duration for event in device if re.search(pattern, event.name))
    return 100 * mine / sum(event.duration for event in device)


def leading_name(path: Path) -> str:
    """The first word of the name that takes most device time, without return type and template arguments."""
    times: Counter[str] = Counter()
    for event in read(path).device:
        times[event.name] += event.duration
    name = times.most_common(1)[0][0].removeprefix("void ")
    return re.split(r"[<(]", name)[0].split("::")[-1].strip()


def _replayed(trace: Trace) -> list[Event]:
    launches = trace.launches()
    calls = [(launches.get(event.args.get("correlation")), event) for event in trace.device]
    return [event for call, event in calls if call and "GraphLaunch" in call.name]


def graph_replays(path: Path) -> list[int]:
    """Activities whose launch is a graph launch, and all."""
    trace = read(path)
    return [len(_replayed(trace)), len(trace.device)]


def graph_replay_percent(path: Path) -> float:
    trace = read(path)
    return 100 * sum(e.duration for e in _replayed(trace)) / sum(e.duration for e in trace.device)


def device_ms(path: Path, patterns: list[str]) -> list[float]:
    """Device time of names with each of the patterns."""
    work = read(path).device
    return [sum(e.duration for e in work if re.search(pattern, e.name)) / _MS for pattern in patterns]


def without_launch_percent(path: Path) -> float:
    """Device time whose correlation id no runtime call of the file has."""
    trace = read(path)
    launches = trace.launches()
    lost = sum(e.duration for e in trace.device if e.args.get("correlation") not in launches)
    return 100 * lost / sum(e.duration for e in trace.device)


def modules_recorded(path: Path) -> bool:
    return any(event.name.startswith("nn.Module: ") for event in read(path).python)


def device_name(path: Path) -> str:
    """What `deviceProperties` calls the device whose activities the trace holds."""
    trace = read(path)
    number = trace.device[0].args["device"]
    return str({one["id"]: one["name"] for one in trace.document["deviceProperties"]}[number])


def _communication(trace: Trace) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    inside = [e.interval for e in trace.device if "nccl" in e.name.lower()]
    return inside, [e.interval for e in trace.device if "nccl" not in e.name.lower()]


def communication_ms(path: Path) -> list[float]:
    """Union of NCCL kernels a step, and the part of it in which nothing else ran; means over the marked steps."""
    trace = read(path)
    inside, others = _communication(trace)
    steps = max(1, len(trace.host_steps()))
    exposed = length(inside) - length(common(inside, others))
    return [length(inside) / steps / _MS, exposed / steps / _MS]


def communication_calls(path: Path) -> list[int]:
    """NCCL kernels, and those among them that carry an element count and a type."""
    kernels = [e for e in read(path).kernels if "nccl" in e.name.lower()]
    return [len(kernels), sum("In msg nelems" in e.args and "dtype" in e.args for e in kernels)]


def reduced_bytes(path: Path) -> int:
    """Bytes that all-reduces carry in one step: elements times four, as all are `Float`."""
    trace = read(path)
    mine = [e for e in trace.kernels if e.args.get("Collective name") == "allreduce"]
    return int(sum(e.args["In msg nelems"] * 4 for e in mine) // len(trace.host_steps()))


def _idle(trace: Trace) -> list[tuple[int, int]]:
    steps = device_steps(trace)
    window = (steps[0].window[0], steps[-1].window[1]) if steps else trace.first_to_last()
    return gaps([event.interval for event in trace.device], window)


def idle_in_ranges_ms(path: Path, prefix: str) -> float:
    """Idle time of the device while the host was in ranges of such a name, a marked step (of all, where none is)."""
    trace = read(path)
    mine = [e.interval for e in (*trace.annotations, *trace.operators) if e.name.startswith(prefix)]
    return length(common(mine, _idle(trace))) / max(1, len(trace.host_steps())) / _MS


def idle_in_calls_percent(path: Path, names: list[str]) -> float:
    """Part of the idle time in which the host was inside one of these runtime calls."""
    trace = read(path)
    mine = [e.interval for e in trace.calls if e.name in names]
    return 100 * length(common(mine, _idle(trace))) / length(_idle(trace))


def waits_inside_step(path: Path, names: list[str]) -> int:
    """Calls of these names in a step after which the step launches more work: a wait at its end delays nothing."""
    trace = read(path)
    launches = {e.args["correlation"] for e in trace.device if "correlation" in e.args}
    count = 0
    for step in trace.host_steps():
        inside = [e for e in trace.calls if step.start <= e.start < step.end]
        last = max((e.start for e in inside if e.args.get("correlation") in launches), default=step.start)
        first = min((e.start for e in inside if e.args.get("correlation") in launches), default=step.end)
        count += sum(first < e.start < last for e in inside if e.name in names)
    return count


def peak_bytes(path: Path) -> int:
    """The most `Total Allocated` that a `[memory]` event of a device (not of the host, type 0) states."""
    sizes = [one["args"] for one in read(path).instants if one["name"] == "[memory]"]
    return int(max(one["Total Allocated"] for one in sizes if one["Device Type"] != 0))


def bytes_at_peak(path: Path, *, of_device: bool, seen: bool) -> int:
    """What is in use when `Total Allocated` is largest: of blocks given out in the file, or else of the rest."""
    events = sorted((one for one in read(path).instants if one["name"] == "[memory]"), key=lambda one: float(one["ts"]))
    blocks: dict[int, int] = {}
    peak = (-1, 0)
    for change in (one["args"] for one in events if (one["args"]["Device Type"] != 0) == of_device):
        if change["Bytes"] > 0:
            blocks[change["Addr"]] = change["Bytes"]
        else:
            blocks.pop(change["Addr"], None)
        if change["Total Allocated"] > peak[0]:
            peak = (change["Total Allocated"], sum(blocks.values()))
    return int(peak[1] if seen else peak[0] - peak[1])


def _ranks(folder: Path, pattern: str) -> list[list[Event]]:
    return [
        [event for event in read(path).kernels if pattern in event.name]
        for path in sorted(folder.glob("*.json.gz"), key=lambda path: path.name)
    ]


def collective_ms_of_all_ranks(path: Path, pattern: str) -> list[float]:
    """A rank's mean time in such kernels, and the part in which it waited for the last to come.

    The n-th kernel of each rank is the same call; the shortest of a call is what the transfer takes.
    """
    ranks = _ranks(path, pattern)
    total = sum(event.duration for kernels in ranks for event in kernels)
    transfer = sum(min(kernels[k].duration for kernels in ranks) for k in range(len(ranks[0]))) * len(ranks)
    return [total / len(ranks) / _MS, (total - transfer) / len(ranks) / _MS]


def last_to_come(path: Path, pattern: str) -> list[float]:
    """The rank that most often starts a call last, and in how many percent of the calls."""
    ranks = _ranks(path, pattern)
    calls = range(len(ranks[0]))
    last = Counter(max(range(len(ranks)), key=lambda rank: ranks[rank][k].start) for k in calls)
    rank, times = last.most_common(1)[0]
    return [rank, 100 * times / len(calls)]


def rank_latencies_ms(path: Path) -> list[float]:
    """The one step of each rank, in order of rank."""
    return [device_steps(read(one))[0].latency / _MS for one in sorted(path.glob("*.json.gz"))]


def rank_busy_percent(path: Path) -> list[float]:
    return [step_busy_percent(one) for one in sorted(path.glob("*.json.gz"))]


def median_launch_us(path: Path) -> float:
    """What a kernel launch takes the host, in the middle: the first ones load code and are no measure."""
    trace = read(path)
    kernels = {e.args["correlation"] for e in trace.kernels if "correlation" in e.args}
    times = sorted(e.duration for e in trace.calls if e.args.get("correlation") in kernels)
    return times[len(times) // 2] / 1000


def exposed_percent_of_communication(path: Path) -> float:
    inside, alone = communication_ms(path)
    return 100 * alone / inside


def mean_step_ms(path: Path) -> float:
    latencies = [step.latency for step in device_steps(read(path)) if step.basis != "host"]
    return sum(latencies) / len(latencies) / _MS


def waiting_copies_percent(path: Path) -> float:
    """Of the idle time: the host inside a copy call from or to pageable memory, which returns when the copy is done."""
    trace = read(path)
    pageable = {e.args["correlation"] for e in trace.copies if "Pageable" in e.name}
    mine = [e.interval for e in trace.calls if e.args.get("correlation") in pageable]
    return 100 * length(common(mine, _idle(trace))) / length(_idle(trace))


def device_sum_ms(path: Path) -> float:
    """Durations of all device activities, added up."""
    return sum(event.duration for event in read(path).device) / _MS


def accelerator_ms(path: Path, names: list[str]) -> float:
    """Durations of events with these names in processes that are labelled as devices, added up; dur is in us."""
    document = json.loads(path.read_bytes())
    events = document if isinstance(document, list) else document["traceEvents"]
    labels = {event["pid"]: event["args"]["labels"] for event in events if event.get("name") == "process_labels"}
    work = [event for event in events if event["ph"] == "X" and labels[event["pid"]] != "CPU"]
    total_us: float = sum(event["dur"] for event in work if event["name"] in names)
    return total_us / 1e3


def pair_ratio(path: Path, before: str, after: str) -> float:
    """Mean step after, over before."""
    return mean_step_ms(path / after) / mean_step_ms(path / before)


def pair_is_apart(path: Path, before: str, after: str) -> bool:
    """Whether every step after is slower than every step before."""
    return min(step_latencies_ms(path / after)) > max(step_latencies_ms(path / before))


def pair_products_ms(path: Path, before: str, after: str, pattern: str) -> list[float]:
    """Device time of kernels of such a name, before and after: outside and inside graph replays."""
    out = []
    for name in (before, after):
        trace = read(path / name)
        mine = sum(e.duration for e in trace.device if re.search(pattern, e.name))
        inside = sum(e.duration for e in _replayed(trace) if re.search(pattern, e.name))
        out += [(mine - inside) / _MS, inside / _MS]
    return out


def pair_devices(path: Path, before: str, after: str) -> list[str]:
    return [device_name(path / before), device_name(path / after)]


def busy_ms(path: Path) -> float:
    """Union of all device activities."""
    return read(path).busy() / _MS


def launched_in_percent(path: Path, pattern: str) -> float:
    """Device time of kernels that were launched, on the same thread, within an operator of such a name; of all."""
    trace = read(path)
    by_thread: defaultdict[object, list[tuple[int, int]]] = defaultdict(list)
    for operator in trace.operators:
        if re.search(pattern, operator.name):
            by_thread[operator.process, str(operator.thread)].append(operator.interval)
    inside = {thread: union(intervals) for thread, intervals in by_thread.items()}
    launches = trace.launches()
    total = 0
    for kernel in trace.kernels:
        call = launches.get(kernel.args.get("correlation"))
        covers = inside.get((call.process, str(call.thread)), []) if call else []
        at = bisect_right(covers, call.start, key=lambda one: one[0]) - 1 if call else -1
        total += kernel.duration if call and at >= 0 and call.start < covers[at][1] else 0
    return 100 * total / sum(event.duration for event in trace.device)


def median_kernel_us(path: Path) -> float:
    """What a kernel takes, in the middle."""
    times = sorted(event.duration for event in read(path).kernels)
    return (times[(len(times) - 1) // 2] + times[len(times) // 2]) / 2000
