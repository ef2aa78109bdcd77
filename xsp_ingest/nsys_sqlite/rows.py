"""What a part of the reader hands over, and the checks that every kind of row goes through."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.raw import RAW_TABLES, frame_of
from xsp_model import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Part", "join", "placed", "without_absurd", "word"]


@dataclass(frozen=True)
class Part:
    """Rows for tables of a RawTrace from one table of the file; `row` counts from 0 in each part."""

    tables: Mapping[str, pl.DataFrame]
    findings: tuple[Finding, ...] = field(default=())


def word(values: pl.Expr, words: Mapping[int, str], *, otherwise: str | None = None) -> pl.Expr:
    """The words of these codes; `otherwise` for codes that have none, null for null."""
    return values.replace_strict(
        words, default=pl.when(values.is_not_null()).then(pl.lit(otherwise)), return_dtype=pl.String
    )


def placed(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows that have a start."""
    return rows.filter(pl.col("start").is_not_null()) if rows["start"].null_count() else rows


def join(parts: Iterable[Part]) -> tuple[dict[str, pl.DataFrame], tuple[Finding, ...]]:
    """All parts as one set of raw tables, `row` made unique over them."""
    gathered: dict[str, list[pl.DataFrame]] = {name: [] for name in RAW_TABLES}
    findings: list[Finding] = []
    offset = 0
    for part in parts:
        for name, frame in part.tables.items():
            whole = frame_of(name, frame)
            gathered[name].append(whole.with_columns(pl.col("row") + offset) if "row" in whole.columns else whole)
        offset += part.tables["spans"].height if "spans" in part.tables else 0
        findings += part.findings
    tables = {name: pl.concat(frames) if frames else frame_of(name) for name, frames in gathered.items()}
    return tables, tuple(findings)


def without_absurd(spans: pl.DataFrame, session_ns: int | None) -> tuple[pl.DataFrame, tuple[Finding, ...]]:
    """The spans with host durations longer than the whole capture made unknown; the device's are kept; both counted."""
    if session_ns is None or not (spans["duration_ns"] > session_ns).any():
        return spans, ()
    long = (pl.col("duration_ns") > session_ns).fill_null(value=False)
    device = pl.col("level").cast(pl.String) == Level.KERNEL
    what = "that are longer than the whole capture"
    found = (
        Finding("absurd_duration", f"Device activities {what}; kept as they are", spans.filter(long, device).height),
        Finding(
            "absurd_duration", f"Host spans {what}; kept, their duration unknown", spans.filter(long, ~device).height
        ),
    )
    kept = pl.when(~(long & ~device)).then(pl.col("duration_ns")).alias("duration_ns")
    return spans.with_columns(kept), tuple(f for f in found if f.count)
