"""Peak rates of devices, and what a kernel, layer or model could reach by them in each precision that it works in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze import formulas
from xsp_analyze.formulas import quotient
from xsp_analyze.frames.kernels.activities import Moved, counted_time, moved_bytes
from xsp_analyze.frames.kernels.kernel_means import kernel_executions
from xsp_model import XspError
from xsp_model.devices import QUANTITIES, spec_for
from xsp_model.vocabulary import FLOP_COUNTS, TENSOR_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace

__all__ = [
    "BANDWIDTH",
    "DEVICE",
    "TENSOR_RATES",
    "agreed_peaks",
    "by_precision",
    "cache_bytes",
    "device_peaks",
    "ideal_intensity",
    "known_peaks",
    "peaks_of",
    "require_flops",
    "under_roof",
]

# Peak rates of devices as the trace knows them, each with the words for where it comes from.

BANDWIDTH = "dram"
"""The quantity in `peaks` that bounds memory traffic."""
DEVICE = ("run_id", "process_id", "device_id")
"""What tells devices apart in a frame of executions."""
_COLUMNS = {"fp32": "fp32_flop_per_s", BANDWIDTH: "dram_byte_per_s"}  # what the table `devices` holds itself
_SCOPE = ("run_id", "device_id", "process_id")


def peaks_of(trace: Trace, devices: pl.DataFrame) -> pl.DataFrame:
    """One row a device of these (the columns of DEVICE, and others) and a known peak of it: quantity, peak, words."""
    peaks = devices.join(_all_peaks(trace), on=["run_id", "device_id"], suffix="_of_peak")
    of_process = pl.col("process_id_of_peak")
    return (
        peaks.filter(of_process.is_null() | of_process.eq_missing(pl.col("process_id")))
        .sort(*DEVICE, "quantity", of_process, nulls_last=True, maintain_order=True)
        .unique([*DEVICE, "quantity"], keep="first", maintain_order=True)
        .select(*devices.columns, "quantity", "peak", "words")
    )


def _all_peaks(trace: Trace) -> pl.DataFrame:
    """The peaks of all devices: those of `peaks`, and where it says nothing those of `devices`."""
    devices = trace.frame("devices")
    described = trace.frame("runs").select("run_id", "device_name")
    names = devices.select(*_SCOPE, "name").join(described, on="run_id", how="left", maintain_order="left")
    recorded = trace.frame("peaks").select(
        *_SCOPE, pl.col("quantity").cast(pl.String), pl.col("value").alias("peak"), "source"
    )
    own = [
        devices.select(*_SCOPE, pl.lit(quantity).alias("quantity"), pl.col(column).alias("peak"), source=_source())
        for quantity, column in _COLUMNS.items()
    ]
    every = pl.concat([recorded, *own]).drop_nulls("peak")
    return (
        every.unique([*_SCOPE, "quantity"], keep="first", maintain_order=True)
        .join(names, on=_SCOPE, how="left", nulls_equal=True, maintain_order="left")
        .select(*_SCOPE, "quantity", "peak", _sentence())
    )


_LARGEST_CACHE_BYTES = 256 << 20  # what the last cache of a device in the table holds at most


def cache_bytes(trace: Trace, devices: pl.DataFrame) -> pl.DataFrame:
    """The devices (columns of DEVICE, and others) with `cache_bytes`: what the last cache before memory holds.

    Of a device that the table does not know the most that one holds. `boosts`: whether it is a card whose clock exceeds
    the one listed as far as it stays cool.
    """
    listed = trace.frame("devices").select(*_SCOPE, "name").unique(["run_id", "device_id"], keep="first")
    runs = trace.frame("runs").select("run_id", "device_name")
    named = (
        devices.join(listed, on=["run_id", "device_id"], how="left", maintain_order="left")
        .join(runs, on="run_id", how="left", maintain_order="left")
        .with_columns(pl.coalesce("name", "device_name").alias("name"))
    )
    specs = [spec_for(name) for name in named["name"]]
    held = pl.Series("cache_bytes", [(s.cache_bytes if s else None) or _LARGEST_CACHE_BYTES for s in specs], pl.Int64)
    boosts = named["name"].cast(pl.String).str.contains("GeForce").fill_null(value=False).alias("boosts")
    return named.select(devices.columns).with_columns(held, boosts)


def _source() -> pl.Expr:
    return pl.col("peak_source").fill_null("the trace's table of devices")


def _sentence() -> pl.Expr:
    what = pl.when(pl.col("quantity") == BANDWIDTH).then(pl.lit("DRAM bandwidth")).otherwise(
        pl.format("{} peak", "quantity")
    )  # fmt: skip
    device = pl.coalesce("name", "device_name", pl.format("device {}", "device_id"))
    return pl.format("{} of {} ({})", what, device, "source").alias("words")


# Peak rates of the devices that did the work, each with the words for where it comes from.

TENSOR_RATES = ("tf32", "bf16_tensor", "fp16_tensor")
"""Rates of tensor cores for products of FP32 models, the easiest to move to first."""


def known_peaks(view: TraceView) -> Mapping[str, float]:
    """Peak rates by quantity, of several devices the least; only what is known of the devices that were used."""
    used = view.all_activities.select(DEVICE).unique(maintain_order=True)
    rows = peaks_of(view.trace, used).group_by("quantity").agg(pl.col("peak").min())
    return {str(quantity): float(peak) for quantity, peak in rows.iter_rows()}


def device_peaks(frames: StepView) -> pl.DataFrame:
    """One row a device that was used and a known peak of it: the columns of DEVICE, quantity, peak, words."""
    return peaks_of(frames.trace, frames.once(kernel_executions).select(DEVICE).unique(maintain_order=True))


def agreed_peaks(frames: StepView) -> pl.DataFrame:
    """One row a quantity whose peak is known of every device that was used and the same for all: quantity, peak, words.

    Work of several devices is held against it: sums of flops over sums of durations are the throughput of one.
    """
    peaks = device_peaks(frames)
    devices = frames.once(kernel_executions).select(DEVICE).n_unique()
    return (
        peaks.group_by("quantity", maintain_order=True)
        .agg(pl.col("peak", "words").first(), pl.len().alias("known"), pl.col("peak").n_unique().alias("values"))
        .filter(pl.col("known") == devices, pl.col("values") == 1)
        .select("quantity", "peak", "words")
    )


# Rooflines: what a kernel, layer or model could reach on its device, in each precision that it works in.
#
# Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 2009.


@dataclass(frozen=True, slots=True)
class _Precision:
    """A precision by the name that its peak has in `peaks`, and the column that counts its work."""

    name: str
    column: str


def _precision_of(counter: str) -> _Precision:
    vector = {"flop_count_sp": "fp32", "flop_count_hp": "fp16", "flop_count_dp": "fp64"}
    if counter in vector:
        return _Precision(vector[counter], "flop_count" if counter == "flop_count_sp" else counter)
    types = counter.removeprefix(TENSOR_PREFIX)
    return _Precision(types if types in QUANTITIES else f"{types}_tensor", counter)


_MEASURED = "measured"  # a `work_basis`
_MOVED = Moved("flop_with_traffic", "traffic_bytes", "traffic_ns")
_PRECISIONS = tuple(_precision_of(counter) for counter in FLOP_COUNTS)


def require_flops(rows: pl.DataFrame, subject: str) -> None:
    """XspError where the rows hold flop of no kernel."""
    counts = [p.column for p in _PRECISIONS if p.column in rows.columns]
    if all(rows[c].null_count() == rows.height for c in counts):
        raise XspError(
            f"{subject} needs flop counts, and no kernel of this trace has one, measured or modelled",
            advice="Record shapes (record_shapes=True), or measure flop_count_sp (or another precision's) in a run of"
            " its own and join it with xsp merge",
        )


def by_precision(rows: pl.DataFrame) -> pl.DataFrame:
    """One row a row and precision whose flops are known, with `precision` and `place` to sort the precisions by.

    `flop_count` and `counted_ns` become that precision's. Of a row's precisions those without any work are left out,
    but for the first one where there is no work in any.
    """
    counts = [(p, n) for n, p in enumerate(_PRECISIONS) if p.column in rows.columns]
    shared = [c for c in rows.columns if c not in {name for p, _ in counts for name in _own(p)}]
    idle = ~pl.any_horizontal(pl.col(p.column) > 0 for p, _ in counts).fill_null(value=False)
    parts = []
    for index, (precision, order) in enumerate(counts):
        count = pl.col(precision.column)
        is_first = pl.all_horizontal(pl.lit(value=True), *(pl.col(p.column).is_null() for p, _ in counts[:index]))
        parts.append(
            rows.filter(count.is_not_null() & ((count > 0) | (idle & is_first))).select(
                *shared,
                pl.lit(precision.name).alias("precision"),
                pl.lit(order, pl.Int64).alias("place"),
                count.cast(pl.Float64).alias("flop_count"),
                _counted_duration(precision, rows.columns),
                *_traffic(precision, rows.columns),
            )
        )
    return pl.concat(parts)


def _counted_duration(precision: _Precision, columns: Sequence[str]) -> pl.Expr:
    """The time that the count refers to: of single kernels all of it."""
    time = counted_time(precision.column)
    return pl.col(time if time in columns else "duration_ns").cast(pl.Float64).alias("counted_ns")


def _traffic(precision: _Precision, columns: Sequence[str]) -> list[pl.Expr]:
    """Flop, bytes and time of which intensity and bandwidth are: of single kernels their own."""
    names = Moved.of(precision.column)
    if names.flop in columns:
        values = [pl.col(name) for name in names.names]
    else:
        values = [pl.col(precision.column), moved_bytes(columns), _counted_duration(precision, columns)]
    return [value.cast(pl.Float64).alias(name) for name, value in zip(_MOVED.names, values, strict=True)]


def _own(precision: _Precision) -> tuple[str, ...]:
    return precision.column, counted_time(precision.column), *Moved.of(precision.column).names


def under_roof(rows: pl.DataFrame, peaks: pl.DataFrame, *, on: Sequence[str] = ()) -> pl.DataFrame:
    """The rows of `by_precision` with `columns.ROOF_COLUMNS`; `on`: columns that tell which peaks are whose."""
    peak = peaks.filter(pl.col("quantity") != BANDWIDTH).rename({"quantity": "precision"})
    held = rows.join(peak, on=[*on, "precision"], how="left", nulls_equal=True, maintain_order="left")
    held = _with_bandwidth(held, peaks.filter(pl.col("quantity") == BANDWIDTH), on)
    flop, moved, moved_ns = (pl.col(name) for name in _MOVED.names)
    return (
        held.with_columns(
            formulas.arithmetic_intensity(flop, moved, pl.lit(0.0)).alias("arithmetic_intensity"),
            formulas.flop_per_s(pl.col("flop_count"), pl.col("counted_ns")).alias("flop_per_s"),
            formulas.flop_per_s(moved, moved_ns).alias("byte_per_s"),
            quotient(pl.col("peak"), pl.col("bandwidth")).alias("ideal_intensity"),
        )
        .with_columns(_binding_side())
        .with_columns(*_roof(has_basis="work_basis" in held.columns))
    )


def _with_bandwidth(rows: pl.DataFrame, peaks: pl.DataFrame, on: Sequence[str]) -> pl.DataFrame:
    bandwidth = peaks.select(*on, pl.col("peak").alias("bandwidth"), pl.col("words").alias("bandwidth_words"))
    if on:
        return rows.join(bandwidth, on=on, how="left", nulls_equal=True, maintain_order="left")
    value, text = bandwidth.row(0) if bandwidth.height else (None, None)
    return rows.with_columns(bandwidth=pl.lit(value, pl.Float64), bandwidth_words=pl.lit(text, pl.String))


def _binding_side() -> pl.Expr:
    below = pl.col("arithmetic_intensity") < pl.col("ideal_intensity")
    return pl.when(below).then(pl.lit("memory")).when(~below).then(pl.lit("compute")).alias("bound")


def _roof(*, has_basis: bool) -> list[pl.Expr]:
    """The roof over each row. Below the ridge its share is that of bandwidth, which holds without any flop too.

    Of modelled work one above 1 says that caches held operands, or kernels did with fewer flop: what B23 tells.
    """
    memory, compute = pl.col("bound") == "memory", pl.col("bound") == "compute"
    bandwidth, peak = pl.col("bandwidth"), pl.col("peak")
    unknown = (
        pl.when(pl.col("arithmetic_intensity").is_null())
        .then(pl.lit("unknown: DRAM traffic was not measured, or there was none"))
        .when(peak.is_null())
        .then(pl.format("unknown: no {} peak of the device is known", "precision"))
        .otherwise(pl.lit("unknown: no DRAM bandwidth of the device is known"))
    )
    reached = pl.when(memory).then(quotient(pl.col("byte_per_s"), bandwidth)).when(compute).then(
        quotient(pl.col("flop_per_s"), peak)
    )  # fmt: skip
    is_measured = pl.col("work_basis") == _MEASURED if has_basis else pl.lit(value=True)
    return [
        pl.when(memory).then(pl.col("arithmetic_intensity") * bandwidth).when(compute).then(peak)
        .alias("roof_flop_per_s"),
        pl.when(is_measured | (reached <= 1)).then(reached).alias("roof_share"),
        pl.when(memory).then(pl.col("bandwidth_words")).when(compute).then(pl.col("words")).otherwise(unknown)
        .alias("roof"),
    ]  # fmt: skip


def ideal_intensity(view: TraceView) -> float | None:
    """Peak flop/s over peak byte/s where all devices that did work agree on it; null: unknown or they differ."""
    used = (
        view.own_runs.scan("spans").filter(pl.col("attribution").is_not_null()).select("run_id", "device_id").unique()
    )
    ratio = quotient(pl.col("fp32_flop_per_s"), pl.col("dram_byte_per_s"))
    devices = view.trace.scan("devices").join(used, on=["run_id", "device_id"], how="semi")
    values = devices.select(ratio.alias("ideal")).collect()["ideal"].unique().to_list()
    return values[0] if len(values) == 1 else None
