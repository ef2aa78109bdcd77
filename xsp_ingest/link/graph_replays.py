"""Ties replayed work to what its graph was captured from: in the same run, or in runs that were given as captures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.correlate import GRAPH_LAUNCH
from xsp_ingest.link.graph_captures import KernelNumbers, captured_graphs, expected_tokens, replay_tokens
from xsp_ingest.link.graph_pairing import Outcome, Replays, launches_on_streams, pair, replays_of, surroundings
from xsp_ingest.link.spans import matches
from xsp_model import GRAPH_CAPTURE, Finding, LedgerKind, Level
from xsp_model.columns.arrays import lookup, no_refs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from xsp_ingest.link.forest import Forest
    from xsp_ingest.link.graph_captures import CapturedGraph
    from xsp_ingest.link.layers import Layering
    from xsp_ingest.staging.raw import RawTrace
    from xsp_model.columns.arrays import Ints, Positions

__all__ = ["PairedWork", "pair_replays"]

_REASONS = {
    Outcome.NOT_CAPTURED: LedgerKind.GRAPH_NOT_CAPTURED,
    Outcome.SEVERAL: LedgerKind.GRAPH_CAPTURES_ALIKE,
    Outcome.INCOMPLETE: LedgerKind.GRAPH_CAPTURES_INCOMPLETE,
    Outcome.UNNAMED: LedgerKind.GRAPH_CAPTURE_UNNAMED,
}


@dataclass(frozen=True, slots=True)
class PairedWork:
    """Replayed work of a run, in order of its position, with the launch that its graph was captured with.

    `run` and `launch` name a span: the position in the forest of that run. `layer` likewise, in run `layer_run`;
    -1: none. `phase` is an index in `Phase`.
    """

    at: Positions
    run: Ints
    launch: Ints
    layer_run: Ints
    layer: Ints
    phase: NDArray[np.int8]


def pair_replays(
    run: int, raws: Sequence[RawTrace], forests: Sequence[Forest], layerings: Sequence[Layering], names: Sequence[str]
) -> tuple[PairedWork | None, list[Finding]]:
    """What replays of a run could be paired with, and what is to be said of those that could not; None: no captures.

    `names`: of the files. Captures of another rank count only where there are none of the run's own.
    """
    forest = forests[run]
    if not forest.replayed.any():
        return None, []
    launched = np.append(matches(forest.spans["name"], GRAPH_LAUNCH), [False])  # parent -1 reads the last
    work = np.flatnonzero(launched[forest.parent] & forest.is_level(Level.KERNEL) & (forest.captured_in < 0))
    sources = [run, *_captures_of(raws, run)]
    if not len(work):
        return None, []
    numbers = KernelNumbers()
    graphs = [graph for each in sources for graph in captured_graphs(each, raws[each], forests[each], numbers)]
    if not graphs:
        return None, []
    stream = forest.spans["stream_id"].fill_null(-1).gather(work).to_numpy()
    replays = replays_of(work, forest.parent[work], replay_tokens(forest, work, numbers), stream)
    expected, chosen, outcomes = _pair_replays(replays, run, graphs, forests, layerings, names, numbers)
    findings = _findings(forest, replays, outcomes, len(graphs))
    paired = chosen >= 0
    lost = np.array([len(graphs[n].launches) for n in chosen[paired]]).sum() - np.diff(replays.first)[paired].sum()
    findings.append(Finding(LedgerKind.GRAPH_NODES_NOT_RECORDED, count=int(lost)))
    return _work(replays, chosen, graphs, expected, run, forests, layerings), findings


def _captures_of(raws: Sequence[RawTrace], run: int) -> list[int]:
    captures = [n for n, raw in enumerate(raws) if raw.facts.role == GRAPH_CAPTURE and n != run]
    rank = raws[run].facts.rank
    own = [n for n in captures if rank is not None and raws[n].facts.rank == rank]
    return own or captures


def _pair_replays(
    replays: Replays,
    run: int,
    graphs: Sequence[CapturedGraph],
    forests: Sequence[Forest],
    layerings: Sequence[Layering],
    names: Sequence[str],
    numbers: KernelNumbers,
) -> tuple[Sequence[Ints], Ints, Sequence[Outcome]]:
    """The tokens of each graph as far as they are known, the graph of each replay (-1: none), and what became of it."""
    unnamed = {graph.run for graph in graphs if not graph.is_named}
    expected = [graph.tokens for graph in graphs]
    if unnamed:
        expected = expected_tokens(graphs, forests, sorted({run, *unnamed}), numbers)

    meanings: dict[object, int] = {}

    @cache
    def meaning(number: int) -> int:
        graph = graphs[number]
        return meanings.setdefault(_meaning(forests[graph.run], layerings[graph.run], graph), len(meanings))

    around = surroundings(graphs, run, replays.launch, forests, layerings, names)
    return expected, *pair(replays, graphs, expected, around, meaning)


def _meaning(forest: Forest, layering: Layering, graph: CapturedGraph) -> object:
    """What would be told of a replay's work: its layers, operators and shapes."""
    layer, parent = layering.layer[graph.launches], forest.parent[graph.launches]
    names = forest.spans["name"]
    shapes = forest.operators["input_shapes"].gather(_nullable(lookup(forest.operators["at"].to_numpy(), parent)))
    columns = (names.gather(_nullable(layer)), names.gather(_nullable(parent)), shapes)
    return tuple(tuple(column.cast(pl.String)) for column in columns)


def _nullable(at: Positions) -> pl.Series:
    return pl.Series([None if each < 0 else int(each) for each in at], dtype=pl.Int64)


def _work(
    replays: Replays,
    chosen: Ints,
    graphs: Sequence[CapturedGraph],
    expected: Sequence[Ints],
    run: int,
    forests: Sequence[Forest],
    layerings: Sequence[Layering],
) -> PairedWork:
    """The work of the replays that have a graph, each piece with its launch."""
    parts: list[tuple[Ints, int, Ints]] = []
    lengths = np.diff(replays.first)
    for number, length in sorted({(int(g), int(n)) for g, n in zip(chosen, lengths, strict=True) if g >= 0}):
        graph, mine = graphs[number], np.flatnonzero((chosen == number) & (lengths == length))
        rows = replays.first[mine][:, None] + np.arange(length)
        if (replays.stream[rows] == replays.stream[rows][:, :1]).all():
            launches = np.broadcast_to(graph.launches[:length], rows.shape)
        else:
            numbers = [
                launches_on_streams(expected[number], replays.tokens[each], replays.stream[each]) for each in rows
            ]
            launches = graph.launches[np.array(numbers)]
        parts.append((replays.at[rows].ravel(), graph.run, launches.ravel()))
    at = np.concatenate([part[0] for part in parts]) if parts else no_refs(0)
    order = np.argsort(at)
    runs = np.repeat([part[1] for part in parts], [len(part[0]) for part in parts])[order].astype(np.int64)
    launch = (np.concatenate([part[2] for part in parts]) if parts else no_refs(0))[order].astype(np.int64)
    return _place_in_layers(at[order], runs, launch, run, forests, layerings)


def _place_in_layers(
    at: Positions, runs: Ints, launch: Ints, run: int, forests: Sequence[Forest], layerings: Sequence[Layering]
) -> PairedWork:
    """With the layers of the captured launches; where the replay ran in a call of that very layer, with this call."""
    layer, phase = np.full(len(at), -1, dtype=np.int64), np.full(len(at), -1, dtype=np.int8)
    layer_run = runs.copy()
    for each in np.unique(runs):
        mine = runs == each
        layer[mine] = layerings[each].layer[launch[mine]]
        phase[mine] = layerings[each].phase[launch[mine]]
    held = layerings[run].held_in[forests[run].parent[at]]
    same = (
        (layer >= 0)
        & (held >= 0)
        & (_names(forests, layer_run, layer) == _names(forests, np.full_like(runs, run), held))
    )
    layer[same], layer_run[same] = held[same], run
    return PairedWork(at, runs, launch, layer_run, layer, phase)


def _names(forests: Sequence[Forest], runs: Ints, at: Ints) -> NDArray[np.object_]:
    """The names of spans of several runs; "" for -1."""
    out = np.full(len(at), "", dtype=np.object_)
    for run in np.unique(runs):
        mine = (runs == run) & (at >= 0)
        out[mine] = forests[run].spans["name"].gather(at[mine]).cast(pl.String).to_numpy()
    return out


def _findings(forest: Forest, replays: Replays, outcomes: Sequence[Outcome], graphs: int) -> list[Finding]:
    """How many replays, and how much device time, each reason leaves without a layer."""
    duration = forest.spans["duration_ns"].fill_null(0).gather(replays.at).to_numpy()
    of_replay = np.add.reduceat(duration, replays.first[:-1])
    counts = Counter(outcomes)
    findings = []
    for outcome, kind in _REASONS.items():
        lost = int(of_replay[[each is outcome for each in outcomes]].sum())
        detail = f"{kind.sentence} (of {len(replays)} replays, against {graphs} captured graphs)"
        findings.append(Finding(kind, detail, counts[outcome], duration_ns=lost))
    return [finding for finding in findings if finding.count]
