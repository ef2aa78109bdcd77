"""Communication kernels as operations of process groups, matched between the ranks of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.kernel_classes import IS_COMMUNICATION, communication_names
from xsp_model import Kind, Level
from xsp_model.arrays import nullable_index
from xsp_model.intervals import covered_before, merge
from xsp_model.tree import innermost

if TYPE_CHECKING:
    from xsp_analyze.frames.step_frames import StepFrames
    from xsp_model import Trace
    from xsp_model.arrays import Bools, Ints, Positions

__all__ = ["PAIRWISE", "bus_factor", "group_label", "message_bytes", "operations", "recorded_facts"]

PAIRWISE = ("send", "recv")
"""Operations of two ranks each time: the n-th of one rank of a group is no other's n-th."""

_RANGE = r"^(?:nccl|rccl|gloo|ucc):_?(\w+?)_*$"
_FACTS = ("operation", "group_name", "group_ranks", "group_size", "input_bytes", "output_bytes")
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


def group_label() -> pl.Expr:
    """The ranks tell groups of one name apart, the name groups of the same ranks."""
    label = pl.concat_str("group_name", "group_ranks", separator=" ", ignore_nulls=True)
    return pl.when(label != "").then(label).alias("process_group")


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


def recorded_facts(trace: Trace, kernels: Ints) -> pl.DataFrame:
    """For each kernel _FACTS: its own, else those of the nearest call around its launch that has each."""
    spans = trace.scan("spans").select("parent_id", "level", "name").collect()
    parents = spans["parent_id"].fill_null(-1).to_numpy()
    facts = trace.frame("collectives").with_columns(pl.col(pl.Categorical).cast(pl.String))
    own = pl.DataFrame({"span_id": kernels}).join(facts, on="span_id", how="left", maintain_order="left")
    around = [_around(parents, kernels, facts, (name,)) for name in ("operation", "input_bytes", "output_bytes")]
    group = _around(parents, kernels, facts.filter(pl.any_horizontal(pl.col(_GROUP).is_not_null())), _GROUP)
    nearest = pl.concat([*around, group], how="horizontal")
    named = _range_operation(spans, parents, kernels)
    first = {name: [own[name], nearest[name]] for name in _FACTS}
    first["operation"].insert(1, named)
    return pl.DataFrame([pl.select(pl.coalesce(each)).to_series().alias(name) for name, each in first.items()])


_GROUP = ("group_name", "group_ranks", "group_size")


def _around(parents: Positions, kernels: Ints, facts: pl.DataFrame, columns: tuple[str, ...]) -> pl.DataFrame:
    """The columns of the nearest span around each kernel that has the first of them (of a group: any)."""
    rows = facts if len(columns) > 1 else facts.drop_nulls(columns)
    mask = np.zeros(len(parents), dtype=np.bool_)
    mask[rows["span_id"].to_numpy()] = True
    spans = pl.DataFrame({"span_id": innermost(parents, mask)[kernels].astype(np.int64)})
    return spans.join(rows, on="span_id", how="left", maintain_order="left").select(columns)


def _range_operation(spans: pl.DataFrame, parents: Positions, kernels: Ints) -> pl.Series:
    """What the range of the framework around each launch names, else null."""
    names = spans["name"].unique()
    of_ranges = names.filter(names.cast(pl.String).str.contains(_RANGE))
    is_range: Bools = ((spans["level"] == str(Level.LIBRARY)) & spans["name"].is_in(of_ranges.implode())).to_numpy()
    around = innermost(parents, is_range)[kernels]
    return spans["name"].gather(nullable_index(around)).cast(pl.String).str.extract(_RANGE)


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
