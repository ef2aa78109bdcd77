"""Serving: engine steps (B20), their phases (B25), and a client's load test beside them (B48)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.core import Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import quotient, share_of_sum
from xsp_analyze.frames.device_time import NS_PER_S, serving_time
from xsp_analyze.frames.model_time import LoadTest, load_tests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.trace.step_view import StepView

__all__ = ["load_tests_beside_steps", "serving_phases", "serving_steps"]

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


# B48: what the clients of a load test waited for, beside what the server's steps took.

_PARTS = {"request": "latency", "first token": "ttft", "further token": "tpot"}
_SERVER = ("server_ns", "device_ns")


@analysis(
    "B48",
    "load test beside the server",
    needs=("load test",),
    each_step=True,
    section="serving",
    read=(
        "What is left of a first token's latency beyond the step that reads the prompt is the queue, with network and "
        "tokenizer; of a further token it is what lies between steps, and prompts of others."
    ),
    columns=(
        Column("run_id", pl.Int64(), "The run of the load test.", role=Role.KEY),
        Column("part", pl.String(), "request, first token, further token (after the first).", role=Role.KEY),
        Column("test", pl.String(), "What it was, with the load.", role=Role.LABEL),
        _mean_time("client_ns", "Mean latency that the client waited."),
        _mean_time("client_median_ns", "Median of it."),
        _mean_time("client_p99_ns", "99th percentile of it."),
        _mean_time(
            "server_ns",
            "Mean latency of the server's steps for it, over all of its trace: of steps with prompts, each as often as"
            " requests are in theirs (first token); of steps that decode, each as often as requests decode in it"
            " (further token); of a request the sum, by the mean of its tokens. Null without a trace of the server.",
        ),
        _mean_time("device_ns", "Of that the time in which a device worked, on average over devices."),
        _mean_time("rest_ns", "What the client waited beyond the server's steps."),
        Column("rest_share", pl.Float64(), "Of what the client waited."),
    ),
)
def load_tests_beside_steps(frames: StepView) -> pl.LazyFrame:
    """One row a load test and part: request, first token, further token, as far as the client states them.

    A prompt that is read in several steps waits for each of them: here for one.
    """
    steps = frames.once(serving_time) if not frames.of_trace.serving_steps.is_empty() else None
    server = (
        {} if steps is None else {"first token": _waits(steps, "prefill"), "further token": _waits(steps, "decode")}
    )
    rows = [row for test in frames.of_trace.once(load_tests) for row in _rows_of(test, server)]
    schema = {
        **{name: pl.Int64() if name == "run_id" else pl.String() for name in ("run_id", "part", "test")},
        **dict.fromkeys(("client_ns", "client_median_ns", "client_p99_ns", *_SERVER), pl.Float64()),
    }
    rest = pl.col("client_ns") - pl.col("server_ns")
    return pl.LazyFrame(rows, schema=schema, orient="row").with_columns(
        rest.alias("rest_ns"), _over(rest, pl.col("client_ns")).alias("rest_share")
    )


def _waits(steps: pl.DataFrame, phase: str) -> tuple[float | None, ...]:
    """Mean latency and device time of the steps with requests in this phase, each as often as it has such."""
    weight, devices = pl.col(f"{phase}_requests"), pl.col("window_ns") / pl.col("duration_ns")
    busy = pl.col("busy_ns") / devices
    means = steps.filter(weight > 0, pl.col("duration_ns") > 0).select(
        _over((value * weight).sum(), weight.filter(value.is_not_null()).sum())
        for value in (pl.col("duration_ns"), busy)
    )
    return tuple(means.row(0))


def _rows_of(test: LoadTest, server: dict[str, tuple[float | None, ...]]) -> Iterator[tuple[object, ...]]:
    waits = dict(server)
    tokens, queries = (test.figures.get(name) for name in ("output_token_count", "query_count"))
    if waits and tokens and queries:
        pairs = zip(waits["first token"], waits["further token"], strict=True)
        further = max(tokens / queries - 1, 0.0)
        waits["request"] = tuple(None if a is None or b is None else a + further * b for a, b in pairs)
    for part, quantity in _PARTS.items():
        client = [test.figures.get(f"{quantity}_{name}_ns") for name in ("mean", "p50_00", "p99_00")]
        if any(value is not None for value in client):
            yield test.run_id, part, test.test, *client, *waits.get(part, (None, None))
