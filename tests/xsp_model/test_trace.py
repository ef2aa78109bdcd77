"""A trace with other tables in place of its own."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from tests.helpers.hand import paper_trace
from xsp_model.schema import TABLES
from xsp_model.trace import Trace


def test_tables_are_replaced_in_their_order_and_schema_and_all_else_stays() -> None:
    trace, keeper = paper_trace(), object()
    before = Trace(trace.parts, Path("paper.json"), keeper)
    rows = [(4, "b", 2.0), (1, "a", 1.0)]
    columns = {"span_id": pl.Int32(), "metric": pl.String(), "value": pl.Float64()}
    metrics = pl.DataFrame(rows, schema=columns, orient="row").with_columns(unit=pl.lit("1"), source=pl.lit("modelled"))
    after = before.with_tables({"metrics": metrics})
    assert after.table("metrics").schema == TABLES["metrics"].schema
    assert after.frame("metrics").select(pl.col("span_id"), pl.col("metric").cast(pl.String)).rows() == [
        (1, "a"),
        (4, "b"),
    ]
    assert (after.origin, after.kept) == (before.origin, keeper)
    assert after.parts["spans"] is before.parts["spans"]
