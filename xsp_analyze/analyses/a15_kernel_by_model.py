"""A15: device time of the whole model beside its latency."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import (
    BATCH_SIZE,
    FILLED_COLUMNS,
    KERNEL_DURATION,
    KERNELS,
    LATENCY_BASIS,
    PRECISION,
    ROOF_COLUMNS,
    STEP,
)
from xsp_analyze.core import LATENCY_NS, TIME_NS, Column, FigureSpec, analysis
from xsp_analyze.formulas import ordered_sum, quotient, ratio
from xsp_analyze.frames.device_time import device_time
from xsp_analyze.frames.kernels.activities import are_known, counter_sums, derived_counters
from xsp_analyze.frames.kernels.measured_work import basis_of, filled_executions
from xsp_analyze.frames.kernels.roofline import agreed_peaks, by_precision, ideal_intensity, under_roof
from xsp_analyze.frames.model_time import latency_by_run, latency_over_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.trace.step_view import StepView

__all__ = ["kernel_by_model"]

_ROOF = ROOF_COLUMNS[-6:-1]  # the columns around are FILLED_COLUMNS too
_NAMES = tuple(c.name for c in _ROOF)
_OF_DEVICES = ("kernel_count", "kernel_duration_ns", "busy_ns", "gpu_share", "device_count")


@analysis(
    "A15",
    "kernels by model",
    needs=("kernel",),
    read=(
        "GPU share near 1 says that the device bounds the model, near 0 that something else does; the point shows "
        "the model under its roof."
    ),
    columns=(
        STEP,
        BATCH_SIZE,
        Column(
            "model_latency_ns", LATENCY_NS, "Latency of a step, or the extent of the trace where it has none.", "ns"
        ),
        KERNELS,
        KERNEL_DURATION,
        Column(
            "busy_ns",
            TIME_NS,
            "Time in which the devices were busy, summed over them; of a profile of levels null.",
            "ns",
        ),
        Column(
            "gpu_share",
            pl.Float64(),
            "Busy time over latency, of all devices; of a profile of levels kernel duration over its model latency; "
            "null where kernels ran alone, for counters.",
        ),
        Column("device_count", pl.Int64(), "Devices that the share is of."),
        LATENCY_BASIS,
        replace(PRECISION, doc="The precision of flop_count and of the roof; null where no flops were counted."),
        *FILLED_COLUMNS,
        *_ROOF,
    ),
    figure=FigureSpec(
        "roofline", x="arithmetic_intensity", y=("flop_per_s",), title="The model under the roof", color="precision"
    ),
)
def kernel_by_model(frames: StepView) -> pl.LazyFrame:
    """One row a batch size, smallest first (null: unknown), in FP32, then one for every other precision worked in.

    Those hold that precision's roofline, and no device time: it stands in the first row alone.
    """
    keys = [*frames.by, "batch_size"]
    others = [each for each in frames.by_batch_size[1:] if not each.of_trace.device_work.is_empty()]
    rows = pl.concat([_by_batch(each, keys) for each in (frames, *others)], how="diagonal_relaxed")
    if not any(are_known(each.once(filled_executions)) for each in (frames, *others)):
        return _with_nulls(rows).sort(keys, nulls_last=True).lazy()
    held = under_roof(by_precision(rows), agreed_peaks(frames))
    fp32 = held.filter(pl.col("precision") == "fp32").select(*keys, "precision", "place", *_NAMES)
    first = rows.join(fp32, on=keys, how="left", nulls_equal=True)
    further = held.filter(pl.col("precision") != "fp32").with_columns(
        (pl.col("bound") == "memory").alias("memory_bound"),
        *(pl.lit(None, rows.schema[c]).alias(c) for c in _OF_DEVICES),
    )
    return (
        pl.concat([first, further.select(c for c in further.columns if c in first.columns)], how="diagonal_relaxed")
        .sort(*keys, pl.col("place").fill_null(0), nulls_last=True)
        .lazy()
    )


def _with_nulls(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.lit(None, c.type_of(averaged=True)).alias(c.name) for c in (PRECISION, *_ROOF))


def _by_batch(frames: StepView, keys: Sequence[str]) -> pl.DataFrame:
    """One row a batch size with device time, latency and FP32's counters."""
    batches = frames.of_trace.own_runs.table.select("run_id", "batch_size")
    executions = frames.once(filled_executions)
    sums = (
        executions.join(batches, on="run_id", how="left", maintain_order="left")
        .group_by(keys, maintain_order=True)
        .agg(
            ordered_sum(pl.col("count")).alias("kernel_count"),
            ordered_sum(pl.col("duration_ns")),
            *counter_sums(executions),
            basis_of(),
        )
        .lazy()
    )
    latency = latency_over_runs(frames.once(latency_by_run), keys).lazy().rename({"latency_ns": "model_latency_ns"})
    return (
        derived_counters(
            latency.join(sums, on=keys, how="full", coalesce=True, nulls_equal=True),
            frames.of_trace.once(ideal_intensity),
        )
        .rename({"duration_ns": "kernel_duration_ns"})
        .with_columns(pl.col("kernel_duration_ns", "kernel_count").fill_null(0))
        .join(_busy(frames, keys).lazy(), on=keys, how="left", nulls_equal=True)
        .join(_bases(frames, keys).lazy(), on=keys, how="left", nulls_equal=True)
        .with_columns(_share(frames))
        .collect()
    )


def _busy(frames: StepView, keys: Sequence[str]) -> pl.DataFrame:
    """busy_ns, and window_ns that it is of, over the devices of the runs of each batch size."""
    batches = frames.of_trace.own_runs.table.select("run_id", "batch_size")
    parts = frames.once(device_time).parts.join(batches, on="run_id", how="left", maintain_order="left")
    return parts.group_by(keys, maintain_order=True).agg(ordered_sum(pl.col("busy_ns", "window_ns")))


def _bases(frames: StepView, keys: Sequence[str]) -> pl.DataFrame:
    bases = pl.col("basis").list.explode().unique(maintain_order=True)
    rows = frames.once(latency_by_run).group_by(keys, maintain_order=True).agg(bases)
    return rows.select(*keys, pl.col("basis").list.join(" and ").alias("latency_basis"))


def _share(frames: StepView) -> list[pl.Expr]:
    """Of a profile of levels the busy time is of another run than the latency, and kernels are what it is told by."""
    if frames.of_trace.is_one_by_one:
        return [pl.lit(None, pl.Float64).alias("gpu_share")]
    if frames.of_trace.is_leveled:
        share = ratio(pl.col("kernel_duration_ns"), pl.col("model_ns"))
        return [pl.when(False).then("busy_ns").alias("busy_ns"), share.alias("gpu_share")]  # noqa: FBT003 (never)
    return [pl.when(pl.col("window_ns") > 0).then(quotient(pl.col("busy_ns"), pl.col("window_ns"))).alias("gpu_share")]
