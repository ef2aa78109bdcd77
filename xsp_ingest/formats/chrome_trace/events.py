"""The ranges and samples of trace events, begins and ends paired.

Format: "Trace Event Format" (chromium.org): an `E` ends what its thread began last, an `e` what has
its category, id and name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xsp_ingest.files.json_window import Entries, entries
from xsp_ingest.files.values import TraceEvent, finite, nanoseconds, text
from xsp_ingest.staging.events import BeginsAndEnds, Mark
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Events"]

_NS_PER_US = 1000
_INT64 = range(-(1 << 63), 1 << 63)
_MAX_OPEN = 1 << 20
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

    def read(self, path: Path, key: bytes | None) -> None:
        """Takes the file's events; XspError where it is cut off or no JSON."""
        seen = Entries()
        for batch in entries(path, TraceEvent, seen, key=key):
            for event in batch:
                self._take(event)
            if self._marks.open > _MAX_OPEN:
                raise XspError("more than a million events of the trace begin and do not end", path=path)
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
            time = nanoseconds(event.ts, _NS_PER_US)
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
            duration = nanoseconds(event.dur, _NS_PER_US)
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
        values = event.args if isinstance(event.args, dict) else {}
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
