"""What a row's numbers say of it: it changed, it did not, or the captures cannot tell."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from xsp_analyze.compare.rows import Conclusion
from xsp_analyze.compare.significance import FALSE_DISCOVERY_RATE, discoveries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.compare.rows import Row

__all__ = ["MARGIN", "conclude", "conclude_all"]

MARGIN = 1.1
"""An interval that reaches beyond this factor, either way, is too wide to say that nothing changed."""


def conclude(row: Row, *, is_discovery: bool) -> Row:
    """The row with its conclusion, and whether that is a significant change; as it is where nothing is known of noise.

    `is_discovery`: its interval, corrected for how many rows were tested, leaves out 1. A rank test that could decide
    and does not agree takes that back: one step or capture that is far off moves a mean, and no ranks.
    """
    if row.p_value is None:
        return row
    conclusion = _outcome(row, is_discovery=is_discovery)
    if conclusion is Conclusion.CHANGED:
        return replace(row, conclusion=conclusion, significant=True)
    return replace(row, conclusion=conclusion, significant=False, moved_to=(), moved_from=())  # noise moves nothing


def _outcome(row: Row, *, is_discovery: bool) -> Conclusion:
    if is_discovery:
        decides = row.rank_min_p is not None and row.rank_min_p <= FALSE_DISCOVERY_RATE
        refuted = decides and (row.rank_p_value or 0.0) > FALSE_DISCOVERY_RATE
        return Conclusion.INCONCLUSIVE if refuted else Conclusion.CHANGED
    narrow = row.low is not None and row.high is not None and row.low >= 1 / MARGIN and row.high <= MARGIN
    return Conclusion.UNCHANGED if narrow else Conclusion.INCONCLUSIVE


def conclude_all(rows: Sequence[Row]) -> list[Row]:
    """The rows decided, with q: corrected for as many as were tested, all of them together."""
    p = np.array([np.nan if r.p_value is None else r.p_value for r in rows], dtype=np.float64)
    q, is_discovery = discoveries(p)
    return [
        _mark_moved(
            conclude(
                row if np.isnan(q[at]) else replace(row, q_value=float(q[at])), is_discovery=bool(is_discovery[at])
            )
        )
        for at, row in enumerate(rows)
    ]


def _mark_moved(row: Row) -> Row:
    """The row, called moved where it is on both sides and its time is elsewhere."""
    moved = bool(row.moved_to or row.moved_from) and row.change == "same"
    return replace(row, change="moved") if moved else row
