"""The part of a report that holds kernels, operators, layers and the model against what their device could do."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.frames.kernels.measured_work import MEASURED, MIXED, MODELLED
from xsp_analyze.frames.kernels.roofline import BANDWIDTH, agreed_peaks
from xsp_analyze.frames.operators.operator_work import RATES
from xsp_analyze.pages import blocks
from xsp_analyze.service import coverage_of, unknown_peaks
from xsp_analyze.text.table import clean
from xsp_analyze.text.units import count, quantity, share, short_call, spelled_call

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from xsp_analyze.pages.blocks import Block, Section
    from xsp_analyze.service import Answers

__all__ = [
    "Roof",
    "RoofRow",
    "bases_of",
    "figure_of",
    "operator_points",
    "over_batch_sizes",
    "roof_sources",
    "roofline_blocks",
    "rooflines",
    "roofs_of",
    "verdict",
]

# A roofline as a block of the page: roofs, points as large as their time, and what has no place in it.

_MAX_POINTS = 2000
_FEW_POINTS = 20
_NEGLIGIBLE = 0.001  # of the time of all points
RoofRow = dict[str, Any]
"""One of A09, A14 or A15 by their columns, or of `operator_points`."""


@dataclass(frozen=True, slots=True)
class Roof:
    """What a device can do in one precision: peak in flop/s, bandwidth in byte/s."""

    precision: str
    peak: float
    bandwidth: float


def roofline_blocks(
    title: str, rows: Sequence[RoofRow], models: Sequence[RoofRow], time: str, roofs: Iterable[Roof]
) -> list[Block]:
    """The figure, and sentences on rows that are not in it; `time` is the column that points are as large as."""
    drawn = [row for row in rows if row["arithmetic_intensity"] and row["flop_per_s"]]
    total = sum(row[time] or 0 for row in rows)
    shown = _rows_to_show(sorted(drawn, key=lambda row: -(row[time] or 0))[:_MAX_POINTS], time)
    lines = sorted(roofs, key=lambda roof: -roof.peak)  # so that a precision has the same colour in every figure
    precisions = list(dict.fromkeys([*(r.precision for r in lines), *sorted({row["precision"] for row in shown})]))
    basis = _point_basis(shown or models)
    block: Block = {
        "type": "roofline",
        "title": f"{title} under the roof{f' ({basis} work)' if basis else ''}",
        **({"basis": basis} if basis else {}),
        "precisions": precisions,
        "roofs": [
            {"precision": precisions.index(r.precision), "peak": r.peak, "bandwidth": r.bandwidth} for r in lines
        ],
        "points": [_point(row, precisions, row[time], total) for row in shown],
        "models": [
            _point(row, precisions, None) for row in models if row["arithmetic_intensity"] and row["flop_per_s"]
        ],
    }
    return [block, *_omitted_points(title, rows, drawn, shown)]


def _rows_to_show(rows: Sequence[RoofRow], time: str) -> Sequence[RoofRow]:
    """Of many rows that counters did not measure, longest first, those that hold nearly all of the time.

    Calls of a few elements lie decades below all others, which would then share a strip of the figure.
    """
    if len(rows) <= _FEW_POINTS or bases_of(rows) != {MODELLED}:
        return rows
    times = [row[time] or 0 for row in rows]
    rest = list(accumulate(reversed(times)))[::-1]  # of each row and those after it
    return [row for row, held in zip(rows, rest, strict=True) if held >= _NEGLIGIBLE * rest[0]]


def bases_of(rows: Iterable[RoofRow]) -> set[str]:
    """Where flop and bytes of the rows are from: measured, modelled, mixed."""
    return {str(row.get("work_basis") or MEASURED) for row in rows}


def _point_basis(rows: Sequence[RoofRow]) -> str:
    """`modelled` or `partly modelled`; empty: counters measured all of it."""
    bases = bases_of(rows)
    return "" if not rows or bases == {MEASURED} else "modelled" if bases == {MODELLED} else "partly modelled"


def _omitted_points(
    title: str, rows: Sequence[RoofRow], drawn: Sequence[RoofRow], shown: Sequence[RoofRow]
) -> Iterator[Block]:
    if len(drawn) < len(rows):
        yield blocks.text(
            f"{title} without any flops or memory traffic have no place here: {count(len(rows) - len(drawn))}."
        )
    if len(shown) < len(drawn):
        yield blocks.text(f"Only the {count(len(shown))} longest of {count(len(drawn))} are drawn.")


def _point(row: Mapping[str, Any], precisions: Sequence[str], time: float | None, total: float = 0) -> RoofRow:
    name = row.get("operator_label") or row.get("kernel_name") or row.get("layer_name") or row.get("short_label")
    layer = row.get("layer_name") if row.get("kernel_name") else None
    basis = row.get("work_basis")
    label = row.get("short_label")
    return {
        "name": clean(name or "the model"),
        "layer": layer and clean(layer),
        "precision": precisions.index(row["precision"]) if row["precision"] in precisions else None,
        "x": row["arithmetic_intensity"],
        "y": row["flop_per_s"],
        "time": None if time is None else round(time),
        "part": time / total if time is not None and total else None,
        "bound": row["bound"],
        "share": row["roof_share"],
        "roof": clean(row["roof"]),
        **({"basis": basis} if basis and basis != MEASURED else {}),
        **({"label": clean(label)} if label else {}),
        **({"gain": row["gain_ns"], "count": row["count"]} if "gain_ns" in row else {}),
    }


def roofs_of(rows: Iterable[RoofRow]) -> Iterator[Roof]:
    """One roof for each peak and bandwidth that a row was held against, worked back from the row."""
    seen = set()
    for row in rows:
        ideal, limit, intensity = row["ideal_intensity"], row["roof_flop_per_s"], row["arithmetic_intensity"]
        if not (ideal and limit and intensity):
            continue
        peak = limit if intensity >= ideal else limit / intensity * ideal
        roof = Roof(row["precision"], _without_jitter(peak), _without_jitter(peak / ideal))
        if roof not in seen:
            seen.add(roof)
            yield roof


def _without_jitter(rate: float) -> float:
    """What was divided and multiplied again, so that one roof is one number."""
    return float(f"{rate:.6g}")


# Operators by shape (B23) as points under a roof: their modelled work over the device time that they took.
#
# Kernels of one operator share its work, so that where nothing was measured operators are the points to look at.

_VECTOR = "fp32"  # the peak that arithmetic outside of products is held against
_Peaks = dict[str, tuple[float, str]]


def operator_points(answers: Answers) -> list[RoofRow]:
    """The rows of B23 whose flop and bytes are modelled, as rows that stand under a roof; none where it has none.

    `precision` is the quantity of the peak; flop are products, else the other arithmetic.
    """
    result = answers.of("B23")
    if isinstance(result, str):
        return []
    flop = pl.when(pl.col("modelled_flop") > 0).then("modelled_flop").otherwise("vector_flop")
    rows = result.table.with_columns(flop.alias("flop")).filter(pl.col("flop") > 0, pl.col("modelled_bytes") > 0)
    peaks = _peaks(answers)
    return [_operator_point(row, peaks) for row in rows.iter_rows(named=True)]


def _peaks(answers: Answers) -> _Peaks:
    """Peak and its words by quantity, where the devices of the trace agree on it."""
    return {quantity: (peak, text) for quantity, peak, text in agreed_peaks(answers.per_step).iter_rows()}


def _operator_point(row: Mapping[str, Any], peaks: _Peaks) -> RoofRow:
    intensity = row["flop"] / row["modelled_bytes"]
    rate = _rate(row, peaks)
    peak, bandwidth = peaks.get(rate), peaks.get(BANDWIDTH)
    ideal = peak[0] / bandwidth[0] if peak and bandwidth else None
    limit = min(peak[0], intensity * bandwidth[0]) if peak and bandwidth else None
    return {
        "operator_label": spelled_call(row),
        "short_label": short_call(row),
        "precision": rate,
        "arithmetic_intensity": intensity,
        "flop_per_s": None if row["modelled_byte_per_s"] is None else intensity * row["modelled_byte_per_s"],
        "ideal_intensity": ideal,
        "roof_flop_per_s": limit,
        "bound": row["bound"],
        "roof_share": row["roof_share"],
        "roof": _roof(row["bound"], peak, bandwidth),
        "device_sum_ns": row["device_sum_ns"],
        "gain_ns": row["gain_ns"],
        "count": row["count"],
        "work_basis": MODELLED,
    }


def _rate(row: Mapping[str, Any], peaks: _Peaks) -> str:
    """The quantity that bounds the arithmetic of a row: the first of its precision that is known, else the first."""
    if not row["modelled_flop"]:
        return _VECTOR
    rates: Sequence[str] = RATES.get(row["precision"], (str(row["precision"] or "products"),))
    return next((rate for rate in rates if rate in peaks), rates[0])


def _roof(bound: str | None, peak: tuple[float, str] | None, bandwidth: tuple[float, str] | None) -> str:
    named = {"compute": peak, "memory": bandwidth}.get(bound or "")
    if named is not None:
        return named[1]
    return f"{bound} roof" if bound else "unknown: no peak rates of the device are known"


def roof_sources(answers: Answers, precisions: Sequence[str]) -> str | None:
    """The numbers of these precisions' roofs and whose word they are; None where none is known.

    `The roofs of Card (its data sheet): bf16_tensor peak 40 TFLOP/s, DRAM bandwidth 20 GB/s.`
    """
    peaks = _peaks(answers)
    listed = [(q, "flop/s") for q in dict.fromkeys(precisions)] + [(BANDWIDTH, "byte/s")]
    roofs = [(*peaks[q][1].partition(" of ")[::2], quantity(peaks[q][0], unit)) for q, unit in listed if q in peaks]
    if BANDWIDTH not in peaks or len(roofs) == 1:
        return None
    sources = dict.fromkeys(source for _, source, _ in roofs)
    parts = (f"{s}: {', '.join(f'{what} {value}' for what, of, value in roofs if of == s)}" for s in sources)
    return f"The roofs of {'; of '.join(parts)}."


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
    covered = coverage_of(answers) if operators else None
    if covered is not None:
        yield covered.sentence
    if operators and not _has_roof(operators):
        yield unknown_peaks(answers, "No roof is drawn")
        return
    for row in models:
        if row["bound"] is None:
            yield f"The model in {row['precision']}: its roof is {row['roof']}."
            continue
        yield _of_model(row, "" if covered is None or row["work_basis"] != MODELLED else covered.at_least)
    if operators and (sources := roof_sources(answers, [row["precision"] for row in operators])):
        yield sources
    if not models:
        yield from dict.fromkeys(f"The roof is {row['roof']}." for row in _rows(answers, "A09") if row["bound"] is None)


def _has_roof(rows: Sequence[RoofRow]) -> bool:
    return any(row["roof_flop_per_s"] for row in rows)


def _of_model(row: RoofRow, at_least: str) -> str:
    reached, limit = row["flop_per_s"], row["roof_flop_per_s"]
    modelled = row["work_basis"] == MODELLED
    unit = "modelled flop/byte" if modelled else "flop/byte"
    verb = "modelled work is done at" if modelled else "kernels reach"
    return (
        f"The model in {row['precision']}: {quantity(row['arithmetic_intensity'], unit)}, so the roof over it is the"
        f" {row['roof']}: {quantity(limit, 'flop/s')}. Its {verb} {at_least}{quantity(reached, 'flop/s')},"
        f" {_part_of_roof(row['roof_share'])}.{'' if modelled else _too_good(row['roof_share'])}"
    )


def _part_of_roof(part: float | None) -> str:
    return (
        "more than that, as caches or algorithms spare some of it (B23)" if part is None else f"{share(part)} of that"
    )


def _too_good(part: float | None) -> str:
    if part is None or part <= 1:
        return ""
    return " More than the roof cannot be: the peaks, the counters or the durations are wrong."
