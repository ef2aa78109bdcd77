"""An MXNet profile: its events paired, samples of counters and the devices of its lanes, as staging tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.json_window import Entries
from xsp_ingest.files.values import finite, text
from xsp_ingest.link.range_rules import NVTX, classify
from xsp_ingest.staging.intervals import MAX_DURATION_NS, beside
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_ingest.trace_events import BeginsAndEnds, Mark, read_events
from xsp_model import Finding, Kind, LedgerKind, Level, XspError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from xsp_ingest.ingester import Options
    from xsp_ingest.trace_events import Pair, TraceEvent

__all__ = ["Profile", "shape"]

_ENDS = {"B": "E", "b": "e", "(": ")"}
_BEGINS = {end: begin for begin, end in _ENDS.items()}
_UINT64 = range(1 << 64)
_HALF = 1 << 63
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
    for batch in read_events(path, seen):
        for event in batch:
            _take(event, reading)
        profile.spans.extend(pl.DataFrame(reading.spans, schema=_SPANS, orient="row"))
        profile.samples.extend(pl.DataFrame(reading.samples, schema=_SAMPLES, orient="row"))
        reading.spans, reading.samples = [], []
        reading.marks.check_open("profile", path)
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
        time = event.start_ns
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
    duration = event.duration_ns
    if duration is None:
        reading.profile.untimed += 1
        return
    lane, thread, _, name = _key(event, "X")
    reading.spans.append((text(event.cat), name, "X", lane, thread, time, time + duration))


def _name_lane(event: TraceEvent, profile: Profile) -> None:
    name = text(event.arguments.get("name"))
    lane = _number(event.pid)
    if event.name == "process_name" and name is not None and lane is not None:
        profile.lanes.setdefault(lane, name)


def _sample(event: TraceEvent, reading: _Reading) -> None:
    """A counter's value, under its own name among the arguments."""
    time = event.start_ns
    name = text(event.name)
    value = event.arguments.get(name) if name else None
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


# Turns a profile's events into the staging tables that the linker takes.

_PROCESS = 0  # the file names no operating system's process: a `pid` is a lane
_SINCE_1970_NS = 10**18  # of times that count from 1970, as those of MXNet 1.2 and later do on Linux
_OPERATORS = ("operator", "Custom Operator", "category")  # the last: before MXNet 1.2
_CALLS = ("MXNET_C_API",)
_SHAPES = r"(?:in|out): \["
_MEMORY = r"^Memory: (?:(gpu)|cpu)(?:/(\d{1,9})| (?:pinned|shared)/)"


def shape(path: Path, options: Options) -> RawTrace:
    """The staging tables of one profile; XspError where it holds no operator."""
    profile = load(path)
    spans, findings = _sound(profile)
    placed = _classified_spans(spans, profile, options)
    operators = placed.filter(pl.col("level") == str(Level.OPERATOR))
    if operators.is_empty():
        raise XspError(
            "the profile holds no operator",
            path=path,
            advice="Profile with `profile_all=True` and call `mxnet.profiler.dump()` at the end",
        )
    tables = {
        "spans": beside(frame_of("spans", placed), (str(Level.OPERATOR),)),
        "operators": _operator_facts(operators),
        "ranges": _range_facts(placed.filter(pl.col("kind").is_in([str(Kind.RANGE), str(Kind.STEP)]))),
        "counters": _counters(profile.samples),
    }
    tables |= {name: frame_of(name) for name in RAW_TABLES if name not in tables}
    first = placed["start_ns"].min()
    since_1970 = isinstance(first, int) and first > _SINCE_1970_NS
    facts = RunFacts(profiler="MXNet profiler", framework="mxnet", epoch_ns=0 if since_1970 else None, rows_nest=False)
    return RawTrace(tables, facts, tuple(f for f in (*findings, *_notes(profile)) if f.count))


def _sound(profile: Profile) -> tuple[pl.DataFrame, list[Finding]]:
    """The spans without those that repeat operators as tasks, with a plausible duration."""
    repeated = (pl.col("style") == "b") & pl.col("cat").is_in(_OPERATORS).fill_null(value=False)
    once = profile.spans.filter(~repeated)
    length = pl.col("end_ns") - pl.col("start_ns")
    unsound = (length < 0) | (length > MAX_DURATION_NS)
    findings = [
        Finding(
            LedgerKind.EVENTS_LEFT_OUT,
            "tasks that repeat an operator, which the profile holds as an event as well, were left out",
            profile.spans.height - once.height,
        ),
        Finding(
            LedgerKind.ABSURD_DURATION,
            "events that end before they start or last longer than a day were taken as 0 ns long",
            once.filter(unsound).height,
            advice="Their time is missing from every sum",
        ),
    ]
    return once.with_columns(pl.when(unsound).then(0).otherwise(length).alias("duration_ns")), findings


def _classified_spans(spans: pl.DataFrame, profile: Profile, options: Options) -> pl.DataFrame:
    """The spans with `row`, their level and kind, and the device of their lane."""
    category = pl.col("cat").fill_null("")
    names = pl.DataFrame(
        {"lane": list(profile.lanes), "device": list(profile.lanes.values())},
        schema={"lane": pl.Int64, "device": pl.String},
    )
    classified = spans.with_row_index("row").with_columns(
        pl.col("row").cast(pl.Int64),
        category.is_in(_OPERATORS).alias("is_operator"),
        category.is_in(_CALLS).alias("is_call"),
        pl.col("name").alias("text"),
        pl.col("name").str.replace(rf"\s*{_SHAPES}.*$", "").alias("name"),
        pl.lit(None, pl.String).alias("domain"),
        pl.lit(value=False).alias("numbered"),
    )
    classified = classified.hstack(
        classify(classified, NVTX, model_ranges=options.model_ranges, layer_ranges=options.layer_ranges)
    )
    classified = classified.join(names, on="lane", how="left", maintain_order="left")
    gpu = pl.col("device").str.extract(r"^gpu/(\d{1,9})$").cast(pl.Int64, strict=False)
    level = (
        pl.when("is_operator")
        .then(pl.lit(str(Level.OPERATOR)))
        .when("is_call")
        .then(pl.lit(str(Level.LIBRARY)))
        .otherwise(pl.col("level").cast(pl.String))
    )
    kind = (
        pl.when("is_operator")
        .then(pl.lit(str(Kind.OPERATOR)))
        .when("is_call")
        .then(pl.lit(str(Kind.CALL)))
        .otherwise(pl.col("kind").cast(pl.String))
    )
    return classified.with_columns(
        level.alias("level"),
        kind.alias("kind"),
        pl.when(pl.col("name") != "").then("name").otherwise(pl.lit("[unnamed]")).alias("name"),
        gpu.alias("device_id"),
        pl.lit(_PROCESS, pl.Int64).alias("process_id"),
    )


def _operator_facts(operators: pl.DataFrame) -> pl.DataFrame:
    """Which operators are of the backward pass, and input shapes where the profile was taken with them."""
    inputs = pl.col("text").str.extract(r"in: \[(\[[\d,\s\[\]-]*\])\]")
    backward = pl.col("name").str.contains(r"(?:^|\[|,)_?backward_|_backward(?:$|,|\])")
    facts = operators.select(
        "row",
        pl.when(backward).then(1).alias("forward_thread_id"),
        pl.when(inputs.is_not_null()).then(pl.format("[{}]", inputs)).alias("input_shapes"),
    )
    return frame_of("operators", facts)


def _range_facts(ranges: pl.DataFrame) -> pl.DataFrame:
    """Tasks, events and frames of the user's."""
    facts = ranges.select("row", "text", pl.col("cat").alias("domain"))
    return frame_of("ranges", facts.with_columns(pl.lit("Annotation").alias("style")))


def _counters(samples: pl.DataFrame) -> pl.DataFrame:
    """Memory in use as `allocated_bytes` of its device; other counters under their own names."""
    parts = pl.col("name").str.extract_groups(_MEMORY)
    memory = pl.col("name").str.contains(_MEMORY)
    pinned = pl.col("name").str.contains(r"cpu (?:pinned|shared)/")
    return frame_of(
        "counters",
        samples.select(
            "time_ns",
            pl.when(memory & pinned)
            .then(pl.lit("pinned_bytes"))
            .when(memory)
            .then(pl.lit("allocated_bytes"))
            .otherwise("name")
            .alias("counter"),
            pl.when(parts.struct[0].is_not_null()).then(parts.struct[1].cast(pl.Int64)).alias("device_id"),
            "value",
            pl.when(memory).then(pl.lit("byte")).otherwise(pl.lit("1")).alias("unit"),
        ),
    )


def _notes(profile: Profile) -> list[Finding]:
    return [
        Finding(LedgerKind.UNPAIRED_EVENTS, count=profile.unpaired),
        Finding(
            LedgerKind.MISSING_START, "events without a time, a duration or a value were left out", profile.untimed
        ),
        Finding(LedgerKind.NVTX_MARKS_SKIPPED, count=profile.marks),
        Finding(LedgerKind.NOT_AN_EVENT, "entries that are no events of a known phase", profile.foreign),
        Finding(LedgerKind.NOT_UTF8, "stretches of the file with bytes that are not UTF-8", profile.not_utf8),
    ]
