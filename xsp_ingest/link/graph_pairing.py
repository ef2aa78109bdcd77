"""Which captured graph each replay is of: by the kernels it ran, in order; what is not certain is left open.

A replay has kernels and one launch, a capture has launches and no kernels (`graph_captures`). They pair where the
whole sequences are equal. Where launches do not say their kernels (CUDA), counts and kinds must be equal, and enough
of the launches must be known by what their operator ran elsewhere.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl

from xsp_ingest.link.graph_captures import UNKNOWN
from xsp_ingest.link.spans import innermost, outermost
from xsp_model.columns.arrays import nullable_index
from xsp_model.step_annotations import parse_step_annotation

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from xsp_ingest.link.forest import Forest
    from xsp_ingest.link.graph_captures import CapturedGraph
    from xsp_ingest.link.layers import Layering
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = [
    "Ambiguous",
    "Batch",
    "Order",
    "PairingOutcome",
    "Replays",
    "Surroundings",
    "graph_batches",
    "graphs_for_step",
    "launches_on_streams",
    "of_layer",
    "order_on_streams",
    "pair",
    "replay_batches",
    "replays_of",
    "rounds",
    "surroundings",
]


# For which batch a graph was captured and for which it was replayed, where names around both say so.


@dataclass(frozen=True, slots=True)
class Batch:
    """The size that the engine picks a graph by; `exact`: as it was padded, and not only at least so many."""

    size: int
    exact: bool


def graph_batches(forest: Forest, begins: Sequence[int], file: str) -> list[int | None]:
    """For each graph, by the call that began its capture, the size it was captured for; else as the file's name says.

    Serving engines annotate captures, or write each into a file or folder named after it.
    """
    around = _batches_around(forest, np.array(begins, dtype=np.int64), captures=True)
    parts = [part.split(".")[0] for part in reversed(PurePath(file).parts)]
    named = next((size for part in parts if (size := _size(part, captures=True)) is not None), None)
    return [named if batch is None else batch.size for batch in around]


def _size(text: str, *, captures: bool) -> int | None:
    annotation = parse_step_annotation(text)
    return annotation.batch_key if annotation is not None and annotation.is_capture == captures else None


def replay_batches(forest: Forest, launches: Positions) -> list[Batch | None]:
    """For each launch the batch of the step around it."""
    return _batches_around(forest, launches, captures=False)


def _batches_around(forest: Forest, at: Positions, *, captures: bool) -> list[Batch | None]:
    """The innermost annotation around each span that says a batch."""
    batches: dict[str, Batch] = {}
    for name in forest.spans["name"].unique().drop_nulls().cast(pl.String):
        annotation = parse_step_annotation(name)
        if annotation is not None and annotation.is_capture == captures and annotation.batch_key is not None:
            padded = annotation.padded_tokens if annotation.padded_requests is None else annotation.padded_requests
            batches[name] = Batch(annotation.batch_key, padded is not None)
    if not batches:
        return [None] * len(at)
    annotated = forest.spans["name"].cast(pl.String).is_in(list(batches)).to_numpy()
    holder = innermost(forest.parent, annotated)[at]
    names = forest.spans["name"].gather(np.maximum(holder, 0)).cast(pl.String)
    return [batches[name] if held >= 0 else None for name, held in zip(names, holder, strict=True)]


def graphs_for_step(graphs: Sequence[int], captured: Sequence[int | None], step: Batch | None) -> list[int]:
    """The graphs that a step of this batch replays: of its padded size, else the smallest that holds it."""
    if step is None:
        return list(graphs)
    sizes = {graph: captured[graph] for graph in graphs}
    enough = [size for size in sizes.values() if size is not None and size >= step.size]
    replayed = step.size if step.exact else min(enough, default=None)
    return [graph for graph, size in sizes.items() if size is None or size == replayed]


# Graphs that run the same kernels are told apart by their order: a model replays its pieces as it captured them.


def rounds(possible: Sequence[Sequence[int]], set_of: Sequence[Hashable], meaning: Callable[[int], int]) -> Ints:
    """For each replay, in order, its graph where going around the graphs of one set leaves only that; else -1.

    `possible[i]`: the graphs that replay i may be of; `set_of[g]`: what graph g was captured with (a run, for a batch
    size), in order of capture. A trace may begin and end anywhere in a round. Where it may have begun in several
    places, a replay has a graph only where all of them give one that says the same.
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for graph in sorted({graph for each in possible for graph in each}):
        members[set_of[graph]].append(graph)
    out = np.full(len(possible), -1, dtype=np.int64)
    of_set: dict[Hashable, list[int]] = defaultdict(list)
    for replay, each in enumerate(possible):
        sets = {set_of[graph] for graph in each}
        if len(sets) == 1:
            of_set[sets.pop()].append(replay)
    for name, replays in of_set.items():
        out[replays] = _graphs_of_set(members[name], [possible[replay] for replay in replays], meaning)
    return out


def _graphs_of_set(graphs: Sequence[int], possible: Sequence[Sequence[int]], meaning: Callable[[int], int]) -> Ints:
    """The graphs of these replays of one set; -1 where its order leaves them open."""
    # Graphs between which no replay decides are one class. The replays, as classes, must be the set's graphs, as
    # classes, gone around from some beginning: each beginning that fits is a way to read all replays at once. Guessing
    # replay by replay would let one odd replay move all that come after it.
    alike = {tuple(each): number for number, each in enumerate(dict.fromkeys(map(tuple, possible)))}
    sought = np.array([alike[tuple(each)] for each in possible])
    class_of = {graph: number for each, number in alike.items() for graph in each}
    classes = np.array([class_of.get(graph, -1) for graph in graphs])
    ways = [
        np.resize(np.roll(np.array(graphs), -begin), len(sought))
        for begin in np.flatnonzero(classes == sought[0])
        if (np.resize(np.roll(classes, -begin), len(sought)) == sought).all()
    ]
    if not ways:
        return np.full(len(sought), -1, dtype=np.int64)
    if len(ways) == 1:
        return ways[0]
    meaning_of = np.zeros(max(graphs) + 1, dtype=np.int64)
    meaning_of[list(graphs)] = [meaning(graph) for graph in graphs]
    certain = np.logical_and.reduce([meaning_of[way] == meaning_of[ways[0]] for way in ways[1:]])
    return np.where(certain, ways[0], -1)


# Which captured launch each piece of a replay is of, where its work ran on several streams.


class Ambiguous(Enum):
    """There is more than one way."""

    YES = True


Order: TypeAlias = "Ints | Ambiguous | None"


def order_on_streams(captured: Ints, tokens: Ints, stream: Ints) -> Order:
    """For each captured launch the place of its work among `tokens`; None: they cannot be of these launches.

    Within a stream work runs in the order of the capture. Across streams the next launch is on the one stream whose
    next work is of its name: where two streams have it next, nothing says which, least of all when each started.
    """
    queues = [np.flatnonzero(stream == each).tolist()[::-1] for each in np.unique(stream)]
    out = np.empty(len(captured), dtype=np.int64)
    for number, token in enumerate(captured):
        heads = [queue for queue in queues if queue and tokens[queue[-1]] == token]
        if len(heads) != 1:
            return Ambiguous.YES if heads else None
        out[number] = heads[0].pop()
    return out


def launches_on_streams(captured: Ints, tokens: Ints, stream: Ints) -> Ints:
    """For each piece of work, in order of start, the number of its launch; of work that was paired by that order."""
    if (stream == stream[0]).all():
        return np.arange(len(tokens))
    order = order_on_streams(captured, tokens, stream)
    assert isinstance(order, np.ndarray)  # noqa: S101 (it was paired by that)
    out = np.empty(len(tokens), dtype=np.int64)
    out[order] = np.arange(len(order))
    return out


# What captures and replays of graphs lay in: steps, batches, layers. It tells graphs of equal kernels apart.

_INSTANCE = re.compile(r"_\d+$")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Of each captured graph the batch and the layer it was captured in; of each replay batch, layer and step.

    Layers are named, "" for none. Replays with the same number in `steps` are of one step; where steps are not marked,
    of one outermost call.
    """

    captured_batches: Sequence[int | None]
    captured_layers: Sequence[str]
    batches: Sequence[Batch | None]
    layers: Sequence[str]
    steps: Ints


def surroundings(
    graphs: Sequence[CapturedGraph],
    run: int,
    launches: Positions,
    forests: Sequence[Forest],
    layerings: Sequence[Layering],
    names: Sequence[str],
) -> Surroundings:
    """The surroundings of the graphs, which stand in order of their runs, and of replays of a run by their launches."""
    batches: list[int | None] = []
    layers: list[str] = []
    for each, alike in groupby(graphs, key=lambda graph: graph.run):
        begins = [graph.begin for graph in alike]
        batches += graph_batches(forests[each], begins, names[each])
        layers += _layers(forests[each], layerings[each], np.array(begins))
    forest = forests[run]
    return Surroundings(
        batches,
        layers,
        replay_batches(forest, launches),
        _layers(forest, layerings[run], launches),
        _steps(forest, launches),
    )


def _layers(forest: Forest, layering: Layering, at: Positions) -> list[str]:
    """The name of the innermost layer's call around each span."""
    held = forest.spans["name"].gather(nullable_index(layering.held_in[at]))
    return held.cast(pl.String).fill_null("").to_list()


def _steps(forest: Forest, launches: Positions) -> Ints:
    step = forest.spans["step"].gather(launches)
    root = outermost(forest.parent, np.ones(len(forest.parent), dtype=np.bool_))[launches].astype(np.int64)
    return np.where(step.is_null().to_numpy(), root, -2 - step.fill_null(0).to_numpy())


def of_layer(graphs: Sequence[int], captured: Sequence[str], layer: str) -> list[int]:
    """The graphs that were captured in a call of this layer; where none was, all but those of its siblings.

    A graph that was captured in one instance of a module is not replayed in another one.
    """
    same = [graph for graph in graphs if layer and captured[graph] == layer]
    kind = _INSTANCE.sub("", layer)
    return same or [g for g in graphs if not (layer and captured[g] and _INSTANCE.sub("", captured[g]) == kind)]


_LONG = 8  # from so many kernels on a replay may lack its graph's last one, which ROCm's profiler loses at times
_ENOUGH = 0.5  # of launches that do not say their kernel so many must be known otherwise


class PairingOutcome(Enum):
    """What became of a replay."""

    PAIRED = 0
    NOT_CAPTURED = 1  # no captured graph has these kernels in this order
    SEVERAL = 2  # several graphs, or launches on several streams, of different layers have them
    INCOMPLETE = 4  # other replays of its step are of no captured graph, and this one comes several times in it
    UNNAMED = 3  # too little says that a graph of as many launches is the one


@dataclass(frozen=True, slots=True)
class Replays:
    """Replays of a run in order of their launch: of replay i the device work `at[first[i]:first[i + 1]]`, by start."""

    at: Positions
    first: Ints
    launch: Positions
    tokens: Ints
    stream: Ints

    def __len__(self) -> int:
        return len(self.launch)

    def key(self, replay: int) -> bytes:
        """The same for replays of the same kernels in the same order."""
        return self.tokens[self.first[replay] : self.first[replay + 1]].tobytes()


def replays_of(at: Positions, launch: Positions, tokens: Ints, stream: Ints) -> Replays:
    """The replays that this device work, in order of start, is of."""
    order = np.argsort(launch, kind="stable")
    at, launch = at[order], launch[order]
    starts = np.flatnonzero(np.append(True, launch[1:] != launch[:-1])) if len(launch) else np.zeros(0, np.int64)
    return Replays(at, np.append(starts, len(at)), launch[starts], tokens[order], stream[order])


@dataclass(slots=True)
class _Candidates:
    """Captured graphs by what a replay of them runs."""

    graphs: Sequence[CapturedGraph]
    expected: Sequence[Ints]  # tokens with what is known of unnamed launches otherwise
    by_key: dict[bytes, list[int]] = field(default_factory=lambda: defaultdict(list))
    without_last: dict[bytes, list[int]] = field(default_factory=lambda: defaultdict(list))
    unnamed: dict[bytes, list[int]] = field(default_factory=lambda: defaultdict(list))
    by_amount: dict[bytes, list[int]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for number, graph in enumerate(self.graphs):
            self.by_amount[np.sort(_kinds(graph.tokens)).tobytes()].append(number)
            if not graph.is_named:
                self.unnamed[_kinds(graph.tokens).tobytes()].append(number)
                continue
            self.by_key[graph.tokens.tobytes()].append(number)
            if len(graph.tokens) > _LONG:
                self.without_last[graph.tokens[:-1].tobytes()].append(number)

    def of(self, tokens: Ints, stream: Ints) -> tuple[list[int], PairingOutcome]:
        """Graphs whose sequence this is, and what to say of it where there are none."""
        if (stream != stream[0]).any():
            return self._on_streams(tokens, stream)
        # Launches that name their kernels go before those that do not: an equal sequence of names proves more than
        # one of kinds and counts, which a graph of other kernels may have as well.
        key = tokens.tobytes()
        if named := self.by_key.get(key) or self.without_last.get(key):
            return named, PairingOutcome.PAIRED
        alike = [n for n in self.unnamed.get(_kinds(tokens).tobytes(), ()) if _agrees(self.expected[n], tokens)]
        certain = [n for n in alike if _known_share(self.expected[n]) >= _ENOUGH]
        return certain, PairingOutcome.UNNAMED if alike else PairingOutcome.NOT_CAPTURED

    def _on_streams(self, tokens: Ints, stream: Ints) -> tuple[list[int], PairingOutcome]:
        """The same of work on several streams; each of its launches must be known, and have one place only."""
        orders: dict[int, Order] = {}
        outcome = PairingOutcome.NOT_CAPTURED
        for number in self.by_amount.get(np.sort(_kinds(tokens)).tobytes(), ()):
            expected = self.expected[number]
            # An unknown launch could be on any stream, so the order within each no longer tells which work is whose.
            if (expected == UNKNOWN).any():
                outcome = PairingOutcome.UNNAMED
            elif (np.sort(expected) == np.sort(tokens)).all():
                orders[number] = order_on_streams(expected, tokens, stream)
        if any(order is Ambiguous.YES for order in orders.values()):
            return [], PairingOutcome.SEVERAL
        return [number for number, order in orders.items() if order is not None], outcome


def _kinds(tokens: Ints) -> Ints:
    """Kernel, copy or memset."""
    return np.where(tokens >= UNKNOWN, UNKNOWN, tokens)


def _agrees(expected: Ints, tokens: Ints) -> bool:
    return bool(((expected == tokens) | (expected == UNKNOWN)).all())


def _known_share(expected: Ints) -> float:
    """Of the kernels; that a copy is one tells little."""
    kernels = expected >= UNKNOWN
    return float((expected[kernels] != UNKNOWN).mean())


def pair(
    replays: Replays,
    graphs: Sequence[CapturedGraph],
    expected: Sequence[Ints],
    around: Surroundings,
    meaning: Callable[[int], int],
) -> tuple[Ints, Sequence[PairingOutcome]]:
    """For each replay its graph (-1: none) and what became of it.

    `expected[g]`: tokens of graph g with what is known of its unnamed launches. `around`: what captures and replays
    lay in. `meaning(g)`: equal for graphs that say the same of their work.
    """
    candidates = _Candidates(graphs, expected)
    matches: dict[tuple[bytes, bytes], tuple[list[int], PairingOutcome]] = {}
    possible: list[list[int]] = []
    outcomes = [PairingOutcome.NOT_CAPTURED] * len(replays)
    for replay in range(len(replays)):
        rows = slice(replays.first[replay], replays.first[replay + 1])
        tokens, stream = replays.tokens[rows], replays.stream[rows]
        key = (tokens.tobytes(), stream.tobytes())
        if key not in matches:
            matches[key] = candidates.of(tokens, stream)
        numbers, otherwise = matches[key]
        fitting = graphs_for_step(numbers, around.captured_batches, around.batches[replay])
        possible.append(of_layer(fitting, around.captured_layers, around.layers[replay]))
        if not numbers:
            outcomes[replay] = otherwise
    set_of = [(graph.run, batch) for graph, batch in zip(graphs, around.captured_batches, strict=True)]
    chosen = _choose_graphs(possible, set_of, meaning)
    doubtful = _incomplete(chosen, possible, around.steps)
    for replay, graph in enumerate(chosen):
        if doubtful[replay]:
            outcomes[replay] = PairingOutcome.INCOMPLETE
        elif graph >= 0:
            outcomes[replay] = PairingOutcome.PAIRED
        elif possible[replay]:
            outcomes[replay] = PairingOutcome.SEVERAL
    return np.where(doubtful, -1, chosen), outcomes


def _incomplete(chosen: Ints, possible: Sequence[Sequence[int]], steps: Ints) -> Bools:
    """Replays of one graph several times in a step that replays graphs as well of which there is no capture.

    Those that look alike may have been captured one by one, and all but one of their captures be missing too.
    """
    # A model of equal pieces replays one graph a piece. If the capture of some pieces is missing, the replays of those
    # all fit the one capture that is there, and would be given its layer.
    missing = np.array([not each for each in possible], dtype=np.bool_)
    open_steps = np.isin(steps, np.unique(steps[missing]))
    pairs = np.stack([steps, chosen], axis=1)
    _, which, times = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    several: Bools = times[which.ravel()] > 1
    return several & open_steps & (chosen >= 0)


def _choose_graphs(
    possible: Sequence[Sequence[int]], set_of: Sequence[Hashable], meaning: Callable[[int], int]
) -> Ints:
    """The only graph possible; else by the order in which graphs are replayed; else any, where all say the same."""
    chosen = np.array([each[0] if len(each) == 1 else -1 for each in possible], dtype=np.int64)
    undecided = [replay for replay, each in enumerate(possible) if len(each) > 1]
    if not undecided:
        return chosen
    in_rounds = rounds(possible, set_of, meaning)
    for replay in undecided:
        same = len({meaning(g) for g in possible[replay]}) == 1
        chosen[replay] = in_rounds[replay] if in_rounds[replay] >= 0 else possible[replay][0] if same else -1
    return chosen
