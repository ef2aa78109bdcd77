"""The model as a whole: its latency and throughput (A01), its kernels (A15), and both over batch sizes (B38)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
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
    WORK_BASIS,
)
from xsp_analyze.core import LATENCY_NS, TIME_NS, Column, FigureSpec, analysis
from xsp_analyze.formulas import (
    bootstrap_interval,
    first_saturating_batch,
    ordered_mean,
    ordered_sum,
    quotient,
    ratio,
    throughput_per_s,
)
from xsp_analyze.frames.device_time import device_time
from xsp_analyze.frames.kernels.activities import are_known, counter_sums, derived_counters
from xsp_analyze.frames.kernels.measured_work import basis_of, filled_executions
from xsp_analyze.frames.kernels.roofline import agreed_peaks, by_precision, ideal_intensity, under_roof
from xsp_analyze.frames.model_time import latency_by_run, latency_over_runs
from xsp_analyze.frames.steps import StepBasis
from xsp_analyze.needs import AnyOf, holds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.trace.step_view import StepView

__all__ = ["batch_sizes", "kernel_by_model", "model_information"]

# A01: latency and throughput of the model.


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
    averaged = [frames.is_mean and str(StepBasis.LOAD_TEST) not in basis for basis in rows["basis"].to_list()]
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


# A15: device time of the whole model beside its latency.

_ROOF_OF_MODEL = ROOF_COLUMNS[-6:-1]  # the columns around are FILLED_COLUMNS too
_ROOF_NAMES = tuple(c.name for c in _ROOF_OF_MODEL)
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
        *_ROOF_OF_MODEL,
        Column(
            "known_share",
            pl.Float64(),
            "Part of the kernel duration whose flop and bytes are known, measured or modelled; below 1 they, and what "
            "is reached of the roof, are at least this.",
        ),
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
    fp32 = held.filter(pl.col("precision") == "fp32").select(*keys, "precision", "place", *_ROOF_NAMES)
    first = rows.join(fp32, on=keys, how="left", nulls_equal=True)
    further = held.filter(pl.col("precision") != "fp32").with_columns(
        (pl.col("bound") == "memory").alias("memory_bound"),
        *(pl.lit(None, rows.schema[c]).alias(c) for c in _OF_DEVICES),
    )
    # Of the work in other precisions a row of none in FP32 tells no bound.
    first = first.join(
        further.select(*keys, has_others=pl.lit(value=True)).unique(), on=keys, how="left", nulls_equal=True
    )
    tells = pl.col("precision").is_not_null() | pl.col("has_others").is_null()
    first = first.with_columns(pl.when(tells).then(c).alias(c) for c in _OF_FP32).drop("has_others")
    return (
        pl.concat([first, further.select(c for c in further.columns if c in first.columns)], how="diagonal_relaxed")
        .sort(*keys, pl.col("place").fill_null(0), nulls_last=True)
        .lazy()
    )


_OF_FP32 = ("arithmetic_intensity", "flop_per_s", "memory_bound")


def _with_nulls(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.lit(None, c.type_of(averaged=True)).alias(c.name) for c in (PRECISION, *_ROOF_OF_MODEL))


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
            _known_share(),
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


def _known_share() -> pl.Expr:
    """Part of the device time of rows that have a `work_basis`; null where none has."""
    time, is_known = pl.col("duration_ns"), pl.col("work_basis").is_not_null()
    share = quotient(ordered_sum(time.filter(is_known)), ordered_sum(time))
    return pl.when(is_known.any(), time.sum() > 0).then(share).alias("known_share")


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


# B38: what changes with the batch size, and which is optimal.

_ROOF = [
    c
    for c in ROOF_COLUMNS
    if c.name in ("flop_count", "flop_per_s", "arithmetic_intensity", "ideal_intensity", "bound", "roof_share")
]
_DEVICE_COLUMNS = ("kernel_duration_ns", "gpu_share")
_OF_PRECISION = ("precision", *(c.name for c in _ROOF), "work_basis")


@analysis(
    "B38",
    "batch sizes",
    needs=("batch sizes",),
    read=(
        "Where throughput no longer grows the device is full; where the bound turns from memory to compute a larger"
        " batch stops helping each byte."
    ),
    section="batches",
    columns=(
        STEP,
        BATCH_SIZE,
        Column("latency_ns", LATENCY_NS, "Latency of a step, as in A01.", "ns"),
        Column("latency_per_input_ns", pl.Float64(), "Latency over batch size.", "ns"),
        Column("throughput_per_s", pl.Float64(), "Inputs per second.", "1/s"),
        Column(
            "doubling_gain",
            pl.Float64(),
            "Throughput at twice the batch size over that at this one, less 1; null: twice was not measured.",
        ),
        Column(
            "is_optimal",
            pl.Boolean(),
            "The first batch size whose doubling raises throughput by 5 % or less; null: none was doubled, or none is.",
        ),
        LATENCY_BASIS,
        replace(KERNEL_DURATION, doc="Sum of the durations of all device work; null: none was recorded."),
        Column("gpu_share", pl.Float64(), "Share of the latency in which devices worked, as in A15."),
        replace(
            PRECISION, role=WORK_BASIS.role, doc="The precision of most flop over all batch sizes: what these are of."
        ),
        *_ROOF,
        Column(
            "is_first_compute_bound",
            pl.Boolean(),
            "The batch size from which on all measured ones are compute bound; null: none is, or the roof is unknown.",
        ),
        WORK_BASIS,
    ),
    figure=FigureSpec(
        "scatter",
        x="batch_size",
        y=("throughput_per_s", "latency_ns", "gpu_share", "flop_count", "flop_per_s", "arithmetic_intensity"),
        title="By batch size",
    ),
)
def batch_sizes(frames: StepView) -> pl.LazyFrame:
    """One row a batch size, smallest first, with the columns of A01 and A15 that a batch size changes."""
    keys = [*frames.by, "batch_size"]
    latencies = model_information.function(frames).collect().drop_nulls("batch_size")
    kernels = kernel_by_model.function(frames).collect() if holds(frames.of_trace, "kernel") else None
    rows = _with_gain(latencies, keys)
    for part in () if kernels is None else (_of_devices(kernels, keys), _of_one_precision(kernels, keys)):
        rows = rows.join(part, on=keys, how="left", maintain_order="left")
    missing = [c for c in batch_sizes.columns if c.name not in rows.columns and not c.optional]
    rows = rows.with_columns(pl.lit(None, c.type_of(averaged=frames.is_mean)).alias(c.name) for c in missing)
    return rows.with_columns(_first_compute_bound(frames, rows)).sort(keys).lazy()


def _with_gain(latencies: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    doubled = latencies.select(*keys[:-1], pl.col("batch_size") // 2, pl.col("throughput_per_s").alias("doubled_per_s"))
    even = doubled.filter(latencies["batch_size"] % 2 == 0)
    gain = (quotient(pl.col("doubled_per_s"), pl.col("throughput_per_s")) - 1).alias("doubling_gain")
    return latencies.join(even, on=keys, how="left", maintain_order="left").with_columns(gain)


def _of_devices(kernels: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    return kernels.unique(keys, keep="first", maintain_order=True).select(*keys, *_DEVICE_COLUMNS)


def _of_one_precision(kernels: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """The rooflines in the precision of most flop, so that one line joins what is of one kind."""
    counted = kernels.drop_nulls(["precision", "flop_count"])
    sums = (
        counted.group_by("precision").agg(pl.col("flop_count").sum()).sort("flop_count", "precision", descending=True)
    )
    return counted.filter(pl.col("precision").is_in(sums["precision"].head(1).implode())).select(*keys, *_OF_PRECISION)


def _first_compute_bound(frames: StepView, rows: pl.DataFrame) -> pl.Expr:
    """True in the row, false in the others, null in all where there is none or steps are answered one by one."""
    bounds = dict(rows.sort("batch_size").select("batch_size", "bound").drop_nulls().iter_rows())
    first = None
    for size in sorted(bounds, reverse=True):
        if bounds[size] != "compute":
            break
        first = size
    chosen = None if frames.by else first
    return (pl.col("batch_size") == pl.lit(chosen, pl.Int64)).alias("is_first_compute_bound")
