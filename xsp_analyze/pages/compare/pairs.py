"""Which layer of one side was taken for which of the other, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.pages.compare.texts import change, change_columns, signed_duration
from xsp_analyze.text.shown import clean
from xsp_analyze.text.table import Table, of_rows
from xsp_analyze.text.units import apart, count, share

if TYPE_CHECKING:
    import polars as pl

    from xsp_analyze.compare.comparison import Comparison

__all__ = ["pairs_table"]

_NONE = "-"


def pairs_table(c: Comparison, max_rows: int | None) -> Table:
    """One row a pair in the order in which layers run, with each side's name; those without a partner too."""
    labels = [side.layers[0].labels for side in (c.before, c.after)]
    measured = {row.layer_index: row for row in c.level("layer") if row.change == "same"}
    rows = []
    for i, j in c.pairs.rows[:max_rows]:
        row = measured.get(labels[0]["key"][i]) if i is not None and j is not None else None
        times = ["", "", "", ""]
        if row is not None:
            times = [*apart((row.before_ns, row.after_ns), "ns"), signed_duration(row.difference_ns), change(row)]
        rows.append([_of(labels[0], i, "layer_name"), _of(labels[1], j, "layer_name"), _type(labels, i, j), *times])
    before, after, difference, ratio, *_ = change_columns("")
    columns = [("layer before", "", False, 0), ("layer after", "", False, 0), ("type", "", False, 4), before, after,
               difference, ratio]  # fmt: skip
    title = f"Layers that were taken for one another ({count(len(c.pairs.rows))})"
    return of_rows(title, columns, rows, _notes(c, rows))


def _notes(c: Comparison, rows: list[list[str]]) -> list[str]:
    notes = [f"Layers are paired by {c.layer_pairing}: {share(c.pairs.rate)} of the longer side have a partner."]
    if left := len(c.pairs.rows) - len(rows):
        notes.append(f"{count(left)} more; --rows 0 shows all.")
    return notes


def _of(labels: pl.DataFrame, at: int | None, column: str) -> str:
    return _NONE if at is None else clean(str(labels[column][at]))


def _type(labels: list[pl.DataFrame], i: int | None, j: int | None) -> str:
    types = [_of(side, at, "layer_type") for side, at in zip(labels, (i, j), strict=True) if at is not None]
    return " and ".join(dict.fromkeys(types))
