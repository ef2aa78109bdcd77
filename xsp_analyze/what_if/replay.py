"""A graph of tasks replayed: when each is reached by given times, the path to the end, and what could be later."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.machine.paths import latest_times, longest_paths

if TYPE_CHECKING:
    from xsp_analyze.what_if.graph import TaskGraph
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = ["NEVER", "Replay", "fit", "fitted_replay", "path_edges", "replay"]

NEVER = np.iinfo(np.int64).max // 2


@dataclass(frozen=True)
class Replay:
    """When each node is reached, and which edge it waits for (-1: none leads to it)."""

    graph: TaskGraph
    weight: Ints
    time_ns: Ints
    binding: Positions

    @cached_property
    def periods(self) -> pl.DataFrame:
        """run_id, step, period_ns: from each step's begin to the next one's; of a run's last to the end of its job."""
        steps = self.graph.steps
        begin = self.time_ns[steps["node"].to_numpy()]
        run = steps["run_id"].to_numpy()
        until = np.append(begin[1:], 0)
        last = np.append(run[1:] != run[:-1], True) if len(run) else np.empty(0, dtype=np.bool_)
        until[last] = self.time_ns[[self.graph.ends[int(each)] for each in run[last]]]
        return steps.select("run_id", "step", period_ns=pl.Series(until - begin, dtype=pl.Int64))

    def backwards(self, run: int) -> tuple[Ints, Bools]:
        """Of each node how much later it could be without the run's job ending later, and whether it is on its path."""
        end = self.graph.ends[run]
        latest = np.full(len(self.time_ns), NEVER, dtype=np.int64)
        latest[end] = self.time_ns[end]
        on_path = np.zeros(len(latest), dtype=np.uint8)
        graph = self.graph
        latest_times.into((latest, on_path), graph.first, graph.source, self.weight, self.binding, end)
        return latest - self.time_ns, on_path.astype(np.bool_)


def replay(graph: TaskGraph, weight: Ints) -> Replay:
    """When each node is reached where edges take so long; what waits for nothing known is reached when it was."""
    time, binding = graph.time_ns.copy(), np.full(len(graph.time_ns), -1, dtype=np.int32)
    longest_paths.into((time, binding), graph.first, graph.source, np.ascontiguousarray(weight))
    return Replay(graph, weight, time, binding)


def fit(graph: TaskGraph) -> Ints:
    """Weights with which the replay is what was recorded, to the ns.

    No edge takes longer than from its source to its target; what is left of a node's time is of the edge that binds.
    """
    target = graph.target
    apart = graph.time_ns[target] - graph.time_ns[graph.source]
    weight: Ints = np.minimum(graph.weight, apart)
    left = apart - weight
    has_edges = np.flatnonzero(np.diff(graph.first))
    if len(has_edges):
        smallest = np.minimum.reduceat(left, graph.first[has_edges])
        is_smallest = left == np.repeat(smallest, np.diff(graph.first)[has_edges])
        at = np.flatnonzero(is_smallest)
        first = at[np.concatenate(([0], np.flatnonzero(np.diff(target[at])) + 1))]
        weight[first] += left[first]
    return weight


def fitted_replay(graph: TaskGraph) -> Replay:
    """The replay that is what was recorded, with what bound each node."""
    return replay(graph, fit(graph))


def path_edges(replayed: Replay, run: int) -> Positions:
    """The edges of the path to the end of the run's job, in order."""
    _, on_path = replayed.backwards(run)
    edges = replayed.binding[np.flatnonzero(on_path)]
    return edges[edges >= 0]
