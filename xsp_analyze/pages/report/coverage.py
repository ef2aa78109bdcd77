"""How much of device time the modelled work is of, and what is not modelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import total_of
from xsp_analyze.render.shown import clean
from xsp_analyze.render.units import share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.pages.report.answers import Answers

__all__ = ["Coverage", "coverage_of", "unknown_peaks"]

_MAX_NAMED = 3
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


def coverage_of(answers: Answers) -> Coverage | None:
    """By the rows of B11; None where it has no answer, or nothing is modelled."""
    result = answers.of("B11")
    if isinstance(result, str) or not result.table["modelled_count"].sum():
        return None
    table = result.table
    of_operators = total_of(table["device_sum_ns"])
    total = max(float(answers.first("A15").get("kernel_duration_ns") or 0), of_operators)
    if not total:
        return None
    rest_ns = pl.col("device_sum_ns") * (1 - pl.col("modelled_share").fill_null(0))
    rows = [*table.select("operator", rest_ns).iter_rows(), ("work of no operator", total - of_operators)]
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
