"""A part of a run: some of its time, processes or devices, chosen before anything is linked.

What belongs to the part:

- device activities that *start* in the range, so that ranges side by side count each of them once;
- the calls that launched these, whenever they were made;
- host spans that overlap the time from the range's start, or from the earliest of those launches, to the range's end:
  so the layers and steps around a launch are there although the device ran behind the host;
- of chosen processes what they did and launched; of chosen devices their activities and waits, and everything that the
  host did.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.values import UNITS_NS
from xsp_ingest.staging.raw import RawTrace
from xsp_model import Finding, Kind, LedgerKind, Level, XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["EVERYTHING", "Selection", "Skipped", "by_rank", "narrow", "range_of"]

_DURATION_UNITS_NS = {**UNITS_NS, "\u00b5s": UNITS_NS["us"], "min": 60 * UNITS_NS["s"]}
_TIME = r"(\d{1,18})(?:\.(\d{1,18}))?(ns|us|\u00b5s|ms|s|min)"
_RANGE = re.compile(rf"(?:{_TIME})?\.\.(?:{_TIME})?", re.ASCII)
_REFERENCES = {
    "spans": ("issued_by_row",),
    "operators": ("called_by_row", "forward_row"),
    "kernels": ("captured_in_row",),
}
_CAPTURE_DURATION = "capture_duration_ns"
_ADVICE = "Choose whole steps: layers, and twins of backward operators, are found only within the part"


@dataclass(frozen=True, slots=True)
class Selection:
    """What of each run is selected: `[from_ns, to_ns)` since its first span, process ids, device ids; None, (): all."""

    from_ns: int | None = None
    to_ns: int | None = None
    process_ids: Sequence[int] = ()
    device_ids: Sequence[int] = ()

    def __bool__(self) -> bool:
        """Whether anything is to be left out."""
        return self != EVERYTHING

    @property
    def in_words(self) -> str:
        """The selection as the user wrote it."""
        ends = [f"{at / 1e9:.9f}".rstrip("0").rstrip(".") + "s" if at is not None else "" for at in self._ends]
        parts = [f"--range {ends[0]}..{ends[1]}"] if any(ends) else []
        parts += [f"--pid {each}" for each in self.process_ids]
        return ", ".join((*parts, *(f"--device-id {each}" for each in self.device_ids)))

    @property
    def _ends(self) -> tuple[int | None, int | None]:
        return self.from_ns, self.to_ns


EVERYTHING = Selection()
"""The whole run."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """What a reader left out itself, never having read it."""

    activities: int = 0
    duration_ns: int = 0
    host_spans: int = 0


def range_of(text: str) -> tuple[int | None, int | None]:
    """Both ends of `10s..20s`, `1.5ms..` or `..90us` in ns; XspError where it is no range."""
    match = _RANGE.fullmatch(text.strip())
    advice = "Give one such as 10s..20s, 1500ms.. or ..2min; units are ns, us, ms, s and min"
    if match is None or text.strip() == "..":
        raise XspError(f"{text!r} is no range of time", advice=advice)
    start, end = _ns(match.group(1, 2, 3)), _ns(match.group(4, 5, 6))
    if start is not None and end is not None and start >= end:
        raise XspError(f"the range {text!r} ends before it starts", advice=advice)
    return start, end


def _ns(parts: Sequence[str | None]) -> int | None:
    integer, decimals, unit = parts
    if integer is None or unit is None:
        return None
    scale = _DURATION_UNITS_NS[unit]
    return int(integer) * scale + (int(decimals) * scale // 10 ** len(decimals) if decimals else 0)


def narrow(
    raw: RawTrace, selection: Selection, *, zero_ns: int | None = None, skipped: Skipped | None = None
) -> RawTrace:
    """The part of the run; its ledger says what was left out.

    `zero_ns` is the start of the run's first span on the source's clock, where the reader did not read that span.
    """
    spans = raw.tables["spans"]
    if zero_ns is None:
        first_ns = spans["start_ns"].min()
        zero_ns = first_ns if isinstance(first_ns, int) else 0
    start, end = (None if at is None else zero_ns + at for at in (selection.from_ns, selection.to_ns))
    is_device = pl.col("level").cast(pl.String) == Level.KERNEL
    of_process = (
        pl.col("process_id").is_in(list(selection.process_ids)) if selection.process_ids else pl.lit(value=True)
    )
    of_device = pl.col("device_id").is_in(list(selection.device_ids)) if selection.device_ids else pl.lit(value=True)
    work = spans.filter(is_device, of_process, of_device, *_between("start_ns", start, end))
    launches = _launches(spans, work)
    host_start = _earliest(start, launches)
    on_host = ~is_device & of_process & (of_device | pl.col("device_id").is_null())
    around = on_host & _overlaps(host_start, end)
    rows = pl.concat([work["row"], launches["row"], spans.filter(around)["row"]]).unique()
    tables = {name: _table(name, frame, rows) for name, frame in raw.tables.items()}
    moments = ("allocations", "counters", "page_faults")
    tables |= {name: _moments(raw.tables[name], selection, host_start, end) for name in moments}
    tables |= {name: _of(raw.tables[name], selection) for name in ("devices", "peaks")}
    findings = _findings(selection, spans, tables["spans"], (host_start if start is None else start, end), skipped)
    return replace(raw, tables=tables, findings=(*raw.findings, *findings))


def by_rank(raw: RawTrace) -> Sequence[RawTrace]:
    """The run, or that of each rank's process where the file holds several and says when they ran.

    What is of no such process, and of no device, is of the first.
    """
    seen = set(raw.tables["spans"]["process_id"].drop_nulls().unique()) if raw.facts.ranks else set()
    ranks = {rank: process for process, rank in raw.facts.ranks.items() if process in seen}
    if len(ranks) < len(seen & raw.facts.ranks.keys()) or raw.facts.epoch_ns is None or not ranks:
        return [raw]
    return [_part_of_rank(raw, rank, ranks) for rank in sorted(ranks)]


def _part_of_rank(raw: RawTrace, rank: int, ranks: Mapping[int, int]) -> RawTrace:
    process, first = ranks[rank], rank == min(ranks)
    others = [each for each in ranks.values() if each != process]
    spans = raw.tables["spans"]
    inside = ~pl.col("process_id").is_in(others) if first else pl.col("process_id") == process
    spans = spans.filter(inside.fill_null(value=first))
    used = spans["device_id"].drop_nulls().unique().implode()
    tables = {name: _table(name, frame, spans["row"]) for name, frame in raw.tables.items()}
    of_device = pl.col("device_id").is_in(used).fill_null(value=first)
    for name, frame in tables.items():
        own = [
            column for column in ("process_id", "forward_process_id") if column in frame.columns and "row" not in frame
        ]
        for column in own:
            tables[name] = frame.filter(pl.col(column).is_null() | ~pl.col(column).is_in(others))
    for name in ("counters", "devices", "peaks"):
        capture = pl.col("counter").cast(pl.String) == _CAPTURE_DURATION if name == "counters" else pl.lit(value=False)
        tables[name] = tables[name].filter(of_device | capture)
    facts = replace(raw.facts, rank=rank, ranks={})
    return RawTrace(tables, facts, raw.findings if first else ())


def _between(column: str, start: int | None, end: int | None) -> list[pl.Expr]:
    return [
        *([pl.col(column) >= start] if start is not None else []),
        *([pl.col(column) < end] if end is not None else []),
    ]


def _launches(spans: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """The calls that launched the work, and what the file says issued it."""
    ids = work.select("process_id", "correlation_id").drop_nulls("correlation_id").unique()
    calls = spans.filter(
        pl.col("level").cast(pl.String) == Level.RUNTIME,
        pl.col("kind").cast(pl.String) == Kind.CALL,
        pl.col("correlation_id").is_not_null(),
    )
    launched = calls.join(ids, on=["process_id", "correlation_id"], how="semi", nulls_equal=True)
    issued = spans.filter(pl.col("row").is_in(work["issued_by_row"].drop_nulls().unique().implode()))
    return pl.concat([launched, issued]).select("row", "start_ns")


def _earliest(start: int | None, launches: pl.DataFrame) -> int | None:
    first = launches["start_ns"].min()
    return min(start, first) if start is not None and isinstance(first, int) else start


def _overlaps(start: int | None, end: int | None) -> pl.Expr:
    """Spans that never ended reach to the end."""
    last = pl.col("start_ns") + pl.col("duration_ns")
    begun = pl.col("start_ns") < end if end is not None else pl.lit(value=True)
    return begun & (last.is_null() | (last >= start) if start is not None else pl.lit(value=True))


def _table(name: str, frame: pl.DataFrame, rows: pl.Series) -> pl.DataFrame:
    if "row" not in frame.columns:
        return frame
    kept = frame.filter(pl.col("row").is_in(rows.implode()))
    if name == "attributions":  # a layer that is left out has its share no more
        return kept.filter(pl.col("layer_row").is_in(rows.implode()))
    return kept.with_columns(
        pl.when(pl.col(column).is_in(rows.implode())).then(pl.col(column)).alias(column)
        for column in _REFERENCES.get(name, ())
        if kept[column].null_count() < kept.height
    )


def _moments(frame: pl.DataFrame, selection: Selection, start: int | None, end: int | None) -> pl.DataFrame:
    """Samples within the time, and of the devices or of none; how long the whole capture took is of no part."""
    kept = _where(_of(frame, selection), _between("time_ns", start, end))
    return kept.filter(pl.col("counter").cast(pl.String) != _CAPTURE_DURATION) if "counter" in frame.columns else kept


def _of(frame: pl.DataFrame, selection: Selection) -> pl.DataFrame:
    """Rows of the processes and devices, and those of which it is not said."""
    chosen = (("process_id", selection.process_ids), ("device_id", selection.device_ids))
    conditions = [
        pl.col(column).is_null() | pl.col(column).is_in(list(ids))
        for column, ids in chosen
        if ids and column in frame.columns
    ]
    return _where(frame, conditions)


def _where(frame: pl.DataFrame, conditions: Sequence[pl.Expr]) -> pl.DataFrame:
    return frame.filter(*conditions) if conditions else frame


def _findings(
    selection: Selection,
    before: pl.DataFrame,
    after: pl.DataFrame,
    window: tuple[int | None, int | None],
    skipped: Skipped | None,
) -> tuple[Finding, ...]:
    unread = skipped or Skipped()
    is_device = pl.col("level").cast(pl.String) == Level.KERNEL
    all_work, work = before.filter(is_device), after.filter(is_device)
    if not after.height:
        raise XspError(f"nothing of the file is within {selection.in_words}", advice="`xsp info` says what it holds")
    device_ns = int(all_work["duration_ns"].sum()) - int(work["duration_ns"].sum()) + unread.duration_ns
    activities = all_work.height - work.height + unread.activities
    host = (before.height - all_work.height) - (after.height - work.height) + unread.host_spans
    is_step = (pl.col("level").cast(pl.String) == Level.MODEL) & (pl.col("kind").cast(pl.String) == Kind.STEP)
    start, end = window
    last = pl.col("start_ns") + pl.col("duration_ns")
    early = pl.col("start_ns") < start if start is not None else pl.lit(value=False)
    late = last > end if end is not None else pl.lit(value=False)
    cut = after.filter(is_step, early | late).height
    as_requested = f"as asked ({selection.in_words})"
    findings = (
        Finding(
            LedgerKind.NOT_SELECTED, f"Device activities left out {as_requested}", activities, duration_ns=device_ns
        ),
        Finding(LedgerKind.NOT_SELECTED, f"Host spans left out {as_requested}", host),
        Finding(
            LedgerKind.STEP_CUT,
            f"Steps that reach out of {selection.in_words}, so that work of theirs is left out",
            cut,
            advice=_ADVICE,
        ),
    )  # fmt: skip
    return tuple(each for each in findings if each.count)
