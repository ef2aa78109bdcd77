"""Entries of the ledger: what was lost, doubtful or left out, with a count and advice."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_model.ledger_kinds import LedgerKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xsp_model.vocabulary import Severity

__all__ = ["Finding", "sum_counts", "to_frame"]


@dataclass(frozen=True, slots=True, init=False)
class Finding:
    """One ledger row: `count` spans or events, `duration_ns` of device time where that can be said.

    Detail, severity and advice are the kind's unless they are given.
    """

    kind: LedgerKind
    detail: str
    count: int
    severity: Severity
    duration_ns: int | None
    advice: str
    run_id: int | None

    def __init__(
        self,
        kind: LedgerKind,
        detail: str | None = None,
        count: int = 1,
        severity: Severity | None = None,
        duration_ns: int | None = None,
        advice: str | None = None,
        run_id: int | None = None,
    ) -> None:
        kind = LedgerKind(kind)  # ValueError for a free string
        values = {
            "kind": kind,
            "detail": kind.sentence if detail is None else detail,
            "count": count,
            "severity": kind.severity if severity is None else severity,
            "duration_ns": duration_ns,
            "advice": kind.advice if advice is None else advice,
            "run_id": run_id,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)  # it is frozen


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
    rows = [{**asdict(f), "kind": str(f.kind), "severity": str(f.severity)} for f in findings if f.count]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def sum_counts(findings: Iterable[Finding]) -> list[Finding]:
    """One finding for all that differ in nothing but their counts, which are added up; durations are not."""
    counts: dict[Finding, int] = {}
    for finding in findings:
        key = replace(finding, count=0)
        counts[key] = counts.get(key, 0) + finding.count
    return [replace(finding, count=count) for finding, count in counts.items()]
