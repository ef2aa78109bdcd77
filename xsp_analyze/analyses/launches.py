"""How kernels came to run: B04, B16, B18, B19, and what was launched from where: B39, B40, B41."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.columns import (
    COUNT,
    COUNTER_COLUMNS,
    DURATION,
    KERNEL_NAME,
    KIND,
    LAYER_INDEX,
    LAYER_NAME,
    LAYER_TYPE,
    STEP,
)
from xsp_analyze.core import AMOUNT, TIME_NS, Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import quotient
from xsp_analyze.frames.device_time import device_time
from xsp_analyze.frames.host_calls import queues
from xsp_analyze.frames.idle import DEVICE
from xsp_analyze.frames.kernels.graphs import (
    GRAPH_LABELS,
    KERNEL_FACTS,
    KERNEL_KEY,
    KERNEL_MEASURES,
    REPLAY_MEASURES,
    compiled_kernels,
    graph_replays,
)
from xsp_analyze.frames.kernels.kernel_means import step_work
from xsp_analyze.frames.launch_paths import HOST_KEY, WORK_KEY, device_parts, host_parts, time_tree
from xsp_model.columns.arrays import lookup
from xsp_model.columns.tree import depths

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = [
    "device_work_in_layers",
    "idle_calls",
    "kernels_of_compiled_code",
    "launch",
    "operators_in_layers",
    "replayed_graphs",
    "time_by_path",
]

# B04: how long device work waits after its launch, and where the device waits for a launch.
_KEYS = ("kernel_name", "kind")
_SUMS = ("launched", "followers", "call_ns", "latency_ns", "queued_ns", "waiting", "late", "launch_wait_ns")


@analysis(
    "B04",
    "launch",
    needs=("kernel", "runtime"),
    additive=("count", "launched", "launch_wait_ns"),
    read=(
        "A high launch-bound share says that the host is too slow for these kernels: fuse them, enlarge the batch or "
        "replay a graph; a long queue says that the host is far ahead."
    ),
    columns=(
        STEP,
        KERNEL_NAME,
        KIND,
        COUNT,
        Column("launched", AMOUNT, "Of these, the ones whose launch is in the trace: what the means are over."),
        Column("call_ns", pl.Float64(), "Mean duration of the call that launched it.", "ns"),
        Column("latency_ns", pl.Float64(), "Mean time from the start of its call to its own start.", "ns"),
        Column(
            "queued_ns",
            pl.Float64(),
            "Mean part of that, after its call's end, in which earlier work of its stream was yet to end.",
            "ns",
        ),
        Column("queue_length", pl.Float64(), "Mean number of activities before it on its stream, launched, not done."),
        Column(
            "launch_bound_share",
            pl.Float64(),
            "Share of those that follow others on their stream whose call ended after these had: the stream ran dry.",
        ),
        Column("launch_wait_ns", TIME_NS, "Time that its stream was idle because the launch had not been made.", "ns"),
    ),
    figure=FigureSpec("bars", x="kernel_name", y=("launch_wait_ns",), title="Streams waiting for launches", top=20),
)
def launch(frames: StepView) -> pl.LazyFrame:
    """One row a name and kind of device work, longest wait first, then by name; streams are queues of their own.

    Work before the first of a stream is not known, so the first waited for nothing known. Graph replays share one call.
    """
    sums = _sums(frames).group_by(*frames.by, *_KEYS, maintain_order=True).agg(pl.col("count", *_SUMS).sum())
    sums = sums.with_columns(pl.col(_KEYS).cast(pl.String))
    means = (_ratio(column, "launched") for column in ("call_ns", "latency_ns", "queued_ns"))
    return (
        sums.lazy()
        .with_columns(
            *means,
            _ratio("waiting", "launched").alias("queue_length"),
            _ratio("late", "followers").alias("launch_bound_share"),
        )
        .sort(*frames.by, -pl.col("launch_wait_ns"), *_KEYS)
    )


def _sums(frames: StepView) -> pl.DataFrame:
    """What the activities of each key add up to, a row for each share of a mean step that they have.

    Whole numbers are added before they are shared out: sums of fractions differ with the order in which cores add.
    """
    keys = (*frames.by, *_KEYS, "work_count")
    sums = _rows(frames).group_by(keys, maintain_order=True).agg(pl.col("count", *_SUMS).sum())
    return sums.with_columns(pl.col("count", *_SUMS) * pl.col("work_count"))


def _rows(frames: StepView) -> pl.DataFrame:
    """One row an activity of the steps chosen: its keys, what it adds to each sum, and its share of a step."""
    has_call = pl.col("call_start_ns").is_not_null()
    late = has_call & (pl.col("call_end_ns") >= pl.col("previous_end_ns")).fill_null(value=False)
    queued = pl.min_horizontal("start_ns", "previous_end_ns") - pl.col("call_end_ns")
    gap = (pl.col("start_ns") - pl.col("previous_end_ns")).clip(lower_bound=0)
    sums = {
        "count": pl.lit(1, pl.Int64),
        "launched": has_call,
        "followers": has_call & pl.col("previous_end_ns").is_not_null(),
        "call_ns": pl.col("call_end_ns") - pl.col("call_start_ns"),
        "latency_ns": pl.col("start_ns") - pl.col("call_start_ns"),
        "queued_ns": pl.when(pl.col("previous_end_ns").is_not_null()).then(queued.clip(lower_bound=0)),
        "waiting": pl.col("waiting"),
        "late": late,
        "launch_wait_ns": pl.when(late).then(gap).otherwise(0),
    }
    # Queues are those of the whole trace: what a step's first kernel waits for may be of the step before.
    every = frames.of_trace.all_activities
    rows = every.select("span_id", "start_ns", "call_start_ns", "call_end_ns").hstack(queues(every))
    work = frames.once(step_work).select(
        "span_id", *frames.by, pl.col("name").alias("kernel_name"), "kind", "work_count"
    )
    if work.height < every.height:
        rows = rows[lookup(every["span_id"].to_numpy(), work["span_id"].to_numpy())]
    return work.hstack(rows.select(value.cast(pl.Int64).alias(name) for name, value in sums.items())).drop("span_id")


def _ratio(column: str, count: str) -> pl.Expr:
    return pl.when(pl.col(count) > 0).then(quotient(pl.col(column), pl.col(count))).alias(column)


# B16: what the host was doing while a device was idle, by the call that explains it.


@analysis(
    "B16",
    "idle time by call",
    needs=("kernel",),
    section="devices",
    read="The call at the top is where the host was for most of the time in which a device had nothing to do.",
    columns=(
        STEP,
        Column("run_id", pl.Int64(), "The run (rank) that used the device.", role=Role.KEY),
        Column("device_id", pl.Int64(), "The device, as the framework numbers it.", role=Role.KEY),
        Column(
            "cause",
            pl.String(),
            "sync, initialisation, input, host, profiler, launch or unknown; see B03.",
            role=Role.KEY,
        ),
        Column(
            "call",
            pl.String(),
            "The outermost call of the host that explains it; of work of the host's own that lasts over 200 \u00b5s the"
            " innermost range, module, operator (as the line of Python that called it) or call that it was in. Null"
            " where none is, as between launches.",
            role=Role.KEY,
        ),
        Column("idle_ns", TIME_NS, "Idle time of the device meanwhile.", "ns"),
        Column("gap_count", AMOUNT, "Stretches of idle time."),
        Column("idle_share", pl.Float64(), "Of the device's window (the step's latency)."),
    ),
    additive=("idle_ns", "gap_count"),
    figure=FigureSpec("bars", x="call", y=("idle_ns",), title="Idle time by call", top=20),
)
def idle_calls(frames: StepView) -> pl.LazyFrame:
    """One row a device, cause and call, most idle time first; they sum to the device's idle time in B03."""
    keys = [*frames.by, *DEVICE]
    time = frames.once(device_time)
    windows = time.parts.lazy().select(*keys, "window_ns")
    window = pl.col("window_ns")
    return (
        time.calls.lazy()
        .join(windows, on=keys, how="left", nulls_equal=True, maintain_order="left")
        .with_columns(
            pl.col("cause").str.strip_prefix("idle_").str.strip_suffix("_ns"),
            pl.when(window > 0).then(quotient(pl.col("idle_ns"), window)).alias("idle_share"),
        )
        .drop("window_ns")
        .sort(
            *keys, "idle_ns", "cause", "call", descending=[*(False for _ in keys), True, False, False], nulls_last=True
        )
    )


# B18: device graphs that were replayed, and how much of their work belongs to layers.


@analysis(
    "B18",
    "graph replays",
    needs=("graph replay",),
    about_layers=True,
    additive=("replay_count", "kernel_count", "device_sum_ns", "attributed_ns", "launch_ns"),
    read=(
        "A graph whose attributed share is 0 hides its layers: give the trace of its capture with --graph-capture, or "
        "see the ledger for why it did not pair."
    ),
    columns=(
        STEP,
        Column("graph", pl.Int64(), "Number of the graph, in order of its first replay.", role=Role.KEY),
        Column(
            "captured_in",
            pl.String(),
            "The range in which it was captured, else the file that holds the capture; null: its capture is not known.",
            role=Role.LABEL,
        ),
        Column(
            "attribution_basis",
            pl.String(),
            "How its kernels got their layers: graph_node, graph_capture, aligned, annotation or compiled_code.",
            role=Role.LABEL,
        ),
        Column("launched_in", pl.String(), "The layer in whose call it is replayed; null: in none.", role=Role.LABEL),
        Column("replay_count", AMOUNT, "Replays; in a mean step, per step on average."),
        Column("kernel_count", AMOUNT, "Device activities of them."),
        Column("device_sum_ns", TIME_NS, "Sum of their durations.", "ns"),
        Column("attributed_ns", TIME_NS, "Of that, of kernels that belong to a layer.", "ns"),
        Column("attributed_share", pl.Float64(), "The same as a share of it."),
        Column("layer_count", pl.Int64(), "Different layers that its kernels belong to."),
        Column("launch_ns", TIME_NS, "Host time of the calls that launched it.", "ns"),
    ),
    figure=FigureSpec("bars", x="graph", y=("device_sum_ns",), title="Device time by replayed graph", top=20),
)
def replayed_graphs(frames: StepView) -> pl.LazyFrame:
    """One row a graph, by device time, longest first, then in order of first replay."""
    rows = graph_replays(frames.of_trace)
    labels = rows.group_by("graph").agg(pl.col(GRAPH_LABELS).drop_nulls().first(), pl.col("layer_count").max())
    total = pl.col("device_sum_ns")
    return (
        frames.combine(rows, ("graph",), REPLAY_MEASURES)
        .lazy()
        .join(labels.lazy(), on="graph", how="left", maintain_order="left")
        .with_columns(pl.when(total > 0).then(quotient(pl.col("attributed_ns"), total)).alias("attributed_share"))
        .sort(*frames.by, -total, "graph")
    )


# B19: kernels of compiled code, with the operators, source lines and layers that each stands for.


@analysis(
    "B19",
    "compiled kernels",
    needs=("compiled code",),
    about_layers=True,
    additive=KERNEL_MEASURES,
    read=(
        "A kernel stands for all operators in its row. Without layers, give what the compiler recorded beside the "
        "trace: compiled_code.json of our runner."
    ),
    columns=(
        STEP,
        Column("region", pl.Int64(), "The compiled graph, in order of first call; null: in none.", role=Role.KEY),
        Column("region_call", pl.Int64(), "Which of its calls in the step, from 0.", role=Role.KEY),
        Column("position", pl.Int64(), "Which kernel of that call, from 0.", role=Role.KEY),
        Column("region_hash", pl.String(), "The graph's hash, as in the trace.", role=Role.LABEL),
        Column("direction", pl.String(), "forward or backward; null: not known.", role=Role.LABEL),
        Column("kernel_name", pl.String(), "The generated function, or a library's that is called.", role=Role.LABEL),
        Column("operators", pl.String(), "The operators that it stands for.", role=Role.LABEL),
        Column("sources", pl.String(), "Lines of the model that they came from; null: not known.", role=Role.LABEL),
        Column("layers", pl.String(), "Its layers, each with its part where several share it.", role=Role.LABEL),
        Column("call_count", AMOUNT, "Calls; in a mean step, per step on average."),
        Column("host_ns", TIME_NS, "Time of the call on the host; null: it is known on the device alone.", "ns"),
        Column("device_sum_ns", TIME_NS, "Time of the device work launched in it; null: there is no device.", "ns"),
    ),
    figure=FigureSpec("bars", x="kernel_name", y=("host_ns",), title="Time by compiled kernel", top=20),
)
def kernels_of_compiled_code(frames: StepView) -> pl.LazyFrame:
    """One row a kernel in a call of a compiled graph, in the order in which they run."""
    rows = compiled_kernels(frames.of_trace)
    facts = rows.group_by(KERNEL_KEY, maintain_order=True).agg(pl.col(KERNEL_FACTS).drop_nulls().first())
    return (
        frames.combine(rows, KERNEL_KEY, KERNEL_MEASURES)
        .join(facts, on=KERNEL_KEY, how="left", maintain_order="left", nulls_equal=True)
        .sort(*frames.by, *KERNEL_KEY, nulls_last=True)
        .lazy()
    )


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
