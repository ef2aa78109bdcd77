"""Keeps the events that can be used, counts each of the others under the reason why it cannot, says whose they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.formats.torch_profiler.events import (
    ANNOTATION,
    CALL,
    COUNTER,
    DEVICE,
    FLOW,
    LAUNCH_FLOW,
    LEFT_OUT,
    LIBRARY,
    MEMORY,
    OPERATOR,
    OVERHEAD,
    PROFILER_RANGE,
    PYTHON,
    SYNC,
)
from xsp_ingest.staging.intervals import MAX_DURATION_NS
from xsp_model import Finding, Kind, LedgerKind, Level, Severity
from xsp_model.columns.arrays import empty, gather_rows, series

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_ingest.formats.torch_profiler.events import Document
    from xsp_model.columns.arrays import Bools, Ints

__all__ = ["IdsAreTexts", "check_ids", "is_memory", "once", "sound_events", "with_launches", "with_process"]

_USED = (*DEVICE, *CALL, *OPERATOR, *ANNOTATION, *SYNC, *PYTHON, *OVERHEAD, *LIBRARY)
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
    of_no_process = pl.col("cat").is_in([*DEVICE, *SYNC, *OVERHEAD])
    process = pl.when(~of_no_process).then(pl.col("pid")).alias("process_id")
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
    ("X", (*_USED, *PROFILER_RANGE)),
    ("C", COUNTER),
    ("s", FLOW),
    ("f", FLOW),
    ("s", LAUNCH_FLOW),
    ("f", LAUNCH_FLOW),
)
_COUNTED_ELSEWHERE = ("B", "E")
_NAMES = "M"  # of processes and threads
_WINDOW = r"^(Iteration Start: |Record Window End)"  # where recording began and ended: moments without a category


def is_memory() -> pl.Expr:
    """Which events are changes of memory in use; up to torch 1.9 they had no category."""
    return pl.col("cat").is_in(MEMORY).fill_null(value=True) & (pl.col("name") == "[memory]")


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
    if category is not None and category in LEFT_OUT:
        detail = f"`{category}` events were not read: {LEFT_OUT[category]}"
        return Finding(LedgerKind.EVENTS_LEFT_OUT, detail, count)
    of_phase = "" if phase == "X" else f" (ph {phase})"
    return Finding(
        LedgerKind.UNKNOWN_CATEGORY, f"events{of_phase} of the unknown category {category!r} were not read", count
    )


_REPLACED = "\ufffd"


def _not_events(document: Document) -> list[Finding]:
    paired = document.events.filter(pl.col("ph").is_in(["B", "E"])).height
    names = document.events["name"].unique().cast(pl.String)
    foreign = names.filter(names.str.contains(_REPLACED, literal=True))
    unreadable = document.events.filter(pl.col("name").is_in(foreign.implode())).height if len(foreign) else 0
    return [
        Finding(
            LedgerKind.NOT_UTF8, "events whose names have bytes that are not UTF-8, which show as U+FFFD", unreadable
        ),
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
    on_device = pl.col("cat").is_in(list(DEVICE))
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


# What is clear of events only when all are read: which stand there twice, and which process device work is of.

_IS_WORK = pl.col("level") == str(Level.KERNEL)
_PIECE = 1 << 20
_SORTED = 1 << 21  # marks sorted at once


def once(spans: pl.DataFrame, marks: Ints, facts: Mapping[str, pl.DataFrame]) -> tuple[pl.DataFrame, list[Finding]]:
    """The spans without those that are alike in every column, `facts` included; modules may well be alike.

    `marks` has one number a span, alike where the spans are: they find the few suspects.
    """
    twice = _duplicate_marks(marks)
    repeats = _repeats(spans, np.concatenate(list(_at(marks, twice))), marks, facts) if len(twice) else None
    count = 0 if repeats is None else len(repeats)
    detail = "events that stand in the file more than once, alike in every column, were read once"
    findings = [Finding(LedgerKind.DUPLICATE_EVENT, detail, count)]
    if repeats is None or not count:
        return spans, findings
    keep = np.ones(spans.height, dtype=np.bool_)
    keep[repeats] = False
    return gather_rows(spans, np.flatnonzero(keep)), findings


def _duplicate_marks(marks: Ints) -> Ints:
    """The marks that come more than once, sorted; sorts a share of them at a time."""
    shares = 1 + len(marks) // _SORTED
    duplicates = []
    for share in range(shares):
        pieces = (marks[first : first + _PIECE] for first in range(0, len(marks), _PIECE))
        some = marks if shares == 1 else np.concatenate([p[p % shares == share] for p in pieces])
        some = np.sort(some)
        duplicates.append(np.unique(some[1:][some[1:] == some[:-1]]))
    return np.sort(np.concatenate(duplicates))


def _at(marks: Ints, sought: Ints) -> Iterator[Ints]:
    """Where the marks sought (sorted, at least one) are."""
    for first in range(0, len(marks), _PIECE):
        piece = marks[first : first + _PIECE]
        index = np.minimum(np.searchsorted(sought, piece), len(sought) - 1)
        yield first + np.flatnonzero(sought[index] == piece)


def _repeats(spans: pl.DataFrame, at: Ints, marks: Ints, facts: Mapping[str, pl.DataFrame]) -> Ints:
    """Of the suspects at these positions those that are like an earlier one."""
    suspects = spans[at].with_columns(pl.Series("mark", marks[at]), pl.Series("at", at))
    suspects = suspects.filter(pl.col("kind") != str(Kind.MODULE))
    for name, table in facts.items():
        described = table.filter(pl.col("row").is_in(suspects["row"].implode()))
        suspects = suspects.join(described, on="row", how="left", maintain_order="left", suffix=f"_{name}")
    alike = pl.struct(pl.exclude("row", "at"))
    suspects = suspects.with_columns(pl.int_range(pl.len()).over(alike).alias("copy"))
    called = (pl.col("level") == str(Level.RUNTIME)) & (pl.col("kind") == str(Kind.CALL))
    callers = spans.filter(called, pl.col("correlation_id").is_in(suspects["correlation_id"].unique().implode()))
    callers = callers.group_by("correlation_id").agg(pl.col("process_id").n_unique().alias("callers"))
    suspects = suspects.join(callers, on="correlation_id", how="left", maintain_order="left")
    # Work that several processes launched under one id, as ranks do, stands there once for each of them.
    times = pl.when(_IS_WORK).then(pl.col("callers").fill_null(1)).otherwise(1)
    return suspects.filter(pl.col("copy") >= times)["at"].to_numpy()


def with_process(spans: pl.DataFrame) -> tuple[pl.DataFrame, list[Finding]]:
    """Device events carry the device's number as pid; their process is the one that made the launch.

    The profiler's own work has -1: it is of the only process, or of an unknown one.
    """
    of_no_process = ((spans["level"] == str(Level.KERNEL)) | (spans["kind"] == str(Kind.SYNC))) | (
        (spans["level"] == str(Level.LIBRARY)) & (spans["kind"] == str(Kind.CALL)) & spans["process_id"].is_null()
    )
    on_device = of_no_process.to_numpy()
    process = spans["process_id"]
    hosts = process.drop_nulls().unique()
    only = hosts[0] if len(hosts) == 1 else None
    if only is not None or not len(hosts):
        column, unclear = _fill_processes(process, on_device, only), 0
    else:
        column, unclear = _by_launch(spans, on_device)
    detail = "device activities whose launch may be of several processes"
    return spans.with_columns(column), [Finding(LedgerKind.UNCLEAR_PROCESS, detail, unclear)]


def _fill_processes(process: pl.Series, on_device: Bools, only: int | None) -> pl.Series:
    """The processes with device work of the only one that there is."""
    if only is None:
        return process
    values, valid = empty(len(process), np.int64), on_device.copy()
    for first in range(0, len(process), _PIECE):
        piece = process.slice(first, _PIECE)
        values[first : first + _PIECE] = piece.fill_null(only).to_numpy()
        valid[first : first + _PIECE] |= piece.is_not_null().to_numpy()
    return series("process_id", values, valid)


def _by_launch(spans: pl.DataFrame, on_device: Bools) -> tuple[pl.Series, int]:
    """The processes with device work of the one whose call has its correlation id, and for how much several have."""
    is_call = (spans["level"] == str(Level.RUNTIME)) & (spans["kind"] == str(Kind.CALL))
    calls = spans.select("correlation_id", "process_id").filter(is_call & spans["correlation_id"].is_not_null())
    owners = calls.group_by("correlation_id").agg(
        pl.col("process_id").min().alias("owner"), pl.col("process_id").n_unique().alias("n")
    )
    work = spans.select("correlation_id", "row").filter(pl.Series(on_device))
    launch = work.join(owners, on="correlation_id", how="left", maintain_order="left")
    if (launch["n"] > 1).any():
        launch = _by_block(launch, spans.filter(~pl.Series(on_device)), calls)
    owner = launch.select(pl.when(pl.col("n") == 1).then(pl.col("owner"))).to_series()
    at = np.flatnonzero(on_device)
    values, valid = (
        spans["process_id"].fill_null(0).to_numpy().copy(),
        spans["process_id"].is_not_null().to_numpy().copy(),
    )
    values[at], valid[at] = owner.fill_null(0).to_numpy(), owner.is_not_null().to_numpy()
    return series("process_id", values, valid), int((launch["n"] > 1).sum())


def _by_block(launch: pl.DataFrame, host: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """The work, where several processes have its id with the one (`owner`, `n` 1) in whose part of the file it stands.

    So it is where files were put one behind the other; elsewhere nothing tells.
    """
    blocks = host.drop_nulls("process_id").group_by("process_id").agg(
        pl.col("row").min().alias("first"), pl.col("row").max().alias("last")
    ).sort("first")  # fmt: skip
    if (blocks["first"].slice(1) <= blocks["last"].head(blocks.height - 1)).any():
        return launch
    at = np.maximum(np.searchsorted(blocks["first"].to_numpy(), launch["row"].to_numpy(), side="right") - 1, 0)
    around = launch.with_columns(blocks["process_id"].gather(at).alias("process_id"))
    has_call = calls.unique().with_columns(pl.lit(value=True).alias("is_caller"))
    sure = around.join(has_call, on=["correlation_id", "process_id"], how="left", maintain_order="left")
    is_clear = (pl.col("n") > 1) & pl.col("is_caller").fill_null(value=False)
    return sure.select(
        "correlation_id",
        pl.when(is_clear).then("process_id").otherwise("owner").alias("owner"),
        pl.when(is_clear).then(1).otherwise("n").alias("n"),
    )


# Which launch or operator work is of whose correlation id no call has.

_LAUNCH = r"(?i)^(cuda|cu|hip)\w*Launch\w*Kernel"
_MAX_TABLE = 1 << 28


def with_launches(
    spans: pl.DataFrame, operators: pl.DataFrame, external: pl.DataFrame
) -> tuple[pl.DataFrame, list[Finding]]:
    """The spans, where work's correlation 0 is null, as no id was recorded; with `issued_by_row` where it can be told.

    Kernels without an id are of the launches that have no work, in order, where these are as many; whatever has no
    launch is of the operator with its `External id` (of `external`, by row), if that began before it.
    """
    lost = _work_without_call(spans)
    if not len(lost):
        return spans, []
    none = _IS_WORK & (pl.col("correlation_id") == 0)
    ids = pl.when(~none.fill_null(value=False)).then(pl.col("correlation_id")).alias("correlation_id")
    spans = spans.with_columns(ids)
    work = spans[lost]
    by_order = _launches_in_order(spans, work)
    by_id = _issuing_operators(spans, work.join(by_order, on="row", how="anti"), operators, external)
    issued, kind = pl.concat([by_order, by_id]), LedgerKind.LAUNCH_INFERRED
    findings = [
        Finding(kind, "kernels without a correlation id, tied in order to launches without a kernel", by_order.height),
        Finding(kind, "device work without a launch in the file, tied by External id to operators", by_id.height),
    ]
    if issued.is_empty():
        return spans, findings
    joined = spans.join(issued, on="row", how="left", maintain_order="left")
    filled = (pl.coalesce(name, f"{name}_found").alias(name) for name in ("issued_by_row", "process_id"))
    return joined.with_columns(filled).select(spans.columns), findings


def _work_without_call(spans: pl.DataFrame) -> Ints:
    """Positions of device work whose correlation id no call has."""
    is_work = (spans["level"] == str(Level.KERNEL)).to_numpy()
    is_call = (spans["level"] == str(Level.RUNTIME)).to_numpy() & (spans["kind"] == str(Kind.CALL)).to_numpy()
    ids = spans["correlation_id"].fill_null(0).to_numpy()
    work, called = np.flatnonzero(is_work), ids[is_call]
    called, searched = called[called != 0], ids[work]
    low = int(called.min(initial=0))
    if int(called.max(initial=0)) - low >= _MAX_TABLE:
        return work[~np.isin(searched, called)]
    has_call = np.zeros(int(called.max(initial=0)) - low + 2, dtype=np.bool_)  # the last one: of ids beyond
    has_call[called - low] = True
    return work[
        ~has_call[np.where((searched >= low) & (searched - low < len(has_call)), searched - low, len(has_call) - 1)]
    ]


def _launches_in_order(spans: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Row of kernels without an id, and of the call that launched each; per process, where one stream has them."""
    kernels = work.filter(pl.col("kind") == str(Kind.KERNEL), pl.col("correlation_id").is_null())
    pairs = [_ISSUERS.clear()]
    called = (pl.col("level") == str(Level.RUNTIME)) & (pl.col("kind") == str(Kind.CALL))
    for process in kernels["process_id"].drop_nulls().unique():
        of_process = spans.filter(pl.col("process_id") == process)
        launched = of_process.filter(_IS_WORK)["correlation_id"].drop_nulls().unique()
        calls = of_process.filter(
            called,
            pl.col("name").cast(pl.String).str.contains(_LAUNCH),
            ~pl.col("correlation_id").is_in(launched.implode()),
        ).sort("start_ns", "row")
        some = kernels.filter(pl.col("process_id") == process).sort("start_ns", "row")
        is_one = some.select("device_id", "stream_id").n_unique() == 1
        if is_one and calls.height == some.height and (some["start_ns"] >= calls["start_ns"]).all():
            pairs.append(_issuer_rows(some["row"], calls["row"], calls["process_id"]))
    return pl.concat(pairs)


def _issuing_operators(
    spans: pl.DataFrame, work: pl.DataFrame, operators: pl.DataFrame, external: pl.DataFrame
) -> pl.DataFrame:
    """Row of work, and of the operator with its external id."""
    searched = work.select("row", "process_id", "start_ns").join(external, on="row")
    numbered = operators.select("row", "external_id").filter(
        pl.col("external_id").is_in(searched["external_id"].implode())
    )
    if searched.is_empty() or numbered.is_empty():
        return _ISSUERS.clear()
    issuers = spans.select("row", "process_id", "start_ns").join(numbered, on="row").unique("external_id", keep="none")
    tied = searched.join(issuers, on="external_id", suffix="_of").filter(
        pl.col("start_ns_of") <= pl.col("start_ns"),
        (pl.col("process_id") == pl.col("process_id_of")).fill_null(value=True),
    )
    return _issuer_rows(tied["row"], tied["row_of"], tied["process_id_of"])


_ISSUERS = pl.DataFrame(schema=dict.fromkeys(("row", "issued_by_row_found", "process_id_found"), pl.Int64))


def _issuer_rows(rows: pl.Series, issuers: pl.Series, processes: pl.Series) -> pl.DataFrame:
    columns = zip(_ISSUERS.columns, (rows, issuers, processes), strict=True)
    return pl.DataFrame([values.alias(name) for name, values in columns])


_ON_HOST = (*CALL, *OPERATOR, *ANNOTATION, *PYTHON)


class IdsAreTexts(Exception):  # noqa: N818 (an answer, not an error)
    """Processes or threads of the file have texts as ids."""


def check_ids(document: Document) -> None:
    """IdsAreTexts where something that the host did has no number as its process or thread."""
    ids = pl.col("pid").is_null() | pl.col("tid").is_null()
    if document.events["pid"].null_count() + document.events["tid"].null_count() and (
        document.events.select((ids & (pl.col("ph") == "X") & pl.col("cat").is_in(_ON_HOST)).any()).item()
    ):
        raise IdsAreTexts
