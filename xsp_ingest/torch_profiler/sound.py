"""Keeps the events that can be used, and counts each of the others under the reason why it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.torch_profiler import categories as cat
from xsp_model import Finding, Severity, XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.torch_profiler.events import Document

__all__ = ["sound_events"]

_USED = (*cat.DEVICE, *cat.CALL, *cat.OPERATOR, *cat.ANNOTATION, *cat.SYNC, *cat.PYTHON)
_LONGEST_NS = 24 * 3600 * 10**9  # no profiler's window is a day long
_MIXER = 0x9E3779B97F4A7C1
_RENAMED = {"cat": "category", "ts_ns": "start_ns", "dur_ns": "duration_ns", "tid": "thread_id"}
_RENAMED |= {"correlation": "correlation_id"}


def sound_events(document: Document, path: Path) -> tuple[pl.DataFrame, list[Finding]]:
    """Complete events of the known categories, with `row`, the columns of raw spans but device, context and stream.

    `row` is the row of `document.events`, to which details refer. Second: what was left out, and why.

    XspError where not a single event is left.
    """
    findings = [*_left_out(document.events), *_not_events(document)]
    used, lost = _timed(_used(document.events))
    used, repeated = _once(used, document.details)
    used, mended = _plausible(used)
    if used.is_empty():
        raise XspError(
            "no profiler events that XSP knows are in the trace",
            path=path,
            advice="Is it a trace that torch.profiler wrote, with activities recorded?",
        )
    used, unknown = _with_process(used.rename(_RENAMED))
    return used, [*findings, *lost, *repeated, *mended, *unknown]


def _used(events: pl.DataFrame) -> pl.DataFrame:
    """Complete events of the used categories, in the columns that are used; `row` is their place in the file."""
    return (
        events.drop("flow_id")
        .with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("row"))
        .filter(pl.col("ph") == "X", pl.col("cat").is_in(_USED))
        .drop("ph")
    )


def _left_out(events: pl.DataFrame) -> list[Finding]:
    others = events.filter(
        pl.col("ph") == "X",
        ~pl.col("cat").is_in((*_USED, *cat.PROFILER_RANGE)) | pl.col("cat").is_null(),
    )
    counts = others.group_by(pl.col("cat").cast(pl.String)).len().sort("cat", nulls_last=True)
    known = {name: f"`{name}` events were not read: {why}" for name, why in cat.LEFT_OUT.items()}
    return [
        Finding("events_left_out", known[name], count, Severity.INFO)
        if name in known
        else Finding("unknown_category", f"events of the unknown category {name!r} were not read", count)
        for name, count in counts.iter_rows()
    ]


def _not_events(document: Document) -> list[Finding]:
    paired = document.events.filter(pl.col("ph").is_in(["B", "E"])).height
    return [
        Finding("not_an_event", "entries of traceEvents are no objects", document.not_objects),
        Finding("unpaired_events", "begin and end events (ph B, E) were not read; complete ones (ph X) were", paired),
        Finding(
            "python_frames_left_out",
            "Python function frames were not kept; modules were",
            document.python_frames,
            Severity.INFO,
        ),
    ]


def _timed(events: pl.DataFrame) -> tuple[pl.DataFrame, list[Finding]]:
    on_device = pl.col("cat").is_in(list(cat.DEVICE))
    findings = []
    for column, word in (("ts_ns", "start"), ("dur_ns", "duration")):
        missing = events.filter(pl.col(column).is_null())
        events = events.filter(pl.col(column).is_not_null())
        work = missing.filter(on_device).height
        findings += [
            Finding(f"missing_{word}", f"device activities without a {word} were left out", work, Severity.ERROR),
            Finding(f"missing_{word}", f"host events without a {word} were left out", missing.height - work),
        ]
    return events, findings


def _once(events: pl.DataFrame, details: pl.DataFrame) -> tuple[pl.DataFrame, list[Finding]]:
    # One number a row finds the few that may be alike much faster than comparing columns does; it may wrap around.
    mixed = pl.col("ts_ns") * _MIXER + pl.col("dur_ns") * 31 + pl.col("tid").fill_null(-1)
    python = pl.col("cat").is_in(cat.PYTHON)  # a recursive module's calls may well be alike
    suspects = events.filter(mixed.is_duplicated() & ~python).join(details, left_on="row", right_on="event", how="left")
    first = suspects.unique(pl.exclude("row"), keep="first", maintain_order=True)["row"]
    repeats = suspects.filter(~pl.col("row").is_in(first.implode()))["row"]
    kept = events.filter(~pl.col("row").is_in(repeats.implode())) if len(repeats) else events
    detail = "events that stand in the file more than once, alike in every column, were read once"
    return kept, [Finding("duplicate_event", detail, len(repeats))]


def _plausible(events: pl.DataFrame) -> tuple[pl.DataFrame, list[Finding]]:
    negative, absurd = pl.col("dur_ns") < 0, pl.col("dur_ns") > _LONGEST_NS
    counts = events.select(negative.sum().alias("negative"), absurd.sum().alias("absurd")).row(0)
    advice = "Their time is missing from every sum; compare the profiler's version with its known defects"
    findings = [
        Finding("negative_duration", "events with a negative duration were taken as 0 ns long", counts[0]),
        Finding("absurd_duration", "events longer than a day were taken as 0 ns long", counts[1]),
    ]
    mended = events.with_columns(pl.when(negative | absurd).then(0).otherwise(pl.col("dur_ns")).alias("dur_ns"))
    return mended, [Finding(f.kind, f.detail, f.count, Severity.ERROR, advice=advice) for f in findings]


def _with_process(events: pl.DataFrame) -> tuple[pl.DataFrame, list[Finding]]:
    """Device events carry the device's number as pid; their process is the one that made the launch."""
    on_device = pl.col("category").is_in([*cat.DEVICE, *cat.SYNC])
    ids = events.select("category", "correlation_id", "pid")  # few columns: a filter copies all it is given
    calls = ids.filter(pl.col("category").is_in(cat.CALL), pl.col("correlation_id").is_not_null())
    owners = calls.group_by("correlation_id").agg(
        pl.col("pid").min().alias("owner"), pl.col("pid").n_unique().alias("n")
    )
    hosts = ids.filter(~on_device)["pid"].drop_nulls().unique()
    only = hosts[0] if len(hosts) == 1 else None
    # Joined beside the events rather than to them: a join copies every column of a large file.
    launch = ids.select("correlation_id").join(owners, on="correlation_id", how="left", maintain_order="left")
    owner = pl.when(pl.lit(launch["n"] == 1)).then(pl.lit(launch["owner"])).otherwise(pl.lit(only, pl.Int64))
    unclear = ids.filter(on_device, pl.lit(launch["n"] > 1)).height
    finding = Finding("unclear_process", "device activities whose launch may be of several processes", unclear)
    process = pl.when(on_device).then(owner).otherwise(pl.col("pid")).alias("process_id")
    return events.with_columns(process), [finding]
