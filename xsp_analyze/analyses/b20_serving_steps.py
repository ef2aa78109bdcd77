"""B20: what each step of a serving engine computed, how long it took, and how busy its devices were."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.core import Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import quotient
from xsp_analyze.frames.device_time import NS_PER_S, serving_time

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["serving_steps"]


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
        _time("exposed_host_ns", "Time of devices idle for the host: B03's idle_host_ns and idle_launch_ns."),
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
