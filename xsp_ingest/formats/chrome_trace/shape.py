"""From trace events to the staging tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.probe import Probe
from xsp_ingest.formats.chrome_trace.events import Events
from xsp_ingest.staging.events import RANGE_COLUMNS, tables_of_ranges
from xsp_ingest.staging.intervals import MAX_DURATION_NS
from xsp_ingest.staging.raw import RawTrace, RunFacts, frame_of
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.ingester import Options

__all__ = ["shape"]


def shape(path: Path, options: Options) -> RawTrace:
    """The staging tables of the trace; XspError where it holds no range."""
    is_list = Probe(path).text.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
    events = Events()
    events.read(path, None if is_list else b"traceEvents")
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
