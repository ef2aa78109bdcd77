"""B04: how long device work waits after its launch, and where the device waits for a launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import COUNT, KERNEL_NAME, KIND, STEP
from xsp_analyze.core import AMOUNT, TIME_NS, Column, FigureSpec, analysis
from xsp_analyze.formulas import quotient
from xsp_analyze.frames.host_calls import queues
from xsp_analyze.frames.kernels.kernel_means import step_work
from xsp_model.arrays import lookup

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["launch"]

_KEYS = ("kernel_name", "kind")
_SUMS = ("launched", "followers", "call_ns", "latency_ns", "queued_ns", "waiting", "starved", "starved_ns")


@analysis(
    "B04",
    "launch",
    needs=("kernel", "runtime"),
    additive=("count", "launched", "starved_ns"),
    read=(
        "A high launch-bound share says that the host is too slow for these kernels: fuse them, enlarge the batch or "
        "replay a graph; a long queue says that the host is far ahead."
    ),
    columns=(
        STEP,
        KERNEL_NAME,
        KIND,
        COUNT,
        Column("launched", AMOUNT, "Of these, the ones whose launch is in the trace: what the means are over."),
        Column("call_ns", pl.Float64(), "Mean duration of the call that launched it.", "ns"),
        Column("latency_ns", pl.Float64(), "Mean time from the start of its call to its own start.", "ns"),
        Column(
            "queued_ns",
            pl.Float64(),
            "Mean part of that, after its call's end, in which earlier work of its stream was yet to end.",
            "ns",
        ),
        Column("queue_length", pl.Float64(), "Mean number of activities before it on its stream, launched, not done."),
        Column(
            "launch_bound_share",
            pl.Float64(),
            "Share of those that follow others on their stream whose call ended after these had: the stream ran dry.",
        ),
        Column("starved_ns", TIME_NS, "Time that its stream was idle because the launch had not been made.", "ns"),
    ),
    figure=FigureSpec("bars", x="kernel_name", y=("starved_ns",), title="Streams waiting for launches", top=20),
)
def launch(frames: StepView) -> pl.LazyFrame:
    """One row a name and kind of device work, longest starved first, then by name; streams are queues of their own.

    Work before the first of a stream is not known, so the first is not starved. Graph replays share one call.
    """
    sums = _sums(frames).group_by(*frames.by, *_KEYS, maintain_order=True).agg(pl.col("count", *_SUMS).sum())
    sums = sums.with_columns(pl.col(_KEYS).cast(pl.String))
    means = (_ratio(column, "launched") for column in ("call_ns", "latency_ns", "queued_ns"))
    return (
        sums.lazy()
        .with_columns(
            *means,
            _ratio("waiting", "launched").alias("queue_length"),
            _ratio("starved", "followers").alias("launch_bound_share"),
        )
        .sort(*frames.by, -pl.col("starved_ns"), *_KEYS)
    )


def _sums(frames: StepView) -> pl.DataFrame:
    """What the activities of each key add up to, a row for each share of a mean step that they have.

    Whole numbers are added before they are shared out: sums of fractions differ with the order in which cores add.
    """
    keys = (*frames.by, *_KEYS, "work_count")
    sums = _rows(frames).group_by(keys, maintain_order=True).agg(pl.col("count", *_SUMS).sum())
    return sums.with_columns(pl.col("count", *_SUMS) * pl.col("work_count"))


def _rows(frames: StepView) -> pl.DataFrame:
    """One row an activity of the steps chosen: its keys, what it adds to each sum, and its share of a step."""
    has_call = pl.col("call_start_ns").is_not_null()
    late = has_call & (pl.col("call_end_ns") >= pl.col("previous_end_ns")).fill_null(value=False)
    queued = pl.min_horizontal("start_ns", "previous_end_ns") - pl.col("call_end_ns")
    gap = (pl.col("start_ns") - pl.col("previous_end_ns")).clip(lower_bound=0)
    sums = {
        "count": pl.lit(1, pl.Int64),
        "launched": has_call,
        "followers": has_call & pl.col("previous_end_ns").is_not_null(),
        "call_ns": pl.col("call_end_ns") - pl.col("call_start_ns"),
        "latency_ns": pl.col("start_ns") - pl.col("call_start_ns"),
        "queued_ns": pl.when(pl.col("previous_end_ns").is_not_null()).then(queued.clip(lower_bound=0)),
        "waiting": pl.col("waiting"),
        "starved": late,
        "starved_ns": pl.when(late).then(gap).otherwise(0),
    }
    # Queues are those of the whole trace: what a step's first kernel waits for may be of the step before.
    every = frames.of_trace.all_activities
    rows = every.select("span_id", "start_ns", "call_start_ns", "call_end_ns").hstack(queues(every))
    work = frames.once(step_work).select(
        "span_id", *frames.by, pl.col("name").alias("kernel_name"), "kind", "work_count"
    )
    if work.height < every.height:
        rows = rows[lookup(every["span_id"].to_numpy(), work["span_id"].to_numpy())]
    return work.hstack(rows.select(value.cast(pl.Int64).alias(name) for name, value in sums.items())).drop("span_id")


def _ratio(column: str, count: str) -> pl.Expr:
    return pl.when(pl.col(count) > 0).then(quotient(pl.col(column), pl.col(count))).alias(column)
