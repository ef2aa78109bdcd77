"""The part of a report that says where the time to gain is: operators by shape (B23), most to gain first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import total_of
from xsp_analyze.pages import blocks
from xsp_analyze.service.modelled_work import coverage_of, roofed_time_ns
from xsp_analyze.text.units import count, duration, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.core import Result
    from xsp_analyze.pages.blocks import Section
    from xsp_analyze.service.answers import Answers

__all__ = ["work_list"]

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
    table = blocks.table(shown, bar="gain_ns", name="gain", left_out=_omitted_rows(rows))
    drawn = [*(blocks.text(line) for line in _sentences(answers, result)), table]
    return blocks.section(*_TITLE, f"{_MEANS} Times are {answers.basis}, of all devices added up.", drawn)


def _omitted_rows(rows: pl.DataFrame) -> str | None:
    if rows.height <= _MAX_ROWS:
        return None
    part = total_of(rows["gain_ns"].head(_MAX_ROWS)) / total_of(rows["gain_ns"])
    return (
        f"The first {_MAX_ROWS} of {count(rows.height)} rows, with {share(part)} of the time to gain."
        " B23 under Every analysis has them all."
    )


def _sentences(answers: Answers, result: Result) -> Iterator[str]:
    """What all of them take and would take, and what they are of."""
    rows = result.table.drop_nulls("gain_ns")
    spent, gain = roofed_time_ns(rows), total_of(rows["gain_ns"])
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
