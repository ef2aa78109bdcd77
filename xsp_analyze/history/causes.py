"""What explains a change, and what rules say of a run: the engine of `xsp compare` on facts that a history keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl

from xsp_analyze.compare.levels import Measured
from xsp_analyze.compare.rows import Assumed, conclude, conclude_all, rows_of
from xsp_analyze.compare.rules import RuleOutcome, check
from xsp_analyze.compare.significance import FALSE_DISCOVERY_RATE, RUN_NOISE
from xsp_analyze.history.facts import CAUSES
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.compare.comparison import Comparison
    from xsp_analyze.compare.rows import Row
    from xsp_analyze.compare.rules import Rule

__all__ = ["Held", "hold", "outcomes"]

_LEVELS = {"class": "kernel_class"}  # what rules call a section, where that is another word
_MODEL = {"latency": "latency_ns", "device_time": "device_time_ns"}


@dataclass(frozen=True)
class Held:
    """Runs held against others as `xsp compare` holds captures: `model` is latency, and device time where known.

    `rows` are of all levels, and of the parts of a step (idle causes among them), each concluded.
    """

    model: Sequence[Row]
    rows: Sequence[Row]
    throughput: tuple[float | None, float | None]
    same_content: bool = False

    @property
    def latency(self) -> Row:
        """The time of a step."""
        return self.model[0]

    def level(self, name: str) -> list[Row]:
        """The rows of one level, in order."""
        return [row for row in self.rows if row.level == name]

    def causes(self, max_rows: int) -> list[Row]:
        """What changed the way the step did, each significantly: first the largest of each level, then by time.

        A class of kernels that is a part of the step by the same name is told once.
        """
        change = self.latency.difference_ns or 0.0
        alike = [row for row in self.rows if row.significant and (row.difference_ns or 0.0) * change > 0]
        alike += [row for row in self.rows if row.change in {"appeared", "vanished"} and _is_large(row, change)]
        parts = {row.name.partition(": ")[2] for row in alike if row.level == "part"}
        alike = [row for row in alike if row.level != "kernel_class" or row.name not in parts]
        by_size = sorted(alike, key=lambda row: -abs(row.difference_ns or 0.0))
        first = {row.level: row for row in reversed(by_size)}
        leading = [first[level] for level in map(_level_of, CAUSES) if level in first]
        return [*leading, *(row for row in by_size if row not in leading)][:max_rows]


def _is_large(row: Row, change: float) -> bool:
    return (
        row.name != _OTHERS
        and (row.difference_ns or 0.0) * change > 0
        and abs(row.difference_ns or 0) > abs(change) / 4
    )


_OTHERS = "(others)"


def _level_of(section: str) -> str:
    return _LEVELS.get(section, section)


def hold(before: Sequence[pl.DataFrame], after: Sequence[pl.DataFrame]) -> Held:
    """The facts of some runs of a series held against those of later ones; XspError where a side has none."""
    if not before or not after:
        raise XspError("there is no run to hold the others against", advice="Add runs of the same series first")
    on_device = all(_value(run, "device_time_ns") is not None for run in (*before, *after))
    assumed = Assumed(RUN_NOISE["device" if on_device else "host"], alike=True)
    names = ("latency", "device_time") if on_device else ("latency",)
    model = [_model_row(name, before, after, assumed) for name in names]
    rows: list[Row] = []
    for section in CAUSES:
        sides = [[_measured_level(run, section) for run in side] for side in (before, after)]
        rows += _rows(_level_of(section), sides[0], sides[1], assumed)
    rates = (_mean_rate(before), _mean_rate(after))
    return Held(model, sorted(conclude_all(rows), key=_rank), rates)


def _rank(row: Row) -> tuple[bool, float, str]:
    return not row.significant, -abs(row.difference_ns or 0.0), row.name


def _model_row(name: str, before: Sequence[pl.DataFrame], after: Sequence[pl.DataFrame], assumed: Assumed) -> Row:
    sides = [[_alone(name, _value(run, _MODEL[name])) for run in side] for side in (before, after)]
    one, two = sides
    rows, _ = rows_of("model", one, two, [(name, name)], lambda a, _: {"name": a}, assumed)
    p = rows[0].p_value
    return conclude(rows[0], is_discovery=p is not None and p <= FALSE_DISCOVERY_RATE)


def _alone(name: str, value: float | None) -> Measured:
    values = np.array([np.nan if value is None else value])
    return Measured(pl.DataFrame({"key": [name]}), values, np.ones(1), np.empty((1, 0)))


def _measured_level(run: pl.DataFrame, section: str) -> Measured:
    """The rows of a section as compare has those of a capture taken whole; of one name their sum."""
    rows = run.filter(pl.col("section") == section).group_by("name", maintain_order=True)
    sums = rows.agg(pl.col("value", "count").sum(), pl.col("text").first())
    return Measured(
        sums.select(pl.col("name").alias("key"), "text"),
        sums["value"].to_numpy(),
        sums["count"].to_numpy(),
        np.empty((sums.height, 0)),
    )


def _rows(level: str, before: Sequence[Measured], after: Sequence[Measured], assumed: Assumed) -> list[Row]:
    """A row a name; one that a side never has appeared or vanished. Of one that some runs of a side lack, no ratio."""
    sides = [dict.fromkeys(str(key) for measured in side for key in measured.keys) for side in (before, after)]
    pairs = [
        (name if name in sides[0] else None, name if name in sides[1] else None) for name in {**sides[0], **sides[1]}
    ]
    if not pairs:
        return []
    types = {
        str(m["key"]): m["text"] for side in (before, after) for one in side for m in one.labels.iter_rows(named=True)
    }

    def describe(a: Any, b: Any) -> Mapping[str, Any]:  # noqa: ANN401 (keys, whatever they are)
        name = a if a is not None else b
        return {"name": name, "layer_type": types[name] if level == "layer" else None}

    rows, _ = rows_of(level, before, after, pairs, describe, assumed)
    return rows


def _value(run: pl.DataFrame, measure: str) -> float | None:
    values = run.filter(pl.col("section") == "measure", pl.col("name") == measure)["value"]
    return None if values.is_empty() else float(values[0])


def _mean_rate(runs: Sequence[pl.DataFrame]) -> float | None:
    rates = [_value(run, "throughput_per_s") for run in runs]
    measured_rates = [rate for rate in rates if rate]
    return (
        float(np.exp(np.mean(np.log(measured_rates)))) if measured_rates and len(measured_rates) == len(rates) else None
    )


def outcomes(held: Held, rules: Sequence[Rule], *, strict: bool = False) -> list[RuleOutcome]:
    """What becomes of the rules, as of two captures; XspError where one is on what no run has."""
    comparison = cast("Comparison", held)  # the part of one that rules ask for
    return [check(rule, comparison, strict=strict) for rule in rules]
