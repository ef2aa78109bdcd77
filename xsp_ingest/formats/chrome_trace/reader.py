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
from xsp_model import Finding, Kind, LedgerKind, Level, XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.ingester import Options
    from xsp_ingest.trace_events import TraceEvent

__all__ = ["Events", "shape"]

_INT64 = range(-(1 << 63), 1 << 63)
_THREAD, _ASYNC = "PushPop", "StartEnd"
_HOST, _DEVICE = "CPU functions", "CUDA functions"  # processes of torch.autograd.profiler's export, torch 1.0 to 1.7
_LAUNCHES = "cpu_to_cuda"


@dataclass(slots=True)
class Events:
    """`ranges` in the columns of `intervals.RANGE_COLUMNS`, samples as (time, name, value), and what was odd."""

    ranges: list[tuple[object, ...]] = field(default_factory=list)
    samples: list[tuple[int, str, float]] = field(default_factory=list)
    untimed: int = 0
    unpaired: int = 0
    marks: int = 0
    left_out: int = 0
    foreign: int = 0
    not_utf8: int = 0
    launches: dict[str, list[tuple[str, int, int]]] = field(default_factory=lambda: {"s": [], "f": []})
    """Both ends of the arrows from operators to devices: id, thread or device, time."""
    in_nanoseconds: bool = False  # whether `ts` and `dur` are, which by the format are microseconds
    beyond_time: int = 0
    _numbers: dict[str, int] = field(default_factory=dict)
    _marks: BeginsAndEnds = field(default_factory=BeginsAndEnds)

    def read(self, path: Path, *, is_list: bool) -> None:
        """Takes the file's events; XspError where it is cut off or no JSON."""
        seen = Entries()
        for batch in read_events(path, seen, is_list=is_list):
            for event in batch:
                self.beyond_time += event.is_beyond_time
                self._take(event.of_nanoseconds() if self.in_nanoseconds else event)
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
        self._numbers = {name: numbers[before] for name, before in self._numbers.items()}
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
        elif phase in self.launches and event.cat == _LAUNCHES and (begun := event.start_ns) is not None:
            self.launches[phase].append((str(event.id), self._number(event.tid), begun))
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

    @property
    def lanes_of_autograd(self) -> tuple[int, int] | None:
        """The processes of the host and of devices, where PyTorch's autograd profiler wrote the file."""
        lanes = self._numbers.get(_HOST), self._numbers.get(_DEVICE)
        return (lanes[0], lanes[1]) if lanes[0] is not None and lanes[1] is not None else None

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
    if events.beyond_time:
        events = Events(in_nanoseconds=True)
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
    findings = _findings(events, ranges.filter(unsound))
    if (lanes := events.lanes_of_autograd) is None:
        return RawTrace(tables, RunFacts(profiler=""), tuple(f for f in findings if f.count))
    spans, restated = _with_devices(tables["spans"], *lanes, events.launches)
    findings[0] = Finding(LedgerKind.EVENTS_LEFT_OUT, "operators that restate device time of others in them", restated)
    facts = RunFacts(profiler="PyTorch autograd profiler", framework="pytorch", rows_nest=False)
    own = tables["ranges"].join(spans.filter(pl.col("level") == str(Level.APPLICATION)), on="row", how="semi")
    tables |= {"spans": spans, "ranges": own, "kernels": frame_of("kernels", spans.filter(_IS_WORK).select("row"))}
    return RawTrace(tables, facts, tuple(f for f in findings if f.count))


_IS_WORK = pl.col("level") == str(Level.KERNEL)


def _with_devices(
    spans: pl.DataFrame, host: int, device: int, launches: Mapping[str, Sequence[tuple[str, int, int]]]
) -> tuple[pl.DataFrame, int]:
    """The host's ranges as operators, those of devices as work that these launched; and how many were restatements.

    The lane of a device, whose number is the thread's, has for each operator the time between two events around it.
    """
    lanes = spans.filter(pl.col("process_id") == device).partition_by("thread_id")
    work = pl.concat([spans.clear(), *(lane[_own_work(lane)] for lane in lanes)])
    ends = ("flow", "thread_id", "start_ns")
    begun, ended = (
        pl.DataFrame(
            launches[phase], schema=dict(zip(ends, (pl.String, pl.Int64, pl.Int64), strict=True)), orient="row"
        )
        for phase in "sf"
    )
    operators = spans.filter(pl.col("process_id") == host).with_columns(
        pl.when(pl.col("level") == str(Level.MODEL))
        .then("level")
        .otherwise(pl.lit(str(Level.OPERATOR)))
        .alias("level"),
        pl.when(pl.col("level") == str(Level.MODEL)).then("kind").otherwise(pl.lit(str(Kind.OPERATOR))).alias("kind"),
    )
    issuers = begun.join(operators.select("thread_id", "start_ns", "name", issuer="row"), on=ends[1:])
    of_work = ended.join(issuers.select("flow", "name", "issuer"), on="flow").drop("flow")
    issued = work.join(of_work.unique([*ends[1:], "name"]), on=[*ends[1:], "name"], how="left", maintain_order="left")
    on_device = issued.with_columns(
        pl.col("issuer").alias("issued_by_row"),
        pl.col("thread_id").alias("device_id"),
        pl.lit(host, pl.Int64).alias("process_id"),
        pl.lit(None, pl.Int64).alias("thread_id"),
        pl.lit(str(Level.KERNEL)).alias("level"),
        pl.lit(str(Kind.KERNEL)).alias("kind"),
    ).drop("issuer")
    others = spans.filter(~pl.col("process_id").is_in([host, device]))
    rows = pl.concat([frame_of("spans", each) for each in (operators, on_device, others)]).sort("row")
    return rows, spans.height - rows.height


def _own_work(lane: pl.DataFrame) -> list[int]:
    """Of rows by start, outer ones first, those that stand for work: most of their time is in no row inside them."""
    starts, lengths = lane["start_ns"].to_list(), lane["duration_ns"].to_list()
    inner = [0] * lane.height
    parent = [-1] * lane.height
    around: list[int] = []
    for at, start in enumerate(starts):
        while around and starts[around[-1]] + lengths[around[-1]] <= start:
            around.pop()
        if around:
            parent[at] = around[-1]
            inner[around[-1]] += lengths[at]
        around.append(at)
    works = [inner[at] * 2 <= lengths[at] for at in range(lane.height)]
    hidden = [False] * lane.height  # in one that stands for work
    for at, outer in enumerate(parent):
        hidden[at] = outer >= 0 and (works[outer] or hidden[outer])
    return [at for at, is_own in enumerate(works) if is_own and not hidden[at]]


def _findings(events: Events, unsound: pl.DataFrame) -> list[Finding]:
    return [
        Finding(LedgerKind.UNKNOWN_TOOL, count=len(events.ranges)),
        Finding(LedgerKind.UNPAIRED_EVENTS, count=events.unpaired),
        Finding(LedgerKind.MISSING_TIME, "events without a time, a duration or a value were left out", events.untimed),
        Finding(
            LedgerKind.UNIT_TAKEN,
            "events begin at numbers that cannot be microseconds: all times were read as nanoseconds",
            events.beyond_time,
        ),
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
