"""Longest paths through a graph whose edges lie by target: order of nodes, when each is reached, how late it may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_ingest.machine.functions import NUMBER, CompiledFunction
from xsp_ingest.machine.sweep import dual

if TYPE_CHECKING:
    from xsp_model.columns.arrays import Ints

__all__ = ["LATEST_TIMES", "LONGEST_PATHS", "NODE_ORDER", "latest_times", "longest_paths", "node_order"]

NODE_ORDER = CompiledFunction(
    "node_order", "node_order", ("int64", "int32", "int32", "int32", "int32", "int32"), (__name__,)
)
LONGEST_PATHS = CompiledFunction(
    "longest_paths", "longest_paths", ("int64", "int32", "int64", "int64", "int32"), (__name__,)
)
LATEST_TIMES = CompiledFunction(
    "latest_times", "latest_times", ("int64", "int32", "int64", "int32", NUMBER, "int64", "uint8"), (__name__,)
)


@dual(NODE_ORDER)
def node_order(first: Ints, target: Ints, by_time: Ints, missing: Ints, order: Ints, placed: Ints) -> None:
    """Nodes so that each stands behind those that it waits for; of a circle the first `by_time` goes on regardless.

    `target[first[u] : first[u + 1]]` are the nodes that wait for u, `missing` how many each waits for. `placed` is the
    place of each node in `order`, and comes filled with -1.
    """
    count = 0
    done = 0
    for i in range(len(by_time)):
        if placed[by_time[i]] < 0 and missing[by_time[i]] == 0:
            placed[by_time[i]] = count
            order[count] = by_time[i]
            count += 1
    seen = 0
    while count < len(by_time) or done < count:
        if done == count:
            while placed[by_time[seen]] >= 0:
                seen += 1
            placed[by_time[seen]] = count
            order[count] = by_time[seen]
            count += 1
        node = order[done]
        done += 1
        for e in range(first[node], first[node + 1]):
            missing[target[e]] -= 1
            if missing[target[e]] == 0 and placed[target[e]] < 0:
                placed[target[e]] = count
                order[count] = target[e]
                count += 1


@dual(LONGEST_PATHS)
def longest_paths(first: Ints, source: Ints, weight: Ints, time: Ints, binding: Ints) -> None:
    """When each node is reached: edges `first[v]` to `first[v + 1]` lead to node v, from nodes that stand before it.

    `time` comes with what holds for nodes to which none leads; `binding` is the edge that each waits for, or -1. Of
    several that bind the first stays.
    """
    for v in range(len(first) - 1):
        for e in range(first[v], first[v + 1]):
            reached = time[source[e]] + weight[e]
            if binding[v] < 0 or reached > time[v]:
                time[v] = reached
                binding[v] = e


@dual(LATEST_TIMES)
def latest_times(
    first: Ints, source: Ints, weight: Ints, binding: Ints, last: int, latest: Ints, on_path: Ints
) -> None:
    """The latest that each node may be reached without what `latest` comes with being later; and the path to `last`.

    `latest` comes with the time of nodes that may not be later, and of others with one that is never reached.
    """
    on_path[last] = 1
    for back in range(len(first) - 1):
        v = len(first) - 2 - back
        for e in range(first[v], first[v + 1]):
            allowed = latest[v] - weight[e]
            latest[source[e]] = min(latest[source[e]], allowed)
        if on_path[v] != 0 and binding[v] >= 0:
            on_path[source[binding[v]]] = 1
