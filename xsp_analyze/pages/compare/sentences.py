"""A comparison's numbers, and what stands above its tables, as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.compare.comparison import rank_quantiles
from xsp_analyze.compare.rows import Conclusion
from xsp_analyze.compare.side import DifferenceKind
from xsp_analyze.frames.outputs import Basis, InputMatch
from xsp_analyze.text.doubts import double_counting
from xsp_analyze.text.table import Table, clean, of_rows
from xsp_analyze.text.units import THIN_SPACE, UNKNOWN, apart, count, count_of, duration, quantity, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.compare.comparison import AccuracyPair, Comparison, OutputPair, RankPair, Results
    from xsp_analyze.compare.rows import ClassMoves, Row
    from xsp_analyze.compare.side import Side, SideFacts

__all__ = [
    "change",
    "change_columns",
    "interval",
    "percent_change",
    "rank_tables",
    "result_sentences",
    "results_table",
    "sentences",
    "side_line",
    "signed_duration",
    "unit_of_time",
    "verdict",
    "with_sign",
]

# A comparison's numbers as people read them: changes, intervals, verdicts, differences with their sign.


def unit_of_time(c: Comparison) -> str:
    """What all times of the comparison are of."""
    frames = c.before.views[0]
    step = f"a {frames.serving_phase} step" if frames.serving_phase else "a step"
    return "an input" if c.per_input else step if frames.is_mean else "the whole trace"


def change(row: Row) -> str:
    """The change in percent, or in words where one side has none; large ones as a factor."""
    if row.change in {"appeared", "vanished"}:
        return "new" if row.change == "appeared" else "gone"
    return UNKNOWN if row.ratio is None else percent_change(row.ratio)


_AS_FACTOR = 10.0
_UNBOUNDED = 1e4  # an interval this wide says nothing


def percent_change(ratio: float) -> str:
    change = ratio - 1
    return f"{count(ratio)}{THIN_SPACE}x" if ratio >= _AS_FACTOR else with_sign(change, share(change))


def interval(row: Row) -> str:
    """The ends of the interval as changes; empty where they are not known."""
    if row.low is None or row.high is None:
        return ""
    if row.high > _UNBOUNDED * row.low:
        return "unbounded"
    low, high = percent_change(row.low), percent_change(row.high)
    return f"{low.removesuffix(f'{THIN_SPACE}%')} to {high}" if high.endswith("%") else f"{low} to {high}"


_VERDICTS = {
    Conclusion.CHANGED: "significant",
    Conclusion.UNCHANGED: "within noise",
    Conclusion.INCONCLUSIVE: "inconclusive",
}


def verdict(row: Row) -> str:
    """Whether the change is more than noise, in a word; empty where that is not known."""
    return "" if row.conclusion is None else _VERDICTS[row.conclusion]


def signed_duration(value: float | None) -> str:
    """A difference of times, with its sign and the unit that suits it."""
    return with_sign(value, duration(value))


def with_sign(value: float | None, text: str) -> str:
    """What a difference reads as, with a plus where it is more than nothing."""
    return f"+{text}" if value is not None and value > 0 else text


def change_columns(unit: str) -> list[tuple[str, str, bool, int]]:
    """The columns of a change; where there is no room the interval goes first, then the difference."""
    return [
        ("before", unit, True, 1),
        ("after", unit, True, 1),
        ("difference", unit, True, 4),
        ("change", "", True, 1),
        ("95 % interval", "", True, 5),
        ("significance", "", False, 2),
    ]


# Accuracies and outputs of both sides in sentences and as a table: whether a faster run still does the same.

_UNITS = {"share": "share", "percent": "%"}
_INPUTS = {
    InputMatch.YES: "Both computed on the same weights and inputs, by checksum.",
    InputMatch.ROUNDED: "Both computed on the same weights and inputs but for rounding, by the elements recorded.",
    InputMatch.NO: "Weights or inputs are different, so outputs say nothing of how exactly each side computes.",
    InputMatch.UNKNOWN: "Weights and inputs are not known to be the same, so outputs may differ for that reason alone.",
}


def result_sentences(c: Comparison) -> list[str]:
    """What is to be known before a time is believed; nothing where no side recorded its results."""
    came_to = c.results
    lines = [_accuracy(pair, is_faster=_is_faster(c)) for pair in came_to.accuracies if pair.difference is not None]
    if came_to.outputs:
        lines.append(_outputs(came_to, is_faster=_is_faster(c)))
    return lines


def _is_faster(c: Comparison) -> bool:
    row = c.latency
    return row.ratio is not None and row.ratio < 1 and row.conclusion is not Conclusion.UNCHANGED


def _accuracy(pair: AccuracyPair, *, is_faster: bool) -> str:
    before, after = _values(pair)
    difference = pair.difference or 0.0
    text = f"{_metric(pair)}: {before} before, {after} after"
    if difference == 0:
        return f"Accuracy is the same: {text}."
    if pair.reach is not None and abs(difference) <= pair.reach:
        return f"Accuracy differs by no more than so many samples let it vary: {text}."
    if pair.is_worse:
        return f"{'FASTER BUT LESS ACCURATE' if is_faster else 'LESS ACCURATE'}: {text}."
    return f"Accuracy: {text}."


def _metric(pair: AccuracyPair) -> str:
    on = f" on {pair.dataset}" if pair.dataset else ""
    counts = dict.fromkeys(n for n in (pair.before_samples, pair.after_samples) if n)
    samples = f" ({' and '.join(map(count, counts))} samples)" if counts else ""
    return f"{pair.metric}{on}{samples}"


def _values(pair: AccuracyPair) -> list[str]:
    unit = pair.unit or ""
    return list(apart((pair.before, pair.after), _UNITS.get(unit, unit)))


def _outputs(came_to: Results, *, is_faster: bool) -> str:
    same = [pair for pair in came_to.outputs if pair.distance.is_identical]
    others = [pair for pair in came_to.outputs if not pair.distance.is_identical]
    on_inputs = f" {_INPUTS[came_to.input_match]}"
    if not others:
        return f"Outputs are the same to the byte ({count_of(len(same), 'output', 'outputs')}).{on_inputs}"
    head = "FASTER, BUT ITS OUTPUTS DIFFER" if is_faster else "OUTPUTS DIFFER"
    if came_to.input_match in {InputMatch.NO, InputMatch.UNKNOWN}:
        head = "Outputs differ"
    return f"{head}: {'; '.join(map(_output, others))}.{on_inputs}"


def _output(pair: OutputPair) -> str:
    apart_by = pair.distance
    parts = []
    if apart_by.relative_l2 is not None:
        parts.append(f"by {share(apart_by.relative_l2)} of its L2 norm")
    if apart_by.max_abs_difference is not None:
        parts.append(f"at most {quantity(apart_by.max_abs_difference, '')}")
    if apart_by.top1_agreement is not None:
        rows = f" of {count_of(apart_by.top1_rows, 'row', 'rows')}" if apart_by.top1_rows else " of rows"
        parts.append(f"the largest element is the same one in {share(apart_by.top1_agreement)}{rows}")
    if not parts:
        parts.append("by how much is not recorded")
    if apart_by.basis is Basis.SAMPLED:
        parts.append(f"over {_sampled_elements(pair)}")
    if pair.steps_differ:
        parts.append(f"after {count(pair.before.step)} and {count(pair.after.step)} steps")
    return f"{clean(pair.name)} {', '.join(parts)}"


def _sampled_elements(pair: OutputPair) -> str:
    of = f" of {count(pair.after.value_count)}" if pair.after.value_count else ""
    return f"{count(pair.distance.value_count)}{of} elements"


def results_table(c: Comparison) -> Table | None:
    """A row a metric and an output; None where neither side recorded any."""
    rows = [*(_accuracy_row(pair) for pair in c.results.accuracies), *(_output_row(p) for p in c.results.outputs)]
    if not rows and not c.results.unmatched:
        return None
    columns = [("result", "", False, 0), ("before", "", True, 1), ("after", "", True, 1), ("difference", "", True, 1),
               ("relative L2", "", True, 1), ("largest difference", "", True, 3), ("cosine", "", True, 4),
               ("same top 1", "", True, 2), ("known by", "", False, 3)]  # fmt: skip
    notes = [_INPUTS[c.results.input_match]] if c.results.outputs else []
    if c.results.unmatched:
        notes.append(f"Outputs without a counterpart of their shape: {', '.join(map(clean, c.results.unmatched))}.")
    return of_rows("Accuracy and outputs", columns, rows, notes)


# Ranks of two jobs: each before and after, and how their steps are spread.
_QUANTILES = ((0.0, "least"), (0.1, "10 %"), (0.5, "median"), (0.9, "90 %"), (1.0, "most"))
_MAX_RANKS = 40


def rank_tables(c: Comparison) -> list[Table]:
    """A row a rank, those that changed most, and the distribution over ranks; nothing where a side has not several."""
    if not c.ranks:
        return []
    both = [pair for pair in c.ranks if pair.before_ns and pair.after_ns]
    ordered = sorted(both, key=lambda pair: -abs((pair.after_ns or 0) - (pair.before_ns or 0)))[:_MAX_RANKS]
    columns = [("rank", "", True, 0), ("before", "", True, 1), ("after", "", True, 1), ("ratio", "", True, 1),
               ("compute before", "", True, 2), ("compute after", "", True, 2), ("waiting before", "", True, 2),
               ("waiting after", "", True, 2)]  # fmt: skip
    one_side = len(c.ranks) - len(both)
    notes = [f"{count_of(one_side, 'rank is', 'ranks are')} of one side only, or without a time."] if one_side else []
    if len(both) > len(ordered):
        notes.append(f"The {count(len(ordered))} of {count(len(both))} whose step changed most; --json has all.")
    by_rank = of_rows("Rank by rank", columns, [_rank_row(pair) for pair in ordered], notes)
    spread = [("over ranks", "", False, 0), ("before", "", True, 1), ("after", "", True, 1), ("ratio", "", True, 1)]
    return [of_rows("Steps over ranks", spread, list(_spread_rows(c)), []), by_rank]


def _rank_row(pair: RankPair) -> list[str]:
    parts = (pair.compute_before_ns, pair.compute_after_ns, pair.wait_before_ns, pair.wait_after_ns)
    ratio = (pair.after_ns or 0) / (pair.before_ns or 1)
    return [str(pair.rank), duration(pair.before_ns), duration(pair.after_ns), f"{ratio:.3f}", *map(duration, parts)]


def _spread_rows(c: Comparison) -> Iterator[list[str]]:
    for part, name in _QUANTILES:
        before, after, ratio = rank_quantiles(c.ranks, part)
        yield [name, duration(before), duration(after), "-" if ratio is None else f"{ratio:.3f}"]


def _accuracy_row(pair: AccuracyPair) -> list[str]:
    before, after = _values(pair)
    unit = _UNITS.get(pair.unit or "", pair.unit or "")
    difference = "" if pair.difference is None else with_sign(pair.difference, quantity(pair.difference, unit))
    return [clean(_metric(pair)), before, after, difference, "", "", "", "", ""]


def _output_row(pair: OutputPair) -> list[str]:
    apart_by = pair.distance
    norms = apart((pair.before.l2_norm, pair.after.l2_norm), "")
    basis = str(apart_by.basis) if apart_by.basis is not Basis.SAMPLED else f"{_sampled_elements(pair)}"
    return [
        f"{clean(pair.name)} (L2 norm)",
        *norms,
        "",
        _share(apart_by.relative_l2),
        "" if apart_by.max_abs_difference is None else quantity(apart_by.max_abs_difference, ""),
        "" if apart_by.cosine is None else quantity(apart_by.cosine, ""),
        _share(apart_by.top1_agreement),
        basis,
    ]


def _share(value: float | None) -> str:
    return "" if value is None else share(value)


# What stands above a comparison's tables: what was compared, how well it matches, and what moved.

_MAX_MOVED = 3
_MAX_CLASSES = 3


def sentences(c: Comparison) -> list[str]:
    """What stands above all tables: whether the two compare, in what they differ, how well they match.

    Of the same content that it is the same, and nothing else.
    """
    if c.same_content:
        return [clean(f"{c.before.name} and {c.after.name} hold the same: there is nothing to compare.")]
    lines = [f"before: {side_line(c.before)}", f"after:  {side_line(c.after)}"]
    lines += [f"NOT IN THIS COMPARISON: {sentence}." for sentence in c.failed]
    for side in (c.before, c.after):
        doubts = next(filter(None, (double_counting(view.trace) for view in side.views)), ())
        lines += [f"{side.name}: {doubt}" for doubt in doubts]
    if not c.comparable:
        lines.append(f"NOT COMPARABLE: {'; '.join(c.reasons)}. The ratios below compare different work.")
    other = [d for d in c.differences if d.kind is not DifferenceKind.WORK]
    differences = "; ".join(f"{d.what} ({d.before} before, {d.after} after)" for d in other)
    if differences:
        lines.append(f"Different: {differences}.")
    elif c.comparable:
        lines.append("Model, system and settings are the same, as far as the files tell.")
    else:
        lines.append("Nothing else that the files tell is different.")
    lines += result_sentences(c)
    lines.append(_match(c))
    lines += [_moves_sentence(one, unit_of_time(c)) for one in c.moves[:_MAX_CLASSES]]
    return [clean(line) for line in lines]


def side_line(side: Side) -> str:
    """One side in a line: its file, what ran, on what, how often."""
    facts: SideFacts = side.facts
    batch = f"batch {facts.batch_size}" if facts.batch_size else None
    framework = " ".join(filter(None, (facts.framework, facts.framework_version)))
    steps = f"{facts.steps} {'step' if facts.steps == 1 else 'steps'}" if facts.steps else "taken whole"
    if facts.captures > 1:
        steps += f" in each of {facts.captures} captures"
    parts = (facts.model, batch, facts.precision, framework, facts.device, steps)
    return f"{side.name} ({', '.join(part for part in parts if part)})"


def _match(c: Comparison) -> str:
    layers = (
        "unknown (a side has no layers)" if c.layer_match is None else f"{share(c.layer_match)} by {c.layer_pairing}"
    )
    kernels = "unknown (a side has none)" if c.kernel_match is None else share(c.kernel_match)
    return f"Counterparts found: layers {layers}; kernels {kernels} by name and launch."


def _moves_sentence(one: ClassMoves, per: str) -> str:
    before, after = apart((one.before_ns, one.after_ns), "ns")
    times = f"takes {before} of {per} before and {after} after"
    less, more = (
        ", ".join(_part_with_difference(part) for part in parts[:_MAX_MOVED]) for parts in (one.losses, one.gains)
    )
    return f"Time moved: {one.kernel_class} {times}; less in {less}, more in {more}."


def _part_with_difference(part: tuple[str, float]) -> str:
    return f"{part[0]} ({signed_duration(part[1])})"
