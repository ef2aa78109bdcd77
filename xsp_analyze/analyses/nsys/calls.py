"""Calls beside the device work that they launched, thread by thread: as arrays, as captures hold millions of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_model.arrays import Ints

__all__ = ["THREAD", "Calls", "launching_calls", "parts_of_threads"]

THREAD = ("run_id", "process_id", "thread_id")

_PROCESS = ("run_id", "process_id")
_NEVER = np.iinfo(np.int64).max
_MAX_KEY = 1 << 40  # of processes and runs there are fewer than are left to 63 bits
_SPARSE = 4
_SMALL = 1 << 16  # a table of this many entries costs next to nothing


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of one thread that launched work, in order of start: times, the work's extent, correlation ids."""

    start: Ints
    end: Ints
    work_start: Ints
    work_end: Ints
    correlation: Ints


def launching_calls(calls: pl.DataFrame, work: pl.DataFrame) -> Mapping[tuple[int | None, ...], Calls]:
    """Of every thread the calls that launched this work, by run, process and thread, in that order.

    Work is told by its process and correlation id; where runtime and driver both recorded its launch, both calls hold
    it. Columns of both as `sources.sorted_out` gives them.
    """
    calls, work = (_with_thread(each) for each in (calls, work))
    have, want = _keys(calls, work)
    first, last = _extents(have, want, work)
    launched = first != _NEVER
    calls, first, last = calls.filter(pl.Series(launched)), first[launched], last[launched]
    start = calls["start_ns"].to_numpy()
    if not (start[1:] >= start[:-1]).all():
        order = np.argsort(start, kind="stable")
        calls, first, last, start = calls[order], first[order], last[order], start[order]
    end = start + calls["duration_ns"].fill_null(0).to_numpy()
    correlation = calls["correlation_id"].to_numpy()
    return {
        key: Calls(*(column[rows] for column in (start, end, first, last, correlation)))
        for key, rows in parts_of_threads(calls)
    }


def _with_thread(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows that can be tied to others."""
    keys = [*_PROCESS, "correlation_id"]
    return rows.drop_nulls(keys) if any(rows[key].null_count() for key in keys) else rows


def parts_of_threads(rows: pl.DataFrame) -> Iterator[tuple[tuple[int | None, ...], Ints]]:
    """The threads that occur, unknown ones first, each with its rows in the order that they have."""
    group, counts, values = np.zeros(rows.height, dtype=np.int64), [], []
    for name in THREAD:
        distinct = rows[name].unique().sort(nulls_last=False)
        values.append(distinct.to_list())
        counts.append(len(distinct))
        group = group * len(distinct) + _ranks(rows[name], distinct)
    if int(np.prod(counts)) < np.iinfo(np.int16).max:
        group = group.astype(np.int16)  # which numpy sorts by counting
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    for part in np.split(order, cuts) if len(order) else ():
        run, process, thread = np.unravel_index(int(group[part[0]]), counts)
        yield (values[0][run], values[1][process], values[2][thread]), part


def _ranks(values: pl.Series, distinct: pl.Series) -> Ints:
    """For each value its place among the known ones, of which null is the first."""
    if len(distinct) == 1:
        return np.zeros(len(values), dtype=np.int64)
    absent = distinct.null_count()
    ranks = np.searchsorted(distinct.drop_nulls().to_numpy(), values.fill_null(0).to_numpy()) + absent
    return np.where(values.is_null().to_numpy(), 0, ranks) if absent else ranks


def _keys(calls: pl.DataFrame, work: pl.DataFrame) -> tuple[Ints, Ints]:
    """A number below four times their count for each call and piece of work, alike where what ties them is.

    That is run, process and correlation id; -1 for work with those of no call.
    """
    have, want = _spread(calls, work)
    low, high = int(have.min(initial=0)), int(have.max(initial=0))
    if high - low < _SPARSE * len(have) + _SMALL:
        inside = (want >= low) & (want <= high)
        return have - low, want - low if inside.all() else np.where(inside, want - low, -1)
    distinct = np.unique(have)
    index = np.minimum(np.searchsorted(distinct, want), len(distinct) - 1)
    return np.searchsorted(distinct, have), np.where(distinct[index] == want, index, -1)


def _spread(calls: pl.DataFrame, work: pl.DataFrame) -> tuple[Ints, Ints]:
    """Likewise, numbers of any size."""
    both = calls, work
    have, want = (each["correlation_id"].to_numpy() for each in both)
    if max(int(np.abs(each).max(initial=0)) for each in (have, want)) >= _MAX_KEY:
        distinct = np.unique(np.concatenate([have, want]))
        have, want = (np.searchsorted(distinct, each) for each in (have, want))
    width = max(int(each.max(initial=0)) for each in (have, want)) + 1
    weight = 1
    for name in _PROCESS:
        distinct = pl.concat([each[name].unique() for each in both]).unique().sort().to_numpy()
        if len(distinct) > 1:
            keys = (np.searchsorted(distinct, each[name].to_numpy()) * weight * width for each in both)
            have, want = (each + code for each, code in zip((have, want), keys, strict=True))
        weight *= max(len(distinct), 1)
    return have, want


def _extents(have: Ints, want: Ints, work: pl.DataFrame) -> tuple[Ints, Ints]:
    """For each call the first start and last end of the work with its key; `_NEVER` where there is none."""
    start, duration = work["start_ns"], work["duration_ns"]
    begun = start.to_numpy()
    ended = begun + (duration.fill_null(0) if duration.null_count() else duration).to_numpy()
    present = want >= 0
    if not present.all():
        begun, ended, want = begun[present], ended[present], want[present]
    count = max(int(each.max(initial=-1)) for each in (have, want)) + 1
    first, last = np.full(count, _NEVER), np.full(count, -_NEVER)
    first[want], last[want] = begun, ended
    if not (np.array_equal(first[want], begun) and np.array_equal(last[want], ended)):  # several of one call
        np.minimum.at(first, want, begun)
        np.maximum.at(last, want, ended)
    return first[have], last[have]
