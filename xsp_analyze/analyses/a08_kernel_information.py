"""A08: every kernel execution, with its layer and launch configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.columns import (
    COUNTER_COLUMNS,
    EXECUTION,
    KERNEL_CLASS,
    KERNEL_LABEL,
    KERNEL_NAME,
    KIND,
    LAYER_INDEX,
    LAYER_NAME,
    LAYER_TYPE,
    STEP,
)
from xsp_analyze.core import AMOUNT, TIME_NS, Column, Role, analysis
from xsp_analyze.frames.group_ids import in_order
from xsp_analyze.frames.kernels.activities import attribution_bases, derived_counters, shapes_at
from xsp_analyze.frames.kernels.kernel_classes import kernel_labels
from xsp_analyze.frames.kernels.kernel_means import kernel_executions
from xsp_analyze.frames.kernels.roofline import ideal_intensity

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_model.arrays import Ints

__all__ = ["kernel_information", "listed", "listed_order"]

_LABELS = (
    "layer_name",
    "layer_type",
    "kernel_name",
    "kernel_class",
    "kind",
    "phase",
    "attribution",
    "attribution_basis",
)
_ORDER = (
    "layer_index",
    "layer_name",
    "run_id",
    "process_id",
    "order_ns",
    "start_ns",
    "device_id",
    "stream_id",
    "kernel_name",
    "duration_ns",
)


def _shape(what: str) -> Column:
    return Column(
        what, pl.List(pl.Int64()), f"{what.capitalize()} size along x, y, z; null: unknown, or none.", role=Role.LABEL
    )


@analysis(
    "A08",
    "kernel information",
    needs=("kernel",),
    additive=("count", "duration_ns", "flop_count", "dram_read_bytes", "dram_write_bytes"),
    read=(
        "Every piece of device work with its layer and launch configuration; search for a layer or a kernel to "
        "see what ran in it and in which order."
    ),
    columns=(
        STEP,
        EXECUTION,
        replace(LAYER_INDEX, role=Role.LABEL),
        LAYER_NAME,
        LAYER_TYPE,
        replace(KERNEL_NAME, role=Role.LABEL),
        KERNEL_LABEL,
        KERNEL_CLASS,
        replace(KIND, role=Role.LABEL),
        _shape("grid"),
        _shape("block"),
        Column("phase", pl.String(), "forward, recompute, backward, optimizer or other.", role=Role.LABEL),
        Column("attribution", pl.String(), "Why it has a layer, or has none.", role=Role.LABEL),
        Column(
            "attribution_basis",
            pl.String(),
            "How the layer is known, where it is not that around the launch: graph_node, graph_capture, aligned, "
            "annotation or compiled_code.",
            role=Role.LABEL,
        ),
        Column("run_id", pl.Int64(), "The run (rank) it ran in.", role=Role.LABEL),
        Column("device_id", pl.Int64(), "The device it ran on.", role=Role.LABEL),
        Column("stream_id", pl.Int64(), "The stream it ran on.", role=Role.LABEL),
        Column("count", AMOUNT, "1; in a mean step, the share of steps that it is in."),
        Column(
            "duration_ns",
            TIME_NS,
            "Its duration; in a mean step, the trimmed mean over the steps that it is in, times `count`.",
            "ns",
        ),
        *COUNTER_COLUMNS,
    ),
)
def kernel_information(frames: StepView) -> pl.LazyFrame:
    """One row a kernel execution, by layer (none: last), then in order of launch."""
    rows = listed_order(frames)
    return listed(frames, frames.once(kernel_executions)[rows], np.arange(len(rows)))


def listed_order(frames: StepView) -> Ints:
    """The rows of `frames.executions` in the order in which they are listed."""
    return in_order([frames.once(kernel_executions)[c] for c in (*frames.by, *_ORDER)])


def listed(frames: StepView, executions: pl.DataFrame, number: Ints) -> pl.LazyFrame:
    """These rows of `frames.executions` as this analysis lists them; `number`: their places in the list."""
    shown = executions.with_columns(
        pl.Series("execution", number),
        pl.col("duration_ns").alias("counted_ns"),
        kernel_labels(executions),
        attribution_bases(frames.trace, executions["span_id"]),
        *shapes_at(frames.trace, executions),
    )
    return derived_counters(shown.lazy(), frames.of_trace.once(ideal_intensity)).with_columns(
        pl.col(_LABELS).cast(pl.String)
    )
