"""The icicle of the module tree: device time of every module, those called in it below."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xsp_analyze.pages import blocks
from xsp_analyze.pages.report.module_rows import module_rows
from xsp_analyze.pages.report.time_tree import TimeTree, prune

if TYPE_CHECKING:
    from xsp_analyze.core import Result
    from xsp_analyze.pages.blocks import Block

__all__ = ["module_icicle", "module_tree"]

_MAX_NODES = 3000


def module_icicle(result: Result) -> list[Block]:
    """The icicle as a block; nothing where no module has device time."""
    tree = module_tree(result)
    if not tree.time_ns[0]:
        return []
    texts = {"counted": ["call", "calls"], "root": "Device time of all modules."}
    return [{**blocks.icicle(prune(tree, _MAX_NODES)), **texts}]


def module_tree(result: Result) -> TimeTree:
    """B06 as a tree: node 0 is all modules, then every module, parents first; times in whole ns.

    A module counts at least what those in it do: phases are matched apart, and may leave a parent behind by rounding.
    """
    rows = module_rows(result.table)
    depths = [0, *(d + 1 for d in rows["depth"].to_list())]
    parent = _parents(depths)
    time = [0, *(round(v or 0) for v in rows["device_sum_ns"].to_list())]
    count = [0, *(round(v or 0) for v in rows["count"].to_list())]
    below = [0] * len(parent)
    for node in range(len(parent) - 1, 0, -1):  # children stand after their parent
        time[node] = max(time[node], below[node])
        below[parent[node]] += time[node]
    time[0] = below[0]
    names = ["all modules", *rows["module"].to_list()]
    kinds = ["all", *(["layer"] * rows.height)]
    return TimeTree(np.array(parent), names, kinds, np.array(time), np.array(count))


def _parents(depths: list[int]) -> list[int]:
    """The parent of each node of a depth-first list, -1 for the first."""
    parents: list[int] = []
    path: list[int] = []
    for node, depth in enumerate(depths):
        del path[depth:]
        parents.append(path[-1] if path else -1)
        path.append(node)
    return parents
