"""Rule 1: every run's times to int64 ns from the start of the trace, runs aligned by their epochs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from math import floor
from typing import TYPE_CHECKING

import polars as pl

from xsp_model import Finding, LedgerKind, Severity, XspError
from xsp_model.clock_skew import ENOUGH, clock_skews
from xsp_model.columns.intervals import FARTHEST_NS, MAX_TOTAL_NS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_ingest.link.forest import Forest
    from xsp_ingest.staging.raw import RawTrace
    from xsp_model.clock_skew import ClockSkew

__all__ = ["Zero", "alone", "check_extent", "compare_clocks", "still_true", "zeros"]

_COLLECTIVE = r"(?i)^(void )?(nccl|rccl|msccl)"
_END_OF_TIME = 2**63  # ns: the year 2262
_PAIRWISE = ("send", "recv")
_MOMENTS = {"spans": "start_ns", "allocations": "time_ns", "counters": "time_ns", "page_faults": "time_ns"}
_ONE_RUN = "clocks were to be aligned, but only one run was read"


@dataclass(frozen=True, slots=True)
class Zero:
    """The source's own time stamp at the trace's time 0, and the Unix time there (null: the source does not say).

    Of a clock whose drift is put right, what it gains of a nanosecond, and the time stamp from which it gains.
    """

    origin_ns: int
    epoch_ns: int | None
    gain: float = 0.0
    right_ns: int = 0

    def since(self, times: pl.Expr) -> pl.Expr:
        """Time stamps of the source as times of the trace."""
        apart = times - self.origin_ns
        if not self.gain:
            return apart
        return apart - ((times - self.right_ns).cast(pl.Float64) * self.gain + 0.5).floor().cast(pl.Int64)

    def on_spans(self) -> list[pl.Expr]:
        """Start and duration of spans, both by the clock that is right."""
        start, end = (self.since(pl.col("start_ns") + later) for later in (0, pl.col("duration_ns")))
        return [start.alias("start_ns"), *([(end - start).alias("duration_ns")] if self.gain else [])]


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


def alone(raw: RawTrace) -> Zero:
    """Of a run whose times are compared with no other's: its own start is 0."""
    start = _first_start(raw)
    epoch = _date(raw.facts.epoch_ns, start)
    return Zero(start, None if epoch is None else epoch + start)


def check_extent(raws: Sequence[RawTrace], zeros: Sequence[Zero], paths: Sequence[str]) -> None:
    """XspError where times, whatever reader let them pass, are farther apart or longer in sum than 64 bits hold."""
    advice = "A record of it, or the date that it states, is damaged"
    total_ns = 0.0
    for raw, zero, path in zip(raws, zeros, paths, strict=True):
        for table, column in _MOMENTS.items():
            ends = (raw.tables[table][column].min(), raw.tables[table][column].max())
            if any(isinstance(end, int) and abs(end - zero.origin_ns) > FARTHEST_NS for end in ends):
                raise XspError("its times are over 146 years from the start of the trace", path=path, advice=advice)
        total_ns += float(raw.tables["spans"].select(pl.col("duration_ns").cast(pl.Float64).sum()).item())
        if total_ns > MAX_TOTAL_NS:
            raise XspError("what it recorded lasts over 292 years in sum", path=path, advice=advice)


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


def compare_clocks(
    raws: Sequence[RawTrace], forests: Sequence[Forest], zeros: Sequence[Zero], *, align: bool
) -> tuple[list[Zero], list[Finding]]:
    """Where time 0 of each run is, and how far its clock is off the first's as far as collectives tell (`clock_skews`).

    Reported, and corrected where `align` says so: then runs of which enough collectives are matched are moved to the
    first run's clock, and the others stay where they are.
    """
    if len(forests) < 2:  # noqa: PLR2004 (a pair)
        return list(zeros), [Finding(LedgerKind.CLOCKS_NOT_ALIGNED, _ONE_RUN, severity=Severity.INFO)] * align
    ends = [_collective_ends(*run) for run in zip(itertools.count(), forests, zeros, raws)]
    skews, others = clock_skews(pl.concat(ends)), range(1, len(forests))
    if not align:
        return list(zeros), [_finding(LedgerKind.CLOCK_SKEW, run, skew) for run, skew in skews.items()]
    sure = {run: skew for run, skew in skews.items() if skew.count >= ENOUGH}
    kinds = {run: LedgerKind.CLOCKS_ALIGNED if run in sure else LedgerKind.CLOCKS_NOT_ALIGNED for run in others}
    findings = [_finding(kind, run, skews.get(run)) for run, kind in kinds.items()]
    return _move_runs(zeros, [_first_start(raw) for raw in raws], sure), findings


def _finding(kind: LedgerKind, run: int, skew: ClockSkew | None) -> Finding:
    if skew is None:
        reason = "it has no collectives in common with the first run, or with one whose clock is compared with that"
        return Finding(kind, f"the clock was not aligned: {reason}", run_id=run)
    way = "ahead of" if skew.offset_ns >= 0 else "behind"
    apart = f"the clock is {abs(skew.offset_ns)} ns {way} the first run's"
    judged = f"the median over {skew.count} collectives, half of which are at most {skew.spread_ns} ns apart"
    drift = skew.drift_ns_per_s
    gains = "" if drift is None else f"; it {'gains' if drift > 0 else 'loses'} {abs(drift):.0f} ns a second"
    judged += gains
    texts = {
        LedgerKind.CLOCK_SKEW: f"{apart}, {judged}; not corrected",
        LedgerKind.CLOCKS_ALIGNED: f"{apart}, {judged}: its times were moved by {-skew.offset_ns} ns"
        f"{', and by what it drifts' if gains else ''}",
        LedgerKind.CLOCKS_NOT_ALIGNED: f"{apart}, {judged}: too few to move its times, it takes {ENOUGH}",
    }
    return Finding(kind, texts[kind], skew.count, run_id=run)


def _move_runs(zeros: Sequence[Zero], starts: Sequence[int], ahead: Mapping[int, ClockSkew]) -> list[Zero]:
    """Runs moved back by what their clock is ahead, and time 0 to the start that is now the earliest."""
    moved = [_put_right(zero, ahead.get(run)) for run, zero in enumerate(zeros)]
    first = min(_since(zero, start) for start, zero in zip(starts, moved, strict=True))
    epochs = [zeros[0 if run in ahead else run].epoch_ns for run in range(len(zeros))]
    return [
        replace(zero, origin_ns=zero.origin_ns + first, epoch_ns=None if epoch is None else epoch + first)
        for zero, epoch in zip(moved, epochs, strict=True)
    ]


def _put_right(zero: Zero, skew: ClockSkew | None) -> Zero:
    if skew is None:
        return zero
    origin, drift = zero.origin_ns + skew.offset_ns, (skew.drift_ns_per_s or 0.0) / 1e9
    return Zero(origin, zero.epoch_ns, drift / (1 + drift), origin + round(skew.at_ns))


def _since(zero: Zero, time_ns: int) -> int:
    """`Zero.since` of one time stamp."""
    return time_ns - zero.origin_ns - (floor((time_ns - zero.right_ns) * zero.gain + 0.5) if zero.gain else 0)


def still_true(findings: Sequence[Finding], of_clocks: Sequence[Finding]) -> list[Finding]:
    """The findings, less those on times of runs that do not go together, where all clocks were aligned since."""
    kinds = {finding.kind for finding in of_clocks}
    if kinds != {LedgerKind.CLOCKS_ALIGNED}:
        return list(findings)
    return [f for f in findings if f.kind not in {LedgerKind.NO_EPOCH, LedgerKind.RUNS_APART}]


def _collective_ends(run: int, forest: Forest, zero: Zero, raw: RawTrace) -> pl.DataFrame:
    """One row a collective: rank (the run), group ("" where it is not recorded), name, nth of these, end_ns.

    Sends and receives are left out: the n-th of one rank is no other's n-th.
    """
    name = pl.col("name").cast(pl.String)
    label = pl.concat_str(pl.col("group_name", "group_ranks").cast(pl.String), separator=" ", ignore_nulls=True)
    facts = raw.tables["collectives"].select("row", label.alias("group"), pl.col("operation").cast(pl.String))
    return (
        forest.spans.filter(pl.col("level") == "kernel", name.str.contains(_COLLECTIVE))
        .sort("start_ns")
        .join(facts, on="row", how="left", maintain_order="left")
        .filter(~pl.col("operation").is_in(_PAIRWISE).fill_null(value=False))
        .select(
            pl.lit(run, pl.Int64).alias("rank"),
            pl.col("group").fill_null(""),
            name,
            (pl.col("start_ns") + pl.col("duration_ns") - zero.origin_ns).alias("end_ns"),
        )
        .with_columns(pl.int_range(pl.len()).over("group", "name").alias("nth"))
    )
