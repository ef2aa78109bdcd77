"""What stands out of ranks side by side, in sentences: of a trace that holds them all, and of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.text.units import count, duration, share

if TYPE_CHECKING:
    import polars as pl

__all__ = ["WORTH", "exposed_sentence", "last_to_come", "median", "slowest"]

WORTH = 0.02
"""The share of a step from which on something is worth a sentence."""


def slowest(ranks: pl.DataFrame) -> str | None:
    """The rank with the longest step, where it is one."""
    row = ranks.sort("step_ns", descending=True, nulls_last=True).row(0, named=True)
    if (row["over_median_share"] or 0) < WORTH:
        return None
    wait = row["wait_ns"] or 0
    waits = f", though it waits for others for {duration(wait)} of its step" if wait >= WORTH * row["step_ns"] else ""
    return f"Rank {row['rank']} is slowest, {share(row['over_median_share'])} over the median{waits}."


def last_to_come(ranks: pl.DataFrame, calls: float) -> str | None:
    """The rank that came last most often, where that is twice as often as were its turn; of so many calls."""
    row = ranks.sort("last_count", descending=True, nulls_last=True).row(0, named=True)
    if not row["last_count"] or not calls or row["last_count"] <= 2 * calls / ranks.height:
        return None
    is_counted = row["last_count"] == int(row["last_count"]) and calls == int(calls)
    part = (
        f"{count(row['last_count'])} of {count(calls)}" if is_counted else f"{share(row['last_count'] / calls)} of all"
    )
    return f"Rank {row['rank']} came last to {part} collectives: the others wait for it."


def exposed_sentence(ranks: pl.DataFrame) -> str | None:
    """What of the median rank's step communication takes that nothing hides."""
    part = median((ranks["exposed_communication_ns"] / ranks["step_ns"]).alias("share"))
    return None if part is None else f"Communication that nothing hides is {share(part)} of the median rank's step."


def median(values: pl.Series) -> float | None:
    """The median; None where nothing is known."""
    middle = values.median()
    return middle if isinstance(middle, float | int) else None
