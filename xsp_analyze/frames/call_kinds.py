"""The operators of a trace by what their work follows from: millions of calls are of a few hundred kinds.

Names, inputs and their texts are looked at once a kind; of each call there is a whole number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.call_details import with_details
from xsp_analyze.frames.collective_calls import all_imported_work
from xsp_analyze.frames.group_ids import group_ids, numbers_by_appearance
from xsp_analyze.frames.modelled_calls import INPUTS, modelled_kinds
from xsp_model import Level
from xsp_model.arrays import lookup

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace
    from xsp_model.arrays import Ints

__all__ = ["CallKinds", "call_kinds", "recorded_kinds"]


@dataclass(frozen=True, slots=True)
class CallKinds:
    """`ids`: the spans of operators, rising; `kind_of`: the row of `kinds` of each.

    `kinds`: name, INPUTS, what else tells them apart, the columns of `modelled_calls.WORK`, and `is_given`: whether
    that is from the trace's metrics rather than our models.
    """

    ids: Ints
    kind_of: Ints
    kinds: pl.DataFrame


def call_kinds(frames: TraceView) -> CallKinds:
    """Every operator of the trace, modelled; work that is given of spans (`imported_work`) goes before our models'."""
    recorded = recorded_kinds(frames.trace)
    modelled = modelled_kinds(recorded.kinds).with_columns(pl.lit(value=False).alias("is_given"))
    return _with_supplied(all_imported_work(frames), CallKinds(recorded.ids, recorded.kind_of, modelled))


def recorded_kinds(trace: Trace) -> CallKinds:
    """Every operator of the trace, by name, inputs and what else its work follows from; `kinds` is without WORK."""
    names = trace.scan("spans").filter(pl.col("level") == str(Level.OPERATOR)).select("span_id", "name").collect()
    ids = names["span_id"].to_numpy()
    input_of, inputs = _inputs(trace, ids)
    kind_of, first = numbers_by_appearance(*group_ids([names["name"], pl.Series(input_of)]))
    kinds = names[first].select(pl.col("name").cast(pl.String)).hstack(inputs[input_of[first]])
    return CallKinds(ids, *with_details(trace, ids, kind_of, kinds))


def _inputs(trace: Trace, ids: Ints) -> tuple[Ints, pl.DataFrame]:
    """For each operator the row of the distinct inputs, which are returned beside; the first has none."""
    seen: dict[tuple[str | None, ...], int] = {(None,) * len(INPUTS): 0}
    input_of = np.zeros(len(ids), dtype=np.int64)
    for piece in trace.pieces("operators", ("span_id", *INPUTS)):
        number, first = numbers_by_appearance(*group_ids(piece.select(INPUTS)))
        distinct = piece.select(INPUTS)[first].cast(pl.String).rows()
        numbers = np.array([seen.setdefault(row, len(seen)) for row in distinct], dtype=np.int64)
        at = _rows_of(ids, piece["span_id"].to_numpy())
        input_of[at[at >= 0]] = numbers[number][at >= 0]
    return input_of, pl.DataFrame(list(seen), schema=dict.fromkeys(INPUTS, pl.String()), orient="row")


def _rows_of(ids: Ints, spans: Ints) -> Ints:
    """The row in the rising ids of each span, or -1. Both rise: a search is quicker than a table for every piece."""
    at = np.minimum(np.searchsorted(ids, spans), max(len(ids) - 1, 0))
    return np.where(ids[at] == spans, at, -1) if len(ids) else np.full(len(spans), -1, dtype=np.int64)


def _with_supplied(supplied: pl.DataFrame, calls: CallKinds) -> CallKinds:
    """The calls whose work is given as kinds of their own, with that in place of what our models tell."""
    at = lookup(calls.ids, supplied["span_id"].to_numpy())
    supplied, at = supplied.filter(pl.Series(at >= 0)), at[at >= 0]
    if not len(at):
        return calls
    amounts = supplied.drop("span_id").with_columns(pl.Series("kind", calls.kind_of[at]))
    number, first = numbers_by_appearance(*group_ids(amounts))
    new = amounts[first]
    ours = calls.kinds[new["kind"].to_numpy()]
    operator_class = new["operator_class"].zip_with(new["operator_class"].is_not_null(), ours["operator_class"])
    kinds = ours.with_columns(
        *new.drop("kind", "operator_class").get_columns(), operator_class, pl.lit(value=True).alias("is_given")
    )
    kind_of = calls.kind_of.copy()
    kind_of[at] = calls.kinds.height + number
    return CallKinds(calls.ids, kind_of, pl.concat([calls.kinds, kinds.select(calls.kinds.columns)]))
