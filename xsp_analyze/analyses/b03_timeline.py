"""B03: what each device did with its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import STEP
from xsp_analyze.core import TIME_NS, Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import quotient
from xsp_analyze.frames.device_time import device_time
from xsp_analyze.frames.idle import DEVICE

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["timeline"]


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
        _time("idle_sync_ns", "Idle until the next launch, while the host waited for a device in a call that blocks."),
        _time("idle_initialisation_ns", "Likewise while it created contexts, loaded modules or compiled."),
        _time("idle_input_ns", "Likewise while it fetched the next batch."),
        _time("idle_host_ns", "Likewise while it did other work: Python, the framework, calls that do not block."),
        _time("idle_launch_ns", "Idle between that launch and the start of the work."),
        _time("idle_unknown_ns", "Idle before work whose launch is not in the trace."),
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
        .with_columns((window - pl.col("busy_ns")).alias("idle_ns"))
        .with_columns(pl.when(window > 0).then(quotient(pl.col("idle_ns"), window)).alias("idle_share"))
        .sort(*frames.by, *DEVICE, nulls_last=True)
    )
