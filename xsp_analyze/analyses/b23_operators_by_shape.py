"""B23: operators by the shapes and types of what they take, by the time that is to be gained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import STEP
from xsp_analyze.core import AMOUNT, TIME_NS, Column, FigureSpec, Role, analysis
from xsp_analyze.frames.operators.operator_work import BY_SHAPE, operator_work, rates_and_roof

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["operators_by_shape"]


@analysis(
    "B23",
    "operators by shape",
    needs=("operators", "kernel"),
    section="gain",
    key=("operator", "shapes", "dtypes"),
    additive=(
        "count",
        "modelled_count",
        "device_sum_ns",
        "modelled_flop",
        "vector_flop",
        "modelled_bytes",
        "roof_ns",
        "gain_ns",
    ),
    read=(
        "A work list: its first row has most time to gain, were it to run at the roof of its device. "
        "Look at its bound: memory asks for fusion or smaller types, compute for better kernels or narrower precisions."
    ),
    columns=(
        STEP,
        Column(
            "operator", pl.String(), "The outermost operator whose work is modelled, or the outermost.", role=Role.KEY
        ),
        Column("shapes", pl.String(), "Sizes of the tensors it takes; null: not recorded.", role=Role.KEY),
        Column("device_sum_ns", TIME_NS, "Device time of all its calls.", "ns"),
        Column("gain_ns", pl.Float64(), "Device time less the least: what would be gained at the roof.", "ns"),
        Column(
            "roof_share",
            pl.Float64(),
            "Least over device time; above 1: caches held operands, an algorithm does with fewer flop (Winograd), or a "
            "peak or precision is not what it is taken for.",
        ),
        Column("bound", pl.String(), "The nearest roof: compute, memory or link.", role=Role.LABEL),
        Column("count", AMOUNT, "Its calls; in a mean step, per step on average."),
        Column("modelled_count", AMOUNT, "Of these, the ones whose work is modelled."),
        Column("dtypes", pl.String(), "Their type, or that of each where they differ.", role=Role.LABEL),
        Column("operator_class", pl.String(), "What it does, by its model; null: it has none.", role=Role.LABEL),
        Column("roof_ns", pl.Float64(), "Least time of its calls: at the nearest of the device's roofs.", "ns"),
        Column("precision", pl.String(), "What its products run in; else the type of what it takes.", role=Role.LABEL),
        Column("modelled_flop", pl.Float64(), "Two for each multiply-add of products; null: not modelled.", "flop"),
        Column("vector_flop", pl.Float64(), "Arithmetic outside of products; null: not modelled.", "flop"),
        Column("modelled_bytes", pl.Float64(), "Inputs read and outputs written once; null: not modelled.", "byte"),
        Column("modelled_intensity", pl.Float64(), "Modelled flop per modelled byte.", "flop/byte"),
        Column("modelled_flop_per_s", pl.Float64(), "Modelled flop over the device time of modelled calls.", "flop/s"),
        Column("modelled_byte_per_s", pl.Float64(), "Modelled bytes over that time.", "byte/s"),
        Column("layers", pl.String(), "The layers that most of its calls ran in.", role=Role.LABEL),
        Column(
            "source_lines",
            pl.String(),
            "The lines of Python that most of its calls came from; null: not recorded.",
            role=Role.LABEL,
        ),
    ),
    figure=FigureSpec(
        "roofline",
        x="modelled_intensity",
        y=("modelled_flop_per_s",),
        title="Operators under the roof",
        color="precision",
    ),
)
def operators_by_shape(frames: StepView) -> pl.LazyFrame:
    """One row an operator with device work and the shapes and types it takes, by time to gain, then device time."""
    return (
        operator_work(frames, BY_SHAPE, on_device=True)
        .lazy()
        .filter(pl.col("device_sum_ns") > 0)
        .with_columns(rates_and_roof())
        .sort(*frames.by, -pl.col("gain_ns"), -pl.col("device_sum_ns"), "operator", *BY_SHAPE[1:], nulls_last=True)
    )
