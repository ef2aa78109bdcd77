"""Work of kernels and layers that counters measured, and what modelled work fills in where none did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.formulas import known_sum
from xsp_analyze.frames.group_ids import group_ids, numbers_by_appearance
from xsp_analyze.frames.kernels.activities import counter_sums, moved_bytes, share_among_layers, summed_columns
from xsp_analyze.frames.kernels.kernel_means import (
    chosen_activities,
    kernel_executions,
    layer_executions,
    step_work,
)
from xsp_analyze.frames.layers.layer_time import LAYER_KEY, layer_latencies
from xsp_analyze.frames.operators.operator_calls import call_of_work, operator_calls
from xsp_analyze.frames.operators.operator_work import roofed_calls
from xsp_analyze.needs import holds
from xsp_model import Attribution, Kind
from xsp_model.columns.arrays import nullable_index
from xsp_model.vocabulary import FLOP_COUNTS, TENSOR_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace
    from xsp_model.columns.arrays import Floats, Ints

__all__ = [
    "GRAPH_REPLAY",
    "MEASURED",
    "MIXED",
    "MODELLED",
    "basis_of",
    "compared_work",
    "filled_executions",
    "filled_layer_executions",
    "kernel_work",
    "layer_kernels",
]

# Kernel executions with modelled work where no counter measured any; what was measured is left as it is.
#
# The least work of an operator is shared among the kernels that it launched by their device time: each runs at its
# operator's throughput, and sums over any group of kernels that holds whole operators are the operators' own.

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
    is_recorded = is_known.gather(of_call).fill_null(value=False)
    inside = ((work["kind"].cast(pl.String) == str(Kind.KERNEL)) & is_recorded).to_numpy()
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
    """`kernel_executions` with modelled flop where none were measured, and bytes likewise; and `work_basis`."""
    rows = frames.once(kernel_executions)
    if not holds(frames.of_trace, "work"):  # then operators need not be looked at
        return rows.with_columns(pl.lit(None, pl.String).alias("work_basis"))
    work = _work_of_executions(frames)
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


def _work_of_executions(frames: StepView) -> pl.DataFrame:
    """`kernel_work` of each of `kernel_executions`: of a mean step the mean over the kernels that its time is of."""
    work = kernel_work(frames.of_trace)
    if not frames.is_mean:
        return work
    amounts = [c for c in work.columns if c != "span_id"]
    rows = frames.once(chosen_activities).select("span_id", "execution", "kept")
    kept = [pl.col(c).filter("kept") for c in amounts]
    means = (
        rows.join(work, on="span_id", how="left", maintain_order="left")
        .group_by("execution", maintain_order=True)
        .agg(
            pl.col("span_id").first(),
            *(
                pl.when(each.null_count() == 0).then(each.mean()).alias(c)
                for c, each in zip(amounts, kept, strict=True)
            ),
        )
    )
    return means.drop("execution")


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
    """`filled_executions` as sums over layers take them; see `kernel_means.layer_executions`."""
    rows = frames.once(filled_executions)
    return share_among_layers(
        frames.trace, rows, time="duration_ns", count="count", by_weight=tuple(summed_columns(rows))
    )


def basis_of() -> pl.Expr:
    """The `work_basis` of a group of rows: that of all of them that have one, else mixed."""
    bases = pl.col("work_basis").drop_nulls()
    return pl.when(bases.n_unique() > 1).then(pl.lit(MIXED)).otherwise(bases.first()).alias("work_basis")


# Layers beside the device work that belongs to them.

GRAPH_REPLAY = "graph replay"
"""Name and type of the row that holds replayed device work which no layer can be given for."""


def layer_kernels(frames: StepView, *, filled: bool = False) -> pl.LazyFrame:
    """One row a layer, in order: latency, kernel_count, kernel_duration_ns (0: none), non_kernel_ns, counters.

    `span_id` is its longest kernel. non_kernel_ns is layer_latency_ns less kernel_duration_ns as it is, negative where
    kernels outlast the layer. Where graphs were replayed a last row, without index and latency, holds the work that
    cannot be put in a layer. `filled`: where nothing was measured counters are as modelled, and `work_basis` says so;
    see `filled_executions`.
    """
    keys = [*frames.by, *LAYER_KEY]
    work = frames.once(filled_layer_executions) if filled else frames.once(layer_executions)
    longest = pl.col("span_id").sort_by(-pl.col("duration_ns"), "span_id").first()
    sums = (*counter_sums(work), pl.col("count").sum().alias("kernel_count"), pl.col("duration_ns").sum(), longest)
    sums = (*sums, basis_of()) if filled else sums
    belongs = pl.col("attribution") == str(Attribution.LAYER)
    in_layers = work.filter(belongs).group_by(keys, maintain_order=True).agg(sums)
    replays = (
        work.filter(pl.col("attribution") == str(Attribution.GRAPH_REPLAY))
        .with_columns(pl.lit(None, pl.Int64).alias("layer_index"))
        .group_by(*frames.by, "layer_index", maintain_order=True)
        .agg(pl.lit(GRAPH_REPLAY).alias("layer_name"), pl.lit(GRAPH_REPLAY).alias("layer_type"), *sums)
    )
    latency = frames.once(layer_latencies).lazy().select(*keys, pl.col("latency_ns").alias("layer_latency_ns"))
    layers = latency.join(in_layers.lazy(), on=keys, how="full", coalesce=True, nulls_equal=True)
    return (
        pl.concat([_as_text(layers), _as_text(replays.lazy())], how="diagonal_relaxed")
        .with_columns(pl.col("duration_ns", "kernel_count").fill_null(0))
        .rename({"duration_ns": "kernel_duration_ns"})
        .with_columns((pl.col("layer_latency_ns") - pl.col("kernel_duration_ns")).alias("non_kernel_ns"))
        .sort(keys, nulls_last=True)
    )


def _as_text(frame: pl.LazyFrame) -> pl.LazyFrame:
    return frame.with_columns(pl.col("layer_name", "layer_type").cast(pl.String))


# Calls of operators of which both is known: what their shapes ask for at least, and what counters measured.

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
            # Time and amounts of the same calls: none is left out of a mean step's.
            (pl.col("duration_ns").sum() * pl.col("work_count").first()).cast(pl.Float64).alias("device_ns"),
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
