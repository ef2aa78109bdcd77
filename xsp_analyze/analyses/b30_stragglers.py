"""B30: collectives by rank: who came last to them, and what the others waited for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import STEP
from xsp_analyze.core import AMOUNT, TIME_NS, Column, Role, analysis
from xsp_analyze.formulas import quotient
from xsp_analyze.frames.rank_time import GROUP, mean_waiting

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["stragglers"]


@analysis(
    "B30",
    "stragglers",
    needs=("ranks", "communication"),
    section="ranks",
    columns=(
        STEP,
        Column("operation", pl.String(), "all_reduce, all_to_all, ..., as in B08.", role=Role.KEY),
        Column(
            "process_group",
            pl.String(),
            "Name and ranks of the group as recorded; null: not recorded, so that all ranks are taken for one.",
            role=Role.KEY,
        ),
        Column("rank", pl.Int64(), "The rank.", role=Role.KEY),
        Column("count", AMOUNT, "Its calls; in a mean step, per step on average."),
        Column("matched_count", AMOUNT, "Of these, those found in every rank of the group in the trace."),
        Column("last_count", AMOUNT, "Of those, the ones that it alone came last to; null: none is matched."),
        Column("last_share", pl.Float64(), "How often that was, of those matched."),
        Column(
            "waited_for_ns",
            pl.Float64(),
            "What the other ranks together waited in calls that it came last to; of several as late an equal part.",
            "ns",
        ),
        Column("wait_ns", TIME_NS, "What it waited itself, in calls to which others came last.", "ns"),
        Column("duration_ns", TIME_NS, "Its time in them, waiting included.", "ns"),
    ),
)
def stragglers(frames: StepView) -> pl.LazyFrame:
    """One row an operation, process group and rank, first those that the others waited longest for.

    Over the ranks of an operation and group, what is waited for them is what they wait. Matched as in B08; of a mean
    step all are means over its steps, of which none is trimmed.
    """
    share = pl.when(pl.col("matched_count") > 0).then(quotient(pl.col("last_count"), pl.col("matched_count")))
    return (
        mean_waiting(frames, GROUP)
        .lazy()
        .with_columns(share.alias("last_share"), pl.col("waited_for_ns").cast(pl.Float64))
        .sort(*frames.by, -pl.col("waited_for_ns"), *GROUP, "rank", nulls_last=True)
    )
