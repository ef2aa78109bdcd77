"""Ranges and samples of trace events of any tool, and the staging tables of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_ingest.files.content import Probe
from xsp_ingest.files.json_window import Entries
from xsp_ingest.files.values import finite, text
from xsp_ingest.staging.intervals import MAX_DURATION_NS, RANGE_COLUMNS, tables_of_ranges
from xsp_ingest.staging.raw import RawTrace, RunFacts, frame_of
from xsp_ingest.trace_events import BeginsAndEnds, Mark, read_events
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.ingester import Options
    from xsp_ingest.trace_events import TraceEvent

__all__ = ["Events", "shape"]

_INT64 = range(-(1 << 63), 1 << 63)
_THREAD, _ASYNC = "PushPop", "StartEnd"


@dataclass(slots=True)
class Events:
    """`ranges` in the columns of `plain_ranges.RANGE_COLUMNS`, samples as (time, name, value), and what was odd."""

    ranges: list[tuple[object, ...]] = field(default_factory=list)
    samples: list[tuple[int, str, float]] = field(default_factory=list)
    untimed: int = 0
    unpaired: int = 0
    marks: int = 0
    left_out: int = 0
    foreign: int = 0
    not_utf8: int = 0
    _numbers: dict[str, int] = field(default_factory=dict)
    _marks: BeginsAndEnds = field(default_factory=BeginsAndEnds)

    def read(self, path: Path, *, is_list: bool) -> None:
        """Takes the file's events; XspError where it is cut off or no JSON."""
        seen = Entries()
        for batch in read_events(path, seen, is_list=is_list):
            for event in batch:
                self._take(event)
            self._marks.check_open("trace", path)
        for (phase, *_), begin, end in self._marks.pairs():
            process, thread = end.what
            self._add(begin.what, end.time_ns, process, thread, _THREAD if phase == "B" else _ASYNC)
        self.unpaired += self._marks.unpaired
        self._number_by_name()
        self.foreign += seen.foreign
        self.not_utf8 = seen.not_utf8

    def _number_by_name(self) -> None:
        """Gives processes and threads that are texts the numbers that they have in any order of the events."""
        numbers: dict[object, int] = {self._numbers[n]: -1 - i for i, n in enumerate(sorted(self._numbers))}
        if any(before != after for before, after in numbers.items()):
            self.ranges = [(*each[:5], *(numbers.get(one, one) for one in each[5:])) for each in self.ranges]

    def _take(self, event: TraceEvent) -> None:
        phase = event.ph if isinstance(event.ph, str) else ""
        if phase in {"X", "B", "E", "b", "e", "C"}:
            time = event.start_ns
            if time is None:
                self.untimed += 1
            else:
                self._take_timed(event, phase, time)
        elif phase in {"i", "I", "R", "n"}:
            self.marks += 1
        elif phase in {"s", "t", "f", "S", "T", "p", "F", "N", "O", "D", "P", "v", "V", "c", "(", ")"}:
            self.left_out += 1
        elif phase != "M":
            self.foreign += 1

    def _take_timed(self, event: TraceEvent, phase: str, time: int) -> None:
        if phase == "C":
            self._sample(event, time)
        elif phase == "X":
            duration = event.duration_ns
            if duration is None:
                self.untimed += 1
            else:
                process, thread = self._number(event.pid), self._number(event.tid)
                begun = (text(event.name) or "", text(event.cat), time, thread)
                self._add(begun, time + duration, process, thread, _THREAD)
        elif phase in "Bb":
            begun = (text(event.name) or "", text(event.cat), time, self._number(event.tid))
            self._marks.add(self._key(event, phase), Mark(time, is_end=False, what=begun))
        else:
            ended = self._number(event.pid), self._number(event.tid)
            self._marks.add(self._key(event, {"E": "B", "e": "b"}[phase]), Mark(time, is_end=True, what=ended))

    def _key(self, event: TraceEvent, phase: str) -> tuple[object, ...]:
        if phase == "B":
            return phase, self._number(event.pid), self._number(event.tid)
        return phase, self._number(event.pid), str(event.cat), str(event.id), str(event.name)

    def _add(self, begun: tuple[str, str | None, int, int], end: int, process: int, thread: int, style: str) -> None:
        name, category, start, began_on = begun
        elsewhere = thread if thread != began_on else None
        self.ranges.append((name, category, style, start, end - start, process, began_on, elsewhere))

    def _sample(self, event: TraceEvent, time: int) -> None:
        """Each number among the arguments is a series of its own."""
        name = text(event.name) or ""
        values = event.arguments
        numbers = {key: finite(value) for key, value in values.items() if not isinstance(value, str)}
        usable = {key: number for key, number in numbers.items() if number is not None}
        self.untimed += not usable
        for key, number in usable.items():
            self.samples.append((time, name if len(values) == 1 else f"{name} {key}", number))

    def _number(self, identity: Any) -> int:  # noqa: ANN401 (whatever the file holds)
        """A process or thread; texts are numbered as they come, below 0."""
        if isinstance(identity, int) and not isinstance(identity, bool) and identity in _INT64:
            return identity
        return self._numbers.setdefault(str(identity), -1 - len(self._numbers))


# From trace events to the staging tables.


def shape(path: Path, options: Options) -> RawTrace:
    """The staging tables of the trace; XspError where it holds no range."""
    is_list = Probe(path).text.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
    events = Events()
    events.read(path, is_list=is_list)
    if not events.ranges:
        raise XspError("no event of the trace has a start and an end", path=path, advice="Record the trace again")
    ranges = pl.DataFrame(events.ranges, schema=dict(RANGE_COLUMNS), orient="row")
    ranges = ranges.sort(
        "start_ns", "process_id", "thread_id", -pl.col("duration_ns"), "name", "domain", "style", "end_thread_id"
    )
    unsound = ~pl.col("duration_ns").is_between(0, MAX_DURATION_NS)
    sound = ranges.with_columns(pl.when(unsound).then(0).otherwise("duration_ns").alias("duration_ns"))
    samples = pl.DataFrame(
        events.samples, schema={"time_ns": pl.Int64, "counter": pl.String, "value": pl.Float64}, orient="row"
    )
    tables = {
        **tables_of_ranges(sound, options),
        "counters": frame_of("counters", samples.filter(pl.col("value").is_finite()).with_columns(unit=pl.lit("1"))),
    }
    return RawTrace(
        tables, RunFacts(profiler=""), tuple(f for f in _findings(events, ranges.filter(unsound)) if f.count)
    )


def _findings(events: Events, unsound: pl.DataFrame) -> list[Finding]:
    return [
        Finding(LedgerKind.UNKNOWN_TOOL, count=len(events.ranges)),
        Finding(LedgerKind.UNPAIRED_EVENTS, count=events.unpaired),
        Finding(LedgerKind.MISSING_TIME, "events without a time, a duration or a value were left out", events.untimed),
        Finding(LedgerKind.NVTX_MARKS_SKIPPED, count=events.marks),
        Finding(LedgerKind.EVENTS_LEFT_OUT, "arrows, objects and samples of stacks are not read", events.left_out),
        Finding(LedgerKind.NOT_AN_EVENT, "entries that are no events of a known phase", events.foreign),
        Finding(LedgerKind.NOT_UTF8, "stretches of the file with bytes that are not UTF-8", events.not_utf8),
        Finding(
            LedgerKind.ABSURD_DURATION,
            "events that end before they start or last longer than a day were taken as 0 ns long",
            unsound.height,
            advice="Their time is missing from every sum",
        ),
    ]
