"""A trace as a graph: begins and ends of calls, steps and device work, with what waited for what and for how long."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.group_ids import first_rows, run_starts
from xsp_analyze.frames.steps import StepBasis
from xsp_analyze.what_if.threads import Points, hand_overs, host_bounds, host_stretches, host_threads
from xsp_analyze.what_if.waits import (
    DeviceWork,
    Edge,
    awaited_work,
    meetings,
    node_calls,
    typical_ns,
    typical_return_ns,
)
from xsp_ingest.machine.paths import node_order
from xsp_model import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_analyze.what_if.threads import HandOvers, HostThreads, Stretches
    from xsp_analyze.what_if.waits import Meetings
    from xsp_model.columns.arrays import Ints, Positions

__all__ = ["GUESSED", "TaskGraph", "task_graph"]

GUESSED = (Edge.EVENT, Edge.SHARED, Edge.QUEUE, Edge.HAND_OVER)
"""Edges that no trace records: they are concluded from what followed on what."""


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """Nodes stand so that each is behind what it waits for; edges `first[v]` to `first[v + 1]` lead to node v.

    `time_ns` is when each was reached, `weight` what an edge takes by the law: when nothing else is waited for. `host`
    are stretches of threads, `host_edge` the edge that each lies on (-1: on none); `work` the device activities,
    `work_edge` theirs, to their end: from their begin (`work_begin`, a node), of a collective from where all ranks have
    come. `run` is whose each node is. `steps` has run_id, step and `node`, its begin; `ends` is of each run the node
    with which its job ends.
    """

    time_ns: Ints
    first: Ints
    source: Positions
    weight: Ints
    kind: Positions
    threads: HostThreads
    host: Stretches
    host_edge: Ints
    work: pl.DataFrame
    work_edge: Ints
    work_begin: Ints
    run: Ints
    steps: pl.DataFrame
    ends: Mapping[int, int]

    @property
    def target(self) -> Ints:
        """The node that each edge leads to."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))

    @property
    def work_of_edge(self) -> Ints:
        """The device activity that each edge lasts for, -1: for none."""
        work_of = np.full(len(self.source), -1)
        has_edge = np.flatnonzero(self.work_edge >= 0)
        work_of[self.work_edge[has_edge]] = has_edge
        return work_of

    def without(self, kinds: Sequence[Edge]) -> TaskGraph:
        """The same without edges of these kinds: what was waited for then counts as time of the host or device."""
        kept = ~np.isin(self.kind, kinds)
        if kept.all():
            return self
        total = np.concatenate(([0], np.cumsum(kept)))
        host, work = (np.where((edge >= 0) & kept[edge], total[edge], -1) for edge in (self.host_edge, self.work_edge))
        source, weight, kind = self.source[kept], self.weight[kept], self.kind[kept]
        return replace(
            self, first=total[self.first], source=source, weight=weight, kind=kind, host_edge=host, work_edge=work
        )


@dataclass(frozen=True, slots=True)
class _Edges:
    """Edges with their weights by the law, in any order."""

    source: Positions
    target: Positions
    weight: Ints
    kind: Positions

    @classmethod
    def of(cls, source: Ints, target: Ints, weight: Ints | int, kind: Edge | Ints) -> _Edges:
        weights, kinds = np.asarray(weight, dtype=np.int64), np.asarray(kind, dtype=np.int8)
        return cls(
            source.astype(np.int32),
            target.astype(np.int32),
            np.broadcast_to(weights, len(source)),
            np.broadcast_to(kinds, len(source)),
        )

    @classmethod
    def concat(cls, parts: Sequence[_Edges]) -> _Edges:
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))


def task_graph(view: TraceView) -> TaskGraph:
    """The graph of the runs that kernels are taken from: what waits for what is decided here, for all who ask."""
    threads = host_threads(view)
    calls = node_calls(view, threads)
    work = DeviceWork(view.all_activities, calls)
    handed = hand_overs(threads, host_stretches(threads))
    nodes = _Nodes(threads, calls, _steps(view), handed, work, meetings(view, work))
    along = np.flatnonzero(nodes.points.thread[1:] == nodes.points.thread[:-1])
    goes_on = nodes.work_begins.copy()
    goes_on[nodes.met.work] = nodes.all_there
    ends, last_times = _run_ends(nodes, work)
    waits, law = _waits(nodes, work, along)
    parts = [  # of edges that bind alike the first counts: a wait rather than the host
        _Edges.of(goes_on, nodes.work_ends, work.end - nodes.goes_on_ns, Edge.WORK),
        *_rank_edges(nodes),
        waits,
        *_between_work(view, threads, nodes, work),
        _launch_edges(nodes, work),
        _hand_over_edges(nodes),
        ends,
        _Edges.of(along, along + 1, law, Edge.HOST),
    ]
    edges = _Edges.concat(parts)
    del parts, waits  # half of what there is at the most
    return _in_order(nodes, work, edges, len(along), last_times)


def _steps(view: TraceView) -> pl.DataFrame:
    """run_id, step, start_ns, end_ns (of the range on the host); of runs without steps one from end to end."""
    end = (pl.col("start_ns") + pl.col("host_ns")).alias("end_ns")
    steps = view.all_steps.filter(pl.col("basis") != str(StepBasis.TIMED)).select("run_id", "step", "start_ns", end)
    rest = view.extents.join(steps, on="run_id", how="anti").rename({"begin_ns": "start_ns"})
    rest = rest.select("run_id", pl.lit(None, pl.Int64).alias("step"), "start_ns", "end_ns")
    return view.kernel_runs.of(pl.concat([steps, rest])).sort("run_id", "start_ns")


class _Nodes:
    """Numbers nodes: points of threads, by thread and time, then begins and ends of device work, then ends of runs.

    Then, of collectives of ranks, where each rank goes on, and one node a call.
    """

    def __init__(
        self,
        threads: HostThreads,
        calls: pl.DataFrame,
        steps: pl.DataFrame,
        handed: HandOvers,
        work: DeviceWork,
        met: Meetings,
    ) -> None:
        self.threads, self.calls, self.handed = threads, calls, handed
        self.main = _main_threads(threads, calls)
        self.steps = steps.filter(pl.col("run_id").is_in(list(self.main)))
        main = np.array([self.main[run] for run in self.steps["run_id"]], dtype=np.int64)
        of_calls, begin, end = (calls[c].to_numpy() for c in ("thread", "start_ns", "end_ns"))
        every, first, last = host_bounds(threads)
        columns = (
            (of_calls, begin, np.where(end > begin, 2, 1)), (of_calls, end, np.where(end > begin, 0, 1)),
            (main, self.steps["start_ns"].to_numpy(), 1), (main, self.steps["end_ns"].to_numpy(), 1),
            (handed.thread, handed.since, 1), (handed.thread, handed.wake, 1), (handed.giver, handed.ended, 1),
            (every, first, 0), (every, last, 3),
        )  # fmt: skip
        thread, time = (np.concatenate([column[i] for column in columns]) for i in (0, 1))
        tie = np.concatenate([np.broadcast_to(np.asarray(column[2]), len(column[0])) for column in columns])
        order = np.lexsort((tie, time, thread))
        position = np.empty(len(order), dtype=np.int64)
        position[order] = np.arange(len(order))
        parts = np.split(position, np.cumsum([len(column[0]) for column in columns])[:-1])
        self.begins, self.returns, self.step_begins, self.step_ends, _, self.wakes, self.givers, heads = parts[:8]
        head = np.searchsorted(every, handed.thread)
        self.wakes = np.where(handed.wake == first[head], heads[head], self.wakes)  # a head waits for nothing else
        self.points = Points(thread[order], time[order])
        self.work_begins = np.arange(len(order), len(order) + len(work.start))
        self.work_ends = self.work_begins + len(work.start)
        self.count = len(order) + 2 * len(work.start)
        self.met, self.runs = met, self.steps["run_id"].unique(maintain_order=True)
        self.all_there = self.count + len(self.runs) + np.arange(len(met.work))
        self.meeting = self.count + len(self.runs) + len(met.work) + met.call
        self.goes_on_ns = work.start.copy()
        self.goes_on_ns[met.work] = met.all_there_ns
        first = first_rows(met.call, int(met.call.max(initial=-1)) + 1)
        run_of_thread, run_of_work = threads.keys["run_id"].to_numpy(), work.frame["run_id"].to_numpy()
        run = [run_of_thread[self.points.thread], run_of_work, run_of_work, self.runs.to_numpy()]
        self.run = np.concatenate([*run, run_of_work[met.work], run_of_work[met.work][first]])
        self.meeting_ns = met.all_there_ns[first]


def _main_threads(threads: HostThreads, calls: pl.DataFrame) -> dict[int, int]:
    """Of each run the thread that its steps are ranges of.

    Without steps it is the one whose launch or wait ends last, as it may wait for what others launched (a forward pass
    for its backward pass); else the one with most launches, or most spans.
    """
    launches = np.bincount(calls.filter("launches")["thread"].to_numpy(), minlength=threads.keys.height)
    spans = threads.spans.select("run_id", pl.col("kind") == str(Kind.STEP), thread=pl.Series(threads.thread))
    counts = spans.group_by("run_id", "thread").agg(pl.col("kind").sum().alias("steps"), pl.len())
    last = calls.group_by("thread").agg(pl.col("end_ns").max().alias("last_ns"))
    ranked = counts.with_columns(launches=pl.Series(launches).gather(counts["thread"])).join(
        last.cast({"thread": counts.schema["thread"]}), on="thread", how="left"
    )
    ranked = ranked.with_columns(pl.when(pl.col("steps") == 0).then("last_ns").fill_null(0).alias("last_ns"))
    by = ("run_id", "steps", "last_ns", "launches", "len", "thread")
    best = ranked.sort(by, descending=[False, True, True, True, True, False]).unique("run_id", keep="first")
    return dict(best.select("run_id", "thread").iter_rows())


def _waits(nodes: _Nodes, work: DeviceWork, along: Ints) -> tuple[_Edges, Ints]:
    """What calls wait for, and what the host takes from point to point: in a call that waited what others take."""
    points, calls = nodes.points, nodes.calls
    awaited = awaited_work(work)
    has_waited = np.zeros(calls.height, dtype=np.bool_)
    has_waited[awaited.call[work.end[awaited.work] > calls["start_ns"].to_numpy()[awaited.call]]] = True
    law = points.time[along + 1] - points.time[along]
    into = np.full(len(points.time), -1)
    into[along + 1] = np.arange(len(along))
    at = into[nodes.returns[has_waited]]
    typical = typical_ns(calls, has_waited)[has_waited]
    law[at[at >= 0]] = np.minimum(law[at[at >= 0]], typical[at >= 0])
    woken = into[nodes.wakes]
    law[woken[woken >= 0]] = 0
    rest = typical_return_ns(calls, awaited, work)
    return _Edges.of(nodes.work_ends[awaited.work], nodes.returns[awaited.call], rest, awaited.kind), law


def _launch_edges(nodes: _Nodes, work: DeviceWork) -> _Edges:
    """From the begin of a launch; from the end of one that was loading first, which is time of the host."""
    rows = work.with_call
    begin, end = (nodes.calls[c].to_numpy()[work.call[rows]] for c in ("start_ns", "end_ns"))
    behind = work.has_loaded[rows] & (work.start[rows] >= end)
    source = np.where(behind, nodes.returns[work.call[rows]], nodes.begins[work.call[rows]])
    latency = work.latency_ns[rows] - np.where(behind, end - begin, 0)
    return _Edges.of(source, nodes.work_begins[rows], latency, Edge.LAUNCH)


def _between_work(view: TraceView, threads: HostThreads, nodes: _Nodes, work: DeviceWork) -> list[_Edges]:
    recorded = work.behind_events(view, threads)
    behind = [*work.on_stream, recorded, work.behind_others(recorded)]
    return [
        _Edges.of(
            (nodes.work_ends if each.from_end else nodes.work_begins)[each.before],
            nodes.work_begins[each.after], each.weight, each.kind,
        )
        for each in behind
    ]  # fmt: skip


def _rank_edges(nodes: _Nodes) -> list[_Edges]:
    """From each rank's begin of a collective to the call, from that to where each goes on; clocks taken for one."""
    met = nodes.met
    begins = nodes.work_begins[met.work]
    return [
        _Edges.of(nodes.meeting, nodes.all_there, met.ahead_ns, Edge.RANKS),
        _Edges.of(begins, nodes.meeting, -met.ahead_ns, Edge.RANKS),
        _Edges.of(begins, nodes.all_there, 0, Edge.WORK),
    ]


def _hand_over_edges(nodes: _Nodes) -> _Edges:
    """From the last work of one thread to the wake of another."""
    handed = nodes.handed
    kind = np.where(handed.is_backward, Edge.BACKWARD, Edge.HAND_OVER)
    return _Edges.of(nodes.givers, nodes.wakes, handed.wake - handed.ended, kind)


def _run_ends(nodes: _Nodes, work: DeviceWork) -> tuple[_Edges, Ints]:
    """The job of a run ends with its last step, and with the last work of every stream that was launched in a step."""
    run_of, in_step = work.frame["run_id"].to_numpy(), work.frame["step"].is_not_null().to_numpy()
    parts, times = [], []
    for i, run in enumerate(nodes.runs):
        rows = np.flatnonzero((nodes.steps["run_id"] == run).to_numpy())
        has_no_steps = nodes.steps["step"][int(rows[0])] is None
        mine = work.order[(run_of[work.order] == run) & (in_step[work.order] | has_no_steps)]
        both = (mine, mine[work.communicates[mine]])  # the second binds where nothing waits for communication
        last = np.concatenate([_last_of_streams(work, each) for each in both])
        last_nodes = np.append(nodes.work_ends[last], nodes.step_ends[rows[-1]])
        parts.append(_Edges.of(last_nodes, np.full(len(last_nodes), nodes.count + i), 0, Edge.HOST))
        times.append(max([int(nodes.points.time[nodes.step_ends[rows[-1]]]), *work.end[last].tolist()]))
    nothing = np.empty(0, dtype=np.int64)
    return _Edges.concat(parts) if parts else _Edges.of(nothing, nothing, 0, Edge.HOST), np.array(times, dtype=np.int64)


def _last_of_streams(work: DeviceWork, rows: Ints) -> Ints:
    """Of these rows the one of each stream that ends last."""
    ordered = rows[np.lexsort((work.end[rows], work.stream[rows]))]
    first = run_starts(work.stream[ordered])
    return ordered[np.append(first[1:], len(ordered)) - 1] if len(ordered) else ordered


def _in_order(nodes: _Nodes, work: DeviceWork, edges: _Edges, along: int, last_times: Ints) -> TaskGraph:
    """Nodes renumbered so that edges go forward, and edges by target; those that close a circle are left out."""
    time = np.concatenate(
        (nodes.points.time, work.start, work.end, last_times, nodes.met.all_there_ns, nodes.meeting_ns)
    )
    count = len(time)
    by_source = np.argsort(edges.source, kind="stable")
    order, number = np.empty(count, dtype=np.int32), np.full(count, -1, dtype=np.int32)
    left = np.bincount(edges.target, minlength=count).astype(np.int32)
    node_order.into(
        (left, order, number),
        np.searchsorted(edges.source[by_source], np.arange(count + 1)),
        edges.target[by_source].astype(np.int32),
        np.argsort(time, kind="stable").astype(np.int32),
    )
    source, target = number[edges.source], number[edges.target]
    by_target = np.argsort(target, kind="stable")
    by_target = by_target[source[by_target] < target[by_target]]
    position = np.full(len(source), -1)
    position[by_target] = np.arange(len(by_target))
    into = np.full(len(nodes.points.time) + 1, -1)
    into[edges.target[len(edges.target) - along :]] = position[len(position) - along :]
    stretches = host_stretches(nodes.threads, nodes.points)
    return TaskGraph(
        time[order],
        np.searchsorted(target[by_target], np.arange(count + 1)),
        source[by_target],
        edges.weight[by_target],
        edges.kind[by_target],
        nodes.threads,
        stretches,
        into[stretches.point],
        work.frame,
        position[: len(work.start)],
        number[nodes.work_begins].astype(np.int64),
        nodes.run[order],
        nodes.steps.with_columns(node=pl.Series(number[nodes.step_begins], dtype=pl.Int64)),
        {run: int(number[nodes.count + i]) for i, run in enumerate(nodes.runs)},
    )
