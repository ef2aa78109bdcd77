"""Turns the texts of counters into numbers in base units, one column a counter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.counters.formula import Measured
from xsp_ingest.counters.ncu_labels import counter_of
from xsp_ingest.counters.numbers import UNAVAILABLE, decimal_sign, to_floats, with_evidence
from xsp_ingest.counters.units import base_unit
from xsp_model import Finding, Severity

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.ncu_csv.pages import Collected

__all__ = ["TOOL", "device_names", "measured"]

TOOL = "ncu"
DEVICE_NAME = "device__attribute_display_name"
_COUNTED = ("1", "byte", "inst", "sector", "request", "warp", "thread", "block", "ns", "cycle")
_WHOLE_ENDS = (".sum", ".max", ".min")


def measured(collected: Collected, path: Path) -> tuple[Measured, list[Finding]]:
    """Every counter's values, and what could not be read as a number; XspError where numbers are ambiguous."""
    values = pl.DataFrame(
        {"row": collected.kernel, "label": collected.counter, "unit": collected.unit, "text": collected.text},
        schema={"row": pl.Int64, "label": pl.Categorical, "unit": pl.Categorical, "text": pl.String},
    )
    named = values.join(_kinds(values), on=["label", "unit"], how="left", maintain_order="left")
    parts = named.partition_by("whole", as_dict=True)
    evidence = [sign for (whole,), part in parts.items() for sign in with_evidence(part["text"], whole=bool(whole))]
    number = to_floats(pl.col("text"), decimal_sign(evidence, path)) * pl.col("multiply") / pl.col("divide")
    numbers = named.with_columns(number.alias("value"))
    known = numbers.drop_nulls("value").unique(["row", "counter", "name_rank"], keep="first", maintain_order=True)
    known = known.sort("row", "name_rank", maintain_order=True).unique(
        ["row", "counter"], keep="first", maintain_order=True
    )
    base = dict(known.select("counter", "base").unique("counter", keep="first", maintain_order=True).iter_rows())
    rows = pl.DataFrame({"row": range(len(collected.kernels["name"]))}, schema={"row": pl.Int64})
    wide = known.pivot("counter", index="row", values="value", aggregate_function="first") if known.height else rows
    return Measured(rows.join(wide, on="row", how="left", maintain_order="left"), base, TOOL), _findings(numbers)


def _kinds(values: pl.DataFrame) -> pl.DataFrame:
    """For each label and unit met: the counter, its base unit and factor, and whether it counts whole things."""
    rows = []
    for label, text in values.select(pl.col("label", "unit").cast(pl.String)).unique(maintain_order=True).iter_rows():
        unit = base_unit(text)
        counter = counter_of(label, unit.name)
        whole = unit.multiply == unit.divide == 1 and unit.name in _COUNTED and counter.endswith(_WHOLE_ENDS)
        rows.append((label, text, counter, unit.name, unit.multiply, unit.divide, whole, int(counter != label)))
    kinds = {"label": pl.Categorical, "unit": pl.Categorical, "counter": pl.String, "base": pl.String}
    factors = {"multiply": pl.Float64, "divide": pl.Float64, "whole": pl.Boolean, "name_rank": pl.Int64}
    return pl.DataFrame(rows, schema={**kinds, **factors}, orient="row")


def _findings(numbers: pl.DataFrame) -> list[Finding]:
    lost = numbers.filter(pl.col("value").is_null(), pl.col("text").str.strip_chars() != "")
    without = pl.col("text").str.strip_chars().str.to_lowercase().is_in(UNAVAILABLE)
    detail = "values that the profiler could not collect (n/a or nan); they are unknown"
    return [
        Finding("counter_unavailable", detail, lost.filter(without).height),
        Finding(
            "text_counter_left_out", "values that are words, no numbers", lost.filter(~without).height, Severity.INFO
        ),
    ]


def device_names(collected: Collected) -> dict[str | None, str]:
    """What each device calls itself, by the number that the kernels give it."""
    device = collected.kernels["device"]
    return {
        device[row]: text
        for row, counter, text in zip(collected.kernel, collected.counter, collected.text, strict=True)
        if counter == DEVICE_NAME
    }
