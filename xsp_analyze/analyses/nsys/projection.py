"""Ranges projected onto the device: from the first start to the last end of the work launched inside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys import sources
from xsp_analyze.analyses.nsys.launched import THREAD, ThreadWork, by_thread
from xsp_analyze.analyses.nsys.nest import nested
from xsp_model import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_model import Trace

__all__ = ["PROJECTION", "projected"]

PROJECTION: Mapping[str, pl.DataType] = {
    **dict.fromkeys((*THREAD, "range_id"), pl.Int64()),
    "range_name": pl.String(),
    "style": pl.String(),
    **dict.fromkeys(("start_ns", "end_ns", "projected_start_ns", "projected_end_ns"), pl.Int64()),
    **dict.fromkeys(("operation_count", "depth", "child_count", "parent_id"), pl.Int64()),
    "stack": pl.String(),
}
_KINDS = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)  # nsys leaves out graphs replayed as a whole
_WORK = ["work_start_ns", "work_end_ns", "correlation_id"]


def projected(trace: Trace) -> pl.DataFrame:
    """One row a range that holds a launch, by run and range_id; before them a row for launches in none.

    Columns as in PROJECTION; start_ns and end_ns are the range's own, null in the row for launches in none.
    """
    work = sources.work_spans(trace).filter(pl.col("kind").cast(pl.String).is_in(_KINDS))
    launches = sources.launches(trace, work).select(
        *THREAD,
        "correlation_id",
        "call_start_ns",
        "call_end_ns",
        pl.col("start_ns").alias("work_start_ns"),
        (pl.col("start_ns") + pl.col("duration_ns")).alias("work_end_ns"),
    )
    threads = list(by_thread(trace, launches))
    parts = [_envelopes(thread) for thread in threads]
    if threads:
        parts.append(_outside(pl.concat([thread.outside for thread in threads])))
    whole = pl.concat([pl.DataFrame(schema=dict(PROJECTION)), *(_complete(part) for part in parts)])
    return whole.sort("run_id", "range_id", nulls_last=False)


def _complete(part: pl.DataFrame) -> pl.DataFrame:
    return part.select(
        (pl.col(name) if name in part.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in PROJECTION.items()
    )


def _envelope() -> tuple[pl.Expr, ...]:
    return (
        pl.col("work_start_ns").min().alias("projected_start_ns"),
        pl.col("work_end_ns").max().alias("projected_end_ns"),
        # A graph's launch is one operation, however many kernels it starts.
        pl.col("correlation_id").n_unique().alias("operation_count"),
    )


def _envelopes(thread: ThreadWork) -> pl.DataFrame:
    ranges = nested(thread.ranges).with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    found = thread.inside(_WORK, []).group_by("row").agg(_envelope())
    children = found.join(ranges, on="row").group_by(pl.col("parent").alias("row")).agg(pl.len().alias("child_count"))
    ids = ranges.select(pl.col("row").alias("parent"), pl.col("range_id").alias("parent_id"))
    # Where nsys finds no root it names no parent.
    parent_id = pl.when(pl.col("depth").is_not_null()).then(pl.col("parent_id")).alias("parent_id")
    return (
        found.join(ranges, on="row")
        .join(children, on="row", how="left")
        .join(ids, on="parent", how="left")
        .with_columns(pl.col("child_count").fill_null(0), parent_id)
    )


def _outside(launches: pl.DataFrame) -> pl.DataFrame:
    """One row a run for all launches in no range, under the thread of the one whose work ended last."""
    last = pl.col("work_end_ns").arg_max()
    return launches.group_by("run_id").agg(
        *_envelope(),
        *(pl.col(each).get(last).alias(each) for each in THREAD if each != "run_id"),
        child_count=pl.lit(0),
    )
