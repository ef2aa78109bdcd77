"""Compares two sides: whether they may be, how well they match, every row's ratio, and what explains the difference."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.compare.level_rows import (
    block_rows,
    changes,
    kernel_class_rows,
    kernel_partners,
    kernel_rows,
    layer_rows,
    layer_type_rows,
    model_rows,
    operator_rows,
    regrouped_rows,
)
from xsp_analyze.compare.parts import Explained, explain_difference, leading, with_locations
from xsp_analyze.compare.rows import Assumed, conclude_all, in_order, moves
from xsp_analyze.compare.side import DifferenceKind, Pairs, Side, check_common, differences, pair_layers, same_content
from xsp_analyze.compare.significance import RUN_NOISE
from xsp_analyze.faults import attempt, fault_of, noting_faults
from xsp_analyze.formulas import total_of
from xsp_analyze.frames.collectives import has_ranks
from xsp_analyze.frames.kernels.kernel_means import kernel_executions
from xsp_analyze.frames.kernels.roofline import BANDWIDTH, agreed_peaks
from xsp_analyze.frames.operators.operator_work import operator_work
from xsp_analyze.frames.outputs import (
    InputMatch,
    by_name,
    distance,
    input_match,
    output_runs,
    recorded_distances,
    tensors_of,
)
from xsp_analyze.frames.rank_waits import rank_times
from xsp_analyze.merge.matching import match_kernels
from xsp_analyze.needs import holds
from xsp_analyze.text.units import plain_spaces, share
from xsp_model import XspError
from xsp_model.devices import peaks_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_analyze.compare.level_rows import Change
    from xsp_analyze.compare.parts import Waterfall
    from xsp_analyze.compare.rows import ClassMoves, Move, Row
    from xsp_analyze.compare.side import Difference
    from xsp_analyze.faults import FaultError
    from xsp_analyze.frames.outputs import Distance, RecordedTensor
    from xsp_analyze.trace.step_view import StepView

__all__ = [
    "MIN_MATCH",
    "AccuracyPair",
    "Bound",
    "Comparison",
    "Expected",
    "OutputPair",
    "RankPair",
    "Results",
    "compare",
    "expect_from_peaks",
    "rank_quantiles",
    "results",
]

# Whether both sides came to the same results: their accuracies, and how far their outputs are from each other.

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
    before: RecordedTensor
    after: RecordedTensor

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
    ours: Mapping[str, RecordedTensor],
    theirs: Mapping[str, RecordedTensor],
    recorded: Mapping[tuple[str, str], Distance],
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


@dataclass(frozen=True, slots=True)
class RankPair:
    """A rank of a job before and after, in ns a step; null: that side does not have it, or does not say."""

    rank: int
    before_ns: float | None
    after_ns: float | None
    compute_before_ns: float | None
    compute_after_ns: float | None
    wait_before_ns: float | None
    wait_after_ns: float | None


def rank_quantiles(pairs: Sequence[RankPair], part: float) -> tuple[float | None, float | None, float | None]:
    """What this part of all ranks takes at most before and after, in ns a step, and the ratio of both."""
    before, after = (
        pl.Series([value for pair in pairs if (value := getattr(pair, side)) is not None], dtype=pl.Float64).quantile(
            part, "linear"
        )
        for side in ("before_ns", "after_ns")
    )
    return before, after, after / before if before and after is not None else None


def rank_pairs(one: Side, two: Side) -> list[RankPair]:
    """The ranks of two jobs by their numbers, of each side's first capture; none where a side has not several."""
    first, second = one.views[0], two.views[0]
    if not all(has_ranks(frames.of_trace) for frames in (first, second)):
        return []
    measures = ("step_ns", "compute_ns", "wait_ns")
    before, after = (
        frames.once(rank_times).group_by("rank").agg(pl.col(c).cast(pl.Float64).mean() for c in measures)
        for frames in (first, second)
    )
    both = before.join(after, on="rank", how="full", suffix="_after", coalesce=True).sort("rank")
    return [
        RankPair(row["rank"], *(row[f"{c}{side}"] for c in measures for side in ("", "_after")))
        for row in both.iter_rows(named=True)
    ]


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


def expect_from_peaks(one: Side, two: Side) -> Expected | None:
    """What to expect; null where both sides ran on the same device, or no peak is known of both."""
    if one.facts.device is None or two.facts.device is None or one.facts.device == two.facts.device:
        return None
    peaks = [_peaks(side) for side in (one, two)]
    precision = one.facts.precision
    alike = precision is not None and precision == two.facts.precision
    memory = _limit_of(BANDWIDTH, *peaks)
    compute = _limit_of(_PEAK_OF.get(precision or "", ""), *peaks) if alike else None
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


def _limit_of(quantity: str, before: Mapping[str, float], after: Mapping[str, float]) -> Bound | None:
    one, two = before.get(quantity), after.get(quantity)
    return Bound(quantity, one, two) if one and two else None


def _by_class(one: Side, memory: Bound, compute: Bound) -> tuple[float | None, float | None]:
    """Ratio by what bounds each modelled operator, below or above the ridge before; and the share that is modelled."""
    frames = one.views[0]
    if not holds(frames.of_trace, "operators"):
        return None, None
    work = operator_work(frames).filter(pl.col("device_sum_ns") > 0)
    modelled = work.filter(pl.col("modelled_device_ns") > 0, pl.col("modelled_bytes") > 0)
    time, total = modelled["modelled_device_ns"].sum(), total_of(frames.once(kernel_executions)["duration_ns"])
    if not time or not total:
        return None, None
    below = modelled["modelled_flop"].fill_null(0) / modelled["modelled_bytes"] < compute.before / memory.before
    in_memory = total_of(modelled.filter(below)["modelled_device_ns"])
    after = in_memory * memory.ratio + (float(time) - in_memory) * compute.ratio
    return after / float(time), float(time) / total


_WORTH_TELLING = 0.01  # of device time
MIN_MATCH = 0.5
"""Sides of which fewer layers match are taken for different work, unless layers are operators or not of one source."""


@dataclass(frozen=True)
class Comparison:
    """What `compare` found; `reasons` say why the sides are not comparable, where they are not."""

    before: Side
    after: Side
    differences: Sequence[Difference]
    reasons: Sequence[str]
    kernel_match: float | None
    model: Sequence[Row]  # latency, and device time where both have any
    rows: Sequence[Row]
    changes: Sequence[Change]
    regrouped: int  # kernels of a step of which nothing but the layer differs
    waterfalls: Sequence[Waterfall]  # by layer where there are few, by type of layer, by class of kernels
    pairs: Pairs
    operator_basis: str
    moves: Sequence[ClassMoves]  # classes of kernels of which much moved between operators
    run_noise: float | None
    run_noise_source: str
    per_input: bool
    same_content: bool
    expected: Expected | None  # by the devices' peaks, where the sides ran on different ones
    results: Results  # accuracies and outputs, where runs recorded them
    ranks: Sequence[RankPair] = ()  # of jobs of which both sides have several
    failed: Sequence[str] = ()  # what it is without for a fault of ours, in sentences

    @property
    def comparable(self) -> bool:
        """Whether both sides did the same work, as far as the files say."""
        return not self.reasons

    @property
    def latency(self) -> Row:
        """The model's latency."""
        return self.model[0]

    @property
    def layer_match(self) -> float | None:
        """The share of the longer side's layers that have a partner; null where a side has none."""
        return self.pairs.rate

    @property
    def layer_pairing(self) -> str:
        """What of them layers were paired by."""
        return self.pairs.by

    @property
    def waterfall(self) -> Waterfall | None:
        """The one that says most of single layers; null where no latency is known."""
        return self.waterfalls[0] if self.waterfalls else None

    @property
    def throughput(self) -> tuple[float | None, float | None]:
        """Inputs per second, before and after; null without a batch size or a latency."""
        rates = []
        for side, latency in ((self.before, self.latency.before_ns), (self.after, self.latency.after_ns)):
            batch = side.facts.batch_size
            rates.append(batch / side.per * 1e9 / latency if batch and latency else None)
        return rates[0], rates[1]

    @property
    def test_count(self) -> int:
        """How many rows were tested, and corrected for."""
        return sum(row.p_value is not None for row in self.rows)

    def level(self, name: str) -> list[Row]:
        """The rows of one level, in order."""
        return [row for row in self.rows if row.level == name]


def compare(
    before: Sequence[StepView],
    after: Sequence[StepView],
    *,
    names: tuple[str, str] = ("before", "after"),
    per_input: bool = False,
    run_noise: float | None = None,
) -> Comparison:
    """The comparison of two sides, each of one or more captures of the same work.

    XspError where a side is taken by steps and the other whole, where times per input are asked for and a batch size
    is unknown, or where the two have nothing in common. A part that fails is left out, and `failed` says why.
    """
    with noting_faults() as faults, fault_of(f"The comparison of {names[0]} and {names[1]}"):
        sides = _sides(before, after, names, per_input=per_input)
        made = _compare(*sides, faults, per_input=per_input, run_noise=run_noise)
    return replace(made, failed=[str(fault) for fault in faults])


def _compare(
    one: Side, two: Side, faults: Sequence[FaultError], *, per_input: bool, run_noise: float | None
) -> Comparison:
    """The comparison, of which what fails goes to `faults`."""
    one.check_steps(two)
    differ = differences(one.facts, two.facts, per_input=per_input)
    alike = not any(d.kind is DifferenceKind.SYSTEM for d in differ)
    frameworks = [side.facts.framework for side in (one, two)]
    same_framework = None in frameworks or frameworks[0].casefold() == frameworks[1].casefold()  # type: ignore[union-attr]
    pairs = attempt(
        "The pairing of layers",
        lambda: pair_layers(one.layers[0].labels, two.layers[0].labels, same_framework=same_framework),
        lambda _: Pairs([], None, "nothing"),
    )
    on_device = one.has_kernels and two.has_kernels
    basis = "device" if on_device else "host"
    assumed = Assumed(RUN_NOISE[basis] if run_noise is None else run_noise, alike)
    layers, noise = attempt("The rows of layers", lambda: _layers(one, two, pairs, assumed), lambda _: ([], (None, "")))
    changed: list[Change] = []
    regrouped, kernel_match = 0, None
    partner: Mapping[str, str] = {}
    moved: Mapping[str, Mapping[str, Move]] = {}
    classes: Sequence[ClassMoves] = []
    if on_device:
        changed, regrouped, kernel_match = attempt(
            "The changes of kernels", lambda: _changes(one, two, pairs), lambda _: ([], 0, None)
        )
        partner = attempt("Replaced kernels", lambda: kernel_partners(one, two, changed), lambda _: {})
        moved, classes = attempt("Time that moved", lambda: _moves_of(one, two, partner), lambda _: ({}, []))
    operators = _attempt_rows(
        "operators", lambda: operator_rows(one, two, assumed, moved.get("operator", {}), on_device=on_device)
    )
    if not faults:  # else what they have in common may be what is missing
        check_common(one, two, pairs, operators)
    of_types = partial(layer_type_rows, one, two, assumed, moved.get("layer_type", {}), same_framework=same_framework)
    of_kernels = partial(kernel_rows, one, two, changed, partner, assumed, moved.get("kernel", {}))
    rows = conclude_all(
        [
            *_attempt_rows("types of layers", of_types),
            *operators,
            *_attempt_rows("classes of kernels", partial(kernel_class_rows, one, two, assumed)),
            *layers,
            *_attempt_rows("kernels", of_kernels),
        ]
    )
    # Sums of rows of layers: corrected among themselves.
    blocks = conclude_all(_attempt_rows("blocks of layers", partial(block_rows, one, two, pairs, assumed)))
    falls = attempt(
        "What the difference is made of",
        lambda: explain_difference(one, two, pairs, on_device=on_device),
        lambda _: Explained([], {}),
    )
    return Comparison(
        one,
        two,
        differ,
        _reasons(differ, pairs, one, two),
        kernel_match,
        model_rows(one, two, assumed, on_device=on_device),
        _with_cause(in_order([*rows, *blocks]), falls.by_layer),
        changed,
        regrouped,
        falls.waterfalls,
        pairs,
        basis,
        classes,
        *noise,
        per_input,
        same_content(one, two),
        attempt("What peaks let expect", lambda: expect_from_peaks(one, two) if on_device else None, lambda _: None),
        attempt("Accuracy and outputs", lambda: results(one, two), lambda _: Results([], [], [], InputMatch.UNKNOWN)),
        attempt("Rank by rank", lambda: rank_pairs(one, two), lambda _: []),
    )


def _layers(one: Side, two: Side, pairs: Pairs, assumed: Assumed) -> tuple[list[Row], tuple[float | None, str]]:
    """Their rows, and the noise between captures that was taken with where it is from."""
    rows, judged = layer_rows(one, two, pairs, assumed)
    return rows, (judged.run_noise, judged.run_noise_source)


def _attempt_rows(what: str, make: Callable[[], list[Row]]) -> list[Row]:
    return attempt(f"The rows of {what}", make, lambda _: [])


def _sides(
    before: Sequence[StepView], after: Sequence[StepView], names: tuple[str, str], *, per_input: bool
) -> tuple[Side, Side]:
    sides = Side(names[0], before), Side(names[1], after)
    if not per_input:
        return sides
    scaled = []
    for side in sides:
        batch = side.facts.batch_size
        if not batch:
            raise XspError(
                f"times per input need a batch size, and {side.name} does not say what its was",
                advice="Describe the run in a run.json (docs/run-set.md), or compare times per step",
            )
        scaled.append(replace(side, per=float(batch)))
    return scaled[0], scaled[1]


def _reasons(differ: Sequence[Difference], pairs: Pairs, one: Side, two: Side) -> list[str]:
    """Why the two did not do the same work; none: as far as the files say, they did."""
    reasons = [
        f"different {d.what}: {d.before} before, {d.after} after" for d in differ if d.kind is DifferenceKind.WORK
    ]
    sources = {one.facts.layer_source, two.facts.layer_source}
    named = len(sources) == 1 and "operator" not in sources  # operators come and go with every optimisation
    if pairs.rate is not None and pairs.rate < MIN_MATCH and named:
        reasons.append(f"only {plain_spaces(share(pairs.rate))} of the layers have a counterpart")
    return reasons


def _moves_of(one: Side, two: Side, partner: Mapping[str, str]) -> tuple[dict[str, dict[str, Move]], list[ClassMoves]]:
    """By level where the time of its rows moved, and the classes of which enough moved to be told.

    A kernel that took another's place everywhere counts as that one.
    """
    replaced = {new: old for old, new in partner.items()}
    cells = one.cells(), two.cells().with_columns(pl.col("kernel").replace(replaced))
    by_level = {level: moves(*cells, level) for level in ("layer_type", "operator", "kernel")}
    _, classes = by_level["operator"]
    min_ns = _WORTH_TELLING * total_of(cells[0]["ns"])
    large = [c for c in classes if -sum(ns for _, ns in c.losses) >= min_ns]
    return {level: moved for level, (moved, _) in by_level.items()}, large


def _changes(one: Side, two: Side, pairs: Pairs) -> tuple[list[Change], int, float | None]:
    """Changes between kernels, how many kernels have another place alone, and the share of kernels that match."""
    first, second = one.one_step(), two.one_step()
    if first.is_empty() or second.is_empty():
        return [], 0, None
    matched, rows = match_kernels(first, second)
    ours, theirs = with_locations(first, second, one, two, pairs)
    regrouped = regrouped_rows(ours, theirs, rows)
    left = (_without(side, regrouped[name]) for side, name in ((ours, "first"), (theirs, "second")))
    return changes(*left), regrouped.height, matched.alignment.rate


def _without(kernels: pl.DataFrame, rows: pl.Series) -> pl.DataFrame:
    return kernels.with_row_index("row").filter(~pl.col("row").is_in(rows.implode())).drop("row")


def _with_cause(rows: Sequence[Row], causes: dict[int | None, dict[str, float]]) -> list[Row]:
    """Layers with what changed most in them the same way; rows that moved, where they did more than vary."""
    out = []
    for row in rows:
        inside = causes.get(row.layer_index, {}) if row.level == "layer" and row.change == "same" else {}
        cause = leading(inside, row.difference_ns or 0.0)
        out.append(row if cause is None else replace(row, kernel=cause[0], kernel_difference_ns=cause[1]))
    return out
