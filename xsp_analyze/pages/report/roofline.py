"""The part of a report that holds kernels, layers and the model against what their device could do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xsp_analyze.pages import blocks
from xsp_analyze.render.shown import clean
from xsp_analyze.render.units import count, quantity, share

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import polars as pl

    from xsp_analyze.pages.blocks import Block, Section
    from xsp_analyze.pages.report.answers import Answers

__all__ = ["figure_of", "rooflines", "verdict"]

_MOST_POINTS = 2000
_TITLE = ("rooflines", "Rooflines", "Rooflines")
_MEANS = (
    "How much arithmetic was done per byte of device memory traffic (across), and how fast (up), both axes in powers of"
    " ten. A roof is the most that the device can do: left of its ridge, memory bandwidth is the limit, right of it the"
    " arithmetic units are. The size of a point is its device time; the ring is the model as a whole. What lies far"
    " below its roof is limited by something else, such as latency or too little parallel work."
)
_Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Roof:
    """What a device can do in one precision: peak in flop/s, bandwidth in byte/s."""

    precision: str
    peak: float
    bandwidth: float


def rooflines(answers: Answers) -> Section | None:
    """A figure of kernels (A09) and one of layers (A14), each with the model (A15); None without flop counts."""
    kernels, layers, models = (_rows(answers, identity) for identity in ("A09", "A14", "A15"))
    if not kernels and not layers:
        return None
    found: list[Block] = [blocks.text(line) for line in _sentences(answers, models)]
    for title, rows, time in (("Layers", layers, "kernel_duration_ns"), ("Kernels", kernels, "duration_ns")):
        found += _figure(title, rows, models, time) if rows else []
    return blocks.section(*_TITLE, f"{_MEANS} {_basis(answers)}", found)


def figure_of(answers: Answers, identity: str) -> list[Block]:
    """The figure of A09 (kernels), A14 (layers) or A15 (the model alone), each with the model."""
    models = _rows(answers, "A15")
    if identity == "A15":
        return _figure("The model", [], models, "kernel_duration_ns") if models else []
    title, time = {"A09": ("Kernels", "duration_ns"), "A14": ("Layers", "kernel_duration_ns")}[identity]
    rows = _rows(answers, identity)
    return _figure(title, rows, models, time) if rows else []


def _basis(answers: Answers) -> str:
    return f"Times are {answers.basis}." if answers.step_count else f"Times are totals {answers.basis}."


def _rows(answers: Answers, identity: str) -> list[_Row]:
    """The rows of an analysis that stand under a roof; none where it cannot be answered."""
    found = answers.of(identity)
    if isinstance(found, str) or "precision" not in found.table.columns:
        return []
    table: pl.DataFrame = found.table
    return table.drop_nulls(["precision", "flop_count"]).to_dicts()


def verdict(answers: Answers) -> str | None:
    """Whether the model is memory or compute bound, for the page's head; None where that is unknown."""
    rows = [row for row in _rows(answers, "A15") if row["bound"] is not None]
    if not rows:
        return None
    row = max(rows, key=lambda r: r["flop_count"])
    side = "below" if row["bound"] == "memory" else "above"
    return (
        f"The model is {row['bound']} bound in {row['precision']}: its {row['arithmetic_intensity']:.1f} flop/byte lie"
        f" {side} the {row['ideal_intensity']:.1f} at which the device's peak and bandwidth meet."
    )


def _sentences(answers: Answers, models: Sequence[_Row]) -> Iterator[str]:
    """Which roof is over the model, how much of it is reached, and whose word the roof is."""
    for row in models:
        if row["bound"] is None:
            yield f"The model in {row['precision']}: its roof is {row['roof']}."
            continue
        reached, limit = row["flop_per_s"], row["roof_flop_per_s"]
        yield (
            f"The model in {row['precision']}: {row['arithmetic_intensity']:.2f} flop/byte, so the roof over it is the"
            f" {row['roof']}: {quantity(limit, 'flop/s')}. Its kernels reach {quantity(reached, 'flop/s')},"
            f" {share(row['roof_share'])} of that.{_too_good(row['roof_share'])}"
        )
    if not models:
        yield from dict.fromkeys(f"The roof is {row['roof']}." for row in _rows(answers, "A09") if row["bound"] is None)


def _too_good(part: float | None) -> str:
    if part is None or part <= 1:
        return ""
    return " More than the roof cannot be: the peaks, the counters or the durations are wrong."


def _figure(title: str, rows: Sequence[_Row], models: Sequence[_Row], time: str) -> list[Block]:
    drawn = [row for row in rows if row["arithmetic_intensity"] and row["flop_per_s"]]
    shown = sorted(drawn, key=lambda row: -(row[time] or 0))[:_MOST_POINTS]
    whole = sum(row[time] or 0 for row in rows)
    roofs = list(_roofs([*rows, *models]))
    precisions = list(dict.fromkeys([*(roof.precision for roof in roofs), *(row["precision"] for row in shown)]))
    block: Block = {
        "type": "roofline",
        "title": f"{title} under the roof",
        "precisions": precisions,
        "roofs": [
            {"precision": precisions.index(r.precision), "peak": r.peak, "bandwidth": r.bandwidth} for r in roofs
        ],
        "points": [_point(row, precisions, row[time], whole) for row in shown],
        "models": [
            _point(row, precisions, None) for row in models if row["arithmetic_intensity"] and row["flop_per_s"]
        ],
    }
    return [block, *_left_out(title, rows, drawn, shown)]


def _left_out(title: str, rows: Sequence[_Row], drawn: Sequence[_Row], shown: Sequence[_Row]) -> Iterator[Block]:
    if len(drawn) < len(rows):
        yield blocks.text(
            f"{title} without any flops or memory traffic have no place here: {count(len(rows) - len(drawn))}."
        )
    if len(shown) < len(drawn):
        yield blocks.text(f"Only the {_MOST_POINTS:,} longest of {count(len(drawn))} are drawn.")


def _point(row: Mapping[str, Any], precisions: Sequence[str], time: float | None, whole: float = 0) -> _Row:
    name = row.get("kernel_name") or row.get("layer_name") or "the model"
    layer = row.get("layer_name") if row.get("kernel_name") else None
    return {
        "name": clean(name),
        "layer": layer and clean(layer),
        "precision": precisions.index(row["precision"]) if row["precision"] in precisions else None,
        "x": row["arithmetic_intensity"],
        "y": row["flop_per_s"],
        "time": None if time is None else round(time),
        "part": time / whole if time is not None and whole else None,
        "bound": row["bound"],
        "share": row["roof_share"],
        "roof": clean(row["roof"]),
    }


def _roofs(rows: Iterable[_Row]) -> Iterator[_Roof]:
    """One roof for each peak and bandwidth that a row was held against, worked back from the row."""
    seen = set()
    for row in rows:
        ideal, limit, intensity = row["ideal_intensity"], row["roof_flop_per_s"], row["arithmetic_intensity"]
        if not (ideal and limit and intensity):
            continue
        peak = limit if row["bound"] == "compute" else limit / intensity * ideal
        key = (row["precision"], f"{peak:.4g}", f"{peak / ideal:.4g}")
        if key not in seen:
            seen.add(key)
            yield _Roof(row["precision"], peak, peak / ideal)
