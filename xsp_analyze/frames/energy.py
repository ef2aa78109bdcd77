"""Energy from samples of power: how much was used between any two times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.formulas import ordered_mean

if TYPE_CHECKING:
    from xsp_model.arrays import Floats, Ints

__all__ = ["POWER_UNIT", "Energy", "power_series"]

POWER_UNIT = "W"
_NS_PER_S = 1e9
_MIN_SAMPLES = 2


class Energy:
    """The energy used up to any time, by the trapezoidal rule over samples of power (times in ns, power in W)."""

    def __init__(self, time_ns: Ints, power_w: Floats) -> None:
        self._time = time_ns
        steps = np.diff(time_ns) * (power_w[1:] + power_w[:-1]) / 2 / _NS_PER_S
        self._used = np.concatenate(([0.0], np.cumsum(steps)))

    def between(self, start_ns: Ints, end_ns: Ints) -> Floats:
        """Joules used in each interval, as far as samples cover it; between two samples at an even rate."""
        return np.asarray(self._at(end_ns) - self._at(start_ns), dtype=np.float64)

    def time_covered(self, start_ns: Ints, end_ns: Ints) -> Ints:
        """How many ns of each interval lie between the first and the last sample."""
        first, last = self._time[0], self._time[-1]
        return np.asarray(np.clip(end_ns, first, last) - np.clip(start_ns, first, last), dtype=np.int64)

    def _at(self, time_ns: Ints) -> Floats:
        return np.interp(time_ns, self._time, self._used)


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
