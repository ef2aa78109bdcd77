"""Puts calls of the driver on the thread they were made on, where the profiler numbered threads in two ways.

ROCm's tracer gives calls lines of their own, `Host Threads/583`, beside the lines of the host's own ranges. The calls
of one thread lie inside the thunks they are named after, so the line whose thunks hold them is that thread's.
"""

from __future__ import annotations

import polars as pl

from xsp_ingest.formats.xplane.host import Role

__all__ = ["on_their_threads"]

_ENOUGH = 0.9  # share of a line's calls that must lie in thunks of their name


def on_their_threads(events: pl.DataFrame) -> pl.DataFrame:
    """The events, those on lines of nothing but calls with the `thread_id` of the line whose thunks hold them."""
    only_calls = events.group_by("line").agg((pl.col("role") == Role.CALL).all().alias("only"))
    apart = only_calls.filter("only")["line"].implode()
    calls = events.filter(pl.col("line").is_in(apart), pl.col("hlo_op").is_not_null())
    thunks = events.filter(pl.col("role") == Role.THUNK)
    if calls.is_empty() or thunks.is_empty():
        return events
    held = pl.concat([_count_held(calls, thunks.filter(pl.col("line") == line), line) for line in _lines(thunks)])
    total = calls.group_by("line").len("total")
    best = (
        held.join(total, on="line")
        .filter(pl.col("held") >= _ENOUGH * pl.col("total"))
        .sort("line", "held", "host_line", descending=[False, True, False])
        .unique("line", keep="first", maintain_order=True)
    )
    threads = events.select(pl.col("line").alias("host_line"), pl.col("thread_id").alias("host_thread")).unique(
        "host_line"
    )
    moved = best.join(threads, on="host_line").select("line", "host_thread")
    return (
        events.join(moved, on="line", how="left", maintain_order="left")
        .with_columns(pl.coalesce("host_thread", "thread_id").alias("thread_id"))
        .drop("host_thread")
    )


def _lines(thunks: pl.DataFrame) -> list[int]:
    return thunks["line"].unique().sort().to_list()


def _count_held(calls: pl.DataFrame, thunks: pl.DataFrame, line: int) -> pl.DataFrame:
    """How many calls of each line lie inside this line's thunks of their name."""
    windows = thunks.select(
        pl.col("operator").cast(pl.String).alias("op"),
        "start_ns",
        (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"),
    ).sort("start_ns")
    at = calls.select("line", pl.col("hlo_op").cast(pl.String).alias("op"), "start_ns").sort("start_ns")
    inside = at.join_asof(windows, on="start_ns", by="op", check_sortedness=False).filter(
        pl.col("start_ns") < pl.col("end_ns")
    )
    return (
        inside.group_by("line")
        .len("held")
        .select("line", pl.col("held").cast(pl.Int64), pl.lit(line, pl.Int64).alias("host_line"))
    )
