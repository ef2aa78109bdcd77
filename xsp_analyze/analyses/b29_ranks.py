"""B29: the ranks side by side: what each did with its step, what it waited for others, how far its clock is off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import STEP
from xsp_analyze.core import AMOUNT, TIME_NS, Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import ratio
from xsp_analyze.frames.rank_time import CLOCKS, rank_clocks, rank_times

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["ranks"]

_CLOCK_DOCS = (
    "How far its clock is ahead of the lowest rank's: median over the collectives that both ran; null: one clock.",
    "Between the first and the third quartile of these differences.",
    "Collectives that they are over.",
)


@analysis(
    "B29",
    "ranks",
    needs=("ranks",),
    read=(
        "A rank that others wait for waits little itself and comes last often; ranks that wait have no more to do than"
        " the mean, whatever their communication takes."
    ),
    section="ranks",
    columns=(
        STEP,
        Column("rank", pl.Int64(), "The rank.", role=Role.KEY),
        Column("step_ns", TIME_NS, "Its step; without steps the time that its trace covers.", "ns"),
        Column("over_median_share", pl.Float64(), "How much longer that is than the median over ranks."),
        Column("compute_ns", TIME_NS, "Of that, while kernels other than communication ran.", "ns"),
        Column("exposed_communication_ns", TIME_NS, "While communication ran and nothing computed.", "ns"),
        Column("exposed_memory_ns", TIME_NS, "While copies or memsets ran and no kernel.", "ns"),
        Column("idle_ns", TIME_NS, "While its device did nothing.", "ns"),
        Column("communication_ns", TIME_NS, "While communication ran, hidden or not.", "ns"),
        Column(
            "wait_ns",
            TIME_NS,
            "Time of its collectives beyond the shortest rank's: waiting for the last to come; null: none is matched.",
            "ns",
        ),
        Column("last_count", AMOUNT, "Collectives that it alone came last to, so that the others waited for it."),
        *(
            Column(name, kind, doc, unit)
            for (name, kind), doc, unit in zip(CLOCKS.items(), _CLOCK_DOCS, ("ns", "ns", ""), strict=True)
        ),
    ),
    figure=FigureSpec(
        "stacked_bars",
        x="rank",
        y=("compute_ns", "exposed_communication_ns", "exposed_memory_ns", "idle_ns"),
        title="Step of each rank",
    ),
)
def ranks(frames: StepView) -> pl.LazyFrame:
    """One row a rank, in order.

    step = compute + exposed communication + exposed memory + idle; waiting is a part of communication.
    """
    median = pl.col("step_ns").median()
    over = (ratio(pl.col("step_ns"), median.over(frames.by) if frames.by else median) - 1).alias("over_median_share")
    clocks = rank_clocks(frames)
    return rank_times(frames).with_columns(over).join(clocks, on="rank", how="left", maintain_order="left").lazy()
