"""B03: what each device did with its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import STEP
from xsp_analyze.core import TIME_NS, Column, FigureSpec, Role, analysis
from xsp_analyze.frames.group_ids import groups
from xsp_analyze.frames.idle import CAUSES, idle_causes
from xsp_analyze.frames.timeline import MEASURES, breakdown

if TYPE_CHECKING:
    from xsp_analyze.frames.step_frames import StepFrames

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
        _time("window_ns", "First start to last end of its activities."),
        _time("busy_ns", "Time in which at least one activity ran."),
        _time("idle_ns", "The rest of the window."),
        _time("compute_ns", "Time in which a kernel (or whole graph) other than communication ran."),
        _time("communication_ns", "Time in which a kernel of class communication ran."),
        _time("memory_ns", "Time in which a copy or memset ran."),
        _time("compute_communication_ns", "Time in which compute and communication ran side by side."),
        _time("exposed_communication_ns", "Communication while nothing computed."),
        _time("exposed_memory_ns", "Copies and memsets while nothing computed or communicated."),
        _time("idle_host_ns", "Idle while the host had yet to launch what came next, and did something else."),
        _time("idle_sync_ns", "Idle while it had yet to do so, and waited for a device."),
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
def timeline(frames: StepFrames) -> pl.LazyFrame:
    """One row a run and device, in order; busy = compute + exposed communication + exposed memory.

    The four causes of idle time sum to it.
    """
    device = ["run_id", "device_id"]
    if frames.averaged:
        parts = _parts(frames, [*device, "step"]).with_columns(pl.col("run_id").alias("run"))
        rows = frames.combine(parts, ["run", "device_id"], (*MEASURES, *CAUSES)).rename({"run": "run_id"})
    else:
        rows = _parts(frames, [*frames.by, *device])
    window = pl.col("window_ns")
    return (
        rows.lazy()
        .with_columns((window - pl.col("busy_ns")).alias("idle_ns"))
        .with_columns(pl.when(window > 0).then(pl.col("idle_ns") / window).alias("idle_share"))
        .sort(*frames.by, *device, nulls_last=True)
    )


def _parts(frames: StepFrames, keys: list[str]) -> pl.DataFrame:
    grouped = groups(frames.activities, keys)
    return breakdown(frames.activities, keys, grouped).hstack(idle_causes(frames, grouped))
