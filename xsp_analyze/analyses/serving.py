"""Serving: engine steps (B20) and their phases (B25)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.core import Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import quotient, share_of_sum
from xsp_analyze.frames.device_time import NS_PER_S, serving_time

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["serving_phases", "serving_steps"]

# B20: what each step of a serving engine computed, how long it took, and how busy its devices were.


def _count(name: str, doc: str) -> Column:
    return Column(name, pl.Int64(), doc)


def _time(name: str, doc: str) -> Column:
    return Column(name, pl.Int64(), doc, "ns")


@analysis(
    "B20",
    "serving steps",
    needs=("serving",),
    each_step=True,
    section="serving",
    additive=("duration_ns", "tokens", "prefill_tokens", "decode_tokens"),
    read=(
        "Steps of one phase with like tokens should take alike; where some take longer, look at exposed host time and "
        "at the gap before them."
    ),
    columns=(
        Column("run_id", pl.Int64(), "The run (rank).", role=Role.KEY),
        Column("step", pl.Int64(), "Number of the step, as everywhere.", role=Role.KEY),
        Column(
            "state",
            pl.String(),
            "ramp_up, steady or drain: steady from the first to the last step with 90 % of the usual number of decoding"
            " requests (the upper quartile over steps that decode); null where fewer than three steps have it.",
            role=Role.LABEL,
        ),
        Column(
            "serving_phase",
            pl.String(),
            "prefill, decode, mixed or diffusion; null for a step of none, such as an idle one.",
            role=Role.LABEL,
        ),
        _count("requests", "Requests in the batch."),
        _count("prefill_requests", "Of them those still in their prompt."),
        _count("decode_requests", "Of them those past it."),
        _count("tokens", "Tokens that the step computed."),
        _count("prefill_tokens", "Of them those of prompts."),
        _count("decode_tokens", "Of them those of requests past their prompt."),
        _count("kv_tokens", "Tokens whose keys and values attention read, summed over requests."),
        _time("duration_ns", "The step's latency, as in every other table."),
        _time("gap_ns", "From its end to the begin of the next step of any phase; null for the last."),
        Column("token_per_s", pl.Float64(), "Tokens over the latency.", "token/s"),
        _time(
            "output_token_ns",
            "Time per output token: the latency, for which each decoding request waits for one token; null where none"
            " decodes, or the name does not say that each got one (speculative decoding).",
        ),
        Column("device_busy_share", pl.Float64(), "Of the latency (times devices), time in which a device worked."),
        _time("exposed_host_ns", "Time of devices idle while the host worked or launched, behind waits too; see B03."),
        Column("basis", pl.String(), "What the latency is measured by, as in A01.", role=Role.LABEL),
        Column("mode", pl.String(), "The engine's own word for the kind of step.", role=Role.LABEL),
        Column("tool", pl.String(), "The engine, by the form of the name.", role=Role.LABEL),
        Column("annotation", pl.String(), "The name that it gave to the step.", role=Role.LABEL),
    ),
    figure=FigureSpec("bars", x="step", y=("duration_ns",), title="Latency of serving steps"),
)
def serving_steps(frames: StepView) -> pl.LazyFrame:
    """One row a run and step, in order of time, ramp-up and drain included; counts are as the engine named the step.

    What a name does not say is unknown.
    """
    tokens, window = pl.col("tokens"), pl.col("window_ns")
    return (
        frames.once(serving_time)
        .lazy()
        .with_columns(
            pl.when(pl.col("duration_ns") > 0)
            .then(quotient(tokens * NS_PER_S, pl.col("duration_ns")))
            .alias("token_per_s"),
            pl.when(window > 0).then(quotient(pl.col("busy_ns"), window)).alias("device_busy_share"),
        )
    )


# B25: prefill, decode and mixed steps of a serving engine in sum, over its steady state.

_P95 = 0.95


def _mean_time(name: str, doc: str) -> Column:
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
        _mean_time("duration_ns", "Latencies of the steps in sum."),
        Column("time_share", pl.Float64(), "Of the latencies of all steps that count here."),
        _mean_time("median_ns", "Median latency of a step."),
        _mean_time("p95_ns", "Latency that at least 95 % of the steps do not exceed."),
        Column(
            "token_per_s", pl.Float64(), "Tokens over the latencies of the steps whose tokens are known.", "token/s"
        ),
        _mean_time(
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
