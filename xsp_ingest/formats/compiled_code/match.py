"""Pairs calls in a trace with the kernels that a compiler generated: the n-th of a name within a call of its graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.compiled_code.code import event_name
from xsp_model import Level

if TYPE_CHECKING:
    from xsp_ingest.formats.compiled_code.code import CompiledCode

__all__ = ["GENERATED", "WHERE", "Matches", "match", "regions_of"]

_REGION = r"^## Call CompiledFxGraph (\S+) ##$"
GENERATED = r"^(?:cpp|triton)_\w*fused_"
"""Names of functions that Inductor generated, without their graph's number."""

_GRAPH_NUMBER = r"^graph_\d+_(cpp_)"
WHERE = ("process_id", "thread_id")
"""Host calls that nest share these."""

_CALL = ("region_row", "name")


@dataclass(frozen=True, slots=True)
class Matches:
    """`paired`: row, start_ns, region_row, region, region_call, kernel (its index in the graph).

    `unpaired` counts calls that only one side has, or has more often; `unpaired_ns` is the time of those in the trace.
    """

    paired: pl.DataFrame
    unpaired: int
    unpaired_ns: int


def regions_of(spans: pl.DataFrame) -> pl.DataFrame:
    """Calls of compiled graphs in order: region_row, region, region_call, process_id, thread_id, start_ns, end_ns."""
    name = pl.col("name").cast(pl.String)
    calls = spans.filter(name.str.starts_with("## Call CompiledFxGraph"), pl.col("duration_ns").is_not_null())
    return (
        calls.select(
            pl.col("row").alias("region_row"),
            name.str.extract(_REGION).alias("region"),
            *WHERE,
            "start_ns",
            (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"),
        )
        .drop_nulls()
        .sort("start_ns", "region_row")
        .with_columns(pl.int_range(pl.len()).over("region").alias("region_call"))
    )


def match(spans: pl.DataFrame, regions: pl.DataFrame, code: CompiledCode) -> Matches:
    """The calls within regions that the code has, each name only where it was called as often as generated."""
    recorded = regions.filter(pl.col("region").is_in(list(code.graphs)))
    expected = _expected(code)
    events = _events(spans, recorded, expected)
    of_trace = events.group_by(*_CALL).agg(calls=pl.len(), time_ns=pl.col("duration_ns").sum())
    of_code = expected.group_by("region", "name").agg(generated=pl.len())
    needed = recorded.select("region_row", "region").join(of_code, on="region")
    both = needed.join(of_trace, on=_CALL, how="full", coalesce=True).with_columns(
        pl.col("calls", "generated", "time_ns").fill_null(0)
    )
    differ = both.filter(pl.col("calls") != pl.col("generated"))
    equal = both.filter(pl.col("calls") == pl.col("generated")).select(*_CALL)
    paired = events.join(equal, on=_CALL, how="semi").join(expected, on=["region", "name", "nth"])
    unpaired = int(differ.select(pl.max_horizontal("calls", "generated").sum()).item() or 0)
    columns = ("row", "start_ns", "region_row", "region", "region_call", "kernel")
    return Matches(paired.select(columns).sort("start_ns", "row"), unpaired, int(differ["time_ns"].sum() or 0))


def _expected(code: CompiledCode) -> pl.DataFrame:
    """region, kernel, name as in a trace, and which call of that name it is in its graph."""
    rows = [
        (graph.region, index, event_name(kernel.name))
        for graph in code.graphs.values()
        for index, kernel in enumerate(graph.kernels)
    ]
    frame = pl.DataFrame(rows, schema={"region": pl.String, "kernel": pl.Int64, "name": pl.String}, orient="row")
    return frame.with_columns(pl.int_range(pl.len()).over("region", "name").alias("nth"))


def _events(spans: pl.DataFrame, regions: pl.DataFrame, expected: pl.DataFrame) -> pl.DataFrame:
    """Calls in regions that have a name of the code, or a generated one; with their number among those of the name."""
    names = expected["name"].unique().to_list()
    called = _outermost(_inside(spans.filter(pl.col("level") == str(Level.OPERATOR)), regions))
    launched = _launched(spans, regions).join(called, on=_CALL, how="anti")
    of_code = pl.col("name").is_in(names) | pl.col("name").str.contains(GENERATED)
    events = pl.concat([called, launched.select(called.columns)]).filter(of_code).sort("start_ns", "row")
    return events.with_columns(pl.int_range(pl.len()).over(*_CALL).alias("nth"))


def _inside(some: pl.DataFrame, regions: pl.DataFrame) -> pl.DataFrame:
    """Those that ran in a region, on its thread."""
    held = regions.rename({"start_ns": "region_start_ns", "end_ns": "region_end_ns"})
    columns = ("row", "start_ns", "duration_ns", "correlation_id", *WHERE)
    name = pl.col("name").cast(pl.String).str.replace(_GRAPH_NUMBER, "$1")
    rows = some.select(*columns, name).drop_nulls(["start_ns", "duration_ns", "thread_id"]).sort("start_ns")
    joined = rows.join_asof(
        held.sort("region_start_ns"),
        left_on="start_ns",
        right_on="region_start_ns",
        by=list(WHERE),
        check_sortedness=False,
    )
    end = pl.col("start_ns") + pl.col("duration_ns")
    return joined.filter(end <= pl.col("region_end_ns"), pl.col("row") != pl.col("region_row"))


def _outermost(calls: pl.DataFrame) -> pl.DataFrame:
    """Those that no other one of the same region holds."""
    ordered = calls.sort(["region_row", "start_ns", "duration_ns", "row"], descending=[False, False, True, False])
    end = pl.col("start_ns") + pl.col("duration_ns")
    before = end.cum_max().shift(1).over("region_row")
    return ordered.filter(before.is_null() | (before <= pl.col("start_ns")))


def _launched(spans: pl.DataFrame, regions: pl.DataFrame) -> pl.DataFrame:
    """Generated kernels on a device, at the time of their launch in a region: older traces have no call for them."""
    name = pl.col("name").cast(pl.String)
    kernels = spans.filter(pl.col("level") == str(Level.KERNEL), pl.col("correlation_id").is_not_null())
    kernels = kernels.select("row", "duration_ns", "correlation_id", name).filter(
        pl.col("name").str.contains(GENERATED)
    )
    calls = _inside(spans.filter(pl.col("level") == str(Level.RUNTIME)), regions)
    launches = calls.drop_nulls("correlation_id").drop("row", "duration_ns", "name")
    return launches.unique("correlation_id", keep="none").join(kernels, on="correlation_id")
