"""Keeps the events that can be used, and counts each of the others under the reason why it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.torch_profiler import categories as cat
from xsp_ingest.staging.intervals import MAX_DURATION_NS
from xsp_model import Finding, LedgerKind, Severity

if TYPE_CHECKING:
    from xsp_ingest.formats.torch_profiler.events import Document

__all__ = ["is_memory", "sound_events"]

_USED = (*cat.DEVICE, *cat.CALL, *cat.OPERATOR, *cat.ANNOTATION, *cat.SYNC, *cat.PYTHON)
_MIXER, _MIXER_2 = 0x9E3779B97F4A7C1, 0x2545F4914F6CDD1
_RENAMED = {"cat": "category", "ts_ns": "start_ns", "dur_ns": "duration_ns", "tid": "thread_id"}
_RENAMED |= {"correlation": "correlation_id"}


def sound_events(document: Document) -> tuple[pl.DataFrame, list[Finding]]:
    """Complete events of the known categories, with `row`, the columns of raw spans but device, context and stream.

    `row` is the row of `document.events`, to which details refer; `mark` is alike for events that are alike, and
    `process_id` null for device work (see `owners`). Second: what was left out, and why.
    """
    findings = [*_unread_events(document), *_not_events(document)]
    used, lost = _timed_events(_used_events(document.events))
    mark = pl.col("ts_ns") * _MIXER + pl.col("dur_ns") * 31 + pl.col("tid").fill_null(-1) * _MIXER_2 + pl.col("pid")
    used, mended = _plausible(used.with_columns(mark.fill_null(0).alias("mark")))
    on_device = pl.col("cat").is_in([*cat.DEVICE, *cat.SYNC])
    process = pl.when(~on_device).then(pl.col("pid")).alias("process_id")
    return used.with_columns(process).rename(_RENAMED), [*findings, *lost, *mended]


def _used_events(events: pl.DataFrame) -> pl.DataFrame:
    """Complete events of the used categories, in the columns that are used; `row` is their index in the file."""
    return (
        events.drop("flow_id")
        .with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("row"))
        .filter(pl.col("ph") == "X", pl.col("cat").is_in(_USED))
        .drop("ph")
    )


_READ = (  # phase and categories of what this package reads
    ("X", (*_USED, *cat.PROFILER_RANGE)),
    ("C", cat.COUNTER),
    ("s", cat.FLOW),
    ("f", cat.FLOW),
)
_COUNTED_ELSEWHERE = ("B", "E")
_NAMES = "M"  # of processes and threads
_WINDOW = r"^(Iteration Start: |Record Window End)"  # where recording began and ended: moments without a category


def is_memory() -> pl.Expr:
    """Which events are changes of memory in use; up to torch 1.9 they had no category."""
    return pl.col("cat").is_in(cat.MEMORY).fill_null(value=True) & (pl.col("name") == "[memory]")


def _unread_events(document: Document) -> list[Finding]:
    """What is not read, by category: known to be of no use, or unknown."""
    read = [(pl.col("ph") == phase) & pl.col("cat").is_in(kinds) for phase, kinds in _READ]
    window = pl.col("cat").is_null() & pl.col("name").cast(pl.String).str.contains(_WINDOW)
    others = document.events.filter(
        ~pl.any_horizontal(*read, is_memory(), window, pl.col("ph").is_in([*_COUNTED_ELSEWHERE, _NAMES])).fill_null(
            value=False
        )
    )
    counts = others.group_by(pl.col("cat", "ph").cast(pl.String)).len().sort("cat", "ph", nulls_last=True)
    arrows = ((category, None, count) for category, count in document.unread_flows.items())
    return [_not_read(*row) for row in (*counts.iter_rows(), *arrows)]


def _not_read(category: str | None, phase: str | None, count: int) -> Finding:
    if category is not None and category in cat.LEFT_OUT:
        detail = f"`{category}` events were not read: {cat.LEFT_OUT[category]}"
        return Finding(LedgerKind.EVENTS_LEFT_OUT, detail, count)
    of_phase = "" if phase == "X" else f" (ph {phase})"
    return Finding(
        LedgerKind.UNKNOWN_CATEGORY, f"events{of_phase} of the unknown category {category!r} were not read", count
    )


def _not_events(document: Document) -> list[Finding]:
    paired = document.events.filter(pl.col("ph").is_in(["B", "E"])).height
    return [
        Finding(LedgerKind.NOT_AN_EVENT, "entries of traceEvents are no objects", document.not_objects),
        Finding(
            LedgerKind.UNPAIRED_EVENTS,
            "begin and end events (ph B, E) were not read; complete ones (ph X) were",
            paired,
        ),
        Finding(
            LedgerKind.PYTHON_FRAMES_LEFT_OUT,
            "Python function frames were not kept but as the lines that called operators; modules were",
            document.python_frames,
        ),
    ]


def _timed_events(events: pl.DataFrame) -> tuple[pl.DataFrame, list[Finding]]:
    on_device = pl.col("cat").is_in(list(cat.DEVICE))
    findings = []
    for column, field in (("ts_ns", "start"), ("dur_ns", "duration")):
        missing = events.clear()
        if events[column].has_nulls():  # to pass all of them through a filter would copy them
            missing = events.filter(pl.col(column).is_null())
            events = events.filter(pl.col(column).is_not_null())
        work = missing.filter(on_device).height
        findings += [
            Finding(
                LedgerKind(f"missing_{field}"),
                f"device activities without a {field} were left out",
                work,
                Severity.ERROR,
            ),
            Finding(
                LedgerKind(f"missing_{field}"),
                f"host events without a {field} were left out",
                missing.height - work,
                severity=Severity.WARNING,
            ),
        ]
    return events, findings


def _plausible(events: pl.DataFrame) -> tuple[pl.DataFrame, list[Finding]]:
    negative, absurd = pl.col("dur_ns") < 0, pl.col("dur_ns") > MAX_DURATION_NS
    counts = events.select(negative.sum().alias("negative"), absurd.sum().alias("absurd")).row(0)
    advice = "Their time is missing from every sum; compare the profiler's version with its known defects"
    findings = [
        Finding(LedgerKind.NEGATIVE_DURATION, "events with a negative duration were taken as 0 ns long", counts[0]),
        Finding(
            LedgerKind.ABSURD_DURATION,
            "events longer than a day were taken as 0 ns long",
            counts[1],
            severity=Severity.WARNING,
        ),
    ]
    mended = events.with_columns(pl.when(negative | absurd).then(0).otherwise(pl.col("dur_ns")).alias("dur_ns"))
    return mended, [Finding(f.kind, f.detail, f.count, Severity.ERROR, advice=advice) for f in findings]
