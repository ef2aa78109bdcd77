"""Communication kernels as operations of process groups, matched between the ranks of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.kernel_classes import IS_COMMUNICATION, communication_names
from xsp_analyze.frames.recorded_collectives import group_label, recorded_facts
from xsp_model import Kind
from xsp_model.intervals import covered_before, merge

if TYPE_CHECKING:
    from xsp_analyze.frames.step_frames import StepFrames
    from xsp_model import Trace

__all__ = ["PAIRWISE", "bus_factor", "message_bytes", "operations"]

PAIRWISE = ("send", "recv")
"""Operations of two ranks each time: the n-th of one rank of a group is no other's n-th."""

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


def operations(frames: StepFrames) -> pl.DataFrame:
    """One row a communication kernel: run_id, step, operation, process_group, group_size, number, times and bytes.

    `rank` is the run's, or the device's where a run has several that communicate. `operation` is what the framework
    calls it, or else what the kernel's name says. `process_group` is the group's name and ranks as recorded, null where
    nothing is recorded. `number` counts the operation in its rank, step and group, in order of launch. `exposed_ns` is
    the time in which nothing else computed on the device; `input_bytes` and `output_bytes` are null where not recorded.
    """
    kernels = frames.of_trace.all_activities.filter(pl.col("kind") == str(Kind.KERNEL), IS_COMMUNICATION)
    by_name = pl.col("collective").cast(pl.String).fill_null("other")
    described = kernels.hstack(recorded_facts(frames.trace, kernels["span_id"].to_numpy())).filter(_is_call(kernels))
    calls = ["run_id", "rank", "step", "process_group", "operation"]
    return (
        described.hstack([_ranks(frames.trace, described), _exposed(frames, described)])
        .with_columns(pl.coalesce("operation", by_name).alias("operation"), group_label())
        .sort("launch_ns", "start_ns", "span_id")
        .with_columns(pl.int_range(pl.len(), dtype=pl.Int64).over(calls).alias("number"))
        .select(*calls, "group_size", "number", "start_ns", "duration_ns", "exposed_ns", "input_bytes", "output_bytes")
    )


def _is_call(kernels: pl.DataFrame) -> pl.Expr:
    """Of kernels with what is recorded: those that communicate by name, and those of which no recorded call has these.

    Within a call of the framework others pack and unpack what is sent: of its class, but no calls of their own.
    """
    named = communication_names(kernels["name"])
    return pl.col("name").cast(pl.String).is_in(named.implode()) | pl.col("operation").is_null()


def _ranks(trace: Trace, kernels: pl.DataFrame) -> pl.Series:
    """Of each kernel the rank that ran it: its run's, or where a run has several devices the device's."""
    runs = trace.frame("runs").select("run_id", pl.coalesce("rank", "run_id").alias("run_rank"))
    units = kernels.select(_UNIT).unique().sort(_UNIT, nulls_last=True)
    if units["run_id"].n_unique() == units.height:
        ranks = units.join(runs, on="run_id", how="left", maintain_order="left")["run_rank"]
    elif units["run_id"].n_unique() == 1 and units["device_id"].drop_nulls().n_unique() == units.height:
        ranks = units["device_id"]
    else:
        ranks = pl.int_range(units.height, dtype=pl.Int64, eager=True)
    numbered = units.with_columns(ranks.alias("rank"))
    return kernels.select(_UNIT).join(numbered, on=_UNIT, how="left", nulls_equal=True, maintain_order="left")["rank"]


def _exposed(frames: StepFrames, kernels: pl.DataFrame) -> pl.Series:
    """How long each ran while no kernel but communication did on its device."""
    out = np.zeros(kernels.height, dtype=np.int64)
    kinds = [str(Kind.KERNEL), str(Kind.GRAPH)]
    compute = frames.of_trace.all_activities.filter(pl.col("kind").cast(pl.String).is_in(kinds), ~IS_COMMUNICATION)
    for (run, device), rows in kernels.with_row_index("row").group_by("run_id", "device_id"):
        beside = compute.filter(pl.col("run_id") == run, pl.col("device_id").eq_missing(pl.lit(device, pl.Int64)))
        start = rows["start_ns"].to_numpy()
        end = start + rows["duration_ns"].to_numpy()
        busy = merge(beside["start_ns"].to_numpy(), (beside["start_ns"] + beside["duration_ns"]).to_numpy())
        out[rows["row"].to_numpy()] = end - start - (covered_before(busy, end) - covered_before(busy, start))
    return pl.Series("exposed_ns", out)
