"""Kernel executions with modelled work where no counter measured any; what was measured is left as it is.

The least work of an operator is shared among the kernels that it launched by their device time: each runs at its
operator's throughput, and sums over any group of kernels that holds whole operators are the operators' own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.attributions import share_among_layers
from xsp_analyze.frames.call_roofs import roofed_calls
from xsp_analyze.frames.counters import summed_columns
from xsp_analyze.frames.group_ids import group_ids, numbers_by_appearance
from xsp_analyze.frames.kernel_means import kernel_executions
from xsp_analyze.frames.operator_calls import call_of_work
from xsp_analyze.needs import holds
from xsp_model import Kind
from xsp_model.arrays import nullable_index
from xsp_model.counters import FLOP_COUNTS, TENSOR_PREFIX

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.arrays import Floats, Ints

__all__ = ["MEASURED", "MIXED", "MODELLED", "basis_of", "filled_executions", "filled_layer_executions", "kernel_work"]

MEASURED, MODELLED, MIXED = "measured", "modelled", "mixed"
"""Where flop and bytes are from: counters, shapes of operators, or the ones from these and the others from those."""

_FP32 = "flop_count"
_PLAIN = {"fp32": _FP32, "fp64": "flop_count_dp"}
_BYTES = {"dram_read_bytes": "read_bytes", "dram_write_bytes": "written_bytes"}


def kernel_work(frames: TraceView) -> pl.DataFrame:
    """One row a kernel of an operator whose work is modelled: span_id, flop counts as counters are named, and bytes.

    Null: not known. Copies and memsets have no such work.
    """
    roofed = frames.once(roofed_calls)
    cases = roofed.cases
    precisions = cases.filter(pl.col("flop") > 0)["precision"].drop_nulls().unique().sort()
    columns = {p: c for p in precisions if (c := _column(p)) is not None}
    is_known = cases["flop"].is_not_null() & cases["read_bytes"].is_not_null()
    work, row = frames.all_activities, frames.once(call_of_work)
    of_call = pl.Series(roofed.case_of, dtype=pl.Int64).gather(nullable_index(row))
    is_told = is_known.gather(of_call).fill_null(value=False)
    inside = ((work["kind"].cast(pl.String) == str(Kind.KERNEL)) & is_told).to_numpy()
    case = of_call.fill_null(-1).to_numpy()
    rows = work.filter(pl.Series(inside)).select(
        "span_id",
        # Of a graph each replay is a call of its own.
        pl.when(pl.col("origin_id") != pl.col("span_id")).then("parent_id").alias("replay"),
        pl.col("duration_ns").cast(pl.Float64),
    )
    call, _ = numbers_by_appearance(*group_ids([pl.Series(row[inside]), rows["replay"]]))
    share = _shares(call, rows["duration_ns"].to_numpy())
    amounts = cases.select(_work(columns))[case[inside]]
    return rows.select("span_id").hstack(amounts.select(pl.all() * pl.Series(share)))


def _shares(call: Ints, duration: Floats) -> Floats:
    """Each kernel's part of the device time of its call; equal parts where that is none."""
    total = np.bincount(call, weights=duration)[call]
    return np.where(total > 0, duration / np.where(total > 0, total, 1), 1 / np.bincount(call)[call])


def _column(precision: str) -> str | None:
    """The counter that has the products of this precision; None: none has."""
    name = _PLAIN.get(precision, f"{TENSOR_PREFIX}{precision}")
    return name if name == _FP32 or name in FLOP_COUNTS else None


def _work(columns: dict[str, str]) -> list[pl.Expr]:
    """A call's flop in each counter, and its bytes; all null where its products are of a precision without one."""
    is_counted = (pl.col("flop") == 0) | pl.col("precision").is_in(list(columns))
    amounts = {_FP32: pl.col("vector_flop").fill_null(0.0)}
    for precision, column in columns.items():
        own = pl.when(pl.col("precision") == precision).then("flop").otherwise(0.0)
        amounts[column] = amounts.get(column, pl.lit(0.0)) + own
    return [
        *(pl.when(is_counted).then(amount).alias(column) for column, amount in amounts.items()),
        *(pl.col(name).alias(column) for column, name in _BYTES.items()),
    ]


def filled_executions(frames: StepView) -> pl.DataFrame:
    """`executions` with modelled flop where none were measured, and bytes likewise; and `work_basis`."""
    rows = frames.once(kernel_executions)
    if not holds(frames.of_trace, "work"):  # then operators need not be looked at
        return rows.with_columns(pl.lit(None, pl.String).alias("work_basis"))
    work = kernel_work(frames.of_trace)
    flops = [c for c in work.columns if c.startswith("flop_count")]
    modelled = {c: f"modelled_{c}" for c in work.columns if c != "span_id"}
    missing = [c for c in flops if c not in rows.columns]
    joined = rows.with_columns(pl.lit(None, pl.Float64).alias(c) for c in missing).join(
        work.rename(modelled), on="span_id", how="left", maintain_order="left"
    )
    has_flop = pl.any_horizontal(pl.col(c).is_not_null() for c in summed_columns(joined) if c.startswith("flop_count"))
    has_bytes = pl.any_horizontal(
        pl.col(c).is_not_null() for c in summed_columns(joined) if not c.startswith("flop_count")
    )
    filled = [_filled_column(column, has_flop) for column in flops] + [
        _filled_column(column, has_bytes) for column in _BYTES
    ]
    return joined.with_columns(*filled, _basis(has_flop, has_bytes)).drop(modelled.values())


def _filled_column(column: str, is_measured: pl.Expr) -> pl.Expr:
    modelled = pl.col(f"modelled_{column}") * pl.col("count")
    return pl.when(is_measured).then(column).otherwise(modelled).alias(column)


def _basis(has_flop: pl.Expr, has_bytes: pl.Expr) -> pl.Expr:
    is_modelled = pl.col("modelled_dram_read_bytes").is_not_null()
    return (
        pl.when(has_flop & has_bytes).then(pl.lit(MEASURED))
        .when((has_flop | has_bytes) & is_modelled).then(pl.lit(MIXED))
        .when(has_flop | has_bytes).then(pl.lit(MEASURED))
        .when(is_modelled).then(pl.lit(MODELLED))
        .alias("work_basis")
    )  # fmt: skip


def filled_layer_executions(frames: StepView) -> pl.DataFrame:
    """`filled_executions` as sums over layers take them; see `StepView.layer_executions`."""
    rows = frames.once(filled_executions)
    return share_among_layers(
        frames.trace, rows, time="duration_ns", count="count", by_weight=tuple(summed_columns(rows))
    )


def basis_of() -> pl.Expr:
    """The `work_basis` of a group of rows: that of all of them that have one, else mixed."""
    bases = pl.col("work_basis").drop_nulls()
    return pl.when(bases.n_unique() > 1).then(pl.lit(MIXED)).otherwise(bases.first()).alias("work_basis")
