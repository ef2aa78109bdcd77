"""A figure as plain data: what a FigureSpec asks of its result, in the units it will be drawn in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.text.units import Scale, scale_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.core import Column, FigureSpec, Result

__all__ = ["figure_data", "in_scale", "scale_entries"]


def figure_data(result: Result, spec: FigureSpec | None = None) -> Mapping[str, object]:
    """`kind`, `title`, `labels` (one a row) and `series` (values as stored, with the scale to show them in).

    Uses the analysis's own figure unless another is given; ValueError where there is none.
    Series of one unit share one scale, so that they can be compared.
    """
    spec = spec or result.analysis.figure
    if spec is None:
        message = f"{result.analysis.id} has no figure"
        raise ValueError(message)
    table = result.table if spec.top is None else result.table.head(spec.top)
    columns = {c.name: c for c in result.columns}
    values = [table[name].to_list() for name in spec.y]
    shared: dict[str, list[object]] = {}
    for name, series in zip(spec.y, values, strict=True):
        shared.setdefault(columns[name].unit, []).extend(series)
    return {
        "kind": spec.kind,
        "title": spec.title,
        "labels": [str(label) for label in table[spec.x].to_list()],
        "series": [
            {"name": name, "values": series, **scale_entries(columns[name], shared[columns[name].unit])}
            for name, series in zip(spec.y, values, strict=True)
        ],
    }


def scale_entries(column: Column, values: Sequence[object]) -> dict[str, object]:
    """What a page needs to print the column: `unit`, `divisor`, `decimals`, and `exact`, the unit at rest."""
    return in_scale(column, scale_of(column, values))


def in_scale(column: Column, scale: Scale) -> dict[str, object]:
    """The same for a scale already chosen."""
    return {"unit": scale.unit, "divisor": scale.divisor, "decimals": scale.decimals, "exact": column.unit}
