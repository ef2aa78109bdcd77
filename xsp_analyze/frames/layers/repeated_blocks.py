"""Blocks of layers that a model has several times: equal by types, shapes and order, whatever they are called."""

from __future__ import annotations

import heapq
import re
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.formulas import known_sum
from xsp_analyze.frames.group_ids import group_ids, numbers_by_appearance
from xsp_analyze.frames.kernels.activities import column_at
from xsp_analyze.frames.layers.layer_time import LAYER_KEY
from xsp_model.columns.tree import innermost

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.columns.arrays import Ints

__all__ = [
    "LABELS_AS_TEXT",
    "LayerTree",
    "Repeat",
    "bare",
    "below",
    "block_name",
    "block_sentences",
    "pattern",
    "repeated_blocks",
    "repeats_in",
    "scopes_of",
    "with_equal_folded",
    "without_numbers",
]

# Where a sequence says the same thing several times in a row.

_MAX_TRIED = 256  # every period up to it is tried; longer ones where equal stretches stand at that distance
_PERIODS_A_LENGTH = 16  # of longer ones, for each length of stretch the distances that occur most


@dataclass(frozen=True, slots=True)
class Repeat:
    """`count` equal stretches of `period` items each, side by side, from `start` on."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        """Behind the last item."""
        return self.start + self.period * self.count


def repeats_in(items: Sequence[int], rows: Sequence[int], min_rows: Sequence[int | None]) -> list[Repeat]:
    """Repeats of equal items, none of which overlap, in order.

    `rows[i]` is what item i counts for (equal items count the same). A repeat of n stretches is taken where a stretch
    has at least `min_rows[n]` rows (the last entry is for all higher counts; None: never). Of several that overlap the
    one with most rows is taken, then that with the smaller period, then the first; what is left of the others is
    looked at again. Where items before the first stretch are as the end of one, stretches end as late as they can: what
    comes before a stage's equal blocks is a first one that begins otherwise. O(n log n) for what occurs in models.
    """
    count = len(items)
    if len(set(items)) == count:
        return []
    symbols, total = np.asarray(items, dtype=np.int64), [0, *np.cumsum(rows).tolist()]

    def heap_entry(start: int, end: int, period: int) -> tuple[int, int, int, int] | None:
        repeated = (end - start) // period
        held = total[start + period] - total[start] if repeated > 1 else 0
        required = min_rows[min(repeated, len(min_rows) - 1)]
        return (-held * repeated, period, start, end) if required is not None and held >= required else None

    heap = [entry for run in _runs(symbols) if (entry := heap_entry(*run))]
    heapq.heapify(heap)
    taken: list[Repeat] = []
    while heap:
        _, period, start, end = heapq.heappop(heap)
        free = list(_free(taken, start, end))
        if free == [(start, end)]:
            repeated = (end - start) // period
            taken.insert(_position(taken, start), Repeat(end - repeated * period, period, repeated))
            continue
        for part in free:
            if (entry := heap_entry(*part, period)) is not None:
                heapq.heappush(heap, entry)
    return taken


def _position(taken: Sequence[Repeat], start: int) -> int:
    return bisect_left(taken, start, key=lambda repeat: repeat.start)


def _free(taken: Sequence[Repeat], start: int, end: int) -> Iterator[tuple[int, int]]:
    """What of the items from start to end no repeat has."""
    first = _position(taken, start)
    if first and taken[first - 1].end > start:
        start = taken[first - 1].end
    for repeat in taken[first:]:
        if repeat.start >= end:
            break
        if repeat.start > start:
            yield start, repeat.start
        start = repeat.end
    if start < end:
        yield start, end


def _runs(symbols: Ints) -> Iterator[tuple[int, int, int]]:
    """Start, end and period of every stretch in which each item is as the one a period before it, twice or more."""
    half = len(symbols) // 2
    for period in (*range(1, min(half, _MAX_TRIED) + 1), *_longer_periods(symbols, half)):
        equal = np.concatenate([[False], symbols[:-period] == symbols[period:], [False]])
        edges = np.flatnonzero(equal[1:] != equal[:-1])
        starts, ends = edges[::2], edges[1::2]
        long_enough = ends - starts >= period
        for start, end in zip(starts[long_enough].tolist(), ends[long_enough].tolist(), strict=True):
            yield start, end + period, period


def _longer_periods(symbols: Ints, half: int) -> Sequence[int]:
    """Distances at which equal stretches (of 2, 4, 8, ... items) follow one another, most frequent of each length."""
    if half <= _MAX_TRIED:
        return []
    periods: set[int] = set()
    names, length = np.unique(symbols, return_inverse=True)[1].astype(np.int64), 1
    while length <= half:
        if 2 * length >= _MAX_TRIED:
            order = np.argsort(names, kind="stable")
            same = names[order[1:]] == names[order[:-1]]
            gaps = (order[1:] - order[:-1])[same]
            gaps = gaps[(gaps > _MAX_TRIED) & (gaps <= half)]
            frequency = np.bincount(gaps)
            common = np.argsort(-frequency, kind="stable")[:_PERIODS_A_LENGTH]
            periods.update(common[frequency[common] > 0].tolist())
        pairs = names[:-length] * (int(names.max()) + 1) + names[length:]
        names, length = np.unique(pairs, return_inverse=True)[1].astype(np.int64), 2 * length
    return sorted(periods)


# What several layers that are one position of a repeated block are called together.

_NUMBER = re.compile(r"(\d+)")
_COUNTED = re.compile(r"(?:[_#]|\.(?=\d))\d+$")  # Linear_3, aten::mm#3: the profiler's count, layers.3: the model's
_INDEX = re.compile(r"(?<=[._/ #([-])\d+(?=$|[._/ )\]-])")  # block.17.attn, layer_0; not conv1x1, float16
_MAX_DIGITS = 18  # of a number that may count something


def pattern(names: Sequence[str], kind: str = "") -> str:
    """One name for all: `layers.{0..23}` where only numbers differ, else what they begin and end with.

    Where that is nothing, `kind` stands before the asterisk.
    """
    first, *_ = names
    if len(set(names)) == 1:
        return first
    parts = [_NUMBER.split(name) for name in names]
    if len({tuple(part[::2]) for part in parts}) == 1:
        fields = zip(*parts, strict=True)
        return "".join(_field(field) if at % 2 else field[0] for at, field in enumerate(fields))
    head = _common_prefix(names)
    tail = _common_prefix([name[len(head) :][::-1] for name in names])[::-1]
    return f"{head}*{tail}" if head or tail else f"{kind} *".lstrip()


def _common_prefix(texts: Sequence[str]) -> str:
    """What all of them begin with."""
    first, last = min(texts), max(texts)
    return next((first[:at] for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), first)


def _field(texts: Sequence[str]) -> str:
    """A number, or the least and the largest of several."""
    if len(set(texts)) == 1:
        return texts[0]
    if max(map(len, texts)) > _MAX_DIGITS:
        return "*"
    numbers = sorted(map(int, texts))
    return f"{{{numbers[0]}..{numbers[-1]}}}"


def block_name(roots: Sequence[Sequence[str]], kind: str = "") -> str:
    """What a block is called, by the names of the outermost layers of each repetition and the type of the first.

    A part of the names that all layers of a repetition begin with, up to a slash or a dot, if it numbers them.
    """
    if len(roots[0]) == 1:
        return pattern([names[0] for names in roots], kind)
    if any(scopes := scopes_of(roots)):
        return pattern(scopes)
    first, last = (pattern([names[end] for names in roots]) for end in (0, -1))
    return f"{first} to {last}"


def scopes_of(roots: Sequence[Sequence[str]]) -> list[str]:
    """What all names of each repetition begin with, if it tells repetitions apart; else nothing, for each."""
    scopes = [_scope(names) if len(names) > 1 else "" for names in roots]
    return scopes if all(scopes) and len(set(scopes)) == len(scopes) else [""] * len(roots)


def _scope(names: Sequence[str]) -> str:
    shared = _common_prefix(names)
    return shared[: max(shared.rfind("/"), shared.rfind("."), 0)]


def below(name: str, outer: str) -> str:
    """The layer's name without that of the layer around it, where it begins with it."""
    return name[len(outer) + 1 :] if outer and name.startswith((f"{outer}.", f"{outer}/")) else name


def without_numbers(name: str) -> str:
    """The name with an asterisk for each number that counts something."""
    return _INDEX.sub("*", name)


def bare(name: str) -> str:
    """The name without the number that a profiler or a model gave to it."""
    return _COUNTED.sub("", name) or name


# The layers of a trace as a tree: each path of names once, under the path it was called in, with its structure.

_NODE = ("path", "layer_name", "layer_type")


class LayerTree:
    """Nodes in order of first call, each before what was called in it.

    `nodes` has a row a node: path, layer_name, layer_type, layer_index (null: no work of its own), shapes, and
    is_listed: whether it is a row of tables over layers, and the only node of that row. `around[i]` is the node that
    node i was called in, or -1, `below[i]` are the nodes called in it, `roots` has those called in none, a list
    a process: several that run side by side are no sequence.
    `structure[i]` is the same number for nodes whose subtrees are equal: types, shapes, which of them are rows, and
    order, whatever numbers stand in types that are names (`block.17`). `listed[i]` is how many nodes of its subtree are
    rows.
    """

    def __init__(self, frames: TraceView) -> None:
        self.nodes, outer, process = _nodes(frames)
        self.names: list[str] = self.nodes["layer_name"].cast(pl.String).fill_null("-").to_list()
        self.types: list[str] = self.nodes["layer_type"].cast(pl.String).fill_null("-").to_list()
        self.is_listed: list[bool] = self.nodes["is_listed"].to_list()
        self.layer_index: list[int] = self.nodes["layer_index"].fill_null(-1).to_list()
        self.around: list[int] = outer.tolist()
        self.below: list[list[int]] = [[] for _ in self.around]
        of_process: dict[int, list[int]] = {}
        for node, (around, number) in enumerate(zip(self.around, process.tolist(), strict=True)):
            (self.below[around] if around >= 0 else of_process.setdefault(number, [])).append(node)
        self.roots = list(of_process.values())
        self.structure, self.listed = self._structures()

    def _structures(self) -> tuple[list[int], list[int]]:
        alike = {kind: without_numbers(kind) for kind in set(self.types)}
        kinds = pl.Series("kind", [alike[kind] for kind in self.types], dtype=pl.String)
        own = group_ids([kinds, *self.nodes.select("shapes", "is_listed", "is_shared")])[0].tolist()
        listed = list(map(int, self.is_listed))
        numbers: dict[tuple[int, ...], int] = {}
        structure = [0] * len(own)
        for node in range(len(own) - 1, -1, -1):
            below = self.below[node]
            structure[node] = numbers.setdefault((own[node], *(structure[child] for child in below)), len(numbers))
            listed[node] += sum(listed[child] for child in below)
        return structure, listed

    def subtree(self, node: int) -> list[int]:
        """The node and all below it, each before what was called in it."""
        nodes, waiting = [], [node]
        while waiting:
            at = waiting.pop()
            nodes.append(at)
            waiting.extend(reversed(self.below[at]))
        return nodes


def _nodes(frames: TraceView) -> tuple[pl.DataFrame, Ints, Ints]:
    """The nodes, and for each the one it was called in, or -1, and a number for the process that first called it."""
    calls = _calls(frames)
    number, first = numbers_by_appearance(*group_ids(calls.select(_NODE)))
    indexed = calls.with_columns(pl.Series("node", number)).group_by("node", maintain_order=True)
    described = indexed.agg(pl.col("layer_index", "shapes").drop_nulls().first())
    nodes = calls.select(_NODE)[first].hstack(described.drop("node"))
    shares = pl.len().over(LAYER_KEY) > 1
    is_row = pl.col("layer_index").is_not_null()
    nodes = nodes.with_columns((is_row & ~shares).alias("is_listed"), (is_row & shares).alias("is_shared"))
    around = _around(frames, calls["span_id"].to_numpy(), number)[first]
    process, _ = numbers_by_appearance(*group_ids(calls.select("run_id", "process_id")[first]))
    return nodes, np.where(around < np.arange(len(around)), around, -1), process


def _calls(frames: TraceView) -> pl.DataFrame:
    """Every call of a layer, with own work or without, those of the runs that layers are taken from first."""
    trace = frames.trace
    columns = ("span_id", *LAYER_KEY, "path", "shapes")
    calls = trace.scan("layers").select(columns).collect()
    calls = calls.hstack([column_at(trace, name, calls["span_id"]) for name in ("run_id", "process_id", "start_ns")])
    calls = frames.own_runs.of(calls) if frames.replays_tell_layers else frames.layer_runs.of(calls)
    named = calls.with_columns(pl.coalesce("path", "layer_name").alias("path"))
    behind = ~pl.col("run_id").is_in(frames.layer_runs.ids)
    return named.sort(behind, "run_id", "start_ns", "span_id")


def _around(frames: TraceView, calls: Ints, number: Ints) -> Ints:
    """For each call the node of the call around it, or -1."""
    parents = frames.trace.scan("spans").select("parent_id").collect()["parent_id"].fill_null(-1).to_numpy()
    is_layer = np.zeros(len(parents), dtype=np.bool_)
    is_layer[calls] = True
    node = np.full(len(parents) + 1, -1, dtype=np.int64)  # the last for no span
    node[calls] = number
    outside = parents[calls]
    owner = innermost(parents, is_layer)
    return node[np.where(outside >= 0, owner[outside], -1)]


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
    """The texts, each that occurs several times with its number."""
    totals, seen = Counter(texts), Counter[str]()
    numbered = []
    for text in texts:
        seen[text] += 1
        numbered.append(f"{text}#{seen[text]}" if totals[text] > 1 else text)
    return numbered


LABELS_AS_TEXT = pl.col("layer_name", "layer_type").cast(pl.String)
"""The labels of LAYER_KEY, so that rows of several tables can be joined by them."""


def with_equal_folded(frames: StepView, table: pl.DataFrame, by: str) -> pl.DataFrame:
    """LAYER_KEY and the column of a table over layers, those that are equal as one row with their sum.

    Calls of an operator or a range, which are layers of their own, are equal by name, wherever they are: `16 x decode`.
    Others, modules above all, are equal at one position of a block: `24 x self_attn of layers.{0..23}`. The index is
    that of the first of them.
    """
    members = frames.of_trace.once(repeated_blocks).with_columns(LABELS_AS_TEXT)
    rows = table.select(*LAYER_KEY, by).join(members, on=LAYER_KEY, how="left", nulls_equal=True, maintain_order="left")
    is_call = pl.col("layer_name").str.replace(r"#\d+$", "") == pl.col("layer_type")
    is_again = (is_call & (is_call.sum().over("layer_type") > 1)).fill_null(value=False)
    in_block = ~is_again & pl.col("block_index").is_not_null()
    keys = (
        pl.when(is_again).then("layer_type").alias("again"),
        pl.when(in_block).then("block_index").alias("of_block"),
        pl.when(in_block).then("position").alias("at"),
        pl.when(~is_again & ~in_block).then("layer_name").alias("alone"),
    )
    first = pl.col("layer_name", "layer_type", "block", "position_name", "position_type").first()
    groups = rows.group_by(keys, maintain_order=True).agg(
        pl.col("layer_index").min(), first, pl.len().alias("number"), known_sum(pl.col(by))
    )
    of_block = pl.format("{} x {} of {}", "number", "position_name", "block")
    name = pl.when(pl.col("again").is_not_null()).then(pl.format("{} x {}", "number", "again")).otherwise("layer_name")
    folded = groups.with_columns(
        pl.when(pl.col("of_block").is_not_null()).then(of_block).otherwise(name).alias("layer_name"),
        pl.when(pl.col("of_block").is_not_null()).then("position_type").otherwise("layer_type").alias("layer_type"),
    )
    return folded.select(*LAYER_KEY, by).sort(LAYER_KEY, nulls_last=True)
