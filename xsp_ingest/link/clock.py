"""Rule 1: every run's times to int64 ns from the start of the trace, runs aligned by their epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_ingest.link.forest import Forest
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["Zero", "alone", "skew", "zeros"]

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


def alone(raw: RawTrace) -> Zero:
    """Of a run whose times are compared with no other's: its own start is 0."""
    start = _first_start(raw)
    epoch = _date(raw.facts.epoch_ns, start)
    return Zero(start, None if epoch is None else epoch + start)


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


def skew(forests: Sequence[Forest], origins: Sequence[int], collectives: Sequence[pl.DataFrame]) -> list[Finding]:
    """How far each run's clock seems off the first's: the median over the ends of collectives of a group of both.

    A collective ends on all ranks of its process group at nearly the same time, so the median difference is the
    clocks'. A run that shares no group with the first is compared with one that does, or that is linked to it likewise.
    It is reported, not corrected. `collectives` are the runs' staging tables.
    """
    if len(forests) < 2:  # noqa: PLR2004 (a pair)
        return []
    ends = [_collective_ends(*run) for run in zip(forests, origins, collectives, strict=True)]
    groups: dict[str, dict[int, pl.DataFrame]] = {}
    for run, each in enumerate(ends):
        for (group,), calls in each.partition_by("group", as_dict=True).items():
            groups.setdefault(group, {})[run] = calls
    offsets = _offsets(groups)
    return [Finding(LedgerKind.CLOCK_SKEW, _apart_by(off), count, run_id=run) for run, (off, count) in offsets.items()]


def _apart_by(offset_ns: float) -> str:
    way = "ahead of" if offset_ns >= 0 else "behind"
    return f"its clock is {way} the first run's by {abs(offset_ns):.0f} ns, judged by collectives; not corrected"


def _offsets(groups: Mapping[str, Mapping[int, pl.DataFrame]]) -> dict[int, tuple[float, int]]:
    """Of each run linked to the first by groups its offset, and by how many collectives; over few groups rather."""
    offsets: dict[int, tuple[float, int]] = {0: (0.0, 0)}
    largest_first = sorted(groups, key=lambda name: (-sum(calls.height for calls in groups[name].values()), name))
    reached = {0}
    while reached:
        nearer, reached = reached, set()
        for runs in (groups[name] for name in largest_first if nearer & groups[name].keys()):
            first = min(nearer & runs.keys())
            for run in sorted(runs.keys() - offsets.keys()):
                if (apart := _median_apart(runs[first], runs[run])) is not None:
                    offsets[run] = offsets[first][0] + apart[0], apart[1]
                    reached.add(run)
    del offsets[0]
    return dict(sorted(offsets.items()))


def _median_apart(first: pl.DataFrame, other: pl.DataFrame) -> tuple[float, int] | None:
    both = first.join(other, on=["name", "nth"])
    if not both.height or both.height < _ALIKE * max(first.height, other.height):
        return None
    return float(np.median((both["end_ns_right"] - both["end_ns"]).to_numpy())), both.height


def _collective_ends(forest: Forest, origin: int, collectives: pl.DataFrame) -> pl.DataFrame:
    """One row a collective: group ("" where it is not recorded), name, nth of its name in its group, end_ns."""
    name = pl.col("name").cast(pl.String)
    label = pl.concat_str(pl.col("group_name", "group_ranks").cast(pl.String), separator=" ", ignore_nulls=True)
    groups = collectives.select("row", label.alias("group"))
    return (
        forest.spans.filter(pl.col("level") == "kernel", name.str.contains(_COLLECTIVE))
        .sort("start_ns")
        .join(groups, on="row", how="left", maintain_order="left")
        .select(
            pl.col("group").fill_null(""), name, (pl.col("start_ns") + pl.col("duration_ns") - origin).alias("end_ns")
        )
        .with_columns(pl.int_range(pl.len()).over("group", "name").alias("nth"))
    )
