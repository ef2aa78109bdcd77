"""What samples tell between two times: the energy used, and what the machine did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.formulas import ordered_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_model.columns.arrays import Floats, Ints

__all__ = [
    "POWER_UNIT",
    "QUANTITIES",
    "Energy",
    "Series",
    "SystemQuantity",
    "device_series",
    "power_series",
    "samples_of_devices",
    "system_series",
]

# Energy from samples of power: how much was used between any two times.

POWER_UNIT = "W"
_NS_PER_S = 1e9
_MIN_SAMPLES = 2
_PAUSE = 10  # times the usual gap between two samples: from there on nothing was sampled


class Energy:
    """The energy used up to any time, by the trapezoidal rule over samples of power (times in ns, power in W).

    Of other counters (`holds`) what has been added up if a sample's value holds until the next, or, where that comes
    much later than usual, for as long as it usually does.
    """

    def __init__(self, time_ns: Ints, power_w: Floats, *, holds: bool = False) -> None:
        gaps = np.diff(time_ns)
        usual = int(np.median(gaps))
        held = np.where(gaps > _PAUSE * usual, usual, gaps) if holds else gaps
        steps = held * (power_w[:-1] if holds else (power_w[1:] + power_w[:-1]) / 2) / _NS_PER_S
        # What holds for less than the gap stands still between its end and the next sample.
        self._time = np.append(np.column_stack((time_ns[:-1], time_ns[:-1] + held)).ravel(), time_ns[-1:])
        self._used, self._sampled = (_sums_at_bounds(amounts) for amounts in (steps, held))

    def between(self, start_ns: Ints, end_ns: Ints) -> Floats:
        """Joules used in each interval, as far as samples cover it; between two samples at an even rate."""
        return np.asarray(self._at(end_ns) - self._at(start_ns), dtype=np.float64)

    def time_covered(self, start_ns: Ints, end_ns: Ints) -> Ints:
        """How many ns of each interval samples cover: between the first and the last, without pauses."""
        sampled = [np.interp(moments, self._time, self._sampled) for moments in (start_ns, end_ns)]
        return np.asarray(np.rint(sampled[1] - sampled[0]), dtype=np.int64)

    def _at(self, time_ns: Ints) -> Floats:
        return np.interp(time_ns, self._time, self._used)


def _sums_at_bounds(amounts: Floats | Ints) -> Floats:
    """What has been added up at the start and the end of each, and after the last."""
    sums = np.concatenate(([0.0], np.cumsum(amounts)))
    return np.append(np.column_stack((sums[:-1], sums[1:])).ravel(), sums[-1:])


def power_series(counters: pl.DataFrame) -> dict[tuple[int, int | None], Energy]:
    """Energy by run and device, of every device with two samples of power at least.

    Where a device has several counters in W, the first by name is taken; samples of the same time are averaged.
    """
    power = counters.filter(pl.col("unit") == POWER_UNIT).with_columns(pl.col("counter").cast(pl.String))
    first = pl.col("counter") == pl.col("counter").min().over("run_id", "device_id")
    energies: dict[tuple[int, int | None], Energy] = {}
    for (run, device), rows in power.filter(first).group_by("run_id", "device_id", maintain_order=True):
        series = rows.group_by("time_ns").agg(ordered_mean(pl.col("value"))).sort("time_ns")
        if series.height >= _MIN_SAMPLES:
            energies[run, device] = Energy(series["time_ns"].to_numpy(), series["value"].to_numpy())
    return energies


def samples_of_devices(counters: pl.DataFrame) -> pl.DataFrame:
    """The samples of devices, but for memory in use, which has tables of its own."""
    return counters.filter(pl.col("device_id").is_not_null(), pl.col("unit").cast(pl.String) != "byte")


def device_series(counters: pl.DataFrame) -> Iterator[tuple[str, str, dict[tuple[int, int | None], Energy]]]:
    """Name and unit of each counter sampled on devices, in order of names, with its sums by run and device."""
    rows = samples_of_devices(counters).with_columns(pl.col("counter", "unit").cast(pl.String))
    for (counter, unit), of_counter in rows.sort("counter", "unit").group_by("counter", "unit", maintain_order=True):
        sums: dict[tuple[int, int | None], Energy] = {}
        for (run, device), of_device in of_counter.group_by("run_id", "device_id", maintain_order=True):
            series = of_device.group_by("time_ns").agg(ordered_mean(pl.col("value"))).sort("time_ns")
            if series.height >= _MIN_SAMPLES:
                sums[run, device] = Energy(series["time_ns"].to_numpy(), series["value"].to_numpy(), holds=True)
        if sums:
            yield str(counter), str(unit), sums


# What the machine did between two times, by samples of it: processors, memory, network, disks.


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
