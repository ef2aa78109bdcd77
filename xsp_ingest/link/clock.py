"""Rule 1: every run's times to int64 ns from the start of the trace, runs aligned by their epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_ingest.link.forest import Forest
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["Zero", "skew", "zeros"]

_COLLECTIVE = r"(?i)^(void )?(nccl|rccl|msccl)"
_END_OF_TIME = 2**63  # ns: the year 2262
_ALIKE = 0.9  # clocks are compared over ranks only where nearly all collectives have a counterpart


@dataclass(frozen=True, slots=True)
class Zero:
    """The source's own time stamp at the trace's time 0, and the Unix time there (null: the source does not say)."""

    origin_ns: int
    epoch_ns: int | None


def zeros(raws: Sequence[RawTrace]) -> tuple[list[Zero], list[Finding]]:
    """Time 0 is the earliest start of all runs; runs whose Unix time is unknown each start at 0."""
    starts = [_first_start(raw) for raw in raws]
    epochs = [_date(raw.facts.epoch_ns, start) for raw, start in zip(raws, starts, strict=True)]
    if any(epoch is None for epoch in epochs):
        findings = [Finding(LedgerKind.NO_EPOCH, count=len(raws) if len(raws) > 1 else 0)]
        return [Zero(s, None if e is None else e + s) for s, e in zip(starts, epochs, strict=True)], findings
    dated = [(s, e) for s, e in zip(starts, epochs, strict=True) if e is not None]
    first = min(s + e for s, e in dated)
    return [Zero(first - e, first) for _, e in dated], _apart(raws, [e for _, e in dated])


def _date(epoch_ns: int | None, start_ns: int) -> int | None:
    """The epoch, if the first span's Unix time is one that 63 bits hold; a damaged file may state any number."""
    return epoch_ns if epoch_ns is not None and abs(epoch_ns + start_ns) < _END_OF_TIME else None


def _apart(raws: Sequence[RawTrace], epochs: Sequence[int]) -> list[Finding]:
    """Ranks of one job run side by side; what does not overlap is hardly one job."""
    windows = [_window(raw, epoch) for raw, epoch in zip(raws, epochs, strict=True)]
    windows = [(start, end) for start, end in windows if end > start]
    if not windows or max(start for start, _ in windows) <= min(end for _, end in windows):
        return []
    detail = "runs were read together whose times do not overlap: sums and shares over them may mean nothing"
    return [Finding(LedgerKind.RUNS_APART, detail, len(windows))]


def _window(raw: RawTrace, epoch: int) -> tuple[int, int]:
    spans = raw.tables["spans"].select("start_ns", (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"))
    ends = spans["end_ns"].drop_nulls().to_numpy()
    return _first_start(raw) + epoch, int(ends.max(initial=0)) + epoch


def _first_start(raw: RawTrace) -> int:
    """The earliest start of any span; 0 for a run without one."""
    first = raw.tables["spans"]["start_ns"].min()
    return first if isinstance(first, int) else 0


def skew(forests: Sequence[Forest], origins: Sequence[int]) -> list[Finding]:
    """How far each run's clock seems off the first's: the median over the ends of collectives that all ranks ran.

    A collective ends on all ranks at nearly the same time, so the median difference is the clocks'.
    It is reported, not corrected.
    """
    if len(forests) < 2:  # noqa: PLR2004 (a pair)
        return []
    ends = [_collective_ends(forest, origin) for forest, origin in zip(forests, origins, strict=True)]
    findings = []
    for run, other in enumerate(ends[1:], start=1):
        both = ends[0].join(other, on=["name", "nth"])
        if both.height and both.height >= _ALIKE * max(ends[0].height, other.height):
            median = float(np.median((both["end_ns_right"] - both["end_ns"]).to_numpy()))
            way = "ahead of" if median >= 0 else "behind"
            detail = f"its clock is {way} the first run's by {abs(median):.0f} ns, judged by collectives; not corrected"
            findings.append(Finding(LedgerKind.CLOCK_SKEW, detail, both.height, run_id=run))
    return findings


def _collective_ends(forest: Forest, origin: int) -> pl.DataFrame:
    name = pl.col("name").cast(pl.String)
    return (
        forest.spans.filter(pl.col("level") == "kernel", name.str.contains(_COLLECTIVE))
        .sort("start_ns")
        .select(name, (pl.col("start_ns") + pl.col("duration_ns") - origin).alias("end_ns"))
        .with_columns(pl.int_range(pl.len()).over("name").alias("nth"))
    )
