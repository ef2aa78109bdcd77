"""The calls of operators that work is counted by, each with what it must do at least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.call_kinds import call_kinds
from xsp_analyze.frames.kernels.activities import column_at, origins
from xsp_analyze.frames.modelled_calls import is_modelled, is_view
from xsp_model.arrays import lookup
from xsp_model.tree import ancestors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.arrays import Bools, Ints

__all__ = ["OperatorCalls", "call_of_work", "operator_calls"]


@dataclass(frozen=True, slots=True)
class OperatorCalls:
    """Operators, and which of them each counts for.

    `calls`: one row an operator that work is counted by, in order of start: span_id, run_id, step, kind (a row of
    `kinds`). `kinds`: see `CallKinds`.
    """

    calls: pl.DataFrame
    kinds: pl.DataFrame
    _ids: Ints  # of all operators, rising
    _unit: Ints  # for each of them the row of `calls` that it counts for
    _parents: Ints  # of all spans

    def rows_of(self, spans: pl.Series) -> Ints:
        """For each of the spans the row of `calls` that it counts for, by the nearest operator around it, or -1."""
        at = _nearest(self._parents, spans.fill_null(-1).to_numpy(), self._ids)
        if not len(self._unit):
            return at
        return np.where(at >= 0, self._unit[at], -1)


def operator_calls(frames: TraceView) -> OperatorCalls:
    """An operator counts for the outermost one around it whose work its model tells, views left out.

    Where there is none: for the outermost that has a model, else for the outermost of all.
    """
    trace, kinds = frames.trace, frames.once(call_kinds)
    parents = trace.scan("spans").select(pl.col("parent_id").fill_null(-1)).collect().to_series().to_numpy()
    around = _nearest(parents, parents[kinds.ids], kinds.ids)
    unit = _outermost(around, [mask[kinds.kind_of] for mask in _masks(kinds.kinds)])
    units, row_of = np.unique(unit, return_inverse=True)
    span_ids = pl.Series("span_id", kinds.ids[units], dtype=pl.Int64)
    columns = [column_at(trace, c, span_ids) for c in ("run_id", "step")]
    calls = pl.DataFrame([span_ids, *columns, pl.Series("kind", kinds.kind_of[units], dtype=pl.Int64)])
    return OperatorCalls(calls, kinds.kinds, kinds.ids, row_of, parents)


def call_of_work(frames: TraceView) -> Ints:
    """For each of `device_work`, and `all_activities`, the row of `OperatorCalls.calls` that it counts for, or -1."""
    starts = pl.Series(origins(frames.trace, frames.device_work["span_id"]))
    return frames.once(operator_calls).rows_of(starts)


def _masks(kinds: pl.DataFrame) -> list[Bools]:
    """Which kinds have work that is told, have a model, or neither: what counts first, second and last."""
    views = np.array([is_view(name) for name in kinds["name"]], dtype=bool) & ~kinds["is_given"].to_numpy()
    models = np.array([is_modelled(name) for name in kinds["name"]], dtype=bool)
    has_work = kinds.select(_is_recorded()).to_series().to_numpy()
    return [has_work & ~views, models | has_work, np.ones(kinds.height, dtype=bool)]


def _is_recorded() -> pl.Expr:
    return pl.any_horizontal(pl.col("flop", "bus_bytes").is_not_null()) | pl.all_horizontal(
        pl.col("read_bytes", "written_bytes").is_not_null()
    )


def _outermost(around: Ints, masks: Sequence[Bools]) -> Ints:
    """For each operator the outermost of the first mask among itself and those around it, else of the next mask."""
    own = np.arange(len(around))
    farthest = [np.where(mask, own, -1) for mask in masks]
    for up in ancestors(around):
        for mask, best in zip(masks, farthest, strict=True):
            inside = (up >= 0) & mask[up]
            best[inside] = up[inside]
    unit = farthest[0]
    for other in farthest[1:]:
        unit = np.where(unit >= 0, unit, other)
    return unit


def _nearest(parents: Ints, starts: Ints, ids: Ints) -> Ints:
    """For each start the row in ids of the nearest span among it and its ancestors that is one of them, or -1."""
    out = np.full(len(starts), -1, dtype=np.int64)
    waiting = np.flatnonzero(starts >= 0)
    current = starts[waiting]
    while len(waiting):
        at = lookup(ids, current)
        out[waiting] = at
        above = parents[current]
        rest = (at < 0) & (above >= 0)
        waiting, current = waiting[rest], above[rest]
    return out
