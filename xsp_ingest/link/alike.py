"""What tells spans apart that start and end together: what the source says of them, never where its file has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_model import scratch
from xsp_model.arrays import lookup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_ingest.staging.raw import RawTrace
    from xsp_model.arrays import Ints, Positions

__all__ = ["call_numbers", "details_of"]

_DETAILS = ("operators", "ranges", "kernels", "copies", "collectives", "messages", "layers", "compiled_kernels")
_LAST = (1 << 63) - 1


def call_numbers(spans: pl.DataFrame, operators: pl.DataFrame, ranges: pl.DataFrame) -> Ints:
    """The source's number of each call: sources count them as they begin. That of a span without one is the greatest.

    `operators` have `at`, their position in `spans`.
    """
    out = scratch.full(spans.height, _LAST, np.int64)
    numbered = operators.select("at", pl.coalesce("external_id", "record_function_id").alias("number")).drop_nulls()
    out[numbered["at"].to_numpy()] = numbered["number"].to_numpy()
    of_ranges = ranges.select("row", "range_id").drop_nulls()
    at = lookup(spans["row"].to_numpy(), of_ranges["row"].to_numpy())
    out[at[at >= 0]] = of_ranges["range_id"].to_numpy()[at >= 0]
    return out


def details_of(raw: RawTrace, rows: Positions) -> Sequence[Ints]:
    """Numbers that rise with what the tables of details say of these spans, which are alike in all other columns."""
    at = pl.DataFrame({"row": raw.tables["spans"]["row"].gather(rows)})
    keys = []
    for name in _DETAILS:
        table = raw.tables[name].filter(pl.col("row").is_in(at["row"].implode()))
        facts = [column for column in table.columns if column != "row" and not column.endswith("_row")]
        for column in facts:
            if table[column].null_count() < table.height:
                one = table.select("row", pl.col(column).cast(pl.String) if table[column].dtype != pl.Int64 else column)
                values = at.join(one.unique("row", keep="any"), on="row", how="left", maintain_order="left")[column]
                keys.append(values.rank("dense").fill_null(0).to_numpy().astype(np.int64))
    return keys
