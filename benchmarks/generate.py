"""Grows a trace of any size from one of our fixtures: its work again and again, later, with ids of its own.

The number of steps stays what people profile; each holds many copies of the fixture's work, as micro-batches would.
Copies may run beside each other on threads and streams of their own (`lanes`), and end with replays of a CUDA graph.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.replays import graph_replays

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["FIXTURE", "grow"]

FIXTURE = (
    Path(__file__).parents[1] / "fixtures" / "torch_profiler" / "transformer_train_gpu_synthetic" / "trace.json.gz"
)

_STEPS = 10
_FIRST_STEP = 3
_GAP_NS = 150_000  # between one copy's last event and the next one's first
_LANE_NS = 1_009  # a lane is that much behind the one before it: threads do not start in one ns
_STEP = "ProfilerStep#"
_LAUNCHES = ("cuda_runtime", "cuda_driver")
_ACTIVITIES = ("kernel", "gpu_memcpy", "gpu_memset")
_ARGUMENTS = {
    "correlation": "correlation",
    "Sequence number": "sequence",
    "External id": "operator",
    "stream": "stream",
}
_SLOT_KEYS = ("tid", "id", "ts", "args")  # in the order in which they are written
_OF_LANE = ("thread", "stream")  # what differs between lanes, and not from turn to turn


def grow(
    target: Path, size_bytes: int, *, steps: int = _STEPS, fixture: Path = FIXTURE, lanes: int = 1, replays: int = 0
) -> int:
    """Writes a trace of about the size, in the layout of torch's exporter; returns how many events it holds.

    `lanes` copies run at a time, each on host threads and streams of its own; each ends with `replays` launches of a
    CUDA graph of 40 kernels. Pieces are written as they are made: memory does not grow with the size.
    """
    document = json.loads(gzip.decompress(fixture.read_bytes()), parse_float=Decimal)
    template = _Template.of([*document["traceEvents"], *graph_replays(document["traceEvents"], replays)], lanes)
    head = {k: v for k, v in document.items() if k not in ("traceEvents", "traceName")}
    turns = max(steps, size_bytes // (len(template.copy(0)) * lanes))
    with target.open("w", encoding="utf-8") as file:
        file.write(json.dumps(head, indent=2, default=float).removesuffix("\n}") + ',\n  "traceEvents": [\n')
        file.write(",\n".join(_text(e) for e in document["traceEvents"] if e["ph"] == "M"))
        for step in range(steps):
            first, last = (turns * n // steps for n in (step, step + 1))
            file.write(template.step(step + _FIRST_STEP, first, last))
            file.writelines(template.copy(n) for n in range(first * lanes, last * lanes))
        file.write('\n  ],\n  "traceName": "grown from a fixture"\n}\n')
    return template.events * turns * lanes + steps


@dataclass(frozen=True, slots=True)
class _Slot:
    """A number that differs from copy to copy."""

    first: int
    stride: int
    kind: str

    def text(self, copy: int, lanes: int) -> str:
        if self.kind == "time":
            value = self.first + copy // lanes * self.stride + copy % lanes * _LANE_NS
            return f"{value // 1000}.{value % 1000:03d}"
        return str(self.first + (copy % lanes if self.kind in _OF_LANE else copy) * self.stride)


@dataclass(frozen=True, slots=True)
class _Template:
    """The text of all events of a copy but its steps, `%s` where one of the slots goes."""

    text: str
    slots: list[_Slot]
    events: int
    start_ns: int
    stride_ns: int
    thread: dict[str, Any]
    lanes: int

    @classmethod
    def of(cls, events: list[dict[str, Any]], lanes: int) -> _Template:
        timed = [e for e in events if e["ph"] != "M" and not e["name"].startswith(_STEP)]
        steps = [e for e in events if e["name"].startswith(_STEP)]
        strides = _strides(timed)
        slots: list[_Slot] = []
        texts = [_text(_with_slots(e, strides, slots)) for e in _with_external_ids(timed)]
        text = "".join(",\n" + each for each in texts).replace("%", "%%")
        # A slot is written as the string "<slot>"; strings of the fixture hold no such thing.
        return cls(
            text.replace('"<slot>"', "%s"),
            slots,
            len(timed),
            min(_nanoseconds(e["ts"]) for e in (*timed, *steps)),
            strides["time"],
            {key: steps[0][key] for key in ("ph", "cat", "pid", "tid")},
            lanes,
        )

    def copy(self, number: int) -> str:
        return self.text % tuple(slot.text(number, self.lanes) for slot in self.slots)

    def step(self, number: int, first_turn: int, end_turn: int) -> str:
        """The annotation of a step that holds the copies of those turns."""
        start = self.start_ns + first_turn * self.stride_ns
        duration = (end_turn - first_turn) * self.stride_ns - _GAP_NS // 2
        times = {"ts": Decimal(start) / 1000, "dur": Decimal(duration) / 1000}
        return ",\n" + _text({**self.thread, "name": f"{_STEP}{number}", **times, "args": {}})


def _nanoseconds(microseconds: Decimal | int) -> int:
    return int(microseconds * 1000)


def _strides(events: list[dict[str, Any]]) -> dict[str, int]:
    """How far each kind of number moves from a copy to the next."""
    starts = [_nanoseconds(e["ts"]) for e in events]
    ends = [_nanoseconds(e["ts"] + e.get("dur", 0)) for e in events]
    return {
        "time": max(ends) - min(starts) + _GAP_NS,
        "correlation": _spread(e.get("args", {}).get("correlation") for e in events),
        "sequence": _spread(e.get("args", {}).get("Sequence number") for e in events),
        "flow": _spread(e.get("id") for e in events if e.get("cat") == "fwdbwd"),
        "operator": sum(e.get("cat") == "cpu_op" for e in events),
        "thread": 1000,
        "stream": 100,
    }


def _spread(values: Iterator[int | None]) -> int:
    numbers = [v for v in values if v is not None]
    return max(numbers) - min(numbers) + 1


def _with_slots(event: dict[str, Any], strides: dict[str, int], slots: list[_Slot]) -> dict[str, Any]:
    """The event with its changing numbers replaced, in the order in which they are written."""

    def slot(first: int, stride: str) -> str:
        slots.append(_Slot(first, strides[stride], stride))
        return "<slot>"

    out = dict(event)
    for key in [key for key in _SLOT_KEYS if key in event]:
        value = event[key]
        if key == "ts":
            out[key] = slot(_nanoseconds(value), "time")
        elif key == "id":
            out[key] = slot(value, "flow" if event["cat"] == "fwdbwd" else "correlation")
        elif key == "tid":
            out[key] = slot(value, "thread" if event["pid"] else "stream")
        else:
            out[key] = {k: slot(v, _ARGUMENTS[k]) if k in _ARGUMENTS else v for k, v in value.items()}
    return out


def _with_external_ids(events: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The events with the ids that torch gives: an operator its own, launches and activities their operator's."""
    numbers = count(1)
    open_operators: dict[Any, list[tuple[Decimal, int]]] = {}
    of_launch: dict[int, int] = {}
    ids: dict[int, int] = {}
    for index in sorted(range(len(events)), key=lambda n: (events[n]["ts"], -events[n].get("dur", 0))):
        event = events[index]
        stack = open_operators.setdefault((event["pid"], event["tid"]), [])
        while stack and stack[-1][0] < event["ts"]:
            stack.pop()
        if event.get("cat") == "cpu_op":
            ids[index] = next(numbers)
            stack.append((event["ts"] + event["dur"], ids[index]))
        elif event.get("cat") in _LAUNCHES and stack:
            ids[index] = of_launch[event["args"]["correlation"]] = stack[-1][1]
    for index, event in enumerate(events):
        external_id = ids.get(index)
        if external_id is None and event.get("cat") in _ACTIVITIES:
            external_id = of_launch.get(event["args"]["correlation"])
        yield event if external_id is None else event | {"args": {"External id": external_id} | event["args"]}


def _text(event: dict[str, Any]) -> str:
    """One event as torch's exporter lays it out."""
    first: dict[str, Any] = {k: event[k] for k in ("ph", "cat", "name", "pid", "tid") if k in event}
    second: dict[str, Any] = {k: event[k] for k in ("ts", "dur") if k in event}
    third: dict[str, Any] = {k: v for k, v in event.items() if k not in first and k not in second and k != "args"}
    lines = [_members(part) for part in ({**first, **third}, second) if part]
    if "args" in event:
        lines.append('"args": {\n      ' + _members(event["args"]) + "\n    }")
    return "  {\n    " + ",\n    ".join(lines) + "\n  }"


def _members(part: Mapping[str, Any]) -> str:
    return ", ".join(f"{json.dumps(k)}: {_value(v)}" for k, v in part.items())


def _value(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, Decimal) else json.dumps(value, default=float)
