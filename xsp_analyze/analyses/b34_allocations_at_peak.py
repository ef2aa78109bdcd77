"""B34: the blocks of memory that are in use when most is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.core import Column, Role, analysis
from xsp_analyze.formulas import ratio
from xsp_analyze.frames.memory import SERIES, alive_at_peak

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["allocations_at_peak"]


@analysis(
    "B34",
    "allocations at the peak",
    needs=("allocations",),
    read="The largest blocks, and which operator and line of the model allocated each: what to make smaller first.",
    columns=(
        Column("run_id", pl.Int64(), "The run it was recorded in.", role=Role.KEY),
        Column("device_id", pl.Int64(), "The device; null: memory of the host.", role=Role.KEY),
        Column("block", pl.Int64(), "Number of the row, from 0, largest first.", role=Role.KEY),
        Column("bytes", pl.Int64(), "Its size.", "byte"),
        Column("share", pl.Float64(), "Of all in use at the peak."),
        Column("kind", pl.String(), "What it is used for; docs/analyses.md says how that is known.", role=Role.LABEL),
        Column("operator", pl.String(), "The outermost operator in which it was allocated.", role=Role.LABEL),
        Column("layer_name", pl.String(), "The layer whose call that was part of.", role=Role.LABEL),
        Column("layer_type", pl.String(), "What kind of layer that is.", role=Role.LABEL),
        Column("phase", pl.String(), "In which phase.", role=Role.LABEL),
        Column("step", pl.Int64(), "In which step.", role=Role.LABEL),
        Column(
            "source_lines", pl.String(), "The user's lines of Python that called it, innermost first.", role=Role.LABEL
        ),
        Column("start_ns", pl.Int64(), "When it was given out, from the start of the trace.", "ns"),
        Column("end_ns", pl.Int64(), "When it was taken back; null: not until the recording ended.", "ns"),
    ),
    by_step=False,
)
def allocations_at_peak(frames: StepView) -> pl.LazyFrame:
    """One row a block in use at the peak of its run and device, largest first; what is of no known block last."""
    alive = frames.of_trace.once(alive_at_peak).sort(
        *SERIES, "is_block", "bytes", "first", "kind", descending=[False, False, True, True, False, False],
        nulls_last=True,
    )  # fmt: skip
    return alive.with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).over(SERIES).alias("block"),
        ratio(pl.col("bytes"), pl.col("total_bytes")).alias("share"),
    ).lazy()
