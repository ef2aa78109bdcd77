"""What was launched from where: parts of layers on the device (B39) and the host (B40), device time by path (B41)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.columns import COUNT, COUNTER_COLUMNS, DURATION, LAYER_INDEX, LAYER_NAME, LAYER_TYPE, STEP
from xsp_analyze.core import AMOUNT, TIME_NS, Column, Role, analysis
from xsp_analyze.formulas import quotient
from xsp_analyze.frames.launch_paths import HOST_KEY, WORK_KEY, device_parts, host_parts, time_tree
from xsp_model.columns.tree import depths

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["device_work_in_layers", "operators_in_layers", "time_by_path"]

# B39: what ran on the device for each layer, by what launched it.


def _label(name: str, doc: str) -> Column:
    return Column(name, pl.String(), doc, role=Role.LABEL)


@analysis(
    "B39",
    "device work in layers",
    needs=("layer", "kernel"),
    key=WORK_KEY,
    about_layers=True,
    section="layers",
    additive=("count", "duration_ns", "flop_count", "dram_read_bytes", "dram_write_bytes"),
    read=(
        "Find the layer that takes most of the time, then the operator in it and the kernel that this comes down to;"
        " what no layer holds comes last."
    ),
    columns=(
        STEP,
        LAYER_INDEX,
        LAYER_NAME,
        LAYER_TYPE,
        _label("operator", "Operators around the launch within the layer: `outermost > innermost`; null: none."),
        _label("library", "The innermost library call around the launch within the layer; null: none."),
        _label("kernel_name", "Name of the kernel, copy or memset."),
        _label("kind", "kernel, memcpy, memset or graph (a whole replay)."),
        _label("phase", "When it ran: forward, recompute, backward, optimizer or other."),
        COUNT,
        DURATION,
        *COUNTER_COLUMNS[:4],
    ),
)
def device_work_in_layers(frames: StepView) -> pl.LazyFrame:
    """One row a layer, operators, library call, kernel and phase: by layer, in it by device time, longest first.

    Sums are those of A08: durations add up to the device time of all layers and of what is outside them.
    """
    return frames.once(device_parts).lazy()


# B40: what each layer called on the host.


@analysis(
    "B40",
    "operators in layers",
    needs=("layer", "operator"),
    key=HOST_KEY,
    about_layers=True,
    section="layers",
    additive=("count", "self_ns"),
    read="An operator with much time of its own on the host and little on the device keeps the device waiting.",
    columns=(
        STEP,
        LAYER_INDEX,
        LAYER_NAME,
        LAYER_TYPE,
        _label("operator", "The framework's operator, as called in the layer or in its backward pass."),
        Column("count", AMOUNT, "Its calls; in a mean step, per step on average."),
        Column("host_ns", TIME_NS, "How long they took on the host, operators called in them included.", "ns"),
        Column("self_ns", TIME_NS, "Of that, outside of the operators called in them.", "ns"),
    ),
)
def operators_in_layers(frames: StepView) -> pl.LazyFrame:
    """One row a layer and operator, in the runs that layers are taken from: by layer, in it most time first."""
    return frames.once(host_parts).lazy()


# B41: device time as a tree of what launched it.


@analysis(
    "B41",
    "device time by path",
    needs=("kernel",),
    by_step=False,
    about_layers=True,
    section="tree",
    read=(
        "Follow the child with most time down from node 0: layers hold layers, then operators, then what ran on the"
        " device. Backward work stands under the layer that it belongs to."
    ),
    columns=(
        Column("node", pl.Int64(), "Number of the node: 0 is all device work, parents come first.", role=Role.KEY),
        Column("parent", pl.Int64(), "The node that holds it; null: none.", role=Role.LABEL),
        Column("depth", pl.Int64(), "How many nodes hold it.", role=Role.LABEL),
        Column("name", pl.String(), "Of the layer, operator or work; or what it is outside for.", role=Role.LABEL),
        Column("kind", pl.String(), "all, outside, layer, operator, or the kind of device work.", role=Role.LABEL),
        Column("count", pl.Int64(), "Device activities in it."),
        Column("duration_ns", pl.Int64(), "Sum of their durations, over all steps and calls.", "ns"),
        Column("device_share", pl.Float64(), "Of all device time."),
    ),
)
def time_by_path(frames: StepView) -> pl.LazyFrame:
    """One row a node of the tree, parents first; a node is the sum of its children, to the nanosecond."""
    tree = frames.of_trace.once(time_tree)
    parent = pl.Series("parent", tree.parent, dtype=pl.Int64)
    rows = pl.DataFrame({
        "node": np.arange(len(tree.parent)),
        "parent": parent.set(parent < 0, None),
        "depth": pl.Series(depths(tree.parent), dtype=pl.Int64),
        "name": pl.Series(tree.name, dtype=pl.String),
        "kind": pl.Series(tree.kind, dtype=pl.String),
        "count": tree.count,
        "duration_ns": tree.time_ns,
    })  # fmt: skip
    total = int(tree.time_ns[0])
    share = quotient(pl.col("duration_ns"), pl.lit(total)) if total else pl.lit(None, pl.Float64)
    return rows.lazy().with_columns(share.alias("device_share"))
