"""Start and duration of records, with what is odd about them counted."""

from __future__ import annotations

import polars as pl

from xsp_model import Finding, LedgerKind
from xsp_model.intervals import LATEST_NS

__all__ = ["MAX_DURATION_NS", "with_times"]

MAX_DURATION_NS = 24 * 3600 * 10**9
"""A day: no capture is longer, nor anything in one."""


def with_times(
    rows: pl.DataFrame, what: str, *, device: bool, zeros_unknown: bool = False
) -> tuple[pl.DataFrame, list[Finding]]:
    """The rows that have a `start`, with `start_ns` and `duration_ns`, and findings on the times of the others.

    `zeros_unknown`: the tool writes 0 for start and end where it could not take them, as CUPTI does. An end before the
    start, or over a day behind it, gives 0 for device work, whose duration must be known, and unknown for the host's.
    """
    start, end = (_plausible(name) for name in ("start", "end"))
    rows = rows.with_columns(start.alias("start"), end.alias("end"))
    zeros = (pl.col("start") == 0) & (pl.col("end").fill_null(0) == 0) & pl.lit(zeros_unknown)
    unknown = pl.col("start").is_null() | zeros
    missing = rows.select(unknown.sum()).item()
    rows = rows.filter(~unknown)
    backwards = rows.filter(pl.col("end") < pl.col("start")).height
    endless = rows["end"].null_count()
    elapsed = pl.col("end") - pl.col("start")
    absurd = rows.filter(elapsed > MAX_DURATION_NS).height
    length = pl.when(elapsed.is_between(0, MAX_DURATION_NS)).then(elapsed)
    findings = [
        Finding(LedgerKind.MISSING_TIME, f"{what} without a start; left out", missing),
        Finding(
            LedgerKind.NEGATIVE_DURATION, f"{what} that end before they start; kept, their duration not used", backwards
        ),
        Finding(LedgerKind.ABSURD_DURATION, f"{what} longer than a day; kept, their duration not used", absurd),
        Finding(LedgerKind.MISSING_END, f"{what} without an end; kept, their duration not known", endless),
    ]
    duration = length.fill_null(0) if device else length
    return rows.with_columns(pl.col("start").alias("start_ns"), duration.alias("duration_ns")), findings


def _plausible(name: str) -> pl.Expr:
    return pl.when(pl.col(name).is_between(-LATEST_NS, LATEST_NS)).then(pl.col(name))
