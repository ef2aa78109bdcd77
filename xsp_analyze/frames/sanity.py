"""Flags on numbers that cannot be right: measured work held against the device, the tensors and the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import quotient, total_of
from xsp_analyze.frames.kernels.activities import are_known, summed_columns
from xsp_analyze.frames.kernels.kernel_means import chosen_activities, kernel_executions, named_work
from xsp_analyze.frames.kernels.roofline import DEVICE, by_precision, device_peaks, under_roof
from xsp_analyze.frames.layer_modelled_work import layer_work
from xsp_analyze.frames.layers.layer_time import LAYER_KEY, layer_bases, layer_calls, layer_latencies
from xsp_model import Attribution, Finding, Kind, LedgerKind, Phase, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.trace.step_view import StepView

__all__ = ["flags"]

_ROUNDING = 1e-6
_CALL_ROUNDING_NS = 1_000  # profilers write whole microseconds
_LARGEST_CACHE_BYTES = 256 << 20  # what the last cache of today's devices holds at most
_FAR = 4  # fast convolutions need up to so many times fewer flops than the plain one
_MAX_NAMED = 3
_LOST = "Check that the counters are of these kernels, and of all of them"
_CACHED = "Measure with caches flushed between kernels (ncu --cache-control all) to be sure"
_FLOPS = "Measure the flop counts of every precision, tensor cores included"
_PEAKS = "Check the peak rates (xsp devices, --device FILE.toml), and that counters and durations are of the same work"


def flags(frames: StepView, *, on_layers: bool = True) -> Iterator[Finding]:
    """Findings of kinds `sanity_*`, over the steps chosen; one that counts nothing says nothing.

    `on_layers` false leaves out whether layers fit in their steps.
    """
    yield from _sums(frames)
    if on_layers:
        yield _of_steps(frames)
    if frames.of_trace.device_work.is_empty() or not are_known(frames.once(named_work)):
        return
    yield from _above_roof(frames)
    yield from _occupancy(frames.once(kernel_executions))
    if not frames.of_trace.once(layer_calls).is_empty():
        held = _beside_model(frames)
        yield from _short_of_tensors(
            held, ("dram_read_bytes", "input_bytes"), "read fewer bytes than their input tensors hold"
        )
        yield from _short_of_tensors(
            held, ("dram_write_bytes", "output_bytes"), "wrote fewer bytes than their output tensor holds"
        )
        yield from _far_from_model(held)


def _finding(
    kind: str,
    what: str,
    rows: pl.DataFrame,
    text: pl.Expr,
    advice: str,
    *,
    severity: Severity = Severity.WARNING,
) -> Finding:
    """The finding on these rows, the first of which are named by `text`."""
    named = rows.head(_MAX_NAMED).select(text.alias("words"))["words"].to_list()
    others = f" and {rows.height - len(named)} more" if rows.height > len(named) else ""
    duration = round(rows["duration_ns"].sum()) if "duration_ns" in rows.columns else None
    detail = f"{what}: {', '.join(named)}{others}"
    return Finding(LedgerKind(f"sanity_{kind}"), detail, rows.height, severity, duration, advice)


def _above_roof(frames: StepView) -> Iterator[Finding]:
    rows = by_precision(frames.once(kernel_executions).with_row_index("execution"))
    above = (
        under_roof(rows, device_peaks(frames), on=DEVICE)
        .filter(pl.col("roof_share") > 1 + _ROUNDING)
        .sort("execution", "place")
        .unique("execution", keep="first", maintain_order=True)
        .with_columns(pl.col("kernel_name").cast(pl.String))
    )
    share = (pl.col("roof_share") * 100).round(1)
    text = pl.format("{} in {} ({} % of the {} roof)", "kernel_name", _layer_or("no layer"), share, "precision")
    yield _finding("above_roof", "kernels did more than their device can", above, text, _PEAKS)


def _layer_or(otherwise: str) -> pl.Expr:
    return pl.col("layer_name").cast(pl.String).fill_null(otherwise)


def _occupancy(executions: pl.DataFrame) -> Iterator[Finding]:
    value = pl.col("achieved_occupancy")
    odd = executions.filter(value.is_not_null(), ~value.is_between(0, 1 + _ROUNDING))
    text = pl.format("{} in {} ({})", pl.col("kernel_name").cast(pl.String), _layer_or("no layer"), value)
    yield _finding("occupancy", "kernels whose achieved occupancy lies outside of 0 to 1", odd, text, _LOST)


def _beside_model(frames: StepView) -> pl.DataFrame:
    """One row a layer (and step) all of whose forward kernels were measured: per call, its counters and its work."""
    keys = [*frames.by, *LAYER_KEY]
    calls = frames.once(layer_latencies).select(*keys, "call_count").filter(pl.col("call_count") > 0)
    per_call = (
        quotient(pl.col(c), pl.col("call_count")) for c in ("dram_read_bytes", "dram_write_bytes", "measured_flop")
    )
    return (
        _forward(frames, keys)
        .join(calls, on=keys, how="inner", nulls_equal=True, maintain_order="left")
        .join(layer_work(frames.of_trace), on=LAYER_KEY, how="inner", maintain_order="left")
        .with_columns(*per_call)
        .sort(keys, nulls_last=True)
    )


def _forward(frames: StepView, keys: Sequence[str]) -> pl.DataFrame:
    """Sums over each layer's forward work; bytes of copies count too. Null where a kernel was not measured."""
    copies = frames.trace.frame("copies").select("span_id", pl.col("bytes").alias("copied_bytes"))
    phase = pl.col("phase").cast(pl.String)
    work = (
        frames.once(kernel_executions)
        .filter(pl.col("attribution") == str(Attribution.LAYER), phase.is_null() | (phase == str(Phase.FORWARD)))
        .join(copies, on="span_id", how="left", maintain_order="left")
    )
    flops = [c for c in summed_columns(work) if c.startswith("flop_count")]
    is_kernel = pl.col("kind") == str(Kind.KERNEL)
    copied = pl.col("copied_bytes").fill_null(0) * pl.col("count")
    every_flop = pl.when(pl.any_horizontal(pl.col(flops).is_not_null())).then(pl.sum_horizontal(flops))
    return (
        work.with_columns(
            pl.when(is_kernel).then(pl.col("dram_read_bytes")).otherwise(copied).alias("dram_read_bytes"),
            pl.when(is_kernel).then(pl.col("dram_write_bytes")).otherwise(copied).alias("dram_write_bytes"),
            pl.when(is_kernel).then(every_flop).otherwise(0.0).alias("measured_flop"),
        )
        .group_by(keys, maintain_order=True)
        .agg(
            pl.when(pl.col(c).is_not_null().all() & is_kernel.any()).then(pl.col(c).sum()).alias(c)
            for c in ("dram_read_bytes", "dram_write_bytes", "measured_flop")
        )
    )


def _short_of_tensors(held: pl.DataFrame, columns: tuple[str, str], what: str) -> Iterator[Finding]:
    moved, size = (pl.col(c) for c in columns)
    short = held.filter(moved < size * (1 - _ROUNDING))
    lost = short.filter(size - moved > _LARGEST_CACHE_BYTES)
    cached = short.filter(size - moved <= _LARGEST_CACHE_BYTES)
    integers = (pl.col(c).round().cast(pl.Int64) for c in columns)
    text = pl.format("{} ({} of {} bytes)", pl.col("layer_name").cast(pl.String), *integers)
    yield _finding(columns[0], f"layers whose kernels {what}", lost, text, _LOST)
    maybe = f"layers whose kernels {what}, by so little that a cache may have held the rest"
    yield _finding(columns[0], maybe, cached, text, _CACHED, severity=Severity.INFO)


def _far_from_model(held: pl.DataFrame) -> Iterator[Finding]:
    measured, modelled = pl.col("measured_flop"), pl.col("flop")
    far = held.filter((measured > _FAR * modelled) | (measured * _FAR < modelled))
    integers = (c.round().cast(pl.Int64) for c in (measured, modelled))
    text = pl.format("{} ({} measured, {} modelled)", pl.col("layer_name").cast(pl.String), *integers)
    what = "layers whose measured flops are over four times more or fewer than their shapes ask for"
    yield _finding("flop_count", what, far, text, _FLOPS)


def _sums(frames: StepView) -> Iterator[Finding]:
    """Device time must be the same before and after kernels are matched over steps; whole steps match none."""
    if not frames.averaged:
        return
    device, tables = (
        total_of(frames.once(chosen_activities)["mean_ns"]),
        total_of(frames.once(kernel_executions)["duration_ns"]),
    )
    if abs(device - tables) > _ROUNDING * device:
        detail = f"device time is {device:.0f} ns in the trace's steps, but {tables:.0f} ns in the tables over kernels"
        yield Finding(LedgerKind.SANITY_SUMS, detail)


def _of_steps(frames: StepView) -> Finding:
    """Layers must fit in their step."""
    text = pl.format("step {} of run {} ({} of {} ns)", "step", "run_id", "layers_ns", "host_ns")
    what = "steps whose layers, outside of each other on one thread, take longer than the step"
    advice = "The calls of these layers overlap; take layer latency from a run in which they do not"
    return _finding("sums", what, _overfull(frames), text, advice)


def _overfull(frames: StepView) -> pl.DataFrame:
    """Steps (of serialised runs) with the host time of their layers on one thread, where that exceeds the step's."""
    hosted = frames.of_trace.once(layer_bases).filter(pl.col("basis") == "host")["run_id"]
    calls = frames.of_trace.once(layer_calls).filter(pl.col("run_id").is_in(hosted.implode()))
    of_calls = pl.col("span_id").is_in(calls["span_id"].implode())  # so that the many others are not read
    threads = frames.trace.scan("spans").filter(of_calls).select("span_id", "process_id", "thread_id")
    sums = (
        calls.lazy()
        .join(threads, on="span_id", how="left")
        .group_by("run_id", "step", "process_id", "thread_id")
        .agg(pl.col("host_ns").sum().alias("layers_ns"), pl.len().alias("calls"))
        .collect()
    )
    rounding = pl.col("calls") * _CALL_ROUNDING_NS
    return (
        frames.steps.join(sums, on=["run_id", "step"], how="inner", maintain_order="left")
        .filter(pl.col("layers_ns") > pl.col("host_ns") + rounding)
        .sort("run_id", "step", "process_id", "thread_id")
    )
