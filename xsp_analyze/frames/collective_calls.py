"""The work of collectives, given to the operators that launched them: what a rank sends at least."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.classification import KernelClass
from xsp_analyze.frames.collectives import modelled_collectives
from xsp_analyze.frames.imported_work import imported_work
from xsp_analyze.frames.kernels.activities import origins
from xsp_model import Level
from xsp_model.tree import innermost

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.arrays import Ints

__all__ = ["all_imported_work"]


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
