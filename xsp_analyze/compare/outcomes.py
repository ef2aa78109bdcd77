"""What a row's numbers say of it: it changed, it did not, or the captures cannot tell."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from xsp_analyze.compare.significance import FALSE_DISCOVERY_RATE, discoveries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.compare.rows import Row

__all__ = ["MARGIN", "Outcome", "corrected", "decided"]

MARGIN = 1.1
"""An interval that reaches beyond this factor, either way, is too wide to say that nothing changed."""


class Outcome(StrEnum):
    """What became of a row."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"  # no farther than noise reaches, and noise does not reach far
    INCONCLUSIVE = "inconclusive"


def decided(row: Row, *, is_discovery: bool) -> Row:
    """The row with its outcome, and whether that is a significant change; as it is where nothing is known of noise.

    `is_discovery`: its interval, corrected for how many rows were tested, leaves out 1. A rank test that could decide
    and does not agree takes that back: one step or capture that is far off moves a mean, and no ranks.
    """
    if row.p_value is None:
        return row
    outcome = _outcome(row, is_discovery=is_discovery)
    if outcome is Outcome.CHANGED:
        return replace(row, outcome=outcome, significant=True)
    return replace(row, outcome=outcome, significant=False, moved_to=(), moved_from=())  # noise moves nothing


def _outcome(row: Row, *, is_discovery: bool) -> Outcome:
    if is_discovery:
        decides = row.rank_least_p is not None and row.rank_least_p <= FALSE_DISCOVERY_RATE
        refuted = decides and (row.rank_p_value or 0.0) > FALSE_DISCOVERY_RATE
        return Outcome.INCONCLUSIVE if refuted else Outcome.CHANGED
    narrow = row.low is not None and row.high is not None and row.low >= 1 / MARGIN and row.high <= MARGIN
    return Outcome.UNCHANGED if narrow else Outcome.INCONCLUSIVE


def corrected(rows: Sequence[Row]) -> list[Row]:
    """The rows decided, with q: corrected for as many as were tested, all of them together."""
    p = np.array([np.nan if r.p_value is None else r.p_value for r in rows], dtype=np.float64)
    q, is_discovery = discoveries(p)
    return [
        row if row.p_value is None else decided(replace(row, q_value=float(q[at])), is_discovery=bool(is_discovery[at]))
        for at, row in enumerate(rows)
    ]
