"""What one rank leaves for the job: small tables of steps, kernels, collectives and experts, and a line on itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.classification import KernelClass
from xsp_analyze.classification.experts import ExpertPart
from xsp_analyze.cohort.facts import facts_of
from xsp_analyze.formulas import trimmed_mean
from xsp_analyze.frames.collectives import group_label, operations, recorded_facts
from xsp_analyze.frames.device_time import MEASURES, device_time
from xsp_analyze.frames.kernels.expert_parts import expert_parts, has_experts
from xsp_analyze.frames.kernels.kernel_classes import IS_COMMUNICATION
from xsp_analyze.frames.model_time import latency_by_run
from xsp_analyze.frames.pipelines import units_of_rank
from xsp_analyze.trace.step_view import StepView

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

__all__ = ["RANK_TABLES", "experts_of_rank", "write_tables"]

_SCHEMA = {
    "step": pl.Int64,
    "block": pl.String,
    "process_group": pl.String,
    "products_ns": pl.Int64,
    "combine_ns": pl.Int64,
}
_ONE = ["step", "block"]
_BACK = [str(ExpertPart.COMBINE), str(ExpertPart.EXCHANGE)]


def experts_of_rank(frames: StepView) -> pl.DataFrame:
    """One row a step and block that the rank ran any part of: products_ns, and combine_ns in communication, or null.

    The block is null where no layer is known of the work. `process_group` has name and ranks of the group that
    exchanges its tokens, of all its steps the first; null where none is recorded.
    """
    if not has_experts(frames.of_trace):
        return pl.DataFrame(schema=_SCHEMA)
    duration, communicates = pl.col("duration_ns"), pl.col("kernel_class") == str(KernelClass.COMMUNICATION)
    back = duration.filter(communicates & pl.col("part").cast(pl.String).is_in(_BACK))
    work = frames.of_trace.all_activities.join(expert_parts(frames.of_trace), on="span_id", maintain_order="left")
    group = pl.when(communicates).then("process_group").drop_nulls().first()
    work = work.join(_groups(frames), on="span_id", how="left", maintain_order="left")
    return (
        work.with_columns(group.over("block"))
        .group_by(*_ONE, "process_group")
        .agg(
            duration.filter(pl.col("part") == str(ExpertPart.PRODUCTS)).sum().alias("products_ns"),
            pl.when(back.count() > 0).then(back.sum()).alias("combine_ns"),
        )
        .sort(*_ONE, nulls_last=True)
        .select(pl.col(name).cast(kind) for name, kind in _SCHEMA.items())
    )


def _groups(frames: StepView) -> pl.DataFrame:
    """span_id of communication of which a process group is recorded, and the group's name and ranks."""
    kernels = frames.of_trace.all_activities.filter(IS_COMMUNICATION)["span_id"]
    facts = recorded_facts(frames.trace, kernels.to_numpy())
    return pl.DataFrame([kernels]).hstack(facts).select("span_id", group_label()).drop_nulls()


RANK_TABLES = ("steps", "kernels", "collectives", "experts", "units")
"""Each a file NAME.parquet, of `_steps`, `_kernels`, `_collectives`, `experts_of_rank` and `_units`."""
_MEAN = ("duration_ns", *MEASURES[1:], "idle_input_ns")


def write_tables(trace: Trace, folder: Path, rank: int | None, source: str) -> dict[str, Any]:
    """Writes the rank's tables into the folder; its facts for JSON, with `rank`, `source` and means over its steps.

    The rank is the one given, as names or the user say it; `stated_rank` is what the file says itself.
    """
    frames = StepView.of(trace)
    runs = trace.frame("runs")
    recorded = runs["rank"].drop_nulls()
    number = rank if rank is not None else (int(recorded[0]) if recorded.len() else 0)
    tables = {
        "steps": _steps(frames),
        "kernels": _kernels(frames),
        "collectives": _collectives(frames),
        "experts": experts_of_rank(frames),
        "units": _units(frames),
    }
    for name, frame in tables.items():
        frame.select(pl.lit(number, pl.Int64).alias("rank"), pl.all()).write_parquet(folder / f"{name}.parquet")
    facts = facts_of(trace, source).to_json()
    means = tables["steps"].select(trimmed_mean(pl.col(m)).alias(m) for m in _MEAN).row(0, named=True)
    return {
        **facts,
        "rank": number,
        "stated_rank": int(recorded[0]) if recorded.len() else None,
        "world_size": runs["world_size"].max(),
        "source": source,
        "step_count": tables["steps"].height,
        "mean_step": means,
    }


def _steps(frames: StepView) -> pl.DataFrame:
    """One row a step: step, duration_ns, and the time of the devices in it by what they did, summed over devices.

    A trace without steps is one row, its step null and its duration the extent of the trace. Without device work all
    but the duration is null.
    """
    if frames.of_trace.marked_steps.is_empty():
        latency = pl.lit(None, pl.Int64).alias("step"), pl.col("latency_ns").alias("duration_ns")
        steps, each = frames.once(latency_by_run).select(latency), StepView(frames.of_trace, "all")
    else:
        steps, each = frames.steps.select("step", "duration_ns"), StepView(frames.of_trace, "each")
    parts = each.once(device_time).parts
    if "step" not in parts.columns:
        parts = parts.with_columns(pl.lit(None, pl.Int64).alias("step"))
    times = parts.group_by("step").agg(pl.col(*MEASURES, "idle_input_ns").sum())
    slowest = steps.group_by("step").agg(pl.col("duration_ns").max().cast(pl.Int64))
    return slowest.join(times, on="step", how="left", nulls_equal=True).sort("step", nulls_last=True)


def _kernels(frames: StepView) -> pl.DataFrame:
    """One row a kernel, copy or memset: kernel_name, kind, count, duration_ns, over the whole trace, exact."""
    return (
        frames.of_trace.all_activities.group_by(
            pl.col("name").cast(pl.String).alias("kernel_name"), pl.col("kind").cast(pl.String)
        )
        .agg(pl.len().cast(pl.Int64).alias("count"), pl.col("duration_ns").sum())
        .sort("kernel_name", "kind")
    )


def _units(frames: StepView) -> pl.DataFrame:
    """`units_of_rank` in Unix time; none where the trace does not know it, as nothing then says when others ran."""
    epoch = frames.trace.frame("runs")["epoch_ns"][0]
    moved = (pl.col("start_ns", "end_ns") + pl.lit(epoch, pl.Int64)).cast(pl.Int64)
    return units_of_rank(frames).with_columns(moved).drop_nulls("start_ns")


def _collectives(frames: StepView) -> pl.DataFrame:
    """One row a collective's kernel, in order: step, operation, process_group, meeting, nth (of these), duration_ns.

    See `operations`. `start_ns` is Unix time where the trace knows it, else null.
    """
    epoch = frames.trace.frame("runs").select("run_id", "epoch_ns")
    call = ("step", "operation", "process_group", "meeting")
    return (
        operations(frames.of_trace)
        .join(epoch, on="run_id", how="left", maintain_order="left")
        .select(
            *call,
            pl.int_range(pl.len(), dtype=pl.Int64).over(call).alias("nth"),
            (pl.col("epoch_ns") + pl.col("start_ns")).alias("start_ns"),
            "duration_ns",
            "sent_bytes",
            "received_bytes",
        )
    )
