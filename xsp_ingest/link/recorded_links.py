"""Relations between spans that a file itself records: they go before what times suggest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.climb import innermost
from xsp_model import Level
from xsp_model.arrays import lookup

if TYPE_CHECKING:
    from xsp_ingest.link.span_kinds import SpanKinds
    from xsp_model.arrays import Positions

__all__ = ["in_generated_code", "resolve_rows", "with_callers", "with_holders"]


def resolve_rows(spans: pl.DataFrame, facts: pl.DataFrame, column: str) -> pl.DataFrame:
    """The facts in which `column` names a span by its row, with that span's `position`."""
    referring = facts.filter(pl.col(column).is_not_null())
    position = lookup(spans["row"].to_numpy(), referring[column].to_numpy())
    return referring.with_columns(pl.Series("position", position)).filter(pl.col("position") >= 0)


def in_generated_code(spans: pl.DataFrame, kinds: SpanKinds) -> Positions:
    """Layers that no thread called: the file says what they lie in."""
    rows = spans["issued_by_row"]
    if rows.null_count() == len(rows):
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(kinds.is_level(Level.LAYER) & rows.is_not_null().to_numpy())


def with_holders(spans: pl.DataFrame, kinds: SpanKinds, parent: Positions) -> Positions:
    """Parents in which layers that no thread called lie in what the file says they do."""
    at = in_generated_code(spans, kinds)
    if not len(at):
        return parent
    holder = lookup(spans["row"].to_numpy(), spans["issued_by_row"].gather(at).to_numpy())
    start = spans["start_ns"].to_numpy()
    earlier = (start[holder] < start[at]) | ((start[holder] == start[at]) & (holder < at))
    sound = (holder >= 0) & earlier  # so that no circle arises
    out = parent.copy()
    out[at[sound]] = holder[sound]
    return out


def with_callers(spans: pl.DataFrame, kinds: SpanKinds, operators: pl.DataFrame, parent: Positions) -> Positions:
    """Parents in which each operator's nearest operator above is the one that the file says called it.

    What lies between the two (a module's call) stays. A caller that began after its callee is none: no circle arises.
    """
    if operators["called_by_row"].null_count() == operators.height:
        return parent
    caller_rows = operators["called_by_row"].fill_null(-1).to_numpy()
    caller = lookup(spans["row"].to_numpy(), caller_rows)
    at = operators["at"].to_numpy()
    nearest = np.append(innermost(parent, kinds.is_level(Level.OPERATOR)), -1)
    above = nearest[parent[at]]
    start = spans["start_ns"].to_numpy()
    length = spans["duration_ns"].fill_null(0).to_numpy()
    before = (start[caller] < start[at]) | ((start[caller] == start[at]) & (length[caller] > length[at]))
    change = (caller_rows >= 0) & (caller >= 0) & (caller != above) & before
    out = parent.copy()
    out[at[change]] = caller[change]
    return out
