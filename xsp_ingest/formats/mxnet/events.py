"""The events of a profile: begins and ends paired, samples of counters, and the devices of the lanes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.json_window import Entries, entries
from xsp_ingest.files.values import TraceEvent, finite, nanoseconds, text
from xsp_ingest.staging.events import BeginsAndEnds, Mark, Pair
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Profile", "load"]

_NS_PER_US = 1000
_ENDS = {"B": "E", "b": "e", "(": ")"}
_BEGINS = {end: begin for begin, end in _ENDS.items()}
_UINT64 = range(1 << 64)
_HALF = 1 << 63
_MAX_OPEN = 1 << 20
_SPANS: Mapping[str, pl.DataType] = {
    "cat": pl.String(),
    "name": pl.String(),
    "style": pl.String(),  # the phase of the begin: B, b or (; X for complete events
    "lane": pl.Int64(),
    "thread_id": pl.Int64(),
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
}
_SAMPLES: Mapping[str, pl.DataType] = {
    "name": pl.String(),
    "time_ns": pl.Int64(),
    "value": pl.Float64(),
}


@dataclass(slots=True)
class Profile:
    """A profile's `spans` and `samples`, the names of its lanes, and what was odd."""

    spans: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_SPANS))
    samples: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_SAMPLES))
    lanes: dict[int, str] = field(default_factory=dict)
    unpaired: int = 0
    untimed: int = 0
    marks: int = 0
    foreign: int = 0
    not_utf8: int = 0


_Key = tuple[int | None, int | None, str, str]


@dataclass(slots=True)
class _Reading:
    """Rows so far, and begins whose ends have not come, by lane, thread, style and name."""

    profile: Profile
    spans: list[tuple[object, ...]] = field(default_factory=list)
    samples: list[tuple[object, ...]] = field(default_factory=list)
    marks: BeginsAndEnds = field(default_factory=BeginsAndEnds)


def load(path: Path) -> Profile:
    """The file's events; XspError where it is cut off (as continuous dumps are) or no JSON."""
    profile, seen = Profile(), Entries()
    reading = _Reading(profile)
    for batch in entries(path, TraceEvent, seen, key=b"traceEvents"):
        for event in batch:
            _take(event, reading)
        profile.spans.extend(pl.DataFrame(reading.spans, schema=_SPANS, orient="row"))
        profile.samples.extend(pl.DataFrame(reading.samples, schema=_SAMPLES, orient="row"))
        reading.spans, reading.samples = [], []
        if reading.marks.open > _MAX_OPEN:
            raise XspError("more than a million events of the profile begin and do not end", path=path)
    pairs = [(pair.begin.what, *_span_of(pair)) for pair in reading.marks.pairs()]
    profile.spans.extend(pl.DataFrame(pairs, schema=_SPANS, orient="row"))
    profile.unpaired += reading.marks.unpaired
    profile.foreign += seen.foreign
    profile.not_utf8 = seen.not_utf8
    return profile


def _take(event: TraceEvent, reading: _Reading) -> None:
    profile, phase = reading.profile, event.ph if isinstance(event.ph, str) else ""
    if phase == "M":
        _name_lane(event, profile)
    elif phase in _ENDS or phase in _BEGINS or phase == "X":
        time = nanoseconds(event.ts, _NS_PER_US)
        if time is None:
            profile.untimed += 1
        elif phase == "X":
            _complete(event, time, reading)
        elif phase in _ENDS:
            reading.marks.add(_key(event, phase), Mark(time, is_end=False, what=text(event.cat)))
        else:
            reading.marks.add(_key(event, _BEGINS[phase]), Mark(time, is_end=True, what=None))
    elif phase == "C":
        _sample(event, reading)
    elif phase in {"i", "I", "n", "R"}:
        profile.marks += 1
    else:
        profile.foreign += 1


def _key(event: TraceEvent, style: str) -> _Key:
    return _number(event.pid), _number(event.tid), style, text(event.name) or ""


def _span_of(pair: Pair) -> tuple[object, ...]:
    lane, thread, style, name = pair.key
    return name, style, lane, thread, pair.begin.time_ns, pair.end.time_ns


def _complete(event: TraceEvent, time: int, reading: _Reading) -> None:
    duration = nanoseconds(event.dur, _NS_PER_US)
    if duration is None:
        reading.profile.untimed += 1
        return
    lane, thread, _, name = _key(event, "X")
    reading.spans.append((text(event.cat), name, "X", lane, thread, time, time + duration))


def _name_lane(event: TraceEvent, profile: Profile) -> None:
    name = text(event.args.get("name")) if isinstance(event.args, dict) else None
    lane = _number(event.pid)
    if event.name == "process_name" and name is not None and lane is not None:
        profile.lanes.setdefault(lane, name)


def _sample(event: TraceEvent, reading: _Reading) -> None:
    """A counter's value, under its own name among the arguments."""
    time = nanoseconds(event.ts, _NS_PER_US)
    name = text(event.name)
    value = event.args.get(name) if isinstance(event.args, dict) and name else None
    number = None if isinstance(value, str) else finite(value)
    if time is None or number is None:
        reading.profile.untimed += 1
    else:
        reading.samples.append((name, time, number))


def _number(value: object) -> int | None:
    """A lane or thread; hashes are unsigned, and those beyond 63 bits are shown as the negative number they share."""
    if not isinstance(value, int) or isinstance(value, bool) or value not in _UINT64:
        return None
    return value - 2 * _HALF if value >= _HALF else value
