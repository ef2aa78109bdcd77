"""Model and hardware flop utilisation (B24) as a report tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.text.shown import clean
from xsp_analyze.text.units import share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.service.answers import Answers

__all__ = ["of_layer_types", "utilisation"]

_ALL = 0.995  # from there on a share is shown as all of it
_MAX_TYPES = 6


def utilisation(answers: Answers) -> Iterator[tuple[str, str, str, str]]:
    """MFU, and HFU where what was computed again makes it another; nothing where no peak is known."""
    row = answers.first("B24")
    mfu, hfu = row.get("mfu"), row.get("hfu")
    if row.get("scope") != "model" or mfu is None:
        return
    counted = row["counted_share"]
    lacks = (
        f" Flop of {share(counted)} of the time of such kernels are known, so it is too low."
        if counted is not None and counted < _ALL
        else ""
    )
    note = (
        "Model flop utilisation: the flop of matrix products, convolutions and attention"
        f"{'' if hfu is None or hfu == mfu else ' without those computed again'}, by their shapes, at the peak of"
        f" {row['precision'] or 'their precision'}, over {'a step' if answers.step_count else 'the trace'}, idle time"
        f" included.{lacks}"
    )
    yield "MFU", share(mfu), f"{mfu}", note
    if hfu is not None and hfu != mfu:
        yield "HFU", share(hfu), f"{hfu}", "Hardware flop utilisation: the same with what was computed again."


def of_layer_types(answers: Answers) -> str | None:
    """`MFU while they run: Linear 4.1 %, Conv2d 20.3 %`: by flop, most first; None where no peak is known."""
    result = answers.of("B24")
    if isinstance(result, str):
        return None
    rows = result.table.filter(pl.col("scope") == "layer type").drop_nulls(["name", "mfu"])
    if rows.is_empty():
        return None
    named = [f"{clean(name)} {share(mfu)}" for name, mfu in rows.select("name", "mfu").head(_MAX_TYPES).iter_rows()]
    more = f" and {rows.height - _MAX_TYPES} more types (B24)" if rows.height > _MAX_TYPES else ""
    return (
        f"Model flop utilisation of a type's device time, those with most flop first: {', '.join(named)}{more}."
        " Modelled from shapes; types without products have none."
    )
