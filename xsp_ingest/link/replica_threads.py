"""What threads run that live only in calls of `nn.DataParallel`: its replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xsp_ingest.link.distinct_texts import matches
from xsp_ingest.link.nest import SLACK_NS
from xsp_ingest.link.range_nesting import named_ranges
from xsp_ingest.link.threads import Threads
from xsp_model import Kind, Level

if TYPE_CHECKING:
    import polars as pl

    from xsp_ingest.link.span_kinds import SpanKinds
    from xsp_model.arrays import Bools, Ints, Positions

__all__ = ["with_replicas"]

_CALL = r"^(nn\.Module: )?DataParallel(_\d+|\.forward)$"


def with_replicas(spans: pl.DataFrame, kinds: SpanKinds, parent: Positions) -> Positions:
    """Parents in which a thread's outermost spans are children of the call of DataParallel that they ran in.

    It starts a thread a replica and waits for them. So the threads are those that do something in its calls alone.
    """
    calls = np.flatnonzero(matches(spans["name"], _CALL) & (kinds.is_kind(Kind.MODULE) | named_ranges(kinds)))
    if not len(calls):
        return parent
    host = ~kinds.is_level(Level.KERNEL) & ~kinds.is_kind(Kind.SYNC)
    call = _calls_around(spans, calls)
    threads = Threads.of(spans.select("process_id", "thread_id"))
    thread = threads.numbers(spans)
    elsewhere = np.zeros(threads.count, dtype=np.bool_)
    elsewhere[[threads.count - 1, *np.unique(thread[calls])]] = True  # those unknown, and those that call
    elsewhere[thread[host & (call < 0)]] = True
    out = parent.copy()
    roots = np.flatnonzero(host & (parent < 0) & (call >= 0))
    roots = roots[~elsewhere[thread[roots]]]
    out[roots] = call[roots]
    return out


def _calls_around(spans: pl.DataFrame, calls: Ints) -> Positions:
    """For each span the innermost of the calls in whose time its process ran it, on whichever thread; -1: none."""
    start, process = spans["start_ns"].to_numpy(), spans["process_id"].fill_null(-1).to_numpy()
    end = start + spans["duration_ns"].fill_null(0).to_numpy()
    out = np.full(len(start), -1, dtype=np.int64)
    for call in calls:  # outer ones first
        window = slice(int(np.searchsorted(start, start[call])), int(np.searchsorted(start, end[call])))
        inside: Bools = (process[window] == process[call]) & (end[window] <= end[call] + SLACK_NS)
        out[window][inside] = call
    return out
