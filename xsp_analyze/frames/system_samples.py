"""What the machine did between two times, by samples of it: processors, memory, network, disks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.formulas import ordered_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_model.arrays import Floats, Ints

__all__ = ["QUANTITIES", "Series", "SystemQuantity", "system_series"]

_MIN_SAMPLES = 2
_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class SystemQuantity:
    """How samples of a counter are to be taken.

    `interval`: a value is of the time since the sample before; `total`: values count on, and their rate is asked for;
    `moment`: a value is of its moment, and lasts until the next.
    """

    name: str
    taken: str
    unit: str


QUANTITIES: Mapping[str, SystemQuantity] = {
    "system_cpu_utilization": SystemQuantity("cpu", "interval", "share"),
    "system_cpu_iowait": SystemQuantity("cpu waiting for disks", "interval", "share"),
    "system_memory_utilization": SystemQuantity("memory", "moment", "share"),
    "system_network_receive_utilization": SystemQuantity("network, receiving", "interval", "share"),
    "system_network_transmit_utilization": SystemQuantity("network, sending", "interval", "share"),
    "system_disk_busy": SystemQuantity("busiest disk", "interval", "share"),
    "system_memory_used_bytes": SystemQuantity("memory in use", "moment", "byte"),
    "system_network_receive_bytes": SystemQuantity("network, received", "total", "byte/s"),
    "system_network_transmit_bytes": SystemQuantity("network, sent", "total", "byte/s"),
    "system_disk_read_bytes": SystemQuantity("disks, read", "total", "byte/s"),
    "system_disk_write_bytes": SystemQuantity("disks, written", "total", "byte/s"),
}
"""By counter, in the order in which they are shown: shares first."""


class Series:
    """One counter's samples as a value that holds from one time to the next.

    `moments` are when anything was sampled: a value of an interval is of the time since the last of them.
    """

    def __init__(self, time_ns: Ints, value: Floats, taken: str, moments: Ints) -> None:
        if taken == "interval":
            index = np.searchsorted(moments, time_ns) - 1
            has_start = index >= 0
            self._start, self._end, self._value = moments[index[has_start]], time_ns[has_start], value[has_start]
            return
        self._start, self._end = time_ns[:-1], time_ns[1:]
        rates = np.diff(value) * _NS_PER_S / np.maximum(self._end - self._start, 1)
        self._value = rates if taken == "total" else value[:-1]

    def over(self, start_ns: int, end_ns: int) -> tuple[float, float, float, int] | None:
        """Mean by time, least and most of what held in the window, and how many ns samples cover; None: none."""
        inside = np.minimum(self._end, end_ns) - np.maximum(self._start, start_ns)
        held = inside > 0
        if not held.any():
            return None
        values, weights = self._value[held], inside[held]
        return float(np.average(values, weights=weights)), float(values.min()), float(values.max()), int(weights.sum())


def system_series(counters: pl.DataFrame) -> dict[tuple[int, str], Series]:
    """By run and counter, where anything was sampled twice at least; samples of one time are averaged."""
    rows = counters.with_columns(pl.col("counter").cast(pl.String)).filter(pl.col("counter").is_in(list(QUANTITIES)))
    series: dict[tuple[int, str], Series] = {}
    for (run,), of_run in rows.group_by("run_id", maintain_order=True):
        moments = of_run["time_ns"].unique().sort().to_numpy()
        for (counter,), samples in of_run.group_by("counter", maintain_order=True):
            table = samples.group_by("time_ns").agg(ordered_mean(pl.col("value"))).sort("time_ns")
            if len(moments) >= _MIN_SAMPLES:
                taken = QUANTITIES[str(counter)].taken
                times, values = table["time_ns"].to_numpy(), table["value"].to_numpy()
                series[int(str(run)), str(counter)] = Series(times, values, taken, moments)
    return series
