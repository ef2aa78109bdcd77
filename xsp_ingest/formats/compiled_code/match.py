"""Pairs calls in a trace with the kernels that a compiler generated, by their order within a call of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.compiled_code.code import event_name
from xsp_ingest.formats.compiled_code.events import IS_GENERATED, events_in

if TYPE_CHECKING:
    from xsp_ingest.formats.compiled_code.code import CompiledCode

__all__ = ["Matches", "match"]

_CALL = ("region_row", "name")
_SEGMENT_CALL = ("segment", "name", "nth")


@dataclass(frozen=True, slots=True)
class Matches:
    """`paired`: row, start_ns, region_row, region, region_call, kernel (its index in the graph).

    `unpaired` counts calls that only one side has, has more often or in another order; `unpaired_ns` is the time of
    those in the trace.
    """

    paired: pl.DataFrame
    unpaired: int
    unpaired_ns: int


def match(spans: pl.DataFrame, regions: pl.DataFrame, code: CompiledCode) -> Matches:
    """The calls within regions that the code has, where both have them in one order.

    Generated kernels are what a region's call is known by: where their sequence is another than the code's, nothing of
    that call is paired. Between two of them calls of libraries are paired in order, each name only where it was called
    as often as generated. A trace without any generated kernel has none to be known by: a region is then one segment.
    """
    of_code = pl.col("region").is_in(list(code.graphs))
    recorded = regions.filter(of_code)
    expected = _expected(code)
    events = events_in(regions, spans, expected["name"].unique().to_list()).filter(of_code)
    has_anchors = events.filter(IS_GENERATED).height > 0
    events = _numbered(events, "region_row", has_anchors=has_anchors)
    expected = _numbered(expected, "region", has_anchors=has_anchors)
    calls = _as_often(events, expected)
    if has_anchors:
        calls = calls.join(_other_kernels(events, expected), on="region_row", how="anti")
    paired = _in_order(calls.join(expected, on=["region", *_SEGMENT_CALL]))
    left = events.join(paired, on="row", how="anti")
    columns = ("row", "start_ns", "region_row", "region", "region_call", "kernel")
    return Matches(
        paired.select(columns).sort("start_ns", "row"),
        _unpaired(recorded, expected, events, paired),
        int(left["duration_ns"].sum() or 0),
    )


def _expected(code: CompiledCode) -> pl.DataFrame:
    """region, kernel, name as in a trace; in order."""
    rows = [
        (graph.region, index, event_name(kernel.name))
        for graph in code.graphs.values()
        for index, kernel in enumerate(graph.kernels)
    ]
    return pl.DataFrame(rows, schema={"region": pl.String, "kernel": pl.Int64, "name": pl.String}, orient="row")


def _numbered(calls: pl.DataFrame, of: str, *, has_anchors: bool) -> pl.DataFrame:
    """The calls with `segment`, counted up at each generated kernel, and which one of the name it is there (`nth`)."""
    starts = IS_GENERATED if has_anchors else pl.lit(value=False)
    segmented = calls.with_columns(starts.cast(pl.Int64).cum_sum().over(of).alias("segment"))
    return segmented.with_columns(pl.int_range(pl.len()).over(of, "segment", "name").alias("nth"))


def _as_often(events: pl.DataFrame, expected: pl.DataFrame) -> pl.DataFrame:
    """The events of a name that the segment has as often as the code's."""
    generated = expected.group_by("region", "segment", "name").agg(generated=pl.len())
    counted = events.with_columns(pl.len().over("region_row", "segment", "name").alias("calls"))
    joined = counted.join(generated, on=["region", "segment", "name"], maintain_order="left")
    return joined.filter(pl.col("calls") == pl.col("generated"))


def _other_kernels(events: pl.DataFrame, expected: pl.DataFrame) -> pl.DataFrame:
    """`region_row` of calls whose generated kernels are others than the code's, or in another order."""
    anchors = expected.filter(IS_GENERATED).select("region", "segment", "name", is_same=pl.lit(value=True))
    needed = anchors.group_by("region").agg(needed=pl.len())
    held = events.join(anchors, on=["region", "segment", "name"], how="left")
    sums = held.group_by("region_row", "region").agg(
        anchors=IS_GENERATED.sum(), same=(IS_GENERATED & pl.col("is_same").fill_null(value=False)).sum()
    )
    compared = sums.join(needed, on="region", how="left").with_columns(pl.col("needed").fill_null(0))
    return compared.filter((pl.col("anchors") != pl.col("same")) | (pl.col("anchors") != pl.col("needed")))


def _in_order(calls: pl.DataFrame) -> pl.DataFrame:
    """Without libraries' calls of segments in which names follow one another otherwise than in the code."""
    segment = ("region_row", "segment")
    rises = (pl.col("kernel").diff().fill_null(1) > 0).all().over(segment)
    return calls.sort("start_ns", "row").filter(IS_GENERATED | rises)


def _unpaired(regions: pl.DataFrame, expected: pl.DataFrame, events: pl.DataFrame, paired: pl.DataFrame) -> int:
    """For each name in each region's call the larger number of what is left on either side, added up."""
    of_code = expected.group_by("region", "name").agg(generated=pl.len().cast(pl.Int64))
    of_region = of_code.group_by("region").agg(pl.col("generated").sum())
    if_none_is_called = regions.join(of_region, on="region")["generated"].sum()
    pairs = paired.group_by(*_CALL).agg(pairs=pl.len())
    names = (
        events.group_by("region", *_CALL)
        .agg(calls=pl.len())
        .join(of_code, on=["region", "name"], how="left")
        .join(pairs, on=list(_CALL), how="left")
        .with_columns(pl.col("generated", "pairs").fill_null(0).cast(pl.Int64), pl.col("calls").cast(pl.Int64))
    )
    change = pl.max_horizontal("calls", "generated") - pl.col("pairs") - pl.col("generated")
    return int(if_none_is_called or 0) + int(names.select(change.sum()).item() or 0)
