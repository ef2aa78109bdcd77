"""What a part of the reader hands over, and the checks that every kind of row goes through."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.staging.raw import RAW_TABLES, Stage, frame_of
from xsp_model import Finding, LedgerKind, Level, Severity
from xsp_model.ledger import sum_counts
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["ExportRows", "Joined", "join", "label", "rows_with_start"]


@dataclass(frozen=True)
class ExportRows:
    """Rows for tables of a RawTrace from one table of the file; `row` counts from 0 in each part."""

    tables: Mapping[str, pl.DataFrame]
    findings: tuple[Finding, ...] = field(default=())


def label(values: pl.Expr, labels: Mapping[int, str], *, otherwise: str | None = None) -> pl.Expr:
    """The labels of these codes; `otherwise` for codes that have none, null for null."""
    return values.replace_strict(
        labels, default=pl.when(values.is_not_null()).then(pl.lit(otherwise)), return_dtype=pl.String
    )


def rows_with_start(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows that have a start."""
    return rows.filter(pl.col("start").is_not_null()) if rows["start"].null_count() else rows


class Joined:
    """All parts as one set of raw tables, `row` made unique over them; large tables are on disk, part by part."""

    def __init__(self, session_ns: int | None) -> None:
        """`session_ns`: how long the capture was, where that is known."""
        self._session_ns = session_ns
        self._held: dict[str, list[pl.DataFrame]] = {name: [] for name in RAW_TABLES}
        self._staged: dict[str, Stage] = {}
        self._findings: list[Finding] = []
        self._absurd: list[Finding] = []
        self._rows = 0
        self.first_ns: int | None = None
        """When the first span began."""
        self.used = pl.DataFrame(schema={"process_id": pl.Int64, "device_id": pl.Int64})
        """The devices that each process used."""

    def add(self, part: ExportRows) -> None:
        """Adds the part; it is needed no longer then."""
        self._findings += part.findings
        for name, frame in part.tables.items():
            self._put(name, self._take_note(frame) if name == "spans" else frame)
        self._rows += part.tables["spans"].height if "spans" in part.tables else 0

    def _take_note(self, spans: pl.DataFrame) -> pl.DataFrame:
        spans, absurd = without_absurd(spans, self._session_ns)
        self._absurd += absurd
        starts = [ns for ns in (self.first_ns, spans["start_ns"].min()) if isinstance(ns, int)]
        self.first_ns = min(starts, default=None)
        if "device_id" in spans.columns:
            work = spans.filter(pl.col("level").cast(pl.String) == Level.KERNEL).select(self.used.columns).drop_nulls()
            self.used = pl.concat([self.used, work.unique()]).unique().sort(self.used.columns)
        return spans

    def _put(self, name: str, frame: pl.DataFrame) -> None:
        held = self._held[name]
        if name not in self._staged and sum(each.height for each in (*held, frame)) < limits().nsys_staged_min_rows:
            held.append(self._complete(name, frame))
            return
        stage = self._staged.setdefault(name, Stage(RAW_TABLES[name]))
        while held:
            stage.add(held.pop(0))
        for piece in frame.iter_slices(limits().nsys_staged_piece_rows):
            stage.add(self._complete(name, piece))

    def _complete(self, name: str, frame: pl.DataFrame) -> pl.DataFrame:
        rows = frame_of(name, frame)
        return rows.with_columns(pl.col("row") + self._rows) if "row" in rows.columns else rows

    def tables(self) -> dict[str, pl.DataFrame]:
        """The tables; nothing can be added afterwards."""
        return {name: self._table(name) for name in RAW_TABLES}

    def _table(self, name: str) -> pl.DataFrame:
        if name in self._staged:
            return self._staged.pop(name).frame()
        return pl.concat(self._held[name]) if self._held[name] else frame_of(name)

    def findings(self) -> tuple[Finding, ...]:
        """What was found odd."""
        return (*self._findings, *sum_counts(self._absurd))


def join(parts: Iterable[ExportRows]) -> tuple[dict[str, pl.DataFrame], tuple[Finding, ...]]:
    """All parts as one set of raw tables, and what was found odd in them."""
    joined = Joined(None)
    for part in parts:
        joined.add(part)
    return joined.tables(), joined.findings()


def without_absurd(spans: pl.DataFrame, session_ns: int | None) -> tuple[pl.DataFrame, tuple[Finding, ...]]:
    """The spans with host durations longer than the whole capture made unknown; the device's are kept; both counted."""
    if session_ns is None or not (spans["duration_ns"] > session_ns).any():
        return spans, ()
    long = (pl.col("duration_ns") > session_ns).fill_null(value=False)
    device = pl.col("level").cast(pl.String) == Level.KERNEL
    what = "that are longer than the whole capture"
    findings = (
        Finding(
            LedgerKind.ABSURD_DURATION,
            f"Device activities {what}; kept as they are",
            spans.filter(long, device).height,
            severity=Severity.WARNING,
        ),
        Finding(
            LedgerKind.ABSURD_DURATION,
            f"Host spans {what}; kept, their duration unknown",
            spans.filter(long, ~device).height,
            severity=Severity.WARNING,
        ),
    )
    kept = pl.when(~(long & ~device)).then(pl.col("duration_ns")).alias("duration_ns")
    return spans.with_columns(kept), tuple(f for f in findings if f.count)
