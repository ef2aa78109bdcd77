"""Why ranks that others wait for come late, and where a pipeline is empty, as sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.collectives import computing_operators, rank_units
from xsp_analyze.frames.device_time import device_time
from xsp_analyze.frames.pipelines import bubble_share, slowest_stage
from xsp_analyze.frames.rank_waits import rank_kernels, rank_times, slowdown_of
from xsp_analyze.text.units import count, duration, share
from xsp_model.columns.intervals import merge

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["bubble_words", "rank_reason", "reason_of"]

_HALF = 0.5
_SLOWER = 0.01


def reason_of(rank: int, times: pl.DataFrame, kernels: pl.DataFrame) -> str:
    """Why the rank comes late, as a sentence; empty where what is known does not say.

    `times`: a row a rank, with compute_ns, idle_ns and idle_input_ns; `kernels`: rank, kernel_name, count, duration_ns.
    """
    own, others = times.filter(pl.col("rank") == rank), times.filter(pl.col("rank") != rank)
    if own.is_empty() or others.is_empty():
        return ""
    more = {c: _middle(own[c]) - _middle(others[c]) for c in ("compute_ns", "idle_ns", "idle_input_ns")}
    compute, idle = max(more["compute_ns"], 0.0), max(more["idle_ns"], 0.0)
    if compute + idle <= _SLOWER * _middle(others["compute_ns"]):
        return ""
    if more["idle_input_ns"] >= _HALF * (compute + idle):
        return f"Its device waits for input {duration(more['idle_input_ns'])} a step longer than the median rank's."
    if idle > compute:
        return f"Its device is idle {duration(idle)} a step longer than the median rank's: its host comes later."
    by_how_much = f"It computes {duration(compute)} a step longer than the median rank"
    slowdown = slowdown_of(rank, kernels)
    if slowdown is None:
        return f"{by_how_much}, with more or other work."
    return (
        f"{by_how_much}, with the same kernels, most of them slower ({share(slowdown)} in all): look at its clocks and"
        " temperature."
    )


def _middle(values: pl.Series) -> float:
    """The median; 0 where nothing is known."""
    median = values.cast(pl.Float64).median()
    return float(median) if isinstance(median, float | int) else 0.0


def rank_reason(frames: StepView, rank: int) -> str:
    """`reason_of` a rank of a trace that holds several."""
    units = rank_units(frames.of_trace).select("run_id", "device_id", "rank")
    parts = frames.once(device_time).parts
    times = rank_times(frames).group_by("rank").agg(pl.col("compute_ns", "idle_ns").mean())
    waited = units.join(parts, on=["run_id", "device_id"], nulls_equal=True).group_by("rank")
    times = times.join(waited.agg(pl.col("idle_input_ns").mean()), on="rank", how="left")
    if times["compute_ns"].null_count() == times.height:
        times = times.drop("compute_ns").join(_compute_on_hosts(frames), on="rank", how="left")
    return reason_of(rank, times, rank_kernels(frames))


def bubble_words(rows: pl.DataFrame) -> str:
    """How much of the pipeline is bubble, over its stages, and what most of that comes from."""
    first = rows.row(0, named=True)
    each = f", {count(first['stages_of_rank'])} stages a rank" if (first["stages_of_rank"] or 0) > 1 else ""
    batches = f", {count(first['micro_batches'])} micro-batches" if first["micro_batches"] else ""
    text = (
        f"Ranks {first['pipeline']} are a pipeline ({first['schedule']}{batches}{each}):"
        f" {share(bubble_share(rows))} of it is bubble"
    )
    if rows["schedule_share"].null_count():
        return f"{text}."
    stage = slowest_stage(rows)
    slow = "" if stage is None else f"; others wait for stage {stage}"
    text = f"{text}; with equal stages and no transfers it would be {share(first['schedule_share'])}"
    if first["transfer_ns"] is None:
        return f"{text}. What transfers add is not known{slow}."
    return f"{text}. Transfers add {duration(first['transfer_ns'])} a step{slow}."


def _compute_on_hosts(frames: StepView) -> pl.DataFrame:
    """Of ranks without device work how long operators of its steps computed, a step on average: rank, compute_ns."""
    operators = frames.of_chosen_steps(frames.of_trace.once(computing_operators)).drop_nulls("step")
    units = rank_units(frames.of_trace).select("run_id", "rank")
    rows = []
    for (rank,), own in operators.join(units, on="run_id").group_by("rank"):
        start, end = own["start_ns"].to_numpy(), (own["start_ns"] + own["duration_ns"]).to_numpy()
        begun, ended = merge(start, end)
        rows.append((rank, float((ended - begun).sum()) / own["step"].n_unique()))
    return pl.DataFrame(rows, schema={"rank": pl.Int64, "compute_ns": pl.Float64}, orient="row")
