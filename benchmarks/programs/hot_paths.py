"""The hot paths by themselves, in process, on made columns: nesting, the join of correlation ids, busy time.

Beside each, in the same process, is what its definition says in a few lines of numpy or Python (`reference`).
"""

from __future__ import annotations

import argparse
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from benchmarks.programs.stopwatch import print_times
from xsp_ingest.link.nest import nest
from xsp_ingest.link.spans import pair_keys
from xsp_model.columns.arrays import lookup
from xsp_model.columns.intervals import merge

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from xsp_model.columns.arrays import Ints

__all__ = ["correlations", "kernels", "nested_spans", "plain_busy", "plain_join", "plain_parents", "plain_rows"]

_THREADS = 8
_DEPTH = 8
_WARM_UP = 2_000_000  # enough for the ways that large input takes


def nested_spans(count: int) -> tuple[NDArray[np.int32], Ints, Ints]:
    """About so many spans as thread, start and end in order of start: full binary trees of depth 8, eight threads."""
    start, end = _tree(_DEPTH)
    copies = max(1, count // (len(start) * _THREADS))
    shift = np.arange(copies, dtype=np.int64) * (int(end[0]) + 1)
    thread = np.repeat(np.arange(_THREADS, dtype=np.int32), copies * len(start))
    starts: Ints = np.tile((shift[:, None] + start).ravel(), _THREADS) + thread.astype(np.int64) * 3
    ends: Ints = np.tile((shift[:, None] + end).ravel(), _THREADS) + thread.astype(np.int64) * 3
    order = np.argsort(starts, kind="stable")
    return thread[order], starts[order], ends[order]


def _tree(depth: int) -> tuple[Ints, Ints]:
    """A span that holds two trees one level less deep, side by side."""
    if depth == 1:
        return np.array([0], dtype=np.int64), np.array([4], dtype=np.int64)
    start, end = _tree(depth - 1)
    length = int(end[0])
    starts = np.concatenate((start[:1], start + 1, start + length + 2))
    return starts, np.concatenate((end[:1] * 2 + 3, end + 1, end + length + 2))


def correlations(work: int, calls: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Ids of calls, and of the work that some of them launched, each with its process."""
    random = np.random.default_rng(6)
    ids = np.arange(calls, dtype=np.int64) + 1
    launched = np.sort(random.choice(ids, work, replace=False))
    return (_of_process(ids), _of_process(launched))


def _of_process(ids: Ints) -> pl.DataFrame:
    return pl.DataFrame({"process_id": np.full(len(ids), 100, dtype=np.int64), "correlation_id": ids})


def kernels(count: int) -> tuple[Ints, Ints]:
    """Intervals in order of start, some of which overlap, with gaps between others."""
    random = np.random.default_rng(5)
    start = np.cumsum(random.integers(1, 6_000, count))
    return start, start + random.integers(500, 6_000, count)


def plain_parents(thread: NDArray[np.int32], start: Ints, end: Ints) -> list[int]:
    """A stack of open spans a thread, span by span."""
    open_spans: dict[int, list[int]] = {}
    parents = []
    ends = end.tolist()
    for at, (on, begin) in enumerate(zip(thread.tolist(), start.tolist(), strict=True)):
        stack = open_spans.setdefault(on, [])
        while stack and ends[stack[-1]] <= begin:
            stack.pop()
        parents.append(stack[-1] if stack else -1)
        stack.append(at)
    return parents


def plain_busy(start: Ints, end: Ints) -> int:
    """Time covered by intervals in order of start, interval by interval."""
    total, reach = 0, -1
    for begin, finish in zip(start.tolist(), end.tolist(), strict=True):
        if finish > reach:
            total += finish - max(begin, reach)
            reach = finish
    return total


def plain_join(calls: pl.DataFrame, work: pl.DataFrame) -> list[int]:
    """For each row of work its call's position, or -1, by a dict of keys."""
    rows = {key: row for row, key in enumerate(calls.iter_rows())}
    return [rows.get(key, -1) for key in work.iter_rows()]


def plain_rows(path: Path, table: str, columns: Sequence[str]) -> list[tuple[int | None, ...]]:
    """Columns of a SQLite table, row by row."""
    selected = ", ".join(f'"{column}"' for column in columns)
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f'SELECT {selected} FROM "{table}"').fetchall()  # noqa: S608


def main() -> None:
    """Measures each once after a warm-up on few rows, so that machine code is loaded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=9_500_000)
    parser.add_argument("--kernels", type=int, default=4_900_000)
    parser.add_argument("--calls", type=int, default=7_000_000)
    arguments = parser.parse_args()
    _parents(_WARM_UP, "warm-up: ")
    _parents(arguments.spans)
    calls, work = correlations(arguments.kernels, arguments.calls)
    with print_times("correlation"):
        call_rows = lookup(*pair_keys(calls, work))
    if (calls["correlation_id"].to_numpy()[call_rows] != work["correlation_id"].to_numpy()).any():
        raise ValueError("the join is wrong")
    start, end = kernels(arguments.kernels)
    with print_times("busy"):
        first, last = merge(start, end)
        busy = int((last - first).sum())
    with print_times("reference: busy"):
        expected = plain_busy(start, end)
    if busy != expected:
        raise ValueError("busy time is wrong")


def _parents(count: int, prefix: str = "") -> None:
    thread, start, end = nested_spans(count)
    with print_times(f"{prefix}parents"):
        order = np.argsort(start, kind="stable")
        sorted_columns = thread[order], start[order], end[order]
        parent = nest(*sorted_columns, np.zeros(len(order), dtype=np.int8), threads=_THREADS).parent
    with print_times(f"{prefix}reference: parents"):
        expected = plain_parents(*sorted_columns)
    if (parent != expected).any():
        raise ValueError("parents are wrong")


if __name__ == "__main__":
    main()
