"""A trace of any size, made in columns: layers, launches and kernels with long names, in steps or in none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_model import Trace, TraceBuilder

if TYPE_CHECKING:
    from xsp_model.columns.arrays import Ints

__all__ = ["large_trace"]

_LAUNCH_NS = 5_000
_KERNEL_NS = 3_000


def large_trace(kernels: int, *, layers: int, names: int, steps: int = 0) -> Trace:
    """`kernels` kernels one after the other, the n-th in layer n % layers, with name n % names of 300 characters."""
    number = np.arange(kernels)
    calls = np.arange(layers)
    end = kernels * _LAUNCH_NS
    step = number * steps // kernels if steps else np.full(kernels, -1)
    builder = TraceBuilder()
    builder.add("runs", pl.DataFrame({"run_id": [0], "clock_origin_ns": [0], "layer_source": ["module"]}))
    parts = [
        _spans("layer", "module", calls, np.zeros(layers, np.int64), np.full(layers, end), None),
        _spans("runtime", "call", number + layers, number * _LAUNCH_NS, np.full(kernels, 2_000), number % layers),
        _spans("kernel", "kernel", number + layers + kernels, number * _LAUNCH_NS + 2_500,
               _KERNEL_NS + number % 1_000, number + layers),
    ]  # fmt: skip
    texts = pl.Series([f"void cutlass::kernel_{i}<{'Policy, ' * 34}{i}>" for i in range(names)])
    parts[0] = parts[0].with_columns(pl.Series("name", [f"Linear_{i}" for i in calls]), pl.lit(1).alias("thread_id"))
    parts[1] = parts[1].with_columns(
        pl.lit("cudaLaunchKernel").alias("name"), pl.Series("step", step), pl.lit(1).alias("thread_id")
    )
    parts[2] = parts[2].with_columns(
        texts.gather(number % names).alias("name"), pl.Series("step", step), pl.Series("layer_id", number % layers),
        pl.lit("layer").alias("attribution"), pl.lit(0).alias("device_id"), pl.lit(7).alias("stream_id"),
    )  # fmt: skip
    if steps:
        starts = np.arange(steps) * (end // steps)
        marks = _spans(
            "model", "step", np.arange(steps) + layers + 2 * kernels, starts, np.full(steps, end // steps), None
        )
        parts.append(
            marks.with_columns(
                pl.lit("step").alias("name"), pl.Series("step", np.arange(steps)), pl.lit(1).alias("thread_id")
            )
        )
    spans = pl.concat(parts, how="diagonal_relaxed")
    builder.add("spans", spans.with_columns(pl.when(pl.col("step") >= 0).then("step").alias("step")))
    builder.add(
        "layers",
        pl.DataFrame(
            {"span_id": calls, "layer_index": calls, "layer_name": [f"Linear_{i}" for i in calls],
             "layer_type": [f"Linear{i % 50}" for i in calls], "source": ["module"] * layers,
             "is_container": [False] * layers}
        ),
    )  # fmt: skip
    return builder.build()


def _spans(level: str, kind: str, ids: Ints, start: Ints, time: Ints, parent: Ints | None) -> pl.DataFrame:
    frame = pl.DataFrame({"span_id": ids, "start_ns": start, "duration_ns": time}).with_columns(
        pl.lit(level).alias("level"),
        pl.lit(kind).alias("kind"),
        pl.lit(0).alias("run_id"),
        pl.lit(1).alias("process_id"),
    )
    return frame if parent is None else frame.with_columns(pl.Series("parent_id", parent))
