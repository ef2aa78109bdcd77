"""The recording itself: what it does not cover (B01) and what profiling cost (B02)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import STEP
from xsp_analyze.core import AMOUNT, TIME_NS, Column, Role, analysis
from xsp_analyze.formulas import known_sum, quotient, ratio
from xsp_analyze.frames.coverage import ATTRIBUTIONS, attribution
from xsp_analyze.frames.coverage import ledger as ledger_of
from xsp_analyze.frames.layers.layer_time import LAYER_KEY, every_layer_call, layer_bases
from xsp_analyze.frames.model_time import timed_latency
from xsp_analyze.frames.steps import mean_over_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.trace.step_view import StepView

__all__ = ["ledger", "profiling_overhead"]

# B01: where each nanosecond of device time was attributed or lost, and what the trace could not say.


@analysis(
    "B01",
    "ledger",
    needs=(),
    key=("run_id", "kind", "severity", "detail", "advice"),
    about_layers=True,
    read="Read it first: it says where each nanosecond of device time went, and what the other tables do not cover.",
    columns=(
        STEP,
        Column("run_id", pl.Int64(), "The run it concerns; null: all.", role=Role.KEY),
        Column("kind", pl.String(), "What device time is attributed to, or the kind of a finding.", role=Role.KEY),
        Column("severity", pl.String(), "info, warning or error.", role=Role.LABEL),
        Column("count", AMOUNT, "How many spans or events; of device time in a mean step: per step."),
        Column("duration_ns", TIME_NS, "Device time concerned, where that can be said.", "ns"),
        Column("share", pl.Float64(), "Of all device time in the steps chosen, for the places it went to."),
        Column("detail", pl.String(), "What was found, in one sentence.", role=Role.KEY),
        Column("advice", pl.String(), "What to do about it; empty: nothing is needed.", role=Role.LABEL),
    ),
)
def ledger(frames: StepView) -> pl.LazyFrame:
    """One row a place that device time went to, in the order of attribution, then one a finding."""
    rows, attributions = _sums_of_same(ledger_of(frames)), [str(a) for a in ATTRIBUTIONS]
    if frames.by:
        findings = rows.filter(~pl.col("kind").is_in(attributions))
        rows = pl.concat([attribution(frames, frames.by), findings], how="diagonal_relaxed")
    is_place = pl.col("kind").is_in(attributions)
    total = pl.col("duration_ns").filter(is_place).sum()
    if frames.by:
        total = total.over(frames.by)
    share = pl.when(is_place & (total > 0)).then(quotient(pl.col("duration_ns"), total))
    return rows.lazy().with_columns(share.alias("share"))


def _sums_of_same(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows, those that say the same of one run as one with the sum of their counts."""
    same = [c for c in rows.columns if c not in {"count", "duration_ns"}]
    if not rows.select(same).is_duplicated().any():
        return rows
    sums = (known_sum(pl.col(c)).alias(c) for c in ("count", "duration_ns"))
    return rows.group_by(same, maintain_order=True).agg(sums).select(rows.columns)


# B02: what profiling at each level cost, from leveled runs.

_SCHEMA = {
    "level": pl.String(),
    "scope": pl.String(),
    "layer_index": pl.Int64(),
    "baseline_ns": pl.Float64(),
    "measured_ns": pl.Float64(),
}


@analysis(
    "B02",
    "profiling overhead",
    needs=("leveled",),
    section="overhead",
    read=(
        "What profiling itself added at each level; distrust a layer's time where its overhead is as large as the time."
    ),
    columns=(
        Column(
            "level",
            pl.String(),
            "The level whose profiling is judged: layer (M to ML), kernel (ML to MLG), total (M to MLG).",
            role=Role.KEY,
        ),
        Column("scope", pl.String(), "`model`, or the layer's name.", role=Role.KEY),
        Column("layer_index", pl.Int64(), "Order of the layer; null for the model.", role=Role.LABEL),
        Column("baseline_ns", pl.Float64(), "Latency without that level, a trimmed mean over steps.", "ns"),
        Column("measured_ns", pl.Float64(), "Latency with it.", "ns"),
        Column("overhead_ns", pl.Float64(), "Measured less baseline.", "ns"),
        Column("overhead_share", pl.Float64(), "Overhead over baseline."),
    ),
    by_step=False,
)
def profiling_overhead(frames: StepView) -> pl.LazyFrame:
    """One row a level and scope: the model at each level, each layer in order, the total. Always means over steps."""
    view = frames.of_trace
    model, layers, kernels = (
        timed_latency(view, runs) for runs in (view.model_runs, view.profiled_layer_runs, view.serialised_runs)
    )
    steps, total = [], []
    if view.profiled_layer_runs != view.serialised_runs:
        steps = [("layer", model, layers)] if view.model_runs != view.profiled_layer_runs else []
        steps.append(("kernel", layers, kernels))
    if view.model_runs not in (view.profiled_layer_runs, view.serialised_runs):
        total = [("total", model, kernels)]
    rows = pl.concat([_of_model(steps), _by_layer(frames), _of_model(total)])
    overhead = pl.col("measured_ns") - pl.col("baseline_ns")
    return rows.with_columns(
        overhead.alias("overhead_ns"), ratio(overhead, pl.col("baseline_ns")).alias("overhead_share")
    ).lazy()


def _of_model(levels: Sequence[tuple[str, float | None, float | None]]) -> pl.DataFrame:
    rows = [(level, "model", None, *values) for level, *values in levels if None not in values]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _by_layer(frames: StepView) -> pl.DataFrame:
    """Each layer's latency in the layer run and in the kernel run, where both waited for the device."""
    calls = frames.of_trace.once(every_layer_call)
    one, other = (
        _host_latency(frames, runs.of(calls)) for runs in (frames.of_trace.layer_runs, frames.of_trace.serialised_runs)
    )
    if frames.of_trace.layer_runs == frames.of_trace.serialised_runs:
        one = one.clear()
    return (
        one.rename({"host_ns": "baseline_ns"})
        .join(other.rename({"host_ns": "measured_ns"}), on=LAYER_KEY, how="inner")
        .sort("layer_index", "layer_name")
        .select(
            pl.lit("kernel").alias("level"),
            pl.col("layer_name").alias("scope"),
            "layer_index",
            "baseline_ns",
            "measured_ns",
        )
    )


def _host_latency(frames: StepView, calls: pl.DataFrame) -> pl.DataFrame:
    """Host time of each layer per step. A run that was not serialised has none that means anything: no rows.

    Nor has a layer that was compiled away, and so has no call.
    """
    hosted = frames.of_trace.once(layer_bases).filter(pl.col("basis") == "host")["run_id"]
    serialised = calls.filter(pl.col("run_id").is_in(hosted.implode()), pl.col("duration_ns").is_not_null())
    per_step = serialised.group_by("run_id", "step", *LAYER_KEY, maintain_order=True).agg(pl.col("host_ns").sum())
    in_steps = per_step.filter(pl.col("step").is_not_null())
    return mean_over_steps(in_steps, frames.of_trace.all_steps, LAYER_KEY, ("host_ns",)).with_columns(
        pl.col("layer_name", "layer_type").cast(pl.String)
    )
