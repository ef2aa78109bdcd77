"""Integrity: each rule of the model, broken once."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest

from tests.helpers.model_sample import sample_trace
from xsp_model import Trace, integrity
from xsp_model.schema import TABLES


def _with(table: str, **columns: pl.Expr) -> Trace:
    """The sample with columns replaced behind the builder's back."""
    trace = sample_trace()
    frame = trace.frame(table).with_columns(**columns)
    loose = pa.schema([f.with_nullable(True) for f in TABLES[table].schema])  # noqa: FBT003 (pyarrow's signature)
    spoilt = pa.Table.from_arrays(frame.to_arrow().cast(loose).columns, schema=TABLES[table].schema)
    return Trace({**trace.parts, table: spoilt})


def test_the_sample_is_sound() -> None:
    assert list(integrity.broken_rules(sample_trace())) == []


@pytest.mark.parametrize(
    ("table", "columns", "rule"),
    [
        ("spans", {"level": pl.lit("basement", pl.Categorical)}, "spans.level holds a word outside its vocabulary"),
        ("spans", {"kind": pl.lit("thing", pl.Categorical)}, "spans.kind holds a word outside its vocabulary"),
        ("spans", {"span_id": pl.col("span_id") + 1}, "spans.span_id does not count the rows"),
        ("spans", {"start_ns": -pl.col("start_ns")}, "spans are not in order of start"),
        ("spans", {"duration_ns": -pl.col("duration_ns")}, "a span has a negative duration"),
        ("spans", {"parent_id": pl.lit(99)}, "spans.parent_id refers to no span"),
        ("spans", {"parent_id": pl.lit(-1)}, "spans.parent_id refers to no span"),
        ("spans", {"layer_id": pl.lit(99)}, "spans.layer_id refers to no span"),
        ("spans", {"parent_id": pl.col("span_id")}, "a span is its own parent"),
        (
            "spans",
            {"attribution": pl.lit(None, pl.Categorical)},
            "device activities and attributed spans are not the same",
        ),
        ("spans", {"layer_id": pl.lit(None, pl.Int64)}, "work attributed to a layer names none"),
        (
            "spans",
            {"attribution": pl.col("attribution").cast(pl.String).replace("layer", "model_only").cast(pl.Categorical)},
            "work that is attributed to no layer names one",
        ),
        ("spans", {"run_id": pl.lit(3)}, "a span belongs to no run"),
        ("spans", {"name": pl.lit(None, pl.Categorical)}, "spans.name has nulls"),
        ("kernels", {"span_id": pl.lit(99)}, "kernels.span_id refers to no span"),
        ("operators", {"span_id": pl.lit(2)}, "operators.span_id is not unique"),
    ],
)
def test_a_broken_rule_is_named(table: str, columns: dict[str, pl.Expr], rule: str) -> None:
    assert rule in list(integrity.broken_rules(_with(table, **columns)))


def test_another_schema_is_named() -> None:
    trace = sample_trace()
    spoilt = Trace({**trace.parts, "copies": pa.table({"span_id": pa.array([], pa.int32())})})
    assert list(integrity.broken_rules(spoilt)) == ["table copies has another schema"]


def test_check_raises_with_every_broken_rule() -> None:
    spoilt = _with("spans", duration_ns=-pl.col("duration_ns"), parent_id=pl.lit(99))
    with pytest.raises(ValueError, match=r"spans\.parent_id refers to no span; .* negative duration"):
        integrity.check(spoilt)
