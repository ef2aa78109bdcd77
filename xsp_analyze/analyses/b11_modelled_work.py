"""B11: what operators must do at least, from the shapes of their inputs, beside what counters measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import STEP
from xsp_analyze.core import AMOUNT, TIME_NS, Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import quotient
from xsp_analyze.frames.operators.operator_work import operator_work, rates_and_roof

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["modelled_work"]


@analysis(
    "B11",
    "modelled work",
    needs=("operators", "kernel"),
    additive=(
        "count",
        "modelled_count",
        "modelled_flop",
        "modelled_bytes",
        "device_sum_ns",
        "roof_ns",
        "gain_ns",
        "dram_bytes",
    ),
    read=(
        "Modelled flop over device time, held against the device's peak, says how far an operator is from what its "
        "shapes ask for; measured far above modelled is work that the algorithm added."
    ),
    columns=(
        STEP,
        Column(
            "operator", pl.String(), "The outermost operator whose work is modelled, or the outermost.", role=Role.KEY
        ),
        Column("count", AMOUNT, "Its calls; in a mean step, per step on average."),
        Column("modelled_count", AMOUNT, "Of these, the ones whose shapes gave a number: what is summed below."),
        Column("modelled_flop", pl.Float64(), "Two for each multiply-add of products; null: none modelled.", "flop"),
        Column(
            "modelled_bytes", pl.Float64(), "Inputs read and output written once each; null: none modelled.", "byte"
        ),
        Column("modelled_intensity", pl.Float64(), "Modelled flop per modelled byte.", "flop/byte"),
        Column("device_sum_ns", TIME_NS, "Device time of all its calls.", "ns"),
        Column("modelled_share", pl.Float64(), "Part of the device time that is of modelled calls."),
        Column("modelled_flop_per_s", pl.Float64(), "Modelled flop over the device time of modelled calls.", "flop/s"),
        Column(
            "roof_ns",
            pl.Float64(),
            "Least time of modelled calls: at the nearest of the device's roofs, by the precision they run in.",
            "ns",
        ),
        Column("roof_share", pl.Float64(), "That over the device time of these calls; see B23."),
        Column("gain_ns", pl.Float64(), "Device time less the least: what would be gained at the roof.", "ns"),
        Column("measured_flop", pl.Float64(), "FP32 operations by counters; null: not measured.", "flop"),
        Column("dram_bytes", pl.Float64(), "DRAM traffic by counters; null: not measured.", "byte"),
    ),
    figure=FigureSpec("bars", x="operator", y=("modelled_flop_per_s",), title="Modelled throughput", top=20),
)
def modelled_work(frames: StepView) -> pl.LazyFrame:
    """One row an operator's name, by device time, longest first, then by name; work of no operator has none."""
    operators = operator_work(frames)
    time = pl.col("device_sum_ns")
    share = pl.when(time > 0).then(quotient(pl.col("modelled_device_ns"), time)).alias("modelled_share")
    return (
        operators.lazy()
        .with_columns(share, *rates_and_roof())
        .sort(*frames.by, -pl.col("device_sum_ns"), "operator", nulls_last=True)
    )
