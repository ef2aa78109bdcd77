"""B16: what the host was doing while a device was idle, by the call that explains it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import STEP
from xsp_analyze.core import AMOUNT, TIME_NS, Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import quotient
from xsp_analyze.frames.device_time import device_time
from xsp_analyze.frames.idle import DEVICE

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["idle_calls"]


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
        Column("cause", pl.String(), "sync, initialisation, input, host, launch or unknown; see B03.", role=Role.KEY),
        Column(
            "call",
            pl.String(),
            "The outermost call of the host that explains it; null where none does, as between launches.",
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
