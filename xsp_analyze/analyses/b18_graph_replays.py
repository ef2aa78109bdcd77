"""B18: device graphs that were replayed, and how much of their work belongs to layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import STEP
from xsp_analyze.core import AMOUNT, TIME_NS, Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import quotient
from xsp_analyze.frames.kernels.graphs import GRAPH_LABELS, REPLAY_MEASURES, graph_replays

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["replayed_graphs"]


@analysis(
    "B18",
    "graph replays",
    needs=("graph replay",),
    about_layers=True,
    additive=("replay_count", "kernel_count", "device_sum_ns", "attributed_ns", "launch_ns"),
    read=(
        "A graph whose attributed share is 0 hides its layers: give the trace of its capture with --graph-capture, or "
        "see the ledger for why it did not pair."
    ),
    columns=(
        STEP,
        Column("graph", pl.Int64(), "Number of the graph, in order of its first replay.", role=Role.KEY),
        Column(
            "captured_in",
            pl.String(),
            "The range in which it was captured, else the file that holds the capture; null: its capture is not known.",
            role=Role.LABEL,
        ),
        Column(
            "attribution_basis",
            pl.String(),
            "How its kernels got their layers: graph_node, graph_capture, aligned, annotation or compiled_code.",
            role=Role.LABEL,
        ),
        Column("launched_in", pl.String(), "The layer in whose call it is replayed; null: in none.", role=Role.LABEL),
        Column("replay_count", AMOUNT, "Replays; in a mean step, per step on average."),
        Column("kernel_count", AMOUNT, "Device activities of them."),
        Column("device_sum_ns", TIME_NS, "Sum of their durations.", "ns"),
        Column("attributed_ns", TIME_NS, "Of that, of kernels that belong to a layer.", "ns"),
        Column("attributed_share", pl.Float64(), "The same as a share of it."),
        Column("layer_count", pl.Int64(), "Different layers that its kernels belong to."),
        Column("launch_ns", TIME_NS, "Host time of the calls that launched it.", "ns"),
    ),
    figure=FigureSpec("bars", x="graph", y=("device_sum_ns",), title="Device time by replayed graph", top=20),
)
def replayed_graphs(frames: StepView) -> pl.LazyFrame:
    """One row a graph, by device time, longest first, then in order of first replay."""
    rows = graph_replays(frames.of_trace)
    labels = rows.group_by("graph").agg(pl.col(GRAPH_LABELS).drop_nulls().first(), pl.col("layer_count").max())
    total = pl.col("device_sum_ns")
    return (
        frames.combine(rows, ("graph",), REPLAY_MEASURES)
        .lazy()
        .join(labels.lazy(), on="graph", how="left", maintain_order="left")
        .with_columns(pl.when(total > 0).then(quotient(pl.col("attributed_ns"), total)).alias("attributed_share"))
        .sort(*frames.by, -total, "graph")
    )
