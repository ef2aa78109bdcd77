"""How good a trace's results are, how long and what money it takes to get there."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.outputs import output_runs, tensors_of
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from xsp_analyze.frames.outputs import RecordedTensor
    from xsp_analyze.trace.step_view import StepView

__all__ = [
    "NO_PRICES",
    "Measure",
    "MetricKey",
    "Prices",
    "Target",
    "accuracies_of",
    "final",
    "outputs_of",
    "read_prices",
    "read_target",
    "time_to",
]

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
        """By the run's word; else by the metric's name: less of losses and errors is better, more of others."""
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
        """The target as the user gave it."""
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


def outputs_of(frames: StepView) -> list[RecordedTensor]:
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


# What a system costs by the hour, as the user's file says.

_INPUTS = 1000
_S_PER_HOUR = 3600
_NS_PER_HOUR = _S_PER_HOUR * 10**9


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices per hour by a part of the system's name; the longest part that a system's name holds is its price."""

    currency: str = ""
    per_hour: Mapping[str, float] = field(default_factory=dict)

    def per_thousand(self, system: str | None, throughput_per_s: float | None) -> float | None:
        """Cost of 1,000 inputs at the throughput; None where price or throughput is unknown."""
        per_hour = self._of(system)
        return per_hour / _S_PER_HOUR * _INPUTS / throughput_per_s if per_hour and throughput_per_s else None

    def of_time(self, system: str | None, time_ns: int | None) -> float | None:
        """Cost of that time on the system; None where price or time is unknown."""
        per_hour = self._of(system)
        return None if per_hour is None or time_ns is None else per_hour * time_ns / _NS_PER_HOUR

    def _of(self, system: str | None) -> float | None:
        matching = [part for part in self.per_hour if system and part.casefold() in system.casefold()]
        return self.per_hour[max(matching, key=len)] if matching else None


NO_PRICES = Prices()
"""Nothing is known of prices."""


def read_prices(path: Path) -> Prices:
    """The prices of a TOML file: `currency = "USD"` and a table `[per_hour]` with `"NVIDIA H100" = 2.5` in it."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise XspError(f"the prices cannot be read ({error.strerror})", path=path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise XspError(f"the prices are no TOML: {error}", path=path) from error
    table = document.get("per_hour")
    sound = isinstance(table, dict) and table and all(_is_price(v) for v in table.values())
    if not isinstance(table, dict) or not sound or not isinstance(document.get("currency", ""), str):
        raise XspError(
            "the prices need a table per_hour with a number above 0 for each system",
            path=path,
            advice='Write [per_hour] and below it, for example, "NVIDIA H100" = 2.5',
        )
    return Prices(document.get("currency", ""), {str(name): float(value) for name, value in table.items()})


def _is_price(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
