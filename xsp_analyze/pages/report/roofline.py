"""The part of a report that holds kernels, operators, layers and the model against what their device could do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.kernels.measured_work import MEASURED, MIXED, MODELLED
from xsp_analyze.pages import blocks
from xsp_analyze.pages.report.operator_points import operator_points, roof_sources
from xsp_analyze.pages.report.roofline_block import bases_of, roofline_blocks, roofs_of
from xsp_analyze.service.modelled_work import coverage_of, unknown_peaks
from xsp_analyze.text.units import quantity, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.pages.blocks import Block, Section
    from xsp_analyze.pages.report.roofline_block import RoofRow
    from xsp_analyze.service.answers import Answers

__all__ = ["figure_of", "over_batch_sizes", "rooflines", "verdict"]

_TITLE = ("rooflines", "Rooflines", "Rooflines")
_MEANS = (
    "How much arithmetic was done per byte of device memory traffic (across), and how fast (up), both axes in powers of"
    " ten. A roof is the most that the device can do: left of its ridge, memory bandwidth is the limit, right of it the"
    " arithmetic units are. The size of a point is its device time; the ring is the model as a whole. What lies far"
    " below its roof is limited by something else, such as latency or too little parallel work."
)
_MEANS_MODELLED = (
    "How much arithmetic operators ask for per byte that they must move (across), and how fast that was done (up), both"
    " axes in powers of ten. No counter measured this: flop and bytes are modelled from the shapes and types of what"
    " operators take, operands read once and results written once, over device time that was measured. A roof is the"
    " most that the device can do: left of its ridge, memory bandwidth is the limit, right of it the arithmetic units"
    " are. The size of a point is its device time; the ring is the model as a whole. Operators without products, such"
    " as a normalisation, stand under the roof of plain FP32 arithmetic. What lies far below its roof waits for"
    " something else, such as latency or too little parallel work; what lies above it had operands in caches, or an"
    " algorithm that does with less arithmetic."
)
_MIXED = (
    "Where counters measured flop or bytes these are taken; else they are modelled from the shapes and types of what"
    " operators take: the least that they must do."
)
_TIMES = {
    "A09": ("Kernels", "duration_ns"),
    "A14": ("Layers", "kernel_duration_ns"),
    "B23": ("Operators", "device_sum_ns"),
}


def rooflines(answers: Answers) -> Section | None:
    """Figures of layers (A14), kernels that were measured (A09), and else operators by shape (B23); None without flop.

    Each has the model (A15) in it.
    """
    kernels, layers = _rows(answers, "A09"), _rows(answers, "A14")
    bases = bases_of([*kernels, *layers])
    operators = operator_points(answers) if bases != {MEASURED} else []
    if not (kernels or layers or operators):
        return None
    models = _models(answers)
    measured = [row for row in kernels if row["work_basis"] != MODELLED]
    drawn: list[Block] = [blocks.text(line) for line in _sentences(answers, models, operators)]
    drawn += _figure(*_TIMES["B23"], operators, models)
    drawn += _figure(*_TIMES["A14"], layers, models)
    drawn += _figure(*_TIMES["A09"], measured, models)
    return blocks.section(*_TITLE, f"{_means(bases)} {_basis(answers)}", drawn)


def figure_of(answers: Answers, identity: str) -> list[Block]:
    """The figure of A09 (kernels), A14 (layers), B23 (operators by shape) or A15 (the model alone), with the model."""
    models = _models(answers)
    if identity == "A15":
        return over_batch_sizes(answers) or _figure_of_model(models)
    rows = operator_points(answers) if identity == "B23" else _rows(answers, identity)
    covered = coverage_of(answers) if MODELLED in bases_of(rows) else None
    notes = [covered.sentence] if covered else []
    notes += [] if _has_roof(rows) else [unknown_peaks(answers, "No roof is drawn")]
    return [*_figure(*_TIMES[identity], rows, models), *map(blocks.text, notes)] if rows else []


def over_batch_sizes(answers: Answers) -> list[Block]:
    """The model at each batch size under the roof, in the precision that it does most flop in; none of a single one."""
    result = answers.of("A15")
    if isinstance(result, str) or "precision" not in result.table.columns:
        return []
    main = _main_model(answers)
    counted = result.table.drop_nulls(["precision", "flop_count", "batch_size"])
    rows = counted.filter(pl.col("precision") == main["precision"]).to_dicts() if main else []
    named = [{**row, "short_label": f"batch {row['batch_size']}"} for row in rows]
    if len(named) < 2:  # noqa: PLR2004 (several batch sizes)
        return []
    return roofline_blocks("The model at each batch size", named, [], "kernel_duration_ns", roofs_of(named))


def _figure_of_model(models: Sequence[RoofRow]) -> list[Block]:
    return roofline_blocks("The model", [], models, "", roofs_of(models)) if models else []


def _figure(title: str, time: str, rows: Sequence[RoofRow], models: Sequence[RoofRow]) -> list[Block]:
    return roofline_blocks(title, rows, models, time, roofs_of([*rows, *models])) if rows else []


def _means(bases: set[str]) -> str:
    if bases == {MEASURED}:
        return _MEANS
    return f"{_MEANS} {_MIXED}" if bases - {MODELLED} else _MEANS_MODELLED


def _basis(answers: Answers) -> str:
    return f"Times are {answers.basis}." if answers.step_count else f"Times are totals {answers.basis}."


def _rows(answers: Answers, identity: str) -> list[RoofRow]:
    """The rows of an analysis that stand under a roof; none where it cannot be answered."""
    result = answers.of(identity)
    if isinstance(result, str) or "precision" not in result.table.columns:
        return []
    table: pl.DataFrame = answers.at_own_batch_size(result.table)
    return table.drop_nulls(["precision", "flop_count"]).to_dicts()


def _models(answers: Answers) -> list[RoofRow]:
    """The model in each precision that was measured; of modelled work in the one that it does most in."""
    rows = _rows(answers, "A15")
    return [main] if bases_of(rows) == {MODELLED} and (main := _main_model(answers)) else rows


def _main_model(answers: Answers) -> RoofRow | None:
    """The model in the precision that it does most flop in, products before other arithmetic where it is modelled."""
    rows = [row for row in _rows(answers, "A15") if row["arithmetic_intensity"]]
    return max(rows, key=lambda row: row["flop_count"], default=None)


def verdict(answers: Answers) -> str | None:
    """Whether the model is memory or compute bound by counters, for the page's head; None where that is unknown."""
    rows = [r for r in _rows(answers, "A15") if r["bound"] is not None and r["work_basis"] != MODELLED]
    if not rows:
        return None
    row = max(rows, key=lambda r: r["flop_count"])
    side = "below" if row["bound"] == "memory" else "above"
    partly = " (work partly modelled)" if row["work_basis"] == MIXED else ""
    return (
        f"The model is {row['bound']} bound in {row['precision']}{partly}:"
        f" its {quantity(row['arithmetic_intensity'], 'flop/byte')}"
        f" lie {side} the {quantity(row['ideal_intensity'], '')} at which the device's peak and bandwidth meet."
    )


def _sentences(answers: Answers, models: Sequence[RoofRow], operators: Sequence[RoofRow]) -> Iterator[str]:
    """How much is modelled, which roof is over the model, how much of it is reached, and whose word the roofs are."""
    if operators and (covered := coverage_of(answers)):
        yield covered.sentence
    if operators and not _has_roof(operators):
        yield unknown_peaks(answers, "No roof is drawn")
        return
    for row in models:
        if row["bound"] is None:
            yield f"The model in {row['precision']}: its roof is {row['roof']}."
            continue
        yield _of_model(row)
    if operators and (sources := roof_sources(answers, [row["precision"] for row in operators])):
        yield sources
    if not models:
        yield from dict.fromkeys(f"The roof is {row['roof']}." for row in _rows(answers, "A09") if row["bound"] is None)


def _has_roof(rows: Sequence[RoofRow]) -> bool:
    return any(row["roof_flop_per_s"] for row in rows)


def _of_model(row: RoofRow) -> str:
    reached, limit = row["flop_per_s"], row["roof_flop_per_s"]
    modelled = row["work_basis"] == MODELLED
    unit = "modelled flop/byte" if modelled else "flop/byte"
    verb = "modelled work is done at" if modelled else "kernels reach"
    return (
        f"The model in {row['precision']}: {quantity(row['arithmetic_intensity'], unit)}, so the roof over it is the"
        f" {row['roof']}: {quantity(limit, 'flop/s')}. Its {verb} {quantity(reached, 'flop/s')},"
        f" {share(row['roof_share'])} of that.{'' if modelled else _too_good(row['roof_share'])}"
    )


def _too_good(part: float | None) -> str:
    if part is None or part <= 1:
        return ""
    return " More than the roof cannot be: the peaks, the counters or the durations are wrong."
