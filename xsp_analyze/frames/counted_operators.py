"""The operators that work is counted by: modelled work, its least time, and the device work that they launched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.formulas import known_sum, quotient
from xsp_analyze.frames.call_labels import case_labels, place_labels
from xsp_analyze.frames.call_roofs import roofed_calls
from xsp_analyze.frames.group_ids import group_ids, numbers_by_appearance
from xsp_analyze.frames.kernels.activities import column_at, origins
from xsp_analyze.frames.kernels.kernel_means import counted_work, step_work
from xsp_analyze.frames.operator_calls import call_of_work, operator_calls
from xsp_model.arrays import nullable_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.trace.step_view import StepView
    from xsp_model.arrays import Ints

__all__ = ["BY_NAME", "BY_SHAPE", "calls_made", "operator_work", "rates_and_roof"]

BY_NAME = ("name",)
BY_SHAPE = ("name", "shapes", "dtypes")
"""What calls may be told apart by: the name, or also the sizes and types of the tensors that they take."""

_SUMMED_AMOUNTS = (
    "modelled_flop",
    "modelled_bytes",
    "vector_flop",
    "bus_bytes",
    "roof_ns",
    "device_flop",
    "device_bytes",
)
_NS_PER_S = 1e9
_WORK = ("work_ns", "work_count", "flop_count", "dram_read_bytes", "dram_write_bytes")
_HOST = ("count", "modelled_count", *_SUMMED_AMOUNTS)


def operator_work(frames: StepView, keys: Sequence[str] = BY_NAME, *, on_device: bool = False) -> pl.DataFrame:
    """One row a value of the keys (and step, where each is answered): its calls, modelled and measured work.

    See `operator_calls` for which operators count, `call_roofs` for `roof_ns`; `roofed_device_ns` is the device time
    of the calls that have one. Beside them the columns of `case_labels`. `on_device`: only calls that launched device
    work count, and the columns of `place_labels` say where they were.
    """
    roofed = frames.of_trace.once(roofed_calls)
    group_of, first = numbers_by_appearance(*group_ids(roofed.cases.select(keys)))
    cases = roofed.cases.select(*_amounts(), pl.Series("group", group_of))
    host = frames.combine(_per_step(frames, cases, on_device=on_device), ["group"], _HOST)
    both = host.join(
        _device_work(frames, cases), on=[*frames.by, "group"], how="full", coalesce=True, maintain_order="left_right"
    ).with_columns(pl.col("device_sum_ns", "modelled_device_ns", "roofed_device_ns").fill_null(0))
    labels = roofed.cases.select(keys)[first].with_row_index("group").with_columns(pl.col("group").cast(pl.Int64))
    count = np.bincount(roofed.case_of, minlength=roofed.cases.height)
    parts = [labels, case_labels(roofed.cases, group_of, count)]
    parts += [_launched_places(frames, group_of)] if on_device else []
    for part in parts:
        both = both.join(part, on="group", how="left", maintain_order="left")
    return both.drop("group").rename({"name": "operator"})


def _launched_places(frames: StepView, group_of: Ints) -> pl.DataFrame:
    """`place_labels` of the calls that launched device work."""
    roofed, calls = frames.of_trace.once(roofed_calls), frames.of_trace.once(operator_calls).calls
    launched = roofed.cases["launched"].to_numpy()[roofed.case_of]
    return place_labels(frames.trace, calls.filter(pl.Series(launched)), group_of[roofed.case_of[launched]])


def calls_made(frames: StepView) -> pl.DataFrame:
    """The calls that ran: row (of `OperatorCalls.calls`), run_id, step; those replayed by graphs once a replay.

    What was captured in the run itself did nothing then: its replays are what ran.
    """
    calls = frames.of_trace.once(operator_calls).calls.select(pl.int_range(pl.len()).alias("row"), "run_id", "step")
    replayed = _replays_of_calls(frames)
    made = frames.of_trace.kernel_runs.of(calls)
    if replayed.is_empty():
        return made
    captured = pl.col("row").is_in(replayed["row"].unique().implode())
    return pl.concat([made.filter(~captured), replayed.select(made.columns)])


def rates_and_roof() -> list[pl.Expr]:
    """Of rows of `operator_work` intensity, rates, roof_share and gain_ns; null where nothing tells them."""
    roof, spent = pl.col("roof_ns"), pl.col("roofed_device_ns")
    moved, busy = pl.col("modelled_bytes"), pl.col("modelled_device_ns")
    return [
        pl.when(moved > 0).then(quotient(pl.col("modelled_flop"), moved)).alias("modelled_intensity"),
        pl.when(busy > 0).then(quotient(pl.col("device_flop") * _NS_PER_S, busy)).alias("modelled_flop_per_s"),
        pl.when(busy > 0).then(quotient(pl.col("device_bytes") * _NS_PER_S, busy)).alias("modelled_byte_per_s"),
        pl.when(spent > 0).then(quotient(roof, spent)).alias("roof_share"),
        pl.when(roof.is_not_null()).then((spent - roof).clip(lower_bound=0.0)).alias("gain_ns"),
    ]


def _amounts() -> list[pl.Expr]:
    """Work of a call of each case; flop and bytes null where it is not modelled, or one of its bytes is not known.

    `device_flop` and `device_bytes` are of calls that launched device work: what rates are of.
    """
    flop, moved = pl.col("flop"), pl.col("read_bytes") + pl.col("written_bytes")
    on_device = pl.when("launched")
    return [
        flop.alias("modelled_flop"),
        moved.alias("modelled_bytes"),
        *map(pl.col, _SUMMED_AMOUNTS[2:5]),
        on_device.then(flop).alias("device_flop"),
        on_device.then(moved).alias("device_bytes"),
        (flop.is_not_null() | moved.is_not_null() | pl.col("bus_bytes").is_not_null()).alias("modelled"),
        pl.col("launched"),
    ]


def _per_step(frames: StepView, cases: pl.DataFrame, *, on_device: bool) -> pl.DataFrame:
    """Calls and work of each group in each step of each run."""
    made = calls_made(frames)
    rows = made.select(
        "run_id", "step", pl.Series("case", frames.of_trace.once(roofed_calls).case_of[made["row"].to_numpy()])
    )
    number, first = numbers_by_appearance(*group_ids(rows))
    count = pl.Series("count", np.bincount(number, minlength=len(first)), dtype=pl.Int64)
    distinct = rows[first].with_columns(count)
    held = distinct.hstack(cases[distinct["case"].to_numpy()])
    held = held.filter("launched") if on_device else held
    return held.group_by("run_id", "step", "group", maintain_order=True).agg(
        pl.col("count").sum(),
        pl.col("count").filter("modelled").sum().alias("modelled_count"),
        *(known_sum(pl.col(amount) * pl.col("count")).alias(amount) for amount in _SUMMED_AMOUNTS),
    )


def _replays_of_calls(frames: StepView) -> pl.DataFrame:
    """Calls whose work graphs replayed: one each replay, of the run and step of the replay."""
    work = frames.of_trace.device_work
    is_replay = pl.Series(origins(frames.trace, work["span_id"]) != work["span_id"].to_numpy())
    rows = pl.Series("row", frames.of_trace.once(call_of_work)).filter(is_replay)
    replayed = work.filter(is_replay).select("run_id", "step", "span_id").with_columns(rows)
    launched_by = column_at(frames.trace, "parent_id", replayed["span_id"])
    return replayed.with_columns(launched_by).drop("span_id").filter(pl.col("row") >= 0).unique(maintain_order=True)


def _device_work(frames: StepView, cases: pl.DataFrame) -> pl.DataFrame:
    """One row a group of operators that launched device work, by themselves or by others: time and counters."""
    work, row = _work(frames)
    at = pl.Series(frames.of_trace.once(roofed_calls).case_of).gather(nullable_index(row)).fill_null(-1).to_numpy()
    cased = cases.select("group", "modelled", pl.col("roof_ns").is_not_null().alias("roofed"))
    rows = work.filter(pl.Series(at >= 0)).hstack(cased[at[at >= 0]])
    moved = (pl.col("dram_read_bytes") + pl.col("dram_write_bytes")) * pl.col("work_count")
    time = pl.col("work_ns").sort() if frames.averaged else pl.col("work_ns")
    # Of fractions sorted, else threads show in the last digit of a sum.
    return rows.group_by(*frames.by, "group", maintain_order=True).agg(
        time.sum().alias("device_sum_ns"),
        _sum_of("modelled", averaged=frames.averaged).alias("modelled_device_ns"),
        _sum_of("roofed", averaged=frames.averaged).alias("roofed_device_ns"),
        known_sum(pl.col("flop_count") * pl.col("work_count")).alias("measured_flop"),
        known_sum(moved).alias("dram_bytes"),
    )


def _sum_of(rows: str, *, averaged: bool) -> pl.Expr:
    time = pl.col("work_ns").filter(rows)
    return (time.sort() if averaged else time).sum()


def _work(frames: StepView) -> tuple[pl.DataFrame, Ints]:
    """The device work of the steps chosen as `StepView.work` counts it, and the row of calls that each counts for.

    Of whole steps it takes no more than its own rows: those of millions of kernels are not described for it.
    """
    of_trace = frames.of_trace
    if frames.averaged:
        return frames.once(step_work).select(*frames.by, *_WORK), of_trace.once(operator_calls).rows_of(
            frames.once(step_work)["origin_id"]
        )
    rows = frames.chosen(of_trace.once(counted_work).with_columns(pl.Series("row", of_trace.once(call_of_work))))
    counted = rows.select(*frames.by, pl.col("duration_ns").alias("work_ns"), pl.lit(1).alias("work_count"), *_WORK[2:])
    return counted, rows["row"].to_numpy()
