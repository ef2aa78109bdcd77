"""A roofline as a block of the page: roofs, points as large as their time, and what has no place in it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from xsp_analyze.frames.kernels.measured_work import MEASURED, MODELLED
from xsp_analyze.pages import blocks
from xsp_analyze.text.shown import clean
from xsp_analyze.text.units import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from xsp_analyze.pages.blocks import Block

__all__ = ["Roof", "RoofRow", "bases_of", "roofline_blocks", "roofs_of"]

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
    basis = _basis(shown or models)
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


def _basis(rows: Sequence[RoofRow]) -> str:
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
