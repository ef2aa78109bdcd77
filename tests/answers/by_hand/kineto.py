"""A PyTorch (Kineto) trace, read with the standard library: device work, launches, steps, gaps and their calls."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tests.answers.by_hand.intervals import clipped, length

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Event", "Step", "Trace", "device_steps", "read"]

_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
_RUNTIME = {"cuda_runtime", "cuda_driver", "Runtime"}


@dataclass(frozen=True, slots=True)
class Event:
    """A complete event; times in ns."""

    name: str
    category: str
    start: int
    end: int
    process: Any
    thread: Any
    args: dict[str, Any]

    @property
    def interval(self) -> tuple[int, int]:
        return self.start, self.end

    @property
    def duration(self) -> int:
        return self.end - self.start


@dataclass
class Trace:
    """The complete events of a file, by what they are, in order of start."""

    document: dict[str, Any]
    device: list[Event] = field(default_factory=list)
    calls: list[Event] = field(default_factory=list)
    operators: list[Event] = field(default_factory=list)
    python: list[Event] = field(default_factory=list)
    annotations: list[Event] = field(default_factory=list)
    device_annotations: list[Event] = field(default_factory=list)
    flows: list[dict[str, Any]] = field(default_factory=list)
    instants: list[dict[str, Any]] = field(default_factory=list)

    @property
    def kernels(self) -> list[Event]:
        return [event for event in self.device if event.category.lower() == "kernel"]

    @property
    def copies(self) -> list[Event]:
        return [event for event in self.device if "memcpy" in event.category.lower()]

    def launches(self) -> dict[object, Event]:
        """Correlation id -> the runtime call that has it."""
        return {event.args["correlation"]: event for event in self.calls if "correlation" in event.args}

    def host_steps(self) -> list[Event]:
        """The `ProfilerStep#N` annotations of the host."""
        return [event for event in self.annotations if event.name.startswith("ProfilerStep#")]

    def iterations(self, begins_with: str) -> list[Event]:
        """From the end of one `Optimizer.step` to the end of the next, the first from the first range of that name."""
        steps = [event for event in self.annotations if event.name.startswith("Optimizer.step#")]
        begin = next(event.start for event in self.annotations if event.name.startswith(begins_with))
        begins = [begin, *(event.end for event in steps[:-1])]
        return [replace(event, start=start) for event, start in zip(steps, begins, strict=True)]

    def first_to_last(self) -> tuple[int, int]:
        """From the first start to the last end of device work."""
        return min(event.start for event in self.device), max(event.end for event in self.device)

    def busy(self, window: tuple[int, int] | None = None) -> int:
        """Time with at least one device activity running, of all streams of all devices."""
        intervals = [event.interval for event in self.device]
        return length(clipped(intervals, window) if window else intervals)


def _ns(value: object) -> int:
    return int(Decimal(str(value)) * 1000)


_HOMES = {
    "cpu_op": "operators",
    "Operator": "operators",
    "python_function": "python",
    "user_annotation": "annotations",
    "gpu_user_annotation": "device_annotations",
}


@lru_cache(maxsize=2)
def read(path: Path) -> Trace:
    """Every complete event of the file, sorted by start."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", errors="replace") as file:
        document = json.loads(re.sub(r"(?<=: )-?(?:nan|inf)(?=[,}])", "0", file.read()), parse_float=str)
    document = document if isinstance(document, dict) else {"traceEvents": document}
    trace = Trace(document)
    for raw in document["traceEvents"]:
        _sort_in(trace, raw)
    for events in (trace.device, trace.calls, trace.operators, trace.python, trace.annotations):
        events.sort(key=lambda event: (event.start, -event.end))
    return trace


def _sort_in(trace: Trace, raw: dict[str, Any]) -> None:
    phase, category = raw.get("ph"), raw.get("cat", "")
    if phase in ("s", "f"):
        trace.flows.append(raw)
    elif phase == "i":
        trace.instants.append(raw)
    elif phase == "X":
        start = _ns(raw["ts"])
        end = start + _ns(raw.get("dur", 0))
        event = Event(raw["name"], category, start, end, raw.get("pid"), raw.get("tid"), raw.get("args", {}))
        if category in _DEVICE:
            trace.device.append(event)
        elif category in _RUNTIME:
            trace.calls.append(event)
        elif event.name.startswith("ProfilerStep#") and category != "gpu_user_annotation":
            trace.annotations.append(event)
        elif category in _HOMES:
            getattr(trace, _HOMES[category]).append(event)


@dataclass(frozen=True)
class Step:
    """A step by the definition: its window on the device, and by what basis."""

    name: str
    basis: str
    window: tuple[int, int]
    host: tuple[int, int]
    busy: int

    @property
    def latency(self) -> int:
        return self.window[1] - self.window[0]


def device_steps(trace: Trace, marks: list[Event] | None = None) -> list[Step]:
    """Step latencies by the definition, of the profiler's steps or of these.

    `device_period` where the step before launched work and was not long over; `device_end` for the first and after a
    pause; `host` where nothing was launched.
    """
    launches = trace.launches()
    launched_at = [(launches.get(event.args.get("correlation")), event) for event in trace.device]
    steps: list[Step] = []
    end_before: int | None = None
    previous: Event | None = None
    for mark in trace.host_steps() if marks is None else marks:
        mine = [event.end for call, event in launched_at if call and mark.start <= call.start < mark.end]
        earlier = [event.end for call, event in launched_at if call is None or call.start < mark.start]
        paused = previous is not None and _is_pause(previous, mark, end_before)
        window, basis = _window(mark, mine, earlier, None if paused else end_before)
        steps.append(Step(mark.name, basis, window, mark.interval, trace.busy(window)))
        end_before, previous = max(mine) if mine else None, mark
    return steps


def _is_pause(previous: Event, mark: Event, end_before: int | None) -> bool:
    """Neither the step before nor its work was under way for more than 1 % of the shorter step."""
    over = max(previous.end, end_before or previous.end)
    return mark.start - over > 0.01 * min(previous.duration, mark.duration)


def _window(mark: Event, mine: list[int], earlier: list[int], end_before: int | None) -> tuple[tuple[int, int], str]:
    if not mine:
        return mark.interval, "host"
    if end_before is not None:
        return (end_before, max(mine)), "device_period"
    return (max([mark.start, *earlier]), max([mark.end, *mine])), "device_end"
