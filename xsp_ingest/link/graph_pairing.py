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
from xsp_ingest.link.graph_batches import allowed
from xsp_ingest.link.graph_rounds import rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from xsp_ingest.link.captured_graphs import CapturedGraph
    from xsp_ingest.link.graph_batches import Batch
    from xsp_model.arrays import Ints, Positions

__all__ = ["Outcome", "Replays", "launches_of", "pair", "replays_of"]

_LONG = 8  # from so many kernels on a replay may lack its graph's last one, which ROCm's profiler loses at times
_ENOUGH = 0.5  # of launches that do not say their kernel so many must be known otherwise


class Outcome(Enum):
    """What became of a replay."""

    PAIRED = 0
    NOT_CAPTURED = 1  # no captured graph has these kernels in this order
    SEVERAL = 2  # several graphs of different layers have them
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
    by_size: dict[tuple[int, bytes], list[int]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for number, graph in enumerate(self.graphs):
            if graph.is_named:
                self.by_key[graph.tokens.tobytes()].append(number)
                if len(graph.tokens) > _LONG:
                    self.without_last[graph.tokens[:-1].tobytes()].append(number)
            else:
                self.by_size[_kinds(graph.tokens)].append(number)

    def of(self, tokens: Ints, stream: Ints) -> tuple[list[int], bool]:
        """Graphs whose sequence this is, and whether what they lack in names made all of them too uncertain."""
        key = tokens.tobytes()
        if found := self.by_key.get(key) or self.without_last.get(key):
            return found, False
        if (stream != stream[0]).any():
            interleaved = [
                n for n, g in enumerate(self.graphs) if g.is_named and _interleaves(g.tokens, tokens, stream)
            ]
            if interleaved:
                return interleaved, False
        alike = [n for n in self.by_size.get(_kinds(tokens), ()) if _agrees(self.expected[n], tokens)]
        certain = [n for n in alike if (self.expected[n] != UNKNOWN).mean() >= _ENOUGH]
        return certain, bool(alike) and not certain


def _kinds(tokens: Ints) -> tuple[int, bytes]:
    """How many, and of what kind each is."""
    return len(tokens), np.where(tokens >= UNKNOWN, UNKNOWN, tokens).astype(np.int8).tobytes()


def _agrees(expected: Ints, tokens: Ints) -> bool:
    return bool(((expected == tokens) | (expected == UNKNOWN)).all())


def _interleaves(captured: Ints, tokens: Ints, stream: Ints) -> bool:
    """Whether the streams, each in its order, make up the captured sequence."""
    return len(captured) == len(tokens) and _order(captured, tokens, stream) is not None


def _order(captured: Ints, tokens: Ints, stream: Ints) -> Ints | None:
    """For each captured launch the place in `tokens` of its work; None where that is not the only way, or none.

    Work runs in the order of the capture within a stream; across streams the next launch is on the one stream whose
    next work is of its name. Where two streams have it next, nothing says which.
    """
    queues = [np.flatnonzero(stream == each).tolist()[::-1] for each in np.unique(stream)]
    out = np.empty(len(captured), dtype=np.int64)
    for place, token in enumerate(captured):
        heads = [queue for queue in queues if queue and tokens[queue[-1]] == token]
        if len(heads) != 1:
            return None
        out[place] = heads[0].pop()
    return out


def pair(
    replays: Replays,
    graphs: Sequence[CapturedGraph],
    expected: Sequence[Ints],
    captured: Sequence[int | None],
    batches: Sequence[Batch | None],
    meaning: Callable[[int], object],
) -> tuple[Ints, Sequence[Outcome]]:
    """For each replay its graph (-1: none) and what became of it.

    `expected[g]`: tokens of graph g with what is known of its unnamed launches. `captured[g]`: the batch it was
    captured for; `batches[i]`: that of the step around replay i. `meaning(g)`: equal for graphs that say the same of
    their work.
    """
    candidates = _Candidates(graphs, expected)
    known: dict[tuple[bytes, bytes], tuple[list[int], bool]] = {}
    possible: list[list[int]] = []
    outcomes = [Outcome.NOT_CAPTURED] * len(replays)
    for replay in range(len(replays)):
        rows = slice(replays.first[replay], replays.first[replay + 1])
        tokens, stream = replays.tokens[rows], replays.stream[rows]
        key = (tokens.tobytes(), stream.tobytes())
        if key not in known:
            known[key] = candidates.of(tokens, stream)
        found, unnamed = known[key]
        possible.append(allowed(found, captured, batches[replay]))
        if unnamed:
            outcomes[replay] = Outcome.UNNAMED
    set_of = [(graph.run, batch) for graph, batch in zip(graphs, captured, strict=True)]
    chosen = _chosen(possible, set_of, meaning)
    for replay, graph in enumerate(chosen):
        if graph >= 0:
            outcomes[replay] = Outcome.PAIRED
        elif possible[replay]:
            outcomes[replay] = Outcome.SEVERAL
    return chosen, outcomes


def _chosen(possible: Sequence[Sequence[int]], set_of: Sequence[Hashable], meaning: Callable[[int], object]) -> Ints:
    """The only graph possible; else by the order in which graphs are replayed; else any, where all say the same."""
    chosen = np.array([each[0] if len(each) == 1 else -1 for each in possible], dtype=np.int64)
    undecided = [replay for replay, each in enumerate(possible) if len(each) > 1]
    if not undecided:
        return chosen
    in_rounds = rounds(possible, set_of, meaning)
    meanings: Mapping[int, object] = {g: meaning(g) for replay in undecided for g in possible[replay]}
    for replay in undecided:
        same = len({meanings[g] for g in possible[replay]}) == 1
        chosen[replay] = in_rounds[replay] if in_rounds[replay] >= 0 else possible[replay][0] if same else -1
    return chosen


def launches_of(graph: CapturedGraph, tokens: Ints, stream: Ints) -> Ints:
    """For each piece of a replay's work the number of its launch in the graph."""
    if len(tokens) <= len(graph.tokens) and _agrees(graph.tokens[: len(tokens)], tokens):
        return np.arange(len(tokens))
    order = _order(graph.tokens, tokens, stream)
    assert order is not None  # noqa: S101 (it was paired by that)
    out = np.empty(len(tokens), dtype=np.int64)
    out[order] = np.arange(len(order))
    return out
