"""Entries of the ledger: what was lost, doubtful or left out, with a count and advice."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_model.vocabulary import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Finding", "summed", "to_frame"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One ledger row: `count` spans or events, `duration_ns` of device time where that can be said."""

    kind: str
    detail: str
    count: int = 1
    severity: Severity = Severity.WARNING
    duration_ns: int | None = None
    advice: str = ""
    run_id: int | None = None


_SCHEMA = {
    "run_id": pl.Int64,
    "kind": pl.String,
    "severity": pl.String,
    "count": pl.Int64,
    "duration_ns": pl.Int64,
    "detail": pl.String,
    "advice": pl.String,
}


def to_frame(findings: Iterable[Finding]) -> pl.DataFrame:
    """The `ledger` table of these findings; findings that count nothing are left out."""
    rows = [{**asdict(f), "severity": str(f.severity)} for f in findings if f.count]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def summed(findings: Iterable[Finding]) -> list[Finding]:
    """One finding for all that differ in nothing but their counts, which are added up; durations are not."""
    counts: dict[Finding, int] = {}
    for finding in findings:
        key = replace(finding, count=0)
        counts[key] = counts.get(key, 0) + finding.count
    return [replace(finding, count=count) for finding, count in counts.items()]
