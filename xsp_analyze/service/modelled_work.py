"""How much of device time the modelled work is of, what is not modelled, and how far it is from the roofs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import quotient, total_of
from xsp_analyze.frames.operators.operator_work import time_of_no_operator
from xsp_analyze.text.names import spelled_call
from xsp_analyze.text.shown import clean
from xsp_analyze.text.units import duration, share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.service.answers import Answers

__all__ = ["Coverage", "coverage_of", "reached_share", "roof_summary", "roofed_time_ns", "unknown_peaks"]

_MAX_NAMED = 3
_ALL = 0.995  # from there on a share is shown as all of it
_NO_OPERATOR = "work of no operator"
_MIN_NAMED = 0.005  # of device time: less is not worth a name


@dataclass(frozen=True, slots=True)
class Coverage:
    """The part of device time that is of calls whose work is modelled, and the largest parts that are not."""

    modelled_share: float
    rest: Sequence[tuple[str, float]]

    @property
    def sentence(self) -> str:
        """`The work of 93.1 % of device time is modelled; not that of aten::all (1.2 %).`."""
        named = [f"{clean(name)} ({share(part)})" for name, part in self.rest if part >= _MIN_NAMED]
        without = f"; not that of {', '.join(named)}" if named else ""
        return f"The work of {share(self.modelled_share)} of device time is modelled{without}."

    @property
    def at_least(self) -> str:
        """What stands before a rate of which some work is not counted."""
        return "at least " if self.modelled_share < _ALL else ""


def coverage_of(answers: Answers) -> Coverage | None:
    """By the rows of B11; None where it has no answer, or nothing is modelled."""
    result = answers.of("B11")
    if isinstance(result, str) or not result.table["modelled_count"].sum():
        return None
    table = result.table
    of_none, replays = time_of_no_operator(answers.per_step)
    total = total_of(table["device_sum_ns"]) + of_none
    if not total:
        return None
    rest_ns = pl.col("device_sum_ns") * (1 - pl.col("modelled_share").fill_null(0))
    others = [("replays of graphs whose capture is not in the trace", replays), (_NO_OPERATOR, of_none - replays)]
    rows = [*table.select("operator", rest_ns).iter_rows(), *others]
    largest = sorted(rows, key=lambda row: -row[1])[:_MAX_NAMED]
    rest = sum(time for _, time in rows)
    return Coverage(1 - rest / total, [(name, time / total) for name, time in largest])


def unknown_peaks(answers: Answers, what: str) -> str:
    """`what`, which is for want of peak rates, and how to give them."""
    names = [str(d["name"]) for d in answers.summary.devices if d["name"]]
    which = f"of {clean(names[0])} are not known" if names else "of a device that the trace does not name are unknown"
    return (
        f"{what}, as peak rates {which}: name the device with --gpu NAME (xsp devices lists names), or give its rates"
        " with --device FILE.toml."
    )


def roof_summary(answers: Answers) -> str | None:
    """How far modelled operators are from their roofs, and which have most to gain, for the page's head."""
    result, covered = answers.of("B23"), coverage_of(answers)
    if isinstance(result, str) or covered is None:
        return None
    if result.table["gain_ns"].null_count() == result.table.height:
        return unknown_peaks(answers, "How far operators are from what the device can do is unknown")
    rows = result.table.drop_nulls("gain_ns")
    gain, first = total_of(rows["gain_ns"]), rows.row(0, named=True)
    mfu = answers.first("B24").get("mfu")
    lead = f", most at {spelled_call(first)} ({duration(first['gain_ns'])})" if first["gain_ns"] else ""
    of_peak = "" if mfu is None else f", MFU is {covered.at_least}{share(mfu)}"
    return (
        f"Operators run at {share(reached_share(answers))} of what their shapes allow on this device (modelled for"
        f" {share(covered.modelled_share)} of device time){of_peak}:"
        f" {duration(gain)} of device time to gain at most{lead}."
    )


def reached_share(answers: Answers) -> float | None:
    """How much of what their shapes allow operators reach: the part of their device time that is not to be gained."""
    result = answers.of("B23")
    if isinstance(result, str):
        return None
    rows = result.table.drop_nulls("gain_ns")
    spent = roofed_time_ns(rows)
    return 1 - total_of(rows["gain_ns"]) / spent if spent else None


def roofed_time_ns(rows: pl.DataFrame) -> float:
    """Device time of calls that have a roof: their least time over its share of it."""
    spent = (
        pl.when(pl.col("roof_share") > 0).then(quotient(pl.col("roof_ns"), pl.col("roof_share"))).otherwise("gain_ns")
    )
    return total_of(rows.select(spent).to_series())
