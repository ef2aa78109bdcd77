"""Resolves the ambiguous parents of an asynchronous run from a serialised run of the same work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.merge.kernels import kernel_work, match_kernels, template
from xsp_model import Finding, LedgerKind
from xsp_model.tree import innermost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.merge.matched import Matched
    from xsp_model import Trace
    from xsp_model.arrays import Bools

__all__ = ["Resolved", "resolve_parents"]


@dataclass(frozen=True, slots=True)
class Resolved:
    """The asynchronous run's spans with the layers that the serialised run gives, and how well the two match."""

    spans: pl.DataFrame
    matched: Matched
    findings: Sequence[Finding]


def resolve_parents(free: tuple[Trace, pl.DataFrame], serialised: tuple[Trace, pl.DataFrame]) -> Resolved:
    """Each run comes with its table `layers` under common identities.

    Kernels that started from a host span with two possible parents get the layer that the same kernel (by name, grid,
    block and order) has in the serialised run, in their own step.
    """
    work, sure = kernel_work(free[0]), template(kernel_work(serialised[0]))
    step = template(work)
    matched, pairs = match_kernels(step, sure)
    spans = free[0].frame("spans")
    doubtful = _in_doubt(spans)
    index = _layer_index(serialised, sure["span_id"].gather(pairs["second"]))
    right = pl.DataFrame({"execution": step["execution"].gather(pairs["first"]), "layer_index": index})
    targets = work.filter(pl.Series(doubtful[work["span_id"].to_numpy()])).select(
        "execution", "span_id", "run_id", "step"
    )
    layer_of_execution = targets.join(right, on="execution", how="inner").drop_nulls("layer_index")
    calls = _calls(free[1], spans).unique(["run_id", "step", "layer_index"], keep="first", maintain_order=True)
    moved = layer_of_execution.join(calls, on=["run_id", "step", "layer_index"], how="inner", nulls_equal=True).select(
        "span_id", pl.col("call_id").alias("right_id")
    )
    changed = spans.join(moved, on="span_id", how="left", maintain_order="left").with_columns(
        pl.coalesce("right_id", "layer_id").alias("layer_id"),
        pl.when(pl.col("right_id").is_not_null()).then(pl.lit("layer", pl.Categorical)).otherwise("attribution")
        .alias("attribution"),
    )  # fmt: skip
    differs = int((changed["right_id"].is_not_null() & changed["right_id"].ne_missing(spans["layer_id"])).sum())
    return Resolved(changed.drop("right_id"), matched, _findings(len(moved), differs, len(targets)))


def _in_doubt(spans: pl.DataFrame) -> Bools:
    """Which spans have themselves, or above them, a span with two possible parents."""
    parent = spans["parent_id"].fill_null(-1).to_numpy()
    ambiguous = spans["ambiguous"].fill_null(value=False).to_numpy()
    return np.asarray(innermost(parent, ambiguous) >= 0)


def _layer_index(run: tuple[Trace, pl.DataFrame], span_ids: pl.Series) -> pl.Series:
    layer = run[0].frame("spans")["layer_id"].gather(span_ids)
    calls = run[1].select(pl.col("span_id").alias("layer_id"), "layer_index")
    return pl.DataFrame({"layer_id": layer}).join(calls, on="layer_id", how="left", maintain_order="left")[
        "layer_index"
    ]


def _calls(layers: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    where = spans.select("span_id", "run_id", "step", "start_ns")
    calls = layers.filter(pl.col("layer_index").is_not_null()).join(where, on="span_id").sort("start_ns", "span_id")
    return calls.select("run_id", "step", "layer_index", pl.col("span_id").alias("call_id"))


def _findings(resolved_count: int, differs: int, doubtful: int) -> list[Finding]:
    detail = f"kernels with two possible parents got theirs from the serialised run; {differs} of them another one"
    left = "kernels with two possible parents have no counterpart in the serialised run and keep the later parent"
    return [
        Finding(LedgerKind.PARENT_RESOLVED, detail, resolved_count),
        Finding(LedgerKind.PARENT_UNRESOLVED, left, doubtful - resolved_count),
    ]
