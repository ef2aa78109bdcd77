"""The critical path of a run as pieces of time, and how much later each span could end without the job ending later."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.what_if.graph import task_graph
from xsp_analyze.what_if.replay import NEVER, fitted_replay, path_edges
from xsp_analyze.what_if.waits import Edge

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_analyze.what_if.replay import Replay
    from xsp_model.columns.arrays import Ints

__all__ = ["LINKS", "Chain", "Link", "chain", "recorded_replay", "slack"]


class Link(StrEnum):
    """What a piece of the path is."""

    DEVICE = "device"  # an activity ran
    LAUNCH = "launch latency"  # from the launching call's end to the start of the work
    GAP = "device gap"  # between one activity and the next that had to wait for it
    RETURN = "synchronisation"  # from the end of the work that was waited for to the return of the wait
    HOST = "host"  # the process ran
    UNKNOWN = "unknown"  # before work whose launch is not in the trace


LINKS = tuple(Link)
_DEVICE, _LAUNCH, _GAP, _RETURN, _HOST, _UNKNOWN = range(len(LINKS))
_LINK_OF = {
    Edge.HOST: _HOST, Edge.WORK: _DEVICE, Edge.LAUNCH: _LAUNCH, Edge.STREAM: _GAP, Edge.EVENT: _GAP,
    Edge.SHARED: _GAP, Edge.SYNC: _RETURN, Edge.COPY: _RETURN, Edge.FREE: _RETURN, Edge.QUEUE: _RETURN,
    Edge.HAND_OVER: _HOST, Edge.BACKWARD: _HOST, Edge.RANKS: _GAP,
}  # fmt: skip
_LINK = np.array([_LINK_OF[each] for each in Edge], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Chain:
    """The path in order of time: place in LINKS, interval and, of device work, its row among the activities (or -1).

    No piece is empty; they lie end to end.
    """

    links: Ints
    start_ns: Ints
    end_ns: Ints
    rows: Ints


def recorded_replay(view: TraceView) -> Replay:
    """The `fitted_replay` of the trace's graph."""
    return fitted_replay(view.once(task_graph))


def replay_of_each(view: TraceView) -> Replay:
    """The same with ranks side by side: what a collective waits for on others is time of the collective."""
    graph = view.once(task_graph)
    alone = graph.without([Edge.RANKS])
    return view.once(recorded_replay) if alone is graph else fitted_replay(alone)


def chain(view: TraceView, run: int) -> Chain:
    """The run's path, from the begin of its first step on."""
    replayed = view.once(replay_of_each)
    graph = replayed.graph
    edges = path_edges(replayed, run)
    begin = int(graph.time_ns[graph.steps.filter(pl.col("run_id") == run)["node"].to_numpy()].min())
    start, end = graph.time_ns[graph.source[edges]], graph.time_ns[graph.target[edges]]
    links = _LINK[graph.kind[edges]]
    rows = np.where(links == _DEVICE, graph.work_of_edge[edges], -1)
    waits = np.flatnonzero((links == _DEVICE) & (rows < 0))  # in a collective, before its work
    rows[waits] = rows[waits + 1]
    if len(edges) and start[0] > begin:  # from what nothing known leads to
        first = _UNKNOWN if rows[0] >= 0 or links[0] == _GAP else _HOST
        links, rows = np.append(first, links), np.append(-1, rows)
        start, end = np.append(begin, start), np.append(start[:1], end)
    cut = _with_call_ends(replayed, links, start, end, np.append(rows[1:], -1))
    return _end_to_end(*cut, rows, begin, int(graph.time_ns[graph.ends[run]]))


def _with_call_ends(replayed: Replay, links: Ints, start: Ints, end: Ints, following: Ints) -> tuple[Ints, Ints, Ints]:
    """The pieces, and where each that leads from a call to its work leaves the call: until then the host was in it."""
    returned = replayed.graph.work["call_end_ns"].fill_null(0).to_numpy()
    inside = np.where((links == _LAUNCH) & (following >= 0), returned[following] if len(returned) else 0, start)
    return links, start, np.clip(inside, start, np.maximum(start, end))


def _end_to_end(links: Ints, start: Ints, inside: Ints, rows: Ints, begin: int, last: int) -> Chain:
    """The pieces put end to end: where one begins after the next (clocks differ) the later one is cut."""
    launch = links == _LAUNCH
    number = np.repeat(np.arange(len(links)), 1 + launch)
    second = np.append(False, number[1:] == number[:-1])
    at = np.where(second, inside[number], start[number])
    link = np.where(launch[number] & ~second, _HOST, links[number])
    at = np.minimum.accumulate(np.append(at, last)[::-1])[::-1].clip(begin)
    starts, ends, row = at[:-1], at[1:], rows[number]
    kept = ends > starts
    link, starts, ends, row = link[kept], starts[kept], ends[kept], row[kept]
    goes_on = np.append(False, (link[1:] == _HOST) & (link[:-1] == _HOST))
    first = np.flatnonzero(~goes_on[: len(link)])
    last_of = np.append(first[1:], len(link)) - 1
    return Chain(link[first], starts[first], ends[last_of], row[first])


def slack(view: TraceView) -> pl.DataFrame:
    """Of each device activity (span_id) `slack_ns`: how much later it could end without any job ending later.

    Null: nothing waits for it.
    """
    replayed = view.once(recorded_replay)
    graph = replayed.graph
    has_edge = np.flatnonzero(graph.work_edge >= 0)
    later = np.min([replayed.backwards(run)[0] for run in graph.ends], axis=0) if graph.ends else graph.time_ns
    late = pl.Series("slack_ns", later[graph.target[graph.work_edge[has_edge]]])
    ids = graph.work["span_id"].gather(has_edge)
    return pl.DataFrame([ids, late]).with_columns(pl.when(pl.col("slack_ns") < NEVER // 2).then("slack_ns"))
