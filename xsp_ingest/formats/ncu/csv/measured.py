"""Turns the texts of counters into numbers in base units, one column a counter."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.counters.formula import Measured
from xsp_ingest.counters.ncu_names import counter_of
from xsp_ingest.counters.units import UNAVAILABLE, base_unit, decimal_sign, to_floats, with_evidence
from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.counters.units import Unit
    from xsp_ingest.formats.ncu.csv.pages import Collected
    from xsp_model.arrays import Floats

__all__ = ["device_names", "measured"]

_TOOL = "ncu"
_DEVICE_NAME = "device__attribute_display_name"
_COUNTED = ("1", "byte", "inst", "sector", "request", "warp", "thread", "block", "ns", "cycle")
_NEEDS_UNIT = re.compile(r"__time_|__bytes|\.per_second$|^Duration$|^(?:SM|DRAM|Memory) Frequency$|per_block")
_WHOLE_ENDS = (".sum", ".max", ".min")


@dataclass(frozen=True, slots=True)
class _Column:
    """All values under one label and unit."""

    counter: str
    is_label: bool  # another name for the counter, rounded for the eye
    unit: Unit
    kernels: list[int]
    texts: pl.Series
    lacks_unit: bool  # though values mean nothing without one

    @property
    def is_integer(self) -> bool:
        """Whether it counts things, in units of one."""
        plain = self.unit.multiply == self.unit.divide == 1
        return plain and self.unit.name in _COUNTED and self.counter.endswith(_WHOLE_ENDS)


def measured(collected: Collected, path: Path) -> tuple[Measured, list[Finding]]:
    """Every counter's values, and what could not be read as a number; XspError where numbers are ambiguous."""
    columns = [_column(label, unit, *where) for (label, unit), where in collected.values.items()]
    unitless = sum(len(column.kernels) for column in columns if column.lacks_unit)
    columns = [column for column in columns if not column.lacks_unit]
    evidence = {sign for column in columns for sign in with_evidence(column.texts, integers=column.is_integer)}
    sign = decimal_sign(evidence, path)
    height = len(collected.kernels["name"])
    wide: dict[str, Floats] = {}
    units: dict[str, str] = {}
    lost, texts = 0, 0
    # What is written last stays: a counter by its own name over its label, and the first section that has it.
    columns.reverse()
    for column in sorted(columns, key=lambda c: not c.is_label):
        values = column.texts.to_frame("text").select(to_floats(pl.col("text"), sign)).to_series()
        none, text = _without_number(column.texts.filter(values.is_null()))
        lost, texts = lost + none, texts + text
        has_value = values.is_not_null().to_numpy()
        if has_value.any():
            into = wide.setdefault(column.counter, np.full(height, np.nan))
            scaled = values.to_numpy() * column.unit.multiply / column.unit.divide
            into[np.asarray(column.kernels)[has_value][::-1]] = scaled[has_value][::-1]
            units[column.counter] = column.unit.name
    frame = pl.DataFrame({"row": range(height), **wide}, schema_overrides={"row": pl.Int64})
    return Measured(frame.with_columns(pl.col(pl.Float64).fill_nan(None)), units, _TOOL), _findings(
        lost, texts, unitless
    )


def _column(label: str, text: str, kernels: list[int], texts: list[str]) -> _Column:
    unit = base_unit(text)
    counter = counter_of(label, unit.name)
    lacks_unit = not text.strip() and bool(_NEEDS_UNIT.search(counter))
    return _Column(counter, counter != label, unit, kernels, pl.Series(texts, dtype=pl.String), lacks_unit)


def _without_number(texts: pl.Series) -> tuple[int, int]:
    """How many say that there is no value, and how many say something else."""
    bare = texts.str.strip_chars().str.to_lowercase()
    none = int(bare.is_in(UNAVAILABLE).sum())
    return none, int((bare != "").sum()) - none


def _findings(lost: int, texts: int, unitless: int) -> list[Finding]:
    detail = "values that the profiler could not collect (n/a or nan); they are unknown"
    return [
        Finding(LedgerKind.COUNTER_UNAVAILABLE, detail, lost),
        Finding(LedgerKind.COUNTER_WITHOUT_UNIT, count=unitless),
        Finding(LedgerKind.TEXT_COUNTER_LEFT_OUT, "values that are words, no numbers", texts),
    ]


def device_names(collected: Collected) -> dict[str | None, str]:
    """What each device calls itself, by the number that the kernels give it."""
    device = collected.kernels["device"]
    pairs_of = [zip(*where, strict=True) for (label, _), where in collected.values.items() if label == _DEVICE_NAME]
    return {device[kernel]: text for pairs in pairs_of for kernel, text in pairs}
