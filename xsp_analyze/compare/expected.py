"""What the peaks of two devices let one expect: how the time of the same work changes, beside what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import total_of
from xsp_analyze.frames.counted_operators import operator_work
from xsp_analyze.frames.device_peaks import agreed_peaks
from xsp_analyze.frames.peak_rates import BANDWIDTH
from xsp_model.devices import peaks_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.compare.side import Side

__all__ = ["Bound", "Expected", "expected"]

_PEAK_OF = {  # by the type that most of the time goes to, with which the products run
    "fp64": "fp64",
    "fp32": "fp32",
    "bf16": "bf16_tensor",
    "fp16": "fp16_tensor",
    "fp8": "fp8_tensor",
    "int8": "int8_tensor",
}


@dataclass(frozen=True, slots=True)
class Bound:
    """A peak of both devices; `ratio` is the time of after over that of before of work that it bounds."""

    quantity: str
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """Time after over time before."""
        return self.before / self.after


@dataclass(frozen=True, slots=True)
class Expected:
    """Ratios of time by each bound; null: a peak of a side is not known.

    `by_class` is that of the operators whose work is modelled, each by what bounds it on the device before;
    `modelled_share` says of how much device time before that is.
    """

    memory: Bound | None
    compute: Bound | None
    by_class: float | None = None
    modelled_share: float | None = None


def expected(one: Side, two: Side) -> Expected | None:
    """What to expect; null where both sides ran on the same device, or no peak is known of both."""
    if one.facts.device is None or two.facts.device is None or one.facts.device == two.facts.device:
        return None
    peaks = [_peaks(side) for side in (one, two)]
    precision = one.facts.precision
    alike = precision is not None and precision == two.facts.precision
    memory = _bound(BANDWIDTH, *peaks)
    compute = _bound(_PEAK_OF.get(precision or "", ""), *peaks) if alike else None
    if memory is None and compute is None:
        return None
    if memory is None or compute is None:
        return Expected(memory, compute)
    return Expected(memory, compute, *_by_class(one, memory, compute))


def _peaks(side: Side) -> dict[str, float]:
    """By the trace's own devices, or by the name of the side's, which may be known where numbers do not agree."""
    rows = agreed_peaks(side.views[0])
    peaks = dict(zip(rows["quantity"].cast(pl.String), rows["peak"], strict=True))
    return peaks or {quantity: peak.value for quantity, peak in peaks_for(side.facts.device).items()}


def _bound(quantity: str, before: Mapping[str, float], after: Mapping[str, float]) -> Bound | None:
    one, two = before.get(quantity), after.get(quantity)
    return Bound(quantity, one, two) if one and two else None


def _by_class(one: Side, memory: Bound, compute: Bound) -> tuple[float | None, float | None]:
    """Ratio by what bounds each modelled operator, below or above the ridge before; and the share that is modelled."""
    frames = one.views[0]
    if not frames.has("operators"):
        return None, None
    work = operator_work(frames).filter(pl.col("device_sum_ns") > 0)
    modelled = work.filter(pl.col("modelled_device_ns") > 0, pl.col("modelled_bytes") > 0)
    time, total = modelled["modelled_device_ns"].sum(), total_of(frames.executions["duration_ns"])
    if not time or not total:
        return None, None
    below = modelled["modelled_flop"].fill_null(0) / modelled["modelled_bytes"] < compute.before / memory.before
    in_memory = total_of(modelled.filter(below)["modelled_device_ns"])
    after = in_memory * memory.ratio + (float(time) - in_memory) * compute.ratio
    return after / float(time), float(time) / total
