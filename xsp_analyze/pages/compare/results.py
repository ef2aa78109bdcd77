"""Accuracies and outputs of both sides in sentences and as a table: whether a faster run still does the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.compare.rows import Conclusion
from xsp_analyze.frames.outputs import Basis, InputMatch
from xsp_analyze.pages.compare.texts import with_sign
from xsp_analyze.text.shown import clean
from xsp_analyze.text.table import Table, of_rows
from xsp_analyze.text.units import apart, count, count_of, quantity, share

if TYPE_CHECKING:
    from xsp_analyze.compare.comparison import Comparison
    from xsp_analyze.compare.results import AccuracyPair, OutputPair, Results

__all__ = ["result_sentences", "results_table"]

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
