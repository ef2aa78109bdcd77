"""How good a trace's results are: measures, training curves, time to a target; and what came out of a step.

Source: Coleman et al., "DAWNBench: An End-to-End Deep Learning Benchmark and Competition", 2017: time to accuracy is
the time until a metric first reaches a target, and its cost is that time at the price of the system.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.outputs import output_runs, tensors_of
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from xsp_analyze.frames.outputs import Tensor
    from xsp_analyze.trace.step_view import StepView

__all__ = ["Measure", "MetricKey", "Target", "accuracies_of", "final", "outputs_of", "read_target", "time_to"]

_LESS_IS_BETTER = ("loss", "error", "perplexity", "ppl", "wer", "cer", "mae", "mse", "rmse", "fid")


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric's value; `time_ns` since training began, or null: what the run ended with."""

    metric: str
    dataset: str | None
    value: float
    unit: str | None = None
    sample_count: int | None = None
    higher_is_better: bool | None = None
    time_ns: int | None = None

    @property
    def more_is_better(self) -> bool:
        """As the run says; where it does not, by the metric's name: less of losses and errors, more of others."""
        if self.higher_is_better is not None:
            return self.higher_is_better
        name = self.metric.casefold()
        return not any(part in name for part in _LESS_IS_BETTER)


@dataclass(frozen=True, slots=True)
class Target:
    """What a metric is to reach."""

    metric: str
    value: float

    @property
    def text(self) -> str:
        """As the user gave it."""
        return f"{self.metric}={self.value:g}"


def read_target(text: str) -> Target:
    """`top1=0.93`; XspError where it is none."""
    metric, mark, value = text.rpartition("=")
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not (mark and metric.strip()) or number != number or abs(number) == float("inf"):  # noqa: PLR0124 (no number)
        raise XspError(f"{text!r} is no target", advice="Give a metric and the value to reach, as top1=0.93")
    return Target(metric.strip(), number)


def accuracies_of(frames: StepView) -> list[Measure]:
    """All that the trace's runs say, each thing once: runs of a profile may repeat one another."""
    columns = ("metric", "dataset", "value", "unit", "sample_count", "higher_is_better", "time_ns")
    rows = frames.trace.frame("accuracies").with_columns(pl.col(pl.Categorical).cast(pl.String)).select(columns)
    return [Measure(**row) for row in rows.unique(maintain_order=True).iter_rows(named=True)]


def outputs_of(frames: StepView) -> list[Tensor]:
    """What the step was given and what came out, of the run that model latency is taken from, else the next."""
    return tensors_of(frames.trace, output_runs(frames.of_trace))


MetricKey = tuple[str, str | None]


def final(measures: Iterable[Measure]) -> Mapping[MetricKey, Measure]:
    """What each metric ended with, by metric and dataset: what the run says of its end, else its curve's last point."""
    last: dict[MetricKey, Measure] = {}
    for each in sorted(measures, key=lambda m: (m.time_ns is None, m.time_ns or 0)):
        last[each.metric, each.dataset] = each
    return last


def time_to(measures: Sequence[Measure], target: Target) -> int | None:
    """When a training curve of that metric first reaches the target, in ns; None where none does or none is there."""
    curve = [m for m in measures if m.metric.casefold() == target.metric.casefold() and m.time_ns is not None]
    reached = [
        m.time_ns
        for m in curve
        if m.time_ns is not None and (m.value >= target.value if m.more_is_better else m.value <= target.value)
    ]
    return min(reached, default=None)
