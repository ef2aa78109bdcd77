"""Which thread a backward operator's forward ran on: each thread numbers its operators for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from xsp_model.arrays import Bools

__all__ = ["numbering_domains"]

_FORWARD = ["process_id", "forward_thread_id"]
_THREAD = ["process_id", "thread_id"]


def numbering_domains(
    spans: pl.DataFrame, operators: pl.DataFrame, backward: Bools, forward: Bools, flows: pl.DataFrame
) -> pl.Series:
    """For each operator a number, alike for a backward operator and those among which its forward twin is.

    The autograd engine counts forward threads from 1, not by the system's ids. Where a process has more than one of
    them, `flows` (backward_at, forward_at) say which is which; where the file has none, the order in which they began.
    A forward thread whose operators were not recorded has no twins.
    """
    process = spans["process_id"].gather(operators["at"])
    ours = pl.DataFrame({"process_id": process, "forward_thread_id": operators["forward_thread_id"]})
    ours = ours.filter(pl.Series(backward)).drop_nulls().unique().sort(_FORWARD)
    several = ours.filter(pl.len().over("process_id") > 1)
    if several.is_empty():
        return process
    where = spans.select(*_THREAD, "start_ns")[operators["at"]]
    mapped = _by_flow(spans, operators, flows)
    threads = where.filter(pl.Series(forward)).select(_THREAD).unique()
    began = spans.select(*_THREAD, "start_ns").join(threads, on=_THREAD, how="semi")
    began = began.group_by(_THREAD).agg(pl.col("start_ns").min())
    mapped = pl.concat([mapped, _by_order(several, began.sort("start_ns", "thread_id"), mapped)])
    domains = mapped.join(several, on=_FORWARD, how="semi").unique(_THREAD, keep="first", maintain_order=True)
    first = int(process.max() or 0) + 1  # type: ignore[arg-type]
    domains = domains.with_columns(pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias("domain"))
    rows = where.with_columns(operators["forward_thread_id"]).select(*_THREAD, "forward_thread_id")
    by_forward = rows.join(domains, on=_FORWARD, how="left", maintain_order="left")["domain"]
    by_thread = rows.join(domains, on=_THREAD, how="left", maintain_order="left")["domain"]
    domain = pl.select(pl.when(pl.Series(backward)).then(by_forward).otherwise(by_thread)).to_series()
    return domain.zip_with(domain.is_not_null(), process)


def _by_flow(spans: pl.DataFrame, operators: pl.DataFrame, flows: pl.DataFrame) -> pl.DataFrame:
    """process_id, forward_thread_id, thread_id: where most flows from backward operators of it lead."""
    backward = operators.select(pl.col("at").cast(pl.Int64).alias("backward_at"), "forward_thread_id")
    ends = flows.select(pl.col("backward_at", "forward_at").cast(pl.Int64)).join(backward, on="backward_at")
    led = spans.select(_THREAD)[ends["forward_at"]].with_columns(ends["forward_thread_id"])
    counts = led.drop_nulls().group_by(*_FORWARD, "thread_id").len()
    ranked = counts.sort(*_FORWARD, "len", "thread_id", descending=[False, False, True, False])
    return ranked.unique(_FORWARD, keep="first", maintain_order=True).select(*_FORWARD, "thread_id")


def _by_order(forward: pl.DataFrame, began: pl.DataFrame, mapped: pl.DataFrame) -> pl.DataFrame:
    """The same by order, in processes without flows where as many threads have operators; of one thread, the first."""
    nth = pl.int_range(pl.len()).over("process_id").alias("nth")
    count = pl.len().over("process_id").alias("count")
    numbered = forward.join(mapped, on="process_id", how="anti").with_columns(nth, count)
    threads = began.join(mapped, on="process_id", how="anti").with_columns(nth, count)
    pairs = numbered.join(threads, on=["process_id", "nth"], suffix="_threads")
    alike = (pl.col("count") == pl.col("count_threads")) | (pl.col("count_threads") == 1)
    return pairs.filter(alike).select(*_FORWARD, "thread_id").sort(*_FORWARD)
