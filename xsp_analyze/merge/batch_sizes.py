"""Which batch size a profile of several is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.formulas import first_saturating_batch
from xsp_analyze.frames.model_time import latency_of_model
from xsp_analyze.trace.step_view import StepView
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_model import Trace

__all__ = ["main_batch_size"]

_NS_PER_S = 1e9
_LATENCY_FROM = ("model", "layers", "kernels")

_RunsByRole = dict[str, list["Trace"]]


def main_batch_size(by_size: Mapping[int | None, _RunsByRole], requested: int | None = None) -> int | None:
    """The one requested; else, of those with most kinds of runs, the optimal one, or that of most inputs a second.

    The optimal one is A01's, over all batch sizes. XspError where there is none of the one requested.
    """
    if requested is not None and requested not in by_size:
        sizes = ", ".join(str(size) for size in by_size if size is not None) or "not known"
        raise XspError(f"no run is of batch size {requested}", advice=f"The batch sizes of the runs are: {sizes}")
    if requested is not None or len(by_size) == 1:
        return requested if requested is not None else next(iter(by_size))
    deepest = max(map(len, by_size.values()))
    rates = {size: _inputs_per_s(size, by_role) for size, by_role in by_size.items() if size is not None}
    optimal = first_saturating_batch({size: rate for size, rate in rates.items() if rate is not None})
    candidates = [size for size in rates if len(by_size[size]) == deepest]
    return optimal if optimal in candidates else max(candidates, key=lambda size: rates[size] or 0.0)


def _inputs_per_s(size: int, by_role: _RunsByRole) -> float | None:
    runs: Sequence[Trace] = next(by_role[role] for role in _LATENCY_FROM if role in by_role)
    frames = StepView.of(runs[0])
    latency = frames.once(latency_of_model)["latency_ns"].to_list() if frames.steps.height else []
    return size * _NS_PER_S / latency[0] if latency and latency[0] else None
