"""B25: prefill, decode and mixed steps of a serving engine in sum, over its steady state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.core import Column, Role, analysis
from xsp_analyze.formulas import quotient, share_of_sum
from xsp_analyze.frames.device_time import NS_PER_S, serving_time

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["serving_phases"]

_P95 = 0.95


def _time(name: str, doc: str) -> Column:
    return Column(name, pl.Float64(), doc, "ns")


@analysis(
    "B25",
    "serving phases",
    needs=("serving",),
    each_step=True,
    section="serving",
    additive=("step_count", "left_out_count", "duration_ns", "tokens"),
    read=(
        "Prefill is bound by compute and has many tokens a second; decode is bound by memory, and its time per output "
        "token is what users feel. In mixed steps decoding requests wait for the prompts of others."
    ),
    columns=(
        Column("run_id", pl.Int64(), "The run (rank).", role=Role.KEY),
        Column("serving_phase", pl.String(), "prefill, decode, mixed, diffusion; null: none of these.", role=Role.KEY),
        Column("step_count", pl.Int64(), "Steps of the phase in the steady state; without one, all of them."),
        Column("left_out_count", pl.Int64(), "Steps of the phase in ramp-up and drain, which nothing here counts."),
        Column("requests", pl.Float64(), "Requests in a batch, on average."),
        Column("tokens", pl.Int64(), "Tokens that the steps computed, as far as their names say."),
        _time("duration_ns", "Latencies of the steps in sum."),
        Column("time_share", pl.Float64(), "Of the latencies of all steps that count here."),
        _time("median_ns", "Median latency of a step."),
        _time("p95_ns", "Latency that at least 95 % of the steps do not exceed."),
        Column(
            "token_per_s", pl.Float64(), "Tokens over the latencies of the steps whose tokens are known.", "token/s"
        ),
        _time(
            "output_token_ns", "Time per output token: the mean latency, each step as often as requests decode in it."
        ),
        Column("device_busy_share", pl.Float64(), "Of the latencies (times devices), time in which a device worked."),
        Column("exposed_host_share", pl.Float64(), "Likewise time in which it was idle for the host (see B20)."),
    ),
)
def serving_phases(frames: StepView) -> pl.LazyFrame:
    """One row a run and phase, that with most time first. Ramp-up and drain are left out where B20 finds them."""
    rows = frames.once(serving_time)
    counts = (pl.col("state") == "steady").fill_null(value=True)
    by = ["run_id", "serving_phase"]
    kept = rows.filter(counts).group_by(by, maintain_order=True).agg(*_sums())
    left_out = rows.filter(~counts).group_by(by).agg(pl.len().cast(pl.Int64).alias("left_out_count"))
    every = rows.select(by).unique(maintain_order=True).join(kept, on=by, how="left", nulls_equal=True)
    return (
        every.join(left_out, on=by, how="left", nulls_equal=True)
        .lazy()
        .with_columns(
            pl.col("step_count", "left_out_count").fill_null(0),
            share_of_sum("duration_ns", ["run_id"]).alias("time_share"),
        )
        .sort("run_id", -pl.col("duration_ns"), "serving_phase", nulls_last=True)
    )


def _sums() -> list[pl.Expr]:
    latency, window, waits = pl.col("duration_ns"), pl.col("window_ns").sum(), pl.col("output_token_ns")
    is_counted = pl.col("tokens").is_not_null()
    decoding = pl.col("decode_requests").filter(waits.is_not_null())
    return [
        pl.len().cast(pl.Int64).alias("step_count"),
        pl.col("requests").mean(),
        pl.when(is_counted.any()).then(pl.col("tokens").sum()).alias("tokens"),
        latency.sum().cast(pl.Float64),
        latency.median().alias("median_ns"),
        latency.quantile(_P95, "higher").cast(pl.Float64).alias("p95_ns"),
        _over(pl.col("tokens").sum() * NS_PER_S, latency.filter(is_counted).sum()).alias("token_per_s"),
        _over((waits * pl.col("decode_requests")).sum(), decoding.sum()).alias("output_token_ns"),
        _over(pl.col("busy_ns").sum(), window).alias("device_busy_share"),
        _over(pl.col("exposed_host_ns").sum(), window).alias("exposed_host_share"),
    ]


def _over(amount: pl.Expr, of: pl.Expr) -> pl.Expr:
    return pl.when(of > 0).then(quotient(amount, of))
