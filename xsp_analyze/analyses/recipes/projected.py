"""Ranges projected onto the device in the way of `nsys recipe`, which differs from that of `nsys stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.analyses.nsys import sources
from xsp_analyze.analyses.nsys.containment import containing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Kind

__all__ = ["project"]

_THREAD = ("run_id", "process_id", "thread_id")
_SCHEMA = {"run_id": pl.Int64, "text": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}


def project(view: TraceView, ranges: pl.LazyFrame, kinds: Sequence[Kind]) -> pl.LazyFrame:
    """One row a range that holds a launch of such work, from the work's first start to its last end.

    A call must end before its range does, ranges of one thread must end on it, and a range stands where the first
    call in it does. `ranges` as `closed_ranges` gives them.
    """
    work = view.kernel_runs.scan("spans").filter(pl.col("kind").cast(pl.String).is_in([str(kind) for kind in kinds]))
    launches = sources.launches(view, work).select(
        *_THREAD,
        "call_start_ns",
        "call_end_ns",
        pl.col("start_ns").alias("work_start_ns"),
        (pl.col("start_ns") + pl.col("duration_ns")).alias("work_end_ns"),
    )
    own = ranges.filter(pl.col("end_thread_id").is_null()).collect().partition_by(_THREAD, as_dict=True)
    calls = launches.sort(*_THREAD, "call_start_ns", maintain_order=True).collect()
    parts = [
        _envelopes(own[thread], rows)
        for thread, rows in calls.partition_by(_THREAD, as_dict=True, maintain_order=True).items()
        if thread in own
    ]
    complete = pl.concat([pl.DataFrame(schema={**_SCHEMA, "first_call_ns": pl.Int64}), *parts])
    return complete.lazy().sort("run_id", "first_call_ns", maintain_order=True).select(*_SCHEMA)


def _envelopes(ranges: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    start, end = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()
    begun, ended = calls["call_start_ns"].to_numpy(), calls["call_end_ns"].to_numpy()
    # One nanosecond less: a call that ends with its range is not in it.
    pairs = list(containing(start, end - 1, begun, ended))
    inner = np.concatenate([np.empty(0, dtype=np.int64), *(pair[0] for pair in pairs)])
    outer = np.concatenate([np.empty(0, dtype=np.int64), *(pair[1] for pair in pairs)])
    held = calls[inner].with_columns(pl.Series("row", outer, dtype=pl.Int64))
    sums = held.group_by("row").agg(
        pl.col("work_start_ns").min().alias("start_ns"),
        pl.col("work_end_ns").max().alias("end_ns"),
        pl.col("call_start_ns").min().alias("first_call_ns"),
    )
    texts = ranges.select("run_id", "text").with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    named = sums.join(texts, on="row").sort("first_call_ns", "row")
    return named.select(*_SCHEMA, "first_call_ns")
