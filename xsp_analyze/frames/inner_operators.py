"""The operators inside a call: what it did that its inputs do not tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.modelled_calls import INPUTS
from xsp_model import Level

if TYPE_CHECKING:
    from collections.abc import Collection

    from xsp_model import Trace

__all__ = ["inner_calls", "inner_operators"]


def inner_operators(trace: Trace, ids: pl.Series) -> pl.DataFrame:
    """span_id, inner_operators: the names of those directly inside each, a line each; no row where there is none."""
    if ids.is_empty():
        return pl.DataFrame(schema={"span_id": pl.Int64, "inner_operators": pl.String})
    inside = pl.col("parent_id").is_in(ids.implode()) & (pl.col("level") == str(Level.OPERATOR))
    names = pl.col("name").cast(pl.String).unique().sort().str.join("\n").alias("inner_operators")
    operators = trace.scan("spans").filter(inside)
    return operators.group_by(pl.col("parent_id").alias("span_id")).agg(names).collect()


def inner_calls(trace: Trace, ids: pl.Series, names: Collection[str]) -> pl.DataFrame:
    """span_id, inner_calls: those of these names directly inside each, in order of start, alike ones once.

    A line each: name and INPUTS, apart by tabs, which JSON does not have as they are.
    """
    if ids.is_empty():
        return pl.DataFrame(schema={"span_id": pl.Int64, "inner_calls": pl.String})
    name = pl.col("name").cast(pl.String)
    inside = pl.col("parent_id").is_in(ids.implode()) & (pl.col("level") == str(Level.OPERATOR)) & name.is_in(names)
    texts = [pl.col(each).cast(pl.String).fill_null("") for each in INPUTS]
    return (
        trace.scan("spans")
        .filter(inside)
        .select("span_id", "parent_id", name)
        .join(trace.scan("operators").select("span_id", *INPUTS), on="span_id")
        .sort("span_id")
        .select(
            pl.col("parent_id").alias("span_id"), pl.concat_str("name", *texts, separator="\t").alias("inner_calls")
        )
        .group_by("span_id", maintain_order=True)
        .agg(pl.col("inner_calls").unique(maintain_order=True).str.join("\n"))
        .collect()
    )
