"""Communication kernels as operations of process groups, matched between the ranks of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.kernels.kernel_classes import IS_COMMUNICATION, communication_names
from xsp_analyze.frames.rank_units import rank_units
from xsp_analyze.frames.recorded_collectives import group_label, recorded_facts
from xsp_model import Kind
from xsp_model.intervals import coverage_before, merge

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace

__all__ = ["bus_factor", "message_bytes", "modelled_collectives", "operations", "with_sizes"]

_UNIT = ("run_id", "process_id", "device_id")


def bus_factor(operation: pl.Expr, ranks: pl.Expr) -> pl.Expr:
    """Bytes over each rank's link per byte of `message_bytes`; null for a group of one, and where none is defined.

    Source: nccl-tests, doc/PERFORMANCE.md.
    """
    others = (ranks - 1) / ranks
    factor = (
        pl.when(operation == "all_reduce")
        .then(2 * others)
        .when(operation.is_in(["all_gather", "reduce_scatter", "all_to_all"]))
        .then(others)
        .when(operation.is_in(["broadcast", "reduce", "send", "recv", "send_recv"]))
        .then(pl.lit(1.0))
    )
    return pl.when(ranks > 1).then(factor)


def message_bytes(ranks: pl.Expr) -> pl.Expr:
    """The size that nccl-tests takes rates of: what is gathered or scattered as a whole, else a rank's input.

    Versions of the framework differ in whether one part or the whole is the input of a gather or scatter: null where
    input and output do not differ by the number of ranks.
    """
    sent, received, operation = pl.col("input_bytes"), pl.col("output_bytes"), pl.col("operation")
    return (
        pl.when(operation == "all_gather")
        .then(pl.when(received == sent * ranks).then(received))
        .when(operation == "reduce_scatter")
        .then(pl.when(sent == received * ranks).then(sent))
        .when(operation == "recv")
        .then(pl.coalesce(received, sent))
        .otherwise(sent)
        .alias("message_bytes")
    )


def operations(frames: StepView) -> pl.DataFrame:
    """One row a communication kernel: run_id, step, operation, process_group, group_size, number, times and bytes.

    `rank` as `rank_units` has it. `operation` is what the framework
    calls it, or else what the kernel's name says. `process_group` is the group's name and ranks as recorded, null where
    nothing is recorded. `number` counts the operation in its rank, step and group, in order of launch. `exposed_ns` is
    the time in which nothing else computed on the device; `input_bytes` and `output_bytes` are null where not recorded.
    """
    described = _recorded_kernels(frames.of_trace)
    calls = ["run_id", "rank", "step", "process_group", "operation"]
    return (
        described.hstack([_ranks(frames.of_trace, described), _exposed_times(frames, described)])
        .sort("launch_ns", "start_ns", "span_id")
        .with_columns(pl.int_range(pl.len(), dtype=pl.Int64).over(calls).alias("number"))
        .select(*calls, "group_size", "number", "start_ns", "duration_ns", "exposed_ns", "input_bytes", "output_bytes")
    )


def modelled_collectives(frames: TraceView) -> pl.DataFrame:
    """One row a communication kernel, in order of span_id: span_id and bus_bytes, what its rank sends to others.

    By what is recorded of it and by `bus_factor`; 0 in a group of one, null where size or group are not known.
    """
    rows = with_sizes(frames.trace, _recorded_kernels(frames))
    alone = pl.when(pl.col("ranks") == 1, pl.col("message_bytes").is_not_null()).then(0.0)
    sent = pl.col("message_bytes") * bus_factor(pl.col("operation"), pl.col("ranks"))
    return rows.select("span_id", pl.coalesce(alone, sent).alias("bus_bytes")).sort("span_id")


def with_sizes(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with `ranks`, the size of the group or else of the job, and `message_bytes`."""
    sizes = trace.frame("runs")["world_size"].drop_nulls().unique()
    job = int(sizes[0]) if len(sizes) == 1 else None
    of_job = pl.when(pl.col("process_group").is_null()).then(pl.lit(job, pl.Int64))
    return rows.with_columns(pl.coalesce("group_size", of_job).alias("ranks")).with_columns(
        message_bytes(pl.col("ranks"))
    )


def _recorded_kernels(frames: TraceView) -> pl.DataFrame:
    """The communication kernels with what is recorded of each, `process_group` and `operation`."""
    kernels = frames.all_activities.filter(pl.col("kind") == str(Kind.KERNEL), IS_COMMUNICATION)
    by_name = pl.col("collective").cast(pl.String).fill_null("other")
    described = kernels.hstack(recorded_facts(frames.trace, kernels["span_id"].to_numpy())).filter(_is_call(kernels))
    return described.with_columns(pl.coalesce("operation", by_name).alias("operation"), group_label())


def _is_call(kernels: pl.DataFrame) -> pl.Expr:
    """Of kernels with what is recorded: those that communicate by name, and those of which no recorded call has these.

    Within a call of the framework others pack and unpack what is sent: of its class, but no calls of their own.
    """
    named = communication_names(kernels["name"])
    return pl.col("name").cast(pl.String).is_in(named.implode()) | pl.col("operation").is_null()


def _ranks(frames: TraceView, kernels: pl.DataFrame) -> pl.Series:
    """Of each kernel the rank that ran it."""
    units = rank_units(frames)
    return kernels.select(_UNIT).join(units, on=_UNIT, how="left", nulls_equal=True, maintain_order="left")["rank"]


def _exposed_times(frames: StepView, kernels: pl.DataFrame) -> pl.Series:
    """How long each ran while no kernel but communication did on its device."""
    out = np.zeros(kernels.height, dtype=np.int64)
    kinds = [str(Kind.KERNEL), str(Kind.GRAPH)]
    compute = frames.of_trace.all_activities.filter(pl.col("kind").cast(pl.String).is_in(kinds), ~IS_COMMUNICATION)
    for (run, device), rows in kernels.with_row_index("row").group_by("run_id", "device_id"):
        beside = compute.filter(pl.col("run_id") == run, pl.col("device_id").eq_missing(pl.lit(device, pl.Int64)))
        start = rows["start_ns"].to_numpy()
        end = start + rows["duration_ns"].to_numpy()
        busy = merge(beside["start_ns"].to_numpy(), (beside["start_ns"] + beside["duration_ns"]).to_numpy())
        out[rows["row"].to_numpy()] = end - start - (coverage_before(busy, end) - coverage_before(busy, start))
    return pl.Series("exposed_ns", out)
