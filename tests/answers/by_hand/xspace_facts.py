"""Facts of XPlane files."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tests.answers.by_hand.intervals import clipped, length
from tests.answers.by_hand.xspace import Event, read

if TYPE_CHECKING:
    from pathlib import Path

__all__: list[str] = []

_MS = 1e9  # picoseconds


def _work(path: Path) -> dict[int, list[Event]]:
    """Device number -> events of its streams, in order of start."""
    out = {}
    for plane in read(path):
        if "/device:GPU:" in plane.name:
            events = [e for line in plane.lines if line.name.startswith("Stream") for e in line.events]
            if events:
                out[int(plane.name.rsplit(":", 1)[1])] = sorted(events, key=lambda e: e.start)
    return out


def working_devices(path: Path) -> list[int]:
    return sorted(_work(path))


def share_percent(path: Path, pattern: str) -> float:
    """Part of the summed device time in events whose name holds the pattern."""
    events = [e for some in _work(path).values() for e in some]
    mine = sum(e.end - e.start for e in events if re.search(pattern, e.name))
    return 100 * mine / sum(e.end - e.start for e in events)


def executions(path: Path, last_kernel: str) -> int:
    """How often each device ran the program, by the kernel that ends it."""
    counts = {sum(e.name == last_kernel for e in events) for events in _work(path).values()}
    assert len(counts) == 1
    return counts.pop()


def call_latencies_ms(path: Path, function: str, last_kernel: str) -> list[float]:
    """From the start of each outermost call of a jitted function to the end of its last device, or its own end."""
    ends = [[e.end for e in events if e.name == last_kernel] for events in _work(path).values()]
    last = [max(times) for times in zip(*ends, strict=True)]
    lines = [line for plane in read(path) for line in plane.lines]
    calls = sorted({(e.start, e.end) for line in lines for e in line.events if e.name == f"PjitFunction({function})"})
    outermost = [call for at, call in enumerate(calls) if at == 0 or call[0] > calls[at - 1][1]]
    return [(max(end, device) - start) / _MS for (start, end), device in zip(outermost, last, strict=True)]


def module_executions(path: Path) -> dict[str, int]:
    """`hlo_module` and `program_id` -> launches of its first kernel."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for events in _work(path).values():
        for event in events:
            if "program_id" in event.stats:
                counts[f"{event.stats['hlo_module']}/{event.stats['program_id']}"][event.name] += 1
    return {name: max(names.values()) for name, names in counts.items()}


def dot_programs(path: Path) -> list[int]:
    """How many programs named `jit_dot` there are, and how often each ran (the same for all)."""
    times = [count for name, count in module_executions(path).items() if name.startswith("jit_dot/")]
    assert len(set(times)) == 1
    return [len(times), times[0]]


def device_steps_busy_percent(path: Path) -> list[float]:
    """Of each device with a line `Steps`: its busy time within the step over the step."""
    out = []
    for plane in read(path):
        for step in (e for line in plane.lines if line.name == "Steps" for e in line.events):
            events = [e for line in plane.lines if line.name.startswith("Stream") for e in line.events]
            inside = clipped([(e.start, e.end) for e in events], (step.start, step.end))
            out.append(100 * length(inside) / (step.end - step.start))
    return out


def marked_steps_ms(path: Path) -> list[float]:
    """Host events with `step_num`, in order: what `jax.profiler.StepTraceAnnotation` marks."""
    marks = [e for plane in read(path) for line in plane.lines for e in line.events if "step_num" in e.stats]
    return [(e.end - e.start) / _MS for e in sorted(marks, key=lambda e: e.start)]


def device_sum_ms(path: Path) -> float:
    """Durations of all events on streams, added up."""
    return sum(e.end - e.start for events in _work(path).values() for e in events) / _MS
