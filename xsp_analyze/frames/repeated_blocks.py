"""Blocks of layers that a model has several times: equal by types, shapes and order, whatever they are called."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.block_names import bare, below, block_name, pattern, scopes_of
from xsp_analyze.frames.layer_time import LAYER_KEY
from xsp_analyze.frames.layer_tree import LayerTree
from xsp_analyze.frames.tandem_repeats import repeats_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["BLOCK_KEY", "block_sentences", "repeated_blocks"]

BLOCK_KEY = ("block_index", "position")
"""What tells the rows of a folded table apart."""

_OFTEN = (None, None, None, 2, 1)
"""By the number of repetitions (the last: or more) the rows that a block has at least; None: it is none."""
_TWICE = (None, None, 4)
"""Likewise, for what has no such block in it."""

_SCHEMA = {
    "block_index": pl.Int64,
    "block": pl.String,
    "repetition": pl.Int64,
    "position": pl.Int64,
    "position_name": pl.String,
    "position_type": pl.String,
    "node": pl.Int64,
}

_Block = list[list[int]]  # for each repetition its outermost nodes


def repeated_blocks(frames: TraceView) -> pl.DataFrame:
    """One row a layer in a block: block_index, block, repetition, position, position_name, position_type, LAYER_KEY.

    In order of blocks, then repetitions, then positions, all from 0. Blocks stand side by side under one layer (or
    outside all), do not overlap, and are the outermost: what repeats within one is not folded again. A layer that is
    called in several places is in no block, as it is one row already.
    """
    tree = LayerTree(frames)
    blocks = sorted(_blocks(tree), key=lambda block: block[0][0])
    rows = [row for index, block in enumerate(blocks) for row in _rows(tree, index, block)]
    members = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    layers = tree.nodes.select(LAYER_KEY)[members["node"]]
    return members.drop("node").hstack(layers).sort("block_index", "repetition", "position")


def block_sentences(members: pl.DataFrame) -> list[str]:
    """A clause a block of several layers, the largest first: `24 x layers.{0..23}, 9 layers each`."""
    counts = (pl.col("block").first(), pl.col("repetition").n_unique(), pl.col("position").n_unique(), pl.len())
    blocks = members.group_by("block_index", maintain_order=True).agg(*counts).filter(pl.col("position") > 1)
    blocks = blocks.sort("len", "block_index", descending=[True, False])
    return [f"{n} x {name}, {each:,} layers each" for name, n, each in blocks.drop("block_index", "len").iter_rows()]


def _blocks(tree: LayerTree) -> Iterator[_Block]:
    """The blocks that come often, and of the layers that are in none of these and hold none those that come twice."""
    often = list(_blocks_of(tree, tree.structure, _OFTEN))
    yield from often
    apart = list(tree.structure)  # what has a block in it, or is part of one, is equal to nothing
    unique = -1
    for block in often:
        for node in (n for repetition in block for n in repetition):
            at = node
            while at >= 0 and apart[at] >= 0:
                apart[at], unique = unique, unique - 1
                at = tree.around[at]
    covered = {node for block in often for repetition in block for node in repetition}
    yield from _blocks_of(tree, apart, _TWICE, covered)


def _blocks_of(
    tree: LayerTree,
    structure: Sequence[int],
    min_rows: Sequence[int | None],
    covered: frozenset[int] | set[int] = frozenset(),
) -> Iterator[_Block]:
    waiting = list(tree.roots)
    while waiting:
        siblings = waiting.pop()
        free = set(siblings) - covered
        rows = [tree.listed[node] for node in siblings]
        for repeat in repeats_in([structure[node] for node in siblings], rows, min_rows):
            block = [
                siblings[start : start + repeat.period] for start in range(repeat.start, repeat.end, repeat.period)
            ]
            free.difference_update(*block)
            yield block
        waiting.extend(tree.below[node] for node in siblings if node in free and tree.below[node])


def _rows(tree: LayerTree, index: int, block: _Block) -> Iterator[tuple[object, ...]]:
    """A row a layer of the block, as _SCHEMA; positions in order of first own operator in the first repetition."""
    members = [[node for root in roots for node in tree.subtree(root)] for roots in block]
    listed = [at for at, node in enumerate(members[0]) if tree.is_listed[node]]
    listed.sort(key=lambda at: tree.layer_index[members[0][at]])
    roots = [[tree.names[node] for node in nodes] for nodes in block]
    name = block_name(roots, tree.types[block[0][0]])
    called = _names_within_block(tree, members, scopes_of(roots), len(block[0]))
    positions = _with_counts([called[at] for at in listed])
    types = [pattern([tree.types[nodes[at]] for nodes in members]) for at in listed]
    for repetition, nodes in enumerate(members):
        for position, at in enumerate(listed):
            yield index, name, repetition, position, positions[position], types[position], nodes[at]


def _names_within_block(
    tree: LayerTree, members: Sequence[Sequence[int]], scopes: Sequence[str], root_count: int
) -> list[str]:
    """Each node of the first repetition by the names from the block down to it, without their numbers.

    A block of one outermost layer is not named in what is below it.
    """
    called: dict[int, str] = {}
    for nodes in zip(*members, strict=True):
        outer = called.get(tree.around[nodes[0]])
        inside = outer is not None
        outside = [tree.names[tree.around[node]] for node in nodes] if inside else scopes
        own = [bare(below(tree.names[node], of)) for node, of in zip(nodes, outside, strict=True)]
        piece = pattern(own, tree.types[nodes[0]])
        is_named = inside and (root_count > 1 or tree.around[nodes[0]] != members[0][0])
        called[nodes[0]] = f"{outer}.{piece}" if is_named else piece
    return [called[node] for node in members[0]]


def _with_counts(texts: Sequence[str]) -> list[str]:
    """Those that occur several times with their number."""
    totals, seen = Counter(texts), Counter[str]()
    numbered = []
    for text in texts:
        seen[text] += 1
        numbered.append(f"{text}#{seen[text]}" if totals[text] > 1 else text)
    return numbered
