"""Whether both sides came to the same results: their accuracies, and how far their outputs are from each other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xsp_analyze.frames.outputs import (
    InputMatch,
    by_name,
    distance,
    input_match,
    output_runs,
    recorded_distances,
    tensors_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.compare.side import Side
    from xsp_analyze.frames.outputs import Distance, Tensor
    from xsp_analyze.trace.step_view import StepView

__all__ = ["AccuracyPair", "OutputPair", "Results", "results"]

_SHARES = {"share": 1.0, "": 1.0, "%": 0.01, "percent": 0.01}
_SCORE_LIKE = ("top", "acc")  # what metrics are called that count right samples
_NORMAL_95 = 1.959964  # of a normal distribution, two-sided 95 %


@dataclass(frozen=True, slots=True)
class AccuracyPair:
    """A metric on both sides; null: unknown. `reach` is what so many samples let a share vary by (95 %)."""

    metric: str
    dataset: str | None
    unit: str | None
    before: float | None
    after: float | None
    before_samples: int | None
    after_samples: int | None
    higher_is_better: bool | None
    reach: float | None

    @property
    def difference(self) -> float | None:
        """After less before."""
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def is_worse(self) -> bool | None:
        """Whether it became worse by more than samples let it vary; null: nobody says which way is better."""
        if self.difference is None or self.higher_is_better is None:
            return None
        lost = -self.difference if self.higher_is_better else self.difference
        return lost > (self.reach or 0.0)


@dataclass(frozen=True, slots=True)
class OutputPair:
    """An output that both sides recorded, of the same shape; the distance is from before to after."""

    name: str
    distance: Distance
    before: Tensor
    after: Tensor

    @property
    def steps_differ(self) -> bool:
        """Whether another number of steps was run before: of training, another state of the model."""
        return self.before.step != self.after.step


@dataclass(frozen=True, slots=True)
class Results:
    """What both sides came to; `unmatched` are outputs of one side without a counterpart of their shape."""

    accuracies: Sequence[AccuracyPair]
    outputs: Sequence[OutputPair]
    unmatched: Sequence[str]
    input_match: InputMatch

    @property
    def differ(self) -> bool:
        """Whether an output is not the same to the byte."""
        return any(not pair.distance.is_identical for pair in self.outputs)


def results(before: Side, after: Side) -> Results:
    """Of each side the first capture and the run that model latency is taken from, else the first that has any."""
    one, two = before.views[0], after.views[0]
    ours, theirs = (tensors_of(frames.trace, output_runs(frames.of_trace)) for frames in (one, two))
    recorded = {(name, sha): d for name, _, sha, d in recorded_distances(two.trace, output_runs(two.of_trace)) if sha}
    outputs, unmatched = _pair_outputs(by_name(ours), by_name(theirs), recorded)
    return Results(_accuracies(one, two), outputs, unmatched, input_match(ours, theirs))


def _pair_outputs(
    ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], recorded: Mapping[tuple[str, str], Distance]
) -> tuple[list[OutputPair], list[str]]:
    """Outputs of one name and shape; where each side has a single one, whatever its name is."""
    pairs = [(name, name) for name in ours if name in theirs]
    if not pairs and len(ours) == len(theirs) == 1:
        pairs = [(next(iter(ours)), next(iter(theirs)))]
    paired, left = [], []
    for a, b in pairs:
        apart = distance(ours[a], theirs[b])
        if apart is not None and not apart.is_identical:
            apart = recorded.get((b, ours[a].sha256 or ""), apart)
        if apart is None:
            left.append(b)
        else:
            paired.append(OutputPair(b, apart, ours[a], theirs[b]))
    one, two = ({pair[side] for pair in pairs} for side in (0, 1))
    return paired, [*left, *(n for n in ours if n not in one), *(n for n in theirs if n not in two)]


_Measure = tuple[str, str | None]


def _accuracies(one: StepView, two: StepView) -> list[AccuracyPair]:
    ours, theirs = _measures(one), _measures(two)
    return [_pair(key, ours.get(key), theirs.get(key)) for key in dict.fromkeys([*ours, *theirs])]


def _measures(frames: StepView) -> dict[_Measure, dict[str, Any]]:
    """What runs ended with, by metric and dataset; of a training curve the last point where nothing else is said."""
    last: dict[_Measure, dict[str, Any]] = {}
    rows = frames.trace.frame("accuracies").sort("time_ns", nulls_last=True, maintain_order=True)
    for row in rows.iter_rows(named=True):
        last[row["metric"], row["dataset"]] = row
    return last


def _pair(key: _Measure, before: dict[str, Any] | None, after: dict[str, Any] | None) -> AccuracyPair:
    first = before or after or {}
    better = next((r["higher_is_better"] for r in (before, after) if r and r["higher_is_better"] is not None), None)
    counts_right = key[0].casefold().startswith(_SCORE_LIKE)
    unit = first.get("unit")
    same_unit = not before or not after or before["unit"] == after["unit"]
    return AccuracyPair(
        *key,
        unit,
        before["value"] if before else None,
        after["value"] if after and same_unit else None,
        before["sample_count"] if before else None,
        after["sample_count"] if after else None,
        True if better is None and counts_right else better,
        _reach(before, after) if counts_right and same_unit else None,
    )


def _reach(before: dict[str, Any] | None, after: dict[str, Any] | None) -> float | None:
    """Half of the 95 % interval of a difference of two shares of right samples, each a draw of its own.

    Source: the normal approximation of the binomial (Wald). Sides measured on the same samples vary less.
    """
    variance, scale = 0.0, 1.0
    for row in (before, after):
        if row is None or not row["sample_count"] or (row["unit"] or "") not in _SHARES:
            return None
        scale = _SHARES[row["unit"] or ""]
        value = row["value"] * scale
        if not 0 <= value <= 1:
            return None
        variance += value * (1 - value) / row["sample_count"]
    return _NORMAL_95 * math.sqrt(variance) / scale
