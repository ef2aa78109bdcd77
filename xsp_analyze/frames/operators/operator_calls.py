"""The calls of operators that work is counted by, by kinds: each with what it must do at least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.classification import KernelClass
from xsp_analyze.frames.collectives import modelled_collectives
from xsp_analyze.frames.group_ids import group_ids, numbers_by_appearance
from xsp_analyze.frames.kernels.activities import column_at, origins
from xsp_analyze.frames.operators.modelled_calls import INPUTS, is_modelled, is_view, modelled_kinds, with_details
from xsp_model import Level
from xsp_model.columns.arrays import lookup
from xsp_model.columns.tree import ancestors, innermost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace
    from xsp_model.columns.arrays import Bools, Ints

__all__ = [
    "MODELLED",
    "CallKinds",
    "OperatorCalls",
    "all_imported_work",
    "call_kinds",
    "call_of_work",
    "imported_work",
    "metric_of",
    "operator_calls",
    "recorded_kinds",
    "source_of",
]

# The least work of operators that was modelled before the trace was analysed: the metrics of a source `modelled ...`.
#
# A user's own models (`users_work`) and a compiler's cost analysis come this way. The metrics are `modelled_flop`, or
# `modelled_flop_bf16` where the precision of the products is known, `modelled_vector_flop`, `modelled_read_bytes`,
# `modelled_written_bytes` and `modelled_bus_bytes`.

MODELLED = "modelled"
"""What the source of such a metric starts with: `modelled by XLA`, `modelled by my.toml as attention`."""
_CLASSES = "|".join(KernelClass)
_FLOP = "modelled_flop"
_AMOUNTS = {
    "flop": _FLOP,
    "vector_flop": "modelled_vector_flop",
    "read_bytes": "modelled_read_bytes",
    "written_bytes": "modelled_written_bytes",
    "bus_bytes": "modelled_bus_bytes",
}


def metric_of(amount: str, precision: str | None = None) -> str:
    """The metric that holds this field of `ModelledWork`."""
    return f"{_FLOP}_{precision}" if amount == "flop" and precision else _AMOUNTS[amount]


def source_of(who: str, operator_class: KernelClass | None = None) -> str:
    """The source of metrics that this file or compiler gives, and what it says that the operator does."""
    return f"{MODELLED} by {who}" + (f" as {operator_class}" if operator_class else "")


def imported_work(trace: Trace) -> pl.DataFrame:
    """One row a span that has any: its id, the amounts of `ModelledWork`, precision and class (null: not said).

    Of several sources of a span the first by name decides, for all of it.
    """
    metric, source = pl.col("metric").cast(pl.String), pl.col("source").cast(pl.String)
    is_flop = (metric == _FLOP) | metric.str.starts_with(f"{_FLOP}_")
    rows = trace.scan("metrics").filter(source.str.starts_with(MODELLED), metric.str.starts_with(f"{MODELLED}_"))
    is_amount = {amount: metric == name for amount, name in _AMOUNTS.items()} | {"flop": is_flop}
    return (
        rows.filter(source == source.min().over("span_id"))
        .group_by("span_id")
        .agg(
            *(pl.col("value").filter(is_amount[amount]).first().alias(amount) for amount in _AMOUNTS),
            metric.filter(is_flop).first().str.strip_prefix(_FLOP).str.strip_prefix("_").alias("precision"),
            source.first().str.extract(rf"^{MODELLED} by .* as ({_CLASSES})$").alias("operator_class"),
        )
        .with_columns(pl.when(pl.col("precision") != "").then("precision").alias("precision"))
        .sort("span_id")
        .collect()
    )


# The work of collectives, given to the operators that launched them: what a rank sends at least.


def all_imported_work(frames: TraceView) -> pl.DataFrame:
    """`imported_work` of the trace's metrics, and of other operators that launched collectives what these send.

    An operator of which one collective's bytes are not known has no such row.
    """
    supplied = imported_work(frames.trace)
    if not frames.trace.height("collectives"):
        return supplied
    sent = modelled_collectives(frames)
    operators = _operators(frames, sent["span_id"])
    amounts = {c: pl.lit(0.0) for c in ("flop", "vector_flop")}
    rows = (
        sent.with_columns(pl.Series("span_id", operators))
        .filter(pl.col("span_id") >= 0)
        .group_by("span_id")
        .agg(pl.when(pl.col("bus_bytes").is_not_null().all()).then(pl.col("bus_bytes").sum()))
        .drop_nulls()
        .with_columns(**amounts, operator_class=pl.lit(str(KernelClass.COMMUNICATION)))
        .join(supplied.select("span_id"), on="span_id", how="anti")
    )
    return pl.concat([supplied, rows], how="diagonal_relaxed").select(supplied.columns).sort("span_id")


def _operators(frames: TraceView, kernels: pl.Series) -> Ints:
    """The operator around each kernel's launch, or its capture; -1: there is none."""
    spans = frames.trace.scan("spans").select("parent_id", pl.col("level") == str(Level.OPERATOR)).collect()
    nearest = innermost(spans["parent_id"].fill_null(-1).to_numpy(), spans["level"].to_numpy())
    return np.asarray(nearest[origins(frames.trace, kernels)], dtype=np.int64)


# The operators of a trace by what their work follows from: millions of calls are of a few hundred kinds.
#
# Names, inputs and their texts are looked at once a kind; of each call there is a whole number.


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


# The calls of operators that work is counted by, each with what it must do at least.


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
