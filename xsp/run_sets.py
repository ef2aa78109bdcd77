"""From runs of the same work at several levels to its profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.merge.merge import MIN_MATCH, merge
from xsp_analyze.merge.ranks import join_ranks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_ingest.convert import LeveledRuns
    from xsp_model import Trace

__all__ = ["merged_sets"]


def merged_sets(sets: Sequence[LeveledRuns], *, min_match: float = MIN_MATCH, batch_size: int | None = None) -> Trace:
    """The profile of the runs, or, of one set a rank, of all ranks.

    XspError where runs are of different work or match too little.
    """
    profiles = [merge(s.traces, min_match=min_match, noted=s.findings, batch_size=batch_size) for s in sets]
    return join_ranks(profiles) if len(profiles) > 1 else profiles[0]
