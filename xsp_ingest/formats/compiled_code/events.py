"""Calls of compiled graphs in a trace, and the calls of libraries and of generated kernels within them."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

import polars as pl

from xsp_model import Level

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["IS_GENERATED", "WHERE", "events_in", "regions_of"]

_REGION = r"^## Call CompiledFxGraph (\S+) ##$"
IS_GENERATED = pl.col("name").str.contains(r"^(?:cpp|triton)_\w*fused_")
"""Names of functions that Inductor generated, without their graph's number."""

_GRAPH_NUMBER = r"^graph_\d+_(cpp_)"
WHERE = ("process_id", "thread_id")
"""Host calls that nest share these."""


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


def events_in(regions: pl.DataFrame, spans: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Calls in regions of one of the names or of a generated one, in order; with the region's columns."""
    called = _outermost(_inside(spans.filter(pl.col("level") == str(Level.OPERATOR)), regions))
    launched = _launched(spans, regions).join(called, on=["region_row", "name"], how="anti")
    of_code = pl.col("name").is_in(names) | IS_GENERATED
    return pl.concat([called, launched.select(called.columns)]).filter(of_code).sort("start_ns", "row")


def _inside(some: pl.DataFrame, regions: pl.DataFrame) -> pl.DataFrame:
    """Those that ran in a region, on its thread; of regions that hold one another the innermost."""
    columns = ("row", "start_ns", "duration_ns", "correlation_id", *WHERE)
    name = pl.col("name").cast(pl.String).str.replace(_GRAPH_NUMBER, "$1")
    rows = some.select(*columns, name).drop_nulls(["start_ns", "duration_ns", "thread_id"]).sort("start_ns")
    joined = rows.join_asof(
        _innermost(regions),
        left_on="start_ns",
        right_on="since_ns",
        by=list(WHERE),
        check_sortedness=False,
    )
    held = regions.select("region_row", "region", "region_call", region_end_ns="end_ns")
    end = pl.col("start_ns") + pl.col("duration_ns")
    return joined.join(held, on="region_row", maintain_order="left").filter(
        end <= pl.col("region_end_ns"), pl.col("row") != pl.col("region_row")
    )


def _innermost(regions: pl.DataFrame) -> pl.DataFrame:
    """The innermost region of a thread: process_id, thread_id, since_ns, region_row (null in none)."""
    ordered = regions.sort(["start_ns", "end_ns", "region_row"], descending=[False, True, False])
    stacks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    changes: list[tuple[int, int, int, int | None]] = []

    def close(where: tuple[int, int], before_ns: float) -> None:
        stack = stacks[where]
        while stack and stack[-1][0] <= before_ns:
            end_ns, _ = stack.pop()
            changes.append((*where, end_ns, stack[-1][1] if stack else None))

    for process, thread, start_ns, end_ns, row in ordered.select(*WHERE, "start_ns", "end_ns", "region_row").rows():
        close((process, thread), start_ns)
        stacks[process, thread].append((end_ns, row))
        changes.append((process, thread, start_ns, row))
    for where in stacks:
        close(where, math.inf)
    schema = dict.fromkeys((*WHERE, "since_ns", "region_row"), pl.Int64)
    return pl.DataFrame(changes, schema=schema, orient="row").sort("since_ns", maintain_order=True)


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
    kernels = kernels.select("row", "duration_ns", "correlation_id", name).filter(IS_GENERATED)
    calls = _inside(spans.filter(pl.col("level") == str(Level.RUNTIME)), regions)
    launches = calls.drop_nulls("correlation_id").drop("row", "duration_ns", "name")
    return launches.unique("correlation_id", keep="none").join(kernels, on="correlation_id")
