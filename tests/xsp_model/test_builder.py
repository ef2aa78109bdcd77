"""TraceBuilder: any order in, one order out, and nothing unsound."""

from __future__ import annotations

import polars as pl
import pytest

from tests.helpers.model_sample import sample_builder, sample_trace
from xsp_model import Finding, LedgerKind, TraceBuilder
from xsp_model.schema import TABLES


def test_spans_come_out_in_order_of_start_and_are_renumbered() -> None:
    spans = sample_trace().frame("spans")
    assert spans["span_id"].to_list() == [0, 1, 2, 3, 4, 5]
    assert spans["start_ns"].to_list() == [0, 10, 20, 30, 100, 600]
    assert spans["name"].cast(pl.String).to_list()[4] == "gemm"


def test_references_follow_the_new_numbers() -> None:
    trace = sample_trace()
    assert trace.frame("spans")["parent_id"].to_list() == [None, 0, 1, 2, 3, 0]
    assert trace.frame("spans")["layer_id"].to_list() == [None, None, None, None, 1, None]
    assert trace.frame("layers")["span_id"].to_list() == [1]
    assert trace.frame("kernels")["span_id"].to_list() == [4]
    assert trace.frame("operators").select("span_id", "forward_id").rows() == [(2, None), (5, 2)]


def test_the_order_of_adding_does_not_matter() -> None:
    runs = pl.DataFrame({"run_id": [0], "clock_origin_ns": [0]})
    spans = pl.DataFrame(
        {
            "span_id": [7, 8, 9],
            "run_id": 0,
            "level": ["operator", "model", "operator"],
            "kind": ["operator", "step", "operator"],
            "name": ["b", "a", "a"],
            "start_ns": [5, 5, 5],
            "duration_ns": [2, 9, 2],
        }
    )
    tables = []
    for rows in (spans, spans[::-1]):
        builder = TraceBuilder()
        builder.add("spans", rows)
        builder.add("runs", runs)
        tables.append(builder.build().table("spans"))
    assert tables[0].equals(tables[1])
    assert tables[0]["name"].to_pylist() == ["a", "a", "b"]
    assert tables[0]["level"].to_pylist() == ["model", "operator", "operator"]


def test_every_table_has_exactly_the_declared_schema() -> None:
    trace = sample_trace()
    for name, spec in TABLES.items():
        assert trace.table(name).schema == spec.schema


def test_an_unknown_column_is_an_error() -> None:
    with pytest.raises(ValueError, match="table spans has no column colour"):
        TraceBuilder().add("spans", pl.DataFrame({"span_id": [1], "colour": ["red"]}))


def test_a_reference_to_no_span_is_an_error() -> None:
    builder = sample_builder()
    builder.add("copies", pl.DataFrame({"span_id": [12345], "bytes": [1]}))
    with pytest.raises(ValueError, match="span_id refers to 1 spans that are not there"):
        builder.build()


def test_findings_become_the_ledger_and_empty_ones_do_not() -> None:
    builder = sample_builder()
    builder.note([Finding(LedgerKind.NO_END, "nothing was lost", 0)])
    ledger = builder.build().frame("ledger")
    assert ledger.select("kind", "count", "severity").rows() == [("no_end", 2, "warning")]


def test_a_trace_of_nothing_is_sound() -> None:
    trace = TraceBuilder().build()
    assert trace.row_count == 0
    assert trace.levels == ()


def test_levels_are_told_outermost_first() -> None:
    assert sample_trace().levels == ("model", "layer", "operator", "runtime", "kernel")
