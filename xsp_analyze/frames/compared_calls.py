"""Calls of operators of which both is known: what their shapes ask for at least, and what counters measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import known_sum
from xsp_analyze.frames.counters import moved_bytes, summed_columns
from xsp_analyze.frames.kernel_means import step_work
from xsp_analyze.frames.layer_time import LAYER_KEY
from xsp_analyze.frames.operator_calls import operator_calls
from xsp_model import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.trace.step_view import StepView
    from xsp_model import Trace

__all__ = ["compared_work"]

_AMOUNTS = ("bytes", "flop")
_TWICE = "Device-to-Device"  # each byte is read and written


def compared_work(frames: StepView, keys: Sequence[str]) -> pl.DataFrame:
    """One row a value of the keys (of `operator` and LAYER_KEY; and step): count and device_sum_ns of its calls.

    For bytes (DRAM traffic) and flop (of products) of the calls of which both is known: measured_X, modelled_X, their
    device time X_compared_ns. Null where there is none. A call is measured if all its kernels are; copies and fills
    count with the bytes that were recorded.
    """
    calls = _calls(frames)
    sums = [each for amount in _AMOUNTS for each in _amounts_of_both(amount)]
    return calls.group_by(*frames.by, *keys, maintain_order=True).agg(
        pl.col("calls").sum().alias("count"), pl.col("device_ns").sort().sum().alias("device_sum_ns"), *sums
    )


def _amounts_of_both(amount: str) -> list[pl.Expr]:
    measured, modelled = pl.col(f"measured_{amount}"), pl.col(f"modelled_{amount}")
    both = measured.is_not_null() & modelled.is_not_null()
    return [
        known_sum(measured.filter(both)).alias(f"measured_{amount}"),
        known_sum(modelled.filter(both)).alias(f"modelled_{amount}"),
        pl.col("device_ns").filter(both).sort().sum().alias(f"{amount}_compared_ns"),
    ]


def _calls(frames: StepView) -> pl.DataFrame:
    """One row a call that launched device work, of the steps chosen, a replay of it one each; amounts as in a step."""
    work = _measured_amounts(frames)
    unit = pl.Series("operator_id", frames.of_trace.once(operator_calls).rows_of(work["origin_id"]))
    replay = pl.when(pl.col("origin_id") != pl.col("span_id")).then("parent_id").alias("replay_id")
    launched = (
        work.with_columns(unit, replay)
        .filter(pl.col("operator_id") >= 0)
        .group_by("run_id", "step", "operator_id", "replay_id", maintain_order=True)
        .agg(
            pl.col("work_ns").sort().sum().cast(pl.Float64).alias("device_ns"),
            pl.col("work_count").first().alias("calls"),
            *(_if_all_known(f"measured_{amount}") for amount in _AMOUNTS),
            *(pl.col(c).drop_nulls().first() for c in LAYER_KEY),
        )
    )
    return launched.join(_modelled_amounts(frames), on="operator_id", how="left", maintain_order="left").with_columns(
        (pl.col(f"{whose}_{amount}") * pl.col("calls")) for whose in ("measured", "modelled") for amount in _AMOUNTS
    )


def _if_all_known(column: str) -> pl.Expr:
    return pl.when(pl.col(column).is_not_null().all()).then(pl.col(column).sum())


def _modelled_amounts(frames: StepView) -> pl.DataFrame:
    calls = frames.of_trace.once(operator_calls)
    rows = calls.kinds[calls.calls["kind"].to_numpy()]
    return rows.select(
        pl.int_range(pl.len()).alias("operator_id"),
        pl.col("name").alias("operator"),
        (pl.col("read_bytes") + pl.col("written_bytes")).alias("modelled_bytes"),
        pl.when(pl.col("flop") > 0).then("flop").alias("modelled_flop"),
    )


def _measured_amounts(frames: StepView) -> pl.DataFrame:
    """The work chosen with measured_bytes and measured_flop, of all precisions; null: not measured."""
    work = frames.once(step_work)
    flops = [c for c in summed_columns(work) if c.startswith("flop_count")]
    all_flop = pl.when(pl.any_horizontal(pl.col(flops).is_not_null())).then(pl.sum_horizontal(flops))
    is_kernel = pl.col("kind").cast(pl.String) == str(Kind.KERNEL)
    return work.join(_copied_bytes(frames.trace), on="span_id", how="left", maintain_order="left").with_columns(
        pl.when(is_kernel).then(moved_bytes(work.columns)).otherwise("copied_bytes").alias("measured_bytes"),
        pl.when(is_kernel).then(all_flop).otherwise(0.0).alias("measured_flop"),
    )


def _copied_bytes(trace: Trace) -> pl.DataFrame:
    """span_id and copied_bytes of copies and fills: what memory of the device reads and writes for them."""
    times = pl.when(pl.col("copy_kind").cast(pl.String) == _TWICE).then(2.0).otherwise(1.0)
    return trace.scan("copies").select("span_id", (pl.col("bytes") * times).alias("copied_bytes")).collect()
