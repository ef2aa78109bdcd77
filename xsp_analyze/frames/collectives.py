"""Communication kernels as operations, matched between ranks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.kernel_classes import IS_COMMUNICATION
from xsp_analyze.frames.modelled_work import tensors
from xsp_model import Kind, Level
from xsp_model.arrays import nullable_index
from xsp_model.intervals import covered_before, merge
from xsp_model.tree import innermost

if TYPE_CHECKING:
    from xsp_analyze.frames.step_frames import StepFrames
    from xsp_model import Trace
    from xsp_model.arrays import Ints

__all__ = ["bus_factors", "operations"]

_SAYS_SHAPES = "record_param_comms"
_RANGE = r"^(?:nccl|rccl|gloo|ucc):_?(\w+?)_*$"


def bus_factors(ranks: int) -> dict[str, float]:
    """Bytes over each rank's link per byte of the message. Source: nccl-tests, PERFORMANCE.md.

    Where ranks gather or scatter, versions of the framework differ in whether a part or the whole is the message:
    these are left out.
    """
    others = (ranks - 1) / ranks
    return {"all_reduce": 2 * others, "all_to_all": others, "broadcast": 1.0, "reduce": 1.0, "send_recv": 1.0}


def operations(frames: StepFrames) -> pl.DataFrame:
    """One row a communication kernel: run_id, step, operation, duration_ns, exposed_ns, bytes, number.

    `operation` is what the framework calls it, or else what the kernel's name says; `bytes` are of the tensors that the
    framework handed over, null where it does not say; `number` counts the operation in its run and step, in order of
    launch; `exposed_ns` is the time in which nothing else computed on the device.
    """
    by_name = pl.col("collective").cast(pl.String).fill_null("other")
    kernels = frames.of_trace.all_activities.filter(pl.col("kind") == str(Kind.KERNEL), IS_COMMUNICATION)
    recorded = _around_launch(frames.trace, kernels["span_id"].to_numpy())
    order = ["launch_ns", "start_ns", "span_id"]
    return (
        kernels.hstack(recorded)
        .with_columns(pl.coalesce("range", by_name).alias("operation"), _exposed(frames, kernels))
        .sort(order)
        .with_columns(pl.int_range(pl.len(), dtype=pl.Int64).over("run_id", "step", "operation").alias("number"))
        .select("run_id", "step", "operation", "number", "duration_ns", "exposed_ns", "bytes")
    )


def _around_launch(trace: Trace, kernels: Ints) -> pl.DataFrame:
    """For each kernel, of the host's calls around its launch: `range`, the operation, and `bytes`, of its tensors."""
    spans = trace.scan("spans").select("parent_id", "level", "name").collect()
    parents = spans["parent_id"].fill_null(-1).to_numpy()
    names = spans["name"].unique()
    of_ranges = names.filter(names.cast(pl.String).str.contains(_RANGE))
    is_range = ((spans["level"] == str(Level.LIBRARY)) & spans["name"].is_in(of_ranges.implode())).to_numpy()
    around = innermost(parents, is_range)[kernels]
    calls = innermost(parents, (spans["name"] == _SAYS_SHAPES).to_numpy())[kernels]
    callers = pl.DataFrame({"span_id": calls})
    shapes = trace.frame("operators").select("span_id", "input_shapes", "input_dtypes")
    shared = callers.join(shapes, on="span_id", how="left", maintain_order="left")
    described = list(shared.select("input_shapes", "input_dtypes").iter_rows())
    sizes = {pair: _bytes(*pair) for pair in dict.fromkeys(described)}
    operation = spans["name"].gather(nullable_index(around)).cast(pl.String).str.extract(_RANGE)
    return pl.DataFrame({"range": operation, "bytes": pl.Series([sizes[pair] for pair in described], dtype=pl.Int64)})


def _bytes(shapes: str | None, dtypes: str | None) -> int | None:
    """The size of the first tensor handed over; of several at once it is not known."""
    if not shapes or not dtypes:
        return None
    first = [json.dumps(each[:1]) for each in (json.loads(shapes), json.loads(dtypes)) if isinstance(each, list)]
    inputs = tensors(*first) if len(first) == 2 else None  # noqa: PLR2004 (shapes and types)
    return inputs[0].bytes if inputs and inputs[0] is not None else None


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
