"""The events of a file, any of whose values may be of any type, and their begins and ends paired by time."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import polars as pl

from xsp_ingest.files.json_window import entries
from xsp_ingest.files.values import nanoseconds
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.files.json_window import Entries

__all__ = ["BeginsAndEnds", "Mark", "Pair", "TraceEvent", "read_events", "table_of_events"]

# "Trace Event Format" (chromium.org): an object holds the list of events as `traceEvents`, else the list is all.

_NS_PER_US = 1000
_MAX_OPEN = 1 << 20


class TraceEvent(msgspec.Struct):
    """One event; `ts` and `dur` are microseconds, from wherever the profiler counts."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    id: Any = None
    args: Any = None

    @property
    def start_ns(self) -> int | None:
        """None where the event has no such number."""
        return nanoseconds(self.ts, _NS_PER_US)

    @property
    def duration_ns(self) -> int | None:
        """None where the event has no such number."""
        return nanoseconds(self.dur, _NS_PER_US)

    @property
    def is_beyond_time(self) -> bool:
        """Whether it begins in a later century than any clock says: what stands there cannot be microseconds."""
        return self.start_ns is None and nanoseconds(self.ts, 1) is not None

    def of_nanoseconds(self) -> TraceEvent:
        """The same event, of a tool that writes nanoseconds."""
        times = (nanoseconds(each, 1) for each in (self.ts, self.dur))
        ts, dur = (None if each is None else Decimal(each).scaleb(-3) for each in times)
        return msgspec.structs.replace(self, ts=ts, dur=dur)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Empty where the event has no object of them."""
        return self.args if isinstance(self.args, dict) else {}


def read_events(path: Path, seen: Entries, *, is_list: bool = False) -> Iterator[list[TraceEvent]]:
    """The file's events in order, some at a time; XspError where it is cut off, no JSON, or holds no list of them."""
    return entries(path, TraceEvent, seen, key=None if is_list else b"traceEvents")


def table_of_events(
    path: Path,
    seen: Entries,
    rows_of: Callable[[list[TraceEvent]], Sequence[tuple[object, ...]]],
    schema: Mapping[str, pl.DataType],
    *,
    is_list: bool = False,
) -> pl.DataFrame:
    """One table of the rows that are made of the events, a few of which are held as Python's values at a time."""
    batches = read_events(path, seen, is_list=is_list)
    frames = (pl.DataFrame(rows_of(events), schema=schema, orient="row") for events in batches)
    return pl.concat([pl.DataFrame(schema=schema), *frames])


class Mark(NamedTuple):
    """A begin or an end, with whatever is to be remembered of it."""

    time_ns: int
    is_end: bool
    what: Any


class Pair(NamedTuple):
    """A begin and its end."""

    key: tuple[Any, ...]
    begin: Mark
    end: Mark


@dataclass(slots=True)
class BeginsAndEnds:
    """Marks by lane. Their order in the file counts at equal times alone: the format lets events come in any.

    An end closes the last begin of its lane that is open.
    """

    unpaired: int = 0
    open: int = 0
    """Begins without an end among what was read so far, if every end has a begin."""
    _marks: dict[tuple[Any, ...], list[Mark]] = field(default_factory=dict)

    def add(self, key: tuple[Any, ...], mark: Mark) -> None:
        """Takes a mark of the lane `key`."""
        self._marks.setdefault(key, []).append(mark)
        self.open += -1 if mark.is_end else 1

    def check_open(self, what: str, path: Path) -> None:
        """XspError where more have begun than any program leaves open; `what`: what the complaint calls the file."""
        if self.open > _MAX_OPEN:
            raise XspError(f"more than a million events of the {what} begin and do not end", path=path)

    def pairs(self) -> Iterator[Pair]:
        """Every pair, lane by lane, in order of the ends; what is left is counted in `unpaired`."""
        for key, marks in self._marks.items():
            begun: list[Mark] = []
            for mark in sorted(marks, key=lambda each: each.time_ns):
                if not mark.is_end:
                    begun.append(mark)
                elif begun:
                    yield Pair(key, begun.pop(), mark)
                else:
                    self.unpaired += 1
            self.unpaired += len(begun)
