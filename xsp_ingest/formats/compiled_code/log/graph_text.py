"""Modules of the nodes of a traced graph, from its printed form: by the paths of the parameters that they read."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["modules_of_nodes", "nodes_with_work"]

_NODE = re.compile(r"^\s+(\w+)(?::\s*\"[^\"]*\")? = (.*)$")
_PARAMETER = re.compile(r"\bl_\w+?_modules_(\w+?)_(?:parameters|buffers)_\w*?_(?!\w)")
_SOURCE = re.compile(r"^\s+# File: (\S+:\d+)")
_OPERATOR = re.compile(r"torch\.ops\.\w+\.(\w+)\.\w+\(")
_VIEWS = frozenset(
    """alias as_strided detach expand permute reshape select slice split split_with_sizes squeeze t transpose unbind
    unsqueeze view _unsafe_view""".split()  # noqa: SIM905 (as a list it is a page long)
)
_Path = tuple[str, ...]


def modules_of_nodes(text: str) -> dict[str, str]:
    """By node the path of its module, as far as it is known.

    A node that reads no parameter, but stands between two that do in one line of the source, is of the innermost
    module that both are in.
    """
    out: dict[str, str] = {}
    for line in _by_source(text):
        paths = [_common([_path(written) for written in _PARAMETER.findall(expression)]) for _, expression in line]
        for index, (node, _) in enumerate(line):
            before = next((path for path in reversed(paths[:index]) if path), None)
            behind = next((path for path in paths[index + 1 :] if path), None)
            path = paths[index] or (_common([before, behind]) if before and behind else ())
            if path:
                out[node] = ".".join(path)
    return out


def _by_source(text: str) -> list[list[tuple[str, str]]]:
    """The nodes with their expressions, those of one line of the source together."""
    groups: list[list[tuple[str, str]]] = [[]]
    source = ""
    for line in text.splitlines():
        if match := _SOURCE.match(line):
            if match[1] != source:
                groups.append([])
            source = match[1]
        elif (match := _NODE.match(line)) and source:
            groups[-1].append((match[1], match[2].partition(";")[0]))
    return groups


def _path(written: str) -> _Path:
    """`layers`, `0`, `norm` of `layers_modules_0_modules_norm`."""
    return tuple(written.split("_modules_"))


def _common(paths: Sequence[_Path]) -> _Path:
    return tuple(parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False)))


def nodes_with_work(text: str) -> dict[str, str]:
    """By node of a graph after the last pass its operator, without those that only see memory otherwise."""
    nodes = (match for line in text.splitlines() if (match := _NODE.match(line)))
    operators = ((node[1], operator[1]) for node in nodes if (operator := _OPERATOR.match(node[2])))
    return {node: operator for node, operator in operators if operator not in _VIEWS}
