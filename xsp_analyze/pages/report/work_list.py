"""The part of a report that says where the time to gain is: operators by shape (B23), most to gain first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import quotient, total_of
from xsp_analyze.pages import blocks
from xsp_analyze.pages.report.coverage import coverage_of, unknown_peaks
from xsp_analyze.render.calls import spelled_call
from xsp_analyze.render.units import count, duration, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.core import Result
    from xsp_analyze.pages.blocks import Section
    from xsp_analyze.pages.report.answers import Answers

__all__ = ["in_short", "work_list"]

_MAX_ROWS = 10
_TITLE = ("gain", "Time to gain", "Where the time to gain is")
_COLUMNS = (
    "operator", "shapes", "gain_ns", "roof_share", "bound", "device_sum_ns", "count", "dtypes", "layers",
    "source_lines",
)  # fmt: skip
_MEANS = (
    "Operators, by the shapes and types that they are called with, that would save most device time if each ran at the"
    " roof of its device. Roof share is that least time over the time taken: what the shapes ask for (modelled, not"
    " measured), flop at the peak of their precision or bytes at the bandwidth of memory, whichever takes longer: the"
    " bound. Memory asks for fusion or narrower types, compute for better kernels or narrower precisions. Nothing quite"
    " reaches its roof, tuned products 70 to 90 % of it, so gains are upper bounds."
)
_WAITS = 0.5  # of the time: a device that works for less does not decide how long the whole takes


def work_list(answers: Answers) -> Section | None:
    """The rows with most to gain, and how much of device time they are of; None where no operator has a roof."""
    result = answers.of("B23")
    if isinstance(result, str):
        return None
    rows = result.table.filter(pl.col("gain_ns") > 0)
    if rows.is_empty():
        return None
    shown = replace(
        result, table=rows.head(_MAX_ROWS), columns=[c for n in _COLUMNS for c in result.columns if c.name == n]
    )
    table = blocks.table(shown, bar="gain_ns", name="gain", left_out=_left_out(rows))
    drawn = [*(blocks.text(line) for line in _sentences(answers, result)), table]
    return blocks.section(*_TITLE, f"{_MEANS} Times are {answers.basis}, of all devices added up.", drawn)


def _left_out(rows: pl.DataFrame) -> str | None:
    if rows.height <= _MAX_ROWS:
        return None
    part = total_of(rows["gain_ns"].head(_MAX_ROWS)) / total_of(rows["gain_ns"])
    return (
        f"The first {_MAX_ROWS} of {count(rows.height)} rows, with {share(part)} of the time to gain."
        " B23 under Every analysis has them all."
    )


def in_short(answers: Answers) -> str | None:
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
    return (
        f"Operators run at {share(reached_share(answers))} of what their shapes allow on this device (modelled for"
        f" {share(covered.modelled_share)} of device time){'' if mfu is None else f', MFU is {share(mfu)}'}:"
        f" {duration(gain)} of device time to gain at most{lead}."
    )


def reached_share(answers: Answers) -> float | None:
    """How much of what their shapes allow operators reach: the part of their device time that is not to be gained."""
    result = answers.of("B23")
    if isinstance(result, str):
        return None
    rows = result.table.drop_nulls("gain_ns")
    spent = _spent(rows)
    return 1 - total_of(rows["gain_ns"]) / spent if spent else None


def _spent(rows: pl.DataFrame) -> float:
    """Device time of calls that have a roof: their least time over its share of it."""
    spent = (
        pl.when(pl.col("roof_share") > 0).then(quotient(pl.col("roof_ns"), pl.col("roof_share"))).otherwise("gain_ns")
    )
    return total_of(rows.select(spent).to_series())


def _sentences(answers: Answers, result: Result) -> Iterator[str]:
    """What all of them take and would take, and what they are of."""
    rows = result.table.drop_nulls("gain_ns")
    spent, gain = _spent(rows), total_of(rows["gain_ns"])
    yield (
        f"{duration(spent)} of device time would be {duration(spent - gain)} at the roof, {share(1 - gain / spent)} of"
        f" it: {duration(gain)} to gain at most."
    )
    if covered := coverage_of(answers):
        yield covered.sentence
    part = answers.first("A15").get("gpu_share")
    if part is not None and part < _WAITS:
        yield (
            f"The device works for {share(part)} of the time and waits for the rest: while it does, little of this"
            " makes the whole shorter."
        )
