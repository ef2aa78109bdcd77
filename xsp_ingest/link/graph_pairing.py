"""Which captured graph each replay is of: by the kernels it ran, in order; what is not certain is left open.

A replay has kernels and one launch, a capture has launches and no kernels (`captured_graphs`). They pair where the
whole sequences are equal. Where launches do not say their kernels (CUDA), counts and kinds must be equal, and enough
of the launches must be known by what their operator ran elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from xsp_ingest.link.captured_graphs import UNKNOWN
from xsp_ingest.link.graph_batches import graphs_for_step
from xsp_ingest.link.graph_rounds import rounds
from xsp_ingest.link.graph_streams import Ambiguous, order_on_streams
from xsp_ingest.link.graph_surroundings import of_layer

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from xsp_ingest.link.captured_graphs import CapturedGraph
    from xsp_ingest.link.graph_streams import Order
    from xsp_ingest.link.graph_surroundings import Surroundings
    from xsp_model.arrays import Bools, Ints, Positions

__all__ = ["Outcome", "Replays", "pair", "replays_of"]

_LONG = 8  # from so many kernels on a replay may lack its graph's last one, which ROCm's profiler loses at times
_ENOUGH = 0.5  # of launches that do not say their kernel so many must be known otherwise


class Outcome(Enum):
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

    def of(self, tokens: Ints, stream: Ints) -> tuple[list[int], Outcome]:
        """Graphs whose sequence this is, and what to say of it where there are none."""
        if (stream != stream[0]).any():
            return self._on_streams(tokens, stream)
        key = tokens.tobytes()
        if named := self.by_key.get(key) or self.without_last.get(key):
            return named, Outcome.PAIRED
        alike = [n for n in self.unnamed.get(_kinds(tokens).tobytes(), ()) if _agrees(self.expected[n], tokens)]
        certain = [n for n in alike if _known_share(self.expected[n]) >= _ENOUGH]
        return certain, Outcome.UNNAMED if alike else Outcome.NOT_CAPTURED

    def _on_streams(self, tokens: Ints, stream: Ints) -> tuple[list[int], Outcome]:
        """The same of work on several streams; each of its launches must be known, and have one place only."""
        orders: dict[int, Order] = {}
        outcome = Outcome.NOT_CAPTURED
        for number in self.by_amount.get(np.sort(_kinds(tokens)).tobytes(), ()):
            expected = self.expected[number]
            if (expected == UNKNOWN).any():
                outcome = Outcome.UNNAMED
            elif (np.sort(expected) == np.sort(tokens)).all():
                orders[number] = order_on_streams(expected, tokens, stream)
        if any(order is Ambiguous.YES for order in orders.values()):
            return [], Outcome.SEVERAL
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
) -> tuple[Ints, Sequence[Outcome]]:
    """For each replay its graph (-1: none) and what became of it.

    `expected[g]`: tokens of graph g with what is known of its unnamed launches. `around`: what captures and replays
    lay in. `meaning(g)`: equal for graphs that say the same of their work.
    """
    candidates = _Candidates(graphs, expected)
    matches: dict[tuple[bytes, bytes], tuple[list[int], Outcome]] = {}
    possible: list[list[int]] = []
    outcomes = [Outcome.NOT_CAPTURED] * len(replays)
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
            outcomes[replay] = Outcome.INCOMPLETE
        elif graph >= 0:
            outcomes[replay] = Outcome.PAIRED
        elif possible[replay]:
            outcomes[replay] = Outcome.SEVERAL
    return np.where(doubtful, -1, chosen), outcomes


def _incomplete(chosen: Ints, possible: Sequence[Sequence[int]], steps: Ints) -> Bools:
    """Replays of one graph several times in a step that replays graphs as well of which there is no capture.

    Those that look alike may have been captured one by one, and all but one of their captures be missing too.
    """
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
