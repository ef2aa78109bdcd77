"""From runs of the same work at several levels to its profile."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from xsp_analyze.merge.merge import MIN_MATCH, join_ranks, merge
from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from xsp_ingest.convert import LeveledRuns
    from xsp_model import Trace

__all__ = ["merged_sets"]


def merged_sets(sets: Sequence[LeveledRuns], *, min_match: float = MIN_MATCH, batch_size: int | None = None) -> Trace:
    """The profile of the runs, or, of one set a rank, of all ranks.

    XspError where runs are of different work or match too little.
    """
    once = _once(sets) if len(sets) > 1 else sets
    profiles = [merge(s.traces, min_match=min_match, noted=s.findings, batch_size=batch_size) for s in once]
    return join_ranks(profiles) if len(profiles) > 1 else profiles[0]


def _once(sets: Sequence[LeveledRuns]) -> list[LeveledRuns]:
    """The sets of which none is a copy of another; the ledger says how many were, and which ranks several are."""
    by_content: dict[Hashable, LeveledRuns] = {}
    for number, each in enumerate(sets):
        content = _content(each)
        by_content.setdefault(number if content is None else content, each)
    first, *others = by_content.values()
    findings = [*first.findings, *_same_ranks([first, *others])]
    kind = LedgerKind.SAME_CONTENT_AGAIN
    findings.append(Finding(kind, f"{kind.sentence}: sets of runs of other ranks", len(sets) - len(by_content)))
    return [replace(first, findings=findings), *others]


def _content(leveled: LeveledRuns) -> Hashable | None:
    """What the files of the set's runs hold, and whose they are said to be; none where that is not known of all."""
    runs = [run for trace in leveled.traces for run in trace.frame("runs").select("source_sha256", "rank").iter_rows()]
    return frozenset(runs) if runs and all(digest is not None for digest, _ in runs) else None


def _same_ranks(sets: Sequence[LeveledRuns]) -> list[Finding]:
    ranks = [{rank for trace in each.traces for rank in trace.frame("runs")["rank"].drop_nulls()} for each in sets]
    counts = {rank: sum(rank in of_set for of_set in ranks) for rank in sorted(set().union(*ranks))}
    kind = LedgerKind.SAME_RANK_AGAIN
    return [Finding(kind, f"{kind.sentence}: rank {rank}", count) for rank, count in counts.items() if count > 1]
