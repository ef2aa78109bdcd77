"""What else the work of some calls follows from, beside their inputs: kernels, requests, what runs next."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.group_ids import group_ids, numbers_by_appearance
from xsp_analyze.frames.inner_operators import inner_calls, inner_operators
from xsp_analyze.frames.kernels.activities import column_at
from xsp_analyze.frames.list_elements import LIST, list_elements
from xsp_analyze.frames.modelled_calls import (
    DETAILS,
    inner_names,
    takes_following,
    takes_inner,
    takes_lengths,
)
from xsp_analyze.frames.serving_lengths import lengths_of
from xsp_model import Level

if TYPE_CHECKING:
    from xsp_model import Trace
    from xsp_model.arrays import Ints

__all__ = ["with_details"]

_THREAD = ("run_id", "process_id", "thread_id")
_NO_TYPES = "[]"  # as torch 1.8 wrote them
_NO_TENSOR = r"^\s*\[\s*(\[\s*\]|\])"  # the first input is a scalar, or there is none


def with_details(trace: Trace, ids: Ints, kind_of: Ints, kinds: pl.DataFrame) -> tuple[Ints, pl.DataFrame]:
    """The kinds with the columns of DETAILS, and those split whose calls differ in them; see `CallKinds`.

    `kernel_precision`: of calls that take lists of tensors, whose types profilers do not write, and of those of files
    without any type, what kernels' names tell. The lengths of requests: of models that take them. `next_shapes`,
    `next_dtypes`: of calls whose output nothing else tells, those of the operator that the thread runs next.
    `inner_operators`: of calls that settings do not tell enough of, the names of those directly inside. `inner_calls`:
    of calls whose own inputs leave out what they work on, inputs of those inside.
    """
    inside = {name: inner_names(name) for name in kinds["name"].unique()}
    names = {
        name: (takes_lengths(name), takes_following(name), takes_inner(name), bool(inside[name])) for name in inside
    }
    takes = np.array([names[name] for name in kinds["name"]], dtype=bool).reshape(-1, 4)
    types = kinds["input_dtypes"]
    lists = (types.str.contains(LIST, literal=True) | (types == _NO_TYPES)).fill_null(value=False).to_numpy()
    lengths, follows, inner, details = takes.T
    unset = (kinds["concrete_inputs"].is_null() & kinds["input_shapes"].is_not_null()).to_numpy()
    follows, inner = follows & unset, inner & unset
    rows = np.flatnonzero((lists | lengths | follows | inner | details)[kind_of])
    plain = kinds.with_columns(pl.lit(None, kind).alias(name) for name, kind in DETAILS.items())
    if not len(rows):
        return kind_of, plain
    calls = pl.DataFrame({"span_id": ids[rows], "kind": kind_of[rows]})
    parts = [
        list_elements(trace, calls["span_id"].filter(pl.Series(lists[kind_of[rows]])).to_numpy()),
        lengths_of(trace, calls["span_id"].filter(pl.Series(lengths[kind_of[rows]]))),
        _following(trace, calls["span_id"].filter(pl.Series(follows[kind_of[rows]]))),
        inner_operators(trace, calls["span_id"].filter(pl.Series(inner[kind_of[rows]]))),
        inner_calls(trace, calls["span_id"].filter(pl.Series(details[kind_of[rows]])), {*chain(*inside.values())}),
    ]
    for part in parts:
        calls = calls.join(part, on="span_id", how="left", maintain_order="left")
    number, first = numbers_by_appearance(*group_ids(calls.drop("span_id")))
    distinct = calls[first]
    detailed = plain[distinct["kind"].to_numpy()].with_columns(distinct.select(*DETAILS).get_columns())
    out = kind_of.copy()
    out[rows] = kinds.height + number
    return out, pl.concat([plain, detailed])


def _following(trace: Trace, ids: pl.Series) -> pl.DataFrame:
    """span_id, next_shapes, next_dtypes: of the first operator of the thread, after each ended, that takes a tensor.

    Batch normalisation counts its batches before it starts: that call takes none.
    """
    schema = {"span_id": pl.Int64, "next_shapes": pl.String, "next_dtypes": pl.String}
    if ids.is_empty():
        return pl.DataFrame(schema=schema)
    columns = [column_at(trace, c, ids) for c in (*_THREAD, "start_ns", "duration_ns")]
    calls = pl.DataFrame([ids, *columns]).with_columns((pl.col("start_ns") + pl.col("duration_ns")).alias("time_ns"))
    texts = trace.scan("operators").select(
        "span_id",
        pl.col("input_shapes").cast(pl.String).alias("next_shapes"),
        pl.col("input_dtypes").cast(pl.String).alias("next_dtypes"),
    )
    takes_tensor = pl.col("next_dtypes").is_not_null() & ~pl.col("next_shapes").str.contains(_NO_TENSOR)
    spans = trace.scan("spans").filter(pl.col("level") == str(Level.OPERATOR)).select("span_id", *_THREAD, "start_ns")
    operators = texts.filter(takes_tensor).join(spans, on="span_id").rename({"start_ns": "time_ns"}).collect()
    ordered = calls.drop_nulls("time_ns").sort("time_ns", "span_id").drop("start_ns", "duration_ns")
    pairs = ordered.join_asof(
        operators.sort("time_ns", "span_id").drop("span_id"),
        on="time_ns",
        by=_THREAD,
        strategy="forward",
        check_sortedness=False,  # polars cannot where threads are told apart; they are sorted above
    )
    return pairs.select(*schema)
