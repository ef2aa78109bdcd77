"""Time in order: what ran when (B03), the critical path (B10), slack (B49), what device time is made of (B42)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.columns import STEP
from xsp_analyze.core import TIME_NS, Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import quotient, share_of_sum
from xsp_analyze.frames.critical_path import innermost_calls, overlaps
from xsp_analyze.frames.device_time import IDLE_DETAILS, device_time, window_parts
from xsp_analyze.frames.idle import DEVICE
from xsp_analyze.frames.layers.layer_time import LAYER_KEY, every_layer_call
from xsp_analyze.what_if.graph import task_graph
from xsp_analyze.what_if.path import LINKS, Link, chain, slack
from xsp_model.columns.arrays import nullable_index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.trace.step_view import StepView
    from xsp_model.columns.arrays import Ints

__all__ = ["critical_path", "parts_of_windows", "slack_of_work", "timeline"]

# B03: what each device did with its time.


def _time(name: str, doc: str) -> Column:
    return Column(name, TIME_NS, doc, "ns")


@analysis(
    "B03",
    "timeline breakdown",
    needs=("kernel",),
    section="devices",
    read="Idle time is the device waiting; exposed communication is what would vanish if it ran beside compute.",
    columns=(
        STEP,
        Column("run_id", pl.Int64(), "The run (rank) that used the device.", role=Role.KEY),
        Column("device_id", pl.Int64(), "The device, as the framework numbers it.", role=Role.KEY),
        _time(
            "window_ns", "The step's latency; over the whole trace, from the first start to the last end in its run."
        ),
        _time("active_ns", "In it, from the first start to the last end of the device's activities."),
        _time("busy_ns", "Time in which at least one activity ran, whoever launched it."),
        _time("earlier_ns", "Busy time in which nothing launched in the step ran, but work from before it did."),
        _time("idle_ns", "The rest of the window."),
        _time("compute_ns", "Time in which a kernel (or whole graph) other than communication ran."),
        _time("communication_ns", "Time in which a kernel of class communication ran."),
        _time("memory_ns", "Time in which a copy or memset ran."),
        _time("compute_communication_ns", "Time in which compute and communication ran side by side."),
        _time("exposed_communication_ns", "Communication while nothing computed."),
        _time("exposed_memory_ns", "Copies and memsets while nothing computed or communicated."),
        _time(
            "idle_sync_ns",
            "Idle until the next launch, while the host waited for a device in a call that blocks; and behind it, while"
            " the host worked and launched, for no longer than it had waited (so much earlier it would have been), nor"
            " than 200 \u00b5s.",
        ),
        _time(
            "idle_initialisation_ns",
            "Likewise while it created contexts, loaded modules, compiled; of a whole trace all before the first kernel"
            " and after the last work.",
        ),
        _time("idle_input_ns", "Likewise while it fetched the next batch."),
        _time("idle_host_ns", "Likewise while it did other work: Python, the framework, calls that do not block."),
        _time("idle_profiler_ns", "Likewise while the profiler did work of its own, where it recorded that."),
        _time("idle_launch_ns", "Idle between that launch and the start of the work."),
        _time("idle_unknown_ns", "Idle before work whose launch is not in the trace, or long before it began."),
        Column("idle_share", pl.Float64(), "Idle time over the window."),
    ),
    figure=FigureSpec(
        "stacked_bars",
        x="device_id",
        y=("compute_ns", "exposed_communication_ns", "exposed_memory_ns", "idle_ns"),
        title="Time of each device",
    ),
)
def timeline(frames: StepView) -> pl.LazyFrame:
    """One row a run and device, in order; busy = compute + exposed communication + exposed memory.

    The causes of idle time sum to it. A mean step is the mean over those that the trimmed mean of latency keeps.
    """
    window = pl.col("window_ns")
    return (
        frames.once(device_time)
        .parts.lazy()
        .drop(IDLE_DETAILS)
        .with_columns((window - pl.col("busy_ns")).alias("idle_ns"))
        .with_columns(pl.when(window > 0).then(quotient(pl.col("idle_ns"), window)).alias("idle_share"))
        .sort(*frames.by, *DEVICE, nulls_last=True)
    )


# B10: the longest chain of host, launches, device work and waits, and what it consists of.

_ROW = {"run_id": pl.Int64, "link": pl.String, "kind": pl.String, "kernel_class": pl.String,
        "layer_index": pl.Int64, "layer_name": pl.String, "layer_type": pl.String,
        "piece_count": pl.Int64, "duration_ns": pl.Int64}  # fmt: skip
_KEYS = ("run_id", "link", "kind", "kernel_class", *LAYER_KEY)


@analysis(
    "B10",
    "critical path",
    needs=("kernel", "runtime"),
    additive=("piece_count", "duration_ns"),
    read=(
        "Only what is on the path can shorten the run: with device work on most of it the kernels count, with host "
        "time and launch latency on it the device waits for the program."
    ),
    columns=(
        Column("run_id", pl.Int64(), "The run whose path it is.", role=Role.KEY),
        Column(
            "link", pl.String(), "device, launch latency, device gap, synchronisation, host or unknown.", role=Role.KEY
        ),
        Column("kind", pl.String(), "Of device work: kernel, memcpy, memset or graph.", role=Role.KEY),
        Column("kernel_class", pl.String(), "And its class, as B17 has it.", role=Role.KEY),
        Column(
            "layer_index", pl.Int64(), "The layer whose work it is; of host time, that the host was in.", role=Role.KEY
        ),
        Column("layer_name", pl.String(), "Its name; null: no layer.", role=Role.LABEL),
        Column("layer_type", pl.String(), "What kind of layer it is.", role=Role.LABEL),
        Column("piece_count", pl.Int64(), "Pieces of the path."),
        Column("duration_ns", pl.Int64(), "Time on the path.", "ns"),
        Column("path_share", pl.Float64(), "Of the whole path, which is as long as the run's steps together."),
    ),
    figure=FigureSpec("bars", x="link", y=("duration_ns",), title="The critical path", color="layer_type", top=20),
    by_step=False,
)
def critical_path(frames: StepView) -> pl.LazyFrame:
    """One row a run, link, kind, class and layer, by run, then longest first, then in order of the keys.

    From the first step's start to the last end of a step or of work launched in one; without steps, the whole run.
    """
    parts = [part for run in frames.of_trace.kernel_runs for part in _of_run(frames, run)]
    links = pl.concat([pl.DataFrame(schema=_ROW), *parts])
    return (
        links.with_columns(share_of_sum("duration_ns", ["run_id"]).alias("path_share"))
        .sort("run_id", -pl.col("duration_ns"), *_KEYS[1:], nulls_last=True)
        .lazy()
    )


def _of_run(frames: StepView, run: int) -> Iterator[pl.DataFrame]:
    """The run's path in the columns of _ROW; pieces of the host cut where it went from layer to layer."""
    view = frames.of_trace
    work = view.all_activities
    if run not in view.once(task_graph).ends or not (work["run_id"] == run).any():
        return
    path = chain(view, run)
    duration = path.end_ns - path.start_ns
    on_host = path.links == LINKS.index(Link.HOST)
    elsewhere = np.flatnonzero(~on_host)
    yield _sums_of_pieces(run, path.links[elsewhere], work, path.rows[elsewhere], duration[elsewhere])
    calls = frames.of_trace.once(every_layer_call).filter(pl.col("run_id") == run, pl.col("end_ns").is_not_null())
    rows, inside = overlaps(innermost_calls(calls), path.start_ns[on_host], path.end_ns[on_host])
    yield _sums_of_pieces(run, np.full(len(rows), LINKS.index(Link.HOST)), calls, rows, inside)


def _sums_of_pieces(run: int, links: Ints, of: pl.DataFrame, rows: Ints, duration_ns: Ints) -> pl.DataFrame:
    """The pieces by link, kind and layer, each as the row of a frame says that it is of; -1: of none."""
    described = [column for column in ("kind", "kernel_class", *LAYER_KEY) if column in of.columns]
    at = nullable_index(rows)
    pieces = pl.DataFrame([of[c].gather(at) for c in described]).with_columns(
        pl.Series("link", links), pl.Series("duration_ns", duration_ns)
    )
    sums = pieces.group_by("link", *described, maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("piece_count"), pl.col("duration_ns").sum()
    )
    labels = pl.Series("link", [str(link) for link in LINKS], dtype=pl.String).gather(sums["link"])
    missing = [pl.lit(None, pl.String).alias(c) for c in ("kind", "kernel_class") if c not in described]
    texts = pl.col(c for c in described if c != "layer_index").cast(pl.String)
    return sums.with_columns(pl.lit(run, pl.Int64).alias("run_id"), labels, texts, *missing).select(*_ROW)


# B49: how much later device work could end without the job ending later.


@analysis(
    "B49",
    "slack",
    needs=("kernel", "runtime"),
    additive=("activity_count", "duration_ns", "critical_ns"),
    read=(
        "What has no slack is worth making faster; what has much can be slower, moved or put off, and gains nothing"
        " until that much is gained elsewhere."
    ),
    columns=(
        Column("run_id", pl.Int64(), "The run whose work it is.", role=Role.KEY),
        Column("kind", pl.String(), "kernel, memcpy, memset or graph.", role=Role.KEY),
        Column("kernel_class", pl.String(), "Its class, as B17 has it.", role=Role.KEY),
        Column("layer_index", pl.Int64(), "The layer whose work it is; null: none.", role=Role.KEY),
        Column("layer_name", pl.String(), "Its name.", role=Role.LABEL),
        Column("layer_type", pl.String(), "What kind of layer it is.", role=Role.LABEL),
        Column("activity_count", pl.Int64(), "Device activities."),
        Column("duration_ns", pl.Int64(), "Their time.", "ns"),
        Column("critical_ns", pl.Int64(), "Of it time of those without slack.", "ns"),
        Column("least_slack_ns", pl.Int64(), "Of the others, how much later one could end, at least.", "ns"),
        Column("median_slack_ns", pl.Float64(), "And in the median; null: nothing waits for them.", "ns"),
    ),
    by_step=False,
)
def slack_of_work(frames: StepView) -> pl.LazyFrame:
    """One row a run, kind, class and layer of device work, by run, then most time without slack, then most time."""
    keys = ("run_id", "kind", "kernel_class", *LAYER_KEY)
    work = frames.of_trace.all_activities.join(slack(frames.of_trace), on="span_id")
    has_slack = pl.col("slack_ns").filter(pl.col("slack_ns") > 0)
    return (
        work.with_columns(pl.col(c).cast(pl.String) for c in keys if c not in ("run_id", "layer_index"))
        .group_by(keys)
        .agg(
            pl.len().cast(pl.Int64).alias("activity_count"),
            pl.col("duration_ns").sum(),
            pl.col("duration_ns").filter(pl.col("slack_ns") == 0).sum().alias("critical_ns"),
            has_slack.min().alias("least_slack_ns"),
            has_slack.median().alias("median_slack_ns"),
        )
        .sort("run_id", -pl.col("critical_ns"), -pl.col("duration_ns"), *keys[1:], nulls_last=True)
        .lazy()
    )


# B42: what the time of each device is made of, in parts that add up to it.


@analysis(
    "B42",
    "parts of device time",
    needs=("kernel",),
    section="devices",
    additive=("duration_ns",),
    read=(
        "The longest parts of the window are what a step is made of: classes of compute can be made faster, the rest"
        " can be hidden behind it."
    ),
    columns=(
        STEP,
        Column("run_id", pl.Int64(), "The run (rank) that used the device.", role=Role.KEY),
        Column("device_id", pl.Int64(), "The device, as the framework numbers it.", role=Role.KEY),
        Column(
            "part",
            pl.String(),
            "compute; communication or memory, while nothing before it in this order runs; or idle.",
            role=Role.KEY,
        ),
        Column("name", pl.String(), "The class of work; of idle time its cause, as in B16.", role=Role.KEY),
        Column(
            "duration_ns", pl.Float64(), "Its time, shared out evenly where classes of a part run side by side.", "ns"
        ),
        Column("window_share", pl.Float64(), "Of the device's window."),
    ),
    figure=FigureSpec("bars", x="name", y=("duration_ns",), color="part", title="What the time of devices is made of"),
)
def parts_of_windows(frames: StepView) -> pl.LazyFrame:
    """One row a run, device, part and class or cause, in this order of parts, longest first; they sum to B03's window.

    A mean step is the mean over those that the trimmed mean of latency keeps.
    """
    return frames.once(window_parts).lazy()
