"""A01: latency and throughput of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.columns import BATCH_SIZE, LATENCY_BASIS, STEP
from xsp_analyze.core import LATENCY_NS, Column, FigureSpec, analysis
from xsp_analyze.formulas import bootstrap_interval, first_saturating_batch, ordered_mean, quotient, throughput_per_s
from xsp_analyze.frames.model_time import latency_by_run, latency_over_runs
from xsp_analyze.frames.steps import StepBasis
from xsp_analyze.needs import AnyOf

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["model_information"]


@analysis(
    "A01",
    "model information",
    needs=(AnyOf("spans", "step_times"),),
    about_layers=True,
    read=(
        "Latency of a step and, where the batch size is known, inputs per second; over several batch sizes, look "
        "for the one after which throughput stops growing."
    ),
    columns=(
        STEP,
        BATCH_SIZE,
        Column(
            "latency_ns",
            LATENCY_NS,
            "Trimmed mean of the steps' latencies; of a whole trace its extent, or the sum of timed steps; of a load "
            "test the mean over queries that it states.",
            "ns",
        ),
        Column("median_ns", pl.Float64(), "Median of the steps' latencies.", "ns"),
        Column(
            "low_ns",
            pl.Float64(),
            "Lower end of the 95 % bootstrap interval of latency; null below 3 steps, and of load tests.",
            "ns",
        ),
        Column("high_ns", pl.Float64(), "Upper end of that interval.", "ns"),
        Column(
            "latency_per_input_ns",
            pl.Float64(),
            "Latency over batch size; null without one or with a queue.",
            "ns",
        ),
        Column(
            "throughput_per_s",
            pl.Float64(),
            "Inputs per second; null without a batch size. Of a load test the samples that it completed.",
            "1/s",
        ),
        Column("durations", pl.List(pl.Int64()), "Latency of every step, run by run, in order.", "ns"),
        LATENCY_BASIS,
        Column(
            "is_optimal",
            pl.Boolean(),
            "The first batch size whose doubling raises throughput by 5 % or less; null: none was doubled, or none is.",
        ),
    ),
    figure=FigureSpec(
        "scatter", x="batch_size", y=("throughput_per_s", "latency_ns"), title="Throughput and latency by batch size"
    ),
)
def model_information(frames: StepView) -> pl.LazyFrame:
    """One row a batch size, smallest first; runs of one batch size ran side by side and are averaged."""
    keys = [*frames.by, "batch_size"]
    latencies = pl.concat([each.once(latency_by_run) for each in frames.by_batch_size], how="diagonal_relaxed")
    durations = latencies.group_by(keys, maintain_order=True).agg(
        pl.col("durations").list.explode().drop_nulls(),
        pl.col("basis").list.explode().unique(maintain_order=True),
        *(ordered_mean(pl.col(each)) for each in ("load_test_per_s", "load_test_median_ns")),
        pl.col("is_queued").any(),
    )
    rows = latency_over_runs(latencies, keys).join(durations, on=keys, nulls_equal=True)
    batch, latency = pl.col("batch_size"), pl.col("latency_ns")
    rows = rows.with_columns(pl.col("basis").list.join(" and ").alias("latency_basis"))
    rows = rows.with_columns(
        pl.coalesce("load_test_median_ns", pl.col("durations").list.median()).alias("median_ns"),
        pl.when(~pl.col("is_queued")).then(quotient(latency, batch)).alias("latency_per_input_ns"),
        pl.coalesce("load_test_per_s", throughput_per_s(batch, latency)).alias("throughput_per_s"),
    ).sort(keys, nulls_last=True)
    return rows.with_columns(*_intervals(frames, rows), _optimal(frames, rows)).lazy()


def _intervals(frames: StepView, rows: pl.DataFrame) -> list[pl.Series]:
    """Ends of the interval of each row's latency; null where it is no mean over at least three steps."""
    averaged = [frames.averaged and str(StepBasis.LOAD_TEST) not in basis for basis in rows["basis"].to_list()]
    ends = [
        bootstrap_interval(np.asarray([durations])) if of_steps else None
        for durations, of_steps in zip(rows["durations"].to_list(), averaged, strict=True)
    ]
    intervals = [(float(each[0][0]), float(each[1][0])) if each is not None else (None, None) for each in ends]
    return [
        pl.Series(name, [pair[at] for pair in intervals], dtype=pl.Float64).fill_nan(None)
        for at, name in enumerate(("low_ns", "high_ns"))
    ]


def _optimal(frames: StepView, rows: pl.DataFrame) -> pl.Expr:
    measured = {b: t for b, t in rows.select("batch_size", "throughput_per_s").iter_rows() if b is not None}
    best = None if frames.by else first_saturating_batch({b: t for b, t in measured.items() if t is not None})
    return (pl.col("batch_size") == pl.lit(best, dtype=pl.Int64)).alias("is_optimal")
