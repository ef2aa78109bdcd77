"""B01: where each nanosecond of device time was attributed or lost, and what the trace could not say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import STEP
from xsp_analyze.core import AMOUNT, TIME_NS, Column, Role, analysis
from xsp_analyze.formulas import known_sum, quotient
from xsp_analyze.frames.coverage import ATTRIBUTIONS, attribution
from xsp_analyze.frames.coverage import ledger as ledger_of

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["ledger"]


@analysis(
    "B01",
    "ledger",
    needs=(),
    key=("run_id", "kind", "severity", "detail", "advice"),
    about_layers=True,
    read="Read it first: it says where each nanosecond of device time went, and what the other tables do not cover.",
    columns=(
        STEP,
        Column("run_id", pl.Int64(), "The run it concerns; null: all.", role=Role.KEY),
        Column("kind", pl.String(), "What device time is attributed to, or the kind of a finding.", role=Role.KEY),
        Column("severity", pl.String(), "info, warning or error.", role=Role.LABEL),
        Column("count", AMOUNT, "How many spans or events; of device time in a mean step: per step."),
        Column("duration_ns", TIME_NS, "Device time concerned, where that can be said.", "ns"),
        Column("share", pl.Float64(), "Of all device time in the steps chosen, for the places it went to."),
        Column("detail", pl.String(), "What was found, in one sentence.", role=Role.KEY),
        Column("advice", pl.String(), "What to do about it; empty: nothing is needed.", role=Role.LABEL),
    ),
)
def ledger(frames: StepView) -> pl.LazyFrame:
    """One row a place that device time went to, in the order of attribution, then one a finding."""
    rows, attributions = _merged(ledger_of(frames)), [str(a) for a in ATTRIBUTIONS]
    if frames.by:
        findings = rows.filter(~pl.col("kind").is_in(attributions))
        rows = pl.concat([attribution(frames, frames.by), findings], how="diagonal_relaxed")
    is_place = pl.col("kind").is_in(attributions)
    total = pl.col("duration_ns").filter(is_place).sum()
    if frames.by:
        total = total.over(frames.by)
    share = pl.when(is_place & (total > 0)).then(quotient(pl.col("duration_ns"), total))
    return rows.lazy().with_columns(share.alias("share"))


def _merged(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows, those that say the same of one run as one with the sum of their counts."""
    same = [c for c in rows.columns if c not in {"count", "duration_ns"}]
    if not rows.select(same).is_duplicated().any():
        return rows
    sums = (known_sum(pl.col(c)).alias(c) for c in ("count", "duration_ns"))
    return rows.group_by(same, maintain_order=True).agg(sums).select(rows.columns)
