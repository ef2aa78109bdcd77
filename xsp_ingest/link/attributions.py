"""Layers of work that was not simply launched in their calls: replays of graphs, and what a compiler generated."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.correlate import GRAPH_LAUNCH
from xsp_ingest.link.graph_captures import (
    KernelNumbers,
    capture_windows,
    captured_graphs,
    expected_tokens,
    is_of_the_process,
    replay_tokens,
)
from xsp_ingest.link.graph_pairing import PairingOutcome, Replays, launches_on_streams, pair, replays_of, surroundings
from xsp_ingest.link.layers import layer_spans
from xsp_ingest.link.spans import innermost, matches
from xsp_model import GRAPH_CAPTURE, Attribution, AttributionBasis, Finding, Kind, LedgerKind, Level
from xsp_model.columns.arrays import lookup, no_refs
from xsp_model.columns.tree import ancestors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from xsp_ingest.link.forest import Forest
    from xsp_ingest.link.graph_captures import CapturedGraph
    from xsp_ingest.link.layers import Layering
    from xsp_ingest.staging.raw import RawTrace
    from xsp_model import LayerSource
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = [
    "Attributed",
    "PairedWork",
    "attribute",
    "pair_replays",
    "replayed_first",
    "spans_of_capture",
    "with_forward_lines",
]

_ROWS = {"at": pl.Int64, "layer_run": pl.Int64, "layer": pl.Int64, "weight": pl.Float64, "basis": pl.String}
_CAPTURED = {"at": pl.Int64, "run": pl.Int64, "launch": pl.Int64}
_ATTRIBUTIONS = tuple(Attribution)


@dataclass(frozen=True, slots=True)
class Attributed:
    """Of one run: `rows`, a span and layer each, in order of spans; `captured`, replayed work and its captured launch.

    Spans are named by their run and position there; `at` is of the run itself.
    """

    rows: pl.DataFrame
    captured: pl.DataFrame

    def weightiest(self) -> pl.DataFrame:
        """One row a span: the layer with most of it, the first of those with as much."""
        ordered = self.rows.sort("at", -pl.col("weight"), maintain_order=True)
        return ordered.unique("at", keep="first", maintain_order=True)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What a file says of operators' layers: `Attributed.rows`, and the operator of them around each span (or -1)."""

    rows: pl.DataFrame
    of_span: Positions


def attribute(
    raws: Sequence[RawTrace],
    forests: Sequence[Forest],
    layerings: Sequence[Layering],
    source: LayerSource,
    replays: Sequence[PairedWork | None],
) -> list[Attributed]:
    """The attributions of the runs that `replays` is of; layerings are changed to what these say."""
    recorded = [_recorded_rows(run, raw, forests[run], source) for run, raw in enumerate(raws)]
    out = []
    for run, paired in enumerate(replays):
        forest, layering = forests[run], layerings[run]
        parts = [_by_node(run, forest, layering)]
        if (own := recorded[run]) is not None:
            parts.append(_with_launched(own, forest))
            _move_held(own, layering)
        if paired is not None:
            parts.append(_of_replays(paired, recorded))
        attributed = Attributed(pl.concat(parts).sort("at", maintain_order=True), _capture_columns(paired))
        _apply(run, layering, attributed, paired)
        out.append(attributed)
    return out


def _recorded_rows(run: int, raw: RawTrace, forest: Forest, source: LayerSource) -> _Recorded | None:
    """None where the file says nothing; a layer within an attributed operator goes before what is said of that."""
    table = raw.tables["attributions"]
    if table.is_empty():
        return None
    rows = forest.spans["row"].to_numpy()
    at, layer = (lookup(rows, table[column].to_numpy()) for column in ("row", "layer_row"))
    usable = table.with_columns(pl.Series("at", at), pl.Series("layer", layer), pl.lit(run).alias("layer_run")).filter(
        pl.col("at") >= 0, pl.col("layer") >= 0, pl.col("weight") > 0
    )
    share = pl.col("weight") / pl.col("weight").sum().over("at")
    shares = usable.with_columns(share).select(pl.col(name).cast(kind) for name, kind in _ROWS.items())
    has_shares = np.zeros(len(rows), dtype=np.bool_)
    has_shares[shares["at"].to_numpy()] = True
    nearest = innermost(forest.parent, has_shares | layer_spans(forest, source))
    return _Recorded(shares.sort("at", "layer"), np.where((nearest >= 0) & has_shares[nearest], nearest, -1))


def _with_launched(recorded: _Recorded, forest: Forest) -> pl.DataFrame:
    """What is said, and the same of the device work that was launched there."""
    work = np.flatnonzero(forest.is_level(Level.KERNEL) & ~forest.replayed & (recorded.of_span >= 0))
    launched = work[recorded.of_span[work] != work]
    return pl.concat([recorded.rows, _copy_rows(launched, recorded.of_span[launched], recorded.rows)])


def _copy_rows(at: Positions, source: Positions, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of the spans `source` as rows of the spans `at`."""
    pairs = pl.DataFrame({"to": pl.Series(at, dtype=pl.Int64), "at": pl.Series(source, dtype=pl.Int64)})
    return pairs.join(rows, on="at", how="inner", maintain_order="left").drop("at").rename({"to": "at"}).select(*_ROWS)


def _move_held(recorded: _Recorded, layering: Layering) -> None:
    """What ran in an attributed operator is of its weightiest layer."""
    first = Attributed(recorded.rows, pl.DataFrame()).weightiest()
    layer_of = np.full(len(layering.layer) + 1, -1, dtype=layering.layer.dtype)
    layer_of[first["at"].to_numpy()] = first["layer"].to_numpy()
    held = np.flatnonzero(recorded.of_span >= 0)
    layering.layer[held] = layer_of[recorded.of_span[held]]


def _by_node(run: int, forest: Forest, layering: Layering) -> pl.DataFrame:
    """Replayed work whose node's capture the file itself names."""
    at = np.flatnonzero(forest.replayed & (forest.captured_in >= 0) & (layering.layer >= 0))
    return pl.DataFrame({"at": at, "layer": layering.layer[at]}, schema={"at": pl.Int64, "layer": pl.Int64}).select(
        "at",
        pl.lit(run, pl.Int64).alias("layer_run"),
        "layer",
        pl.lit(1.0).alias("weight"),
        pl.lit(str(AttributionBasis.GRAPH_NODE)).alias("basis"),
    )


def _of_replays(paired: PairedWork, recorded: Sequence[_Recorded | None]) -> pl.DataFrame:
    """Replayed work by its captured launch: the layers recorded of the operator there, else the launch's layer."""
    basis = pl.lit(str(AttributionBasis.GRAPH_CAPTURE)).alias("basis")
    plain = np.ones(len(paired.at), dtype=np.bool_)
    parts = []
    for run in np.unique(paired.run):
        if (of_run := recorded[run]) is not None:
            source = np.where(paired.run == run, of_run.of_span[paired.launch], -1)
            parts.append(_copy_rows(paired.at[source >= 0], source[source >= 0], of_run.rows).with_columns(basis))
            plain &= source < 0
    plain &= paired.layer >= 0
    columns = {"at": paired.at[plain], "layer_run": paired.layer_run[plain], "layer": paired.layer[plain]}
    rows = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int64))
    return pl.concat([*parts, rows.with_columns(pl.lit(1.0).alias("weight"), basis)])


def _capture_columns(paired: PairedWork | None) -> pl.DataFrame:
    if paired is None:
        return pl.DataFrame(schema=_CAPTURED)
    return pl.DataFrame({"at": paired.at, "run": paired.run, "launch": paired.launch}, schema=_CAPTURED)


def _apply(run: int, layering: Layering, attributed: Attributed, paired: PairedWork | None) -> None:
    """Sets layer (-1 where it is of another run), attribution and phase of what is attributed."""
    if paired is not None:
        phase = paired.phase >= 0
        layering.phase[paired.at[phase]] = paired.phase[phase]
        layering.attribution[paired.at] = _ATTRIBUTIONS.index(Attribution.MODEL_ONLY)
    first = attributed.weightiest()
    if first.is_empty():
        return
    at = first["at"].to_numpy()
    layering.layer[at] = first.select(pl.when(pl.col("layer_run") == run).then("layer").otherwise(-1)).to_series()
    work = at[layering.attribution[at] >= 0]
    layering.attribution[work] = _ATTRIBUTIONS.index(Attribution.LAYER)


# Backward operators are of the lines that their forward twins were called from: the engine is called by one line.


def with_forward_lines(forest: Forest) -> pl.DataFrame:
    """The operators; those in a backward one, and it, have the lines of its forward twin.

    What Python called within a backward operator, as to compute something anew, has other lines than that: it keeps its
    own.
    """
    operators, has_twin = forest.operators, forest.twin >= 0
    lines = operators["source_lines"]
    if lines.null_count() == len(lines) or not has_twin.any():
        return operators
    at = operators["at"].to_numpy()
    holder = innermost(forest.parent, has_twin)[at]
    inside = np.flatnonzero(holder >= 0)
    of_holder, of_twin = lookup(at, holder[inside]), lookup(at, forest.twin[holder[inside]])
    texts = lines.to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    recorded = (of_holder >= 0) & (of_twin >= 0)  # -1 reads the last, which does not matter then
    moved = recorded & (texts[inside] == texts[of_holder]) & (texts[of_twin] >= 0)
    source = np.arange(len(at))
    source[inside[moved]] = of_twin[moved]
    return operators.with_columns(lines.gather(source))


# What is kept of a run in which graphs were captured: what the host did while it captured, and what that lay in.


def spans_of_capture(forest: Forest) -> Bools:
    """Which spans are kept; steps are not, as nothing is timed from such a run."""
    start = forest.spans["start_ns"].to_numpy()
    thread = forest.spans.select("process_id", "thread_id").hash_rows().to_numpy()
    kept: Bools = np.zeros(len(start), dtype=np.bool_)
    process = forest.spans["process_id"].to_numpy()
    calls = forest.is_level(Level.RUNTIME) & forest.is_kind(Kind.CALL)
    windows = capture_windows(forest)
    for begin, end in windows:
        first, last = np.searchsorted(start, (start[begin], start[end]), side="left")
        kept[first:last] |= thread[first:last] == thread[begin]
        if is_of_the_process(forest, (begin, end), windows):
            kept[first:last] |= calls[first:last] & (process[first:last] == process[begin])
    held = np.flatnonzero(kept)
    for up in ancestors(forest.parent):
        kept[up[held][up[held] >= 0]] = True
    device = forest.is_level(Level.KERNEL) | forest.is_kind(Kind.SYNC)
    return kept & ~device & ~forest.is_kind(Kind.STEP)


def replayed_first(
    calls: pl.DataFrame, run: int, attributed: Sequence[Attributed], forests: Sequence[Forest]
) -> pl.DataFrame:
    """Calls of layers of a capture as of when their work first ran in a replay, which orders them among the others."""
    starts = [
        each.rows.filter(pl.col("layer_run") == run).with_columns(
            forest.spans["start_ns"].gather(each.rows.filter(pl.col("layer_run") == run)["at"]).alias("replayed_ns")
        )
        for each, forest in zip(attributed, forests, strict=False)
    ]
    first = pl.concat(starts).group_by("layer").agg(pl.col("replayed_ns").min())
    joined = calls.join(first, left_on="at", right_on="layer", how="left", maintain_order="left")
    return joined.with_columns(pl.coalesce("replayed_ns", "first_ns").alias("first_ns")).drop("replayed_ns")


# Ties replayed work to what its graph was captured from: in the same run, or in runs that were given as captures.

_REASONS = {
    PairingOutcome.NOT_CAPTURED: LedgerKind.GRAPH_NOT_CAPTURED,
    PairingOutcome.SEVERAL: LedgerKind.GRAPH_CAPTURES_ALIKE,
    PairingOutcome.INCOMPLETE: LedgerKind.GRAPH_CAPTURES_INCOMPLETE,
    PairingOutcome.UNNAMED: LedgerKind.GRAPH_CAPTURE_UNNAMED,
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
) -> tuple[Sequence[Ints], Ints, Sequence[PairingOutcome]]:
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


def _findings(forest: Forest, replays: Replays, outcomes: Sequence[PairingOutcome], graphs: int) -> list[Finding]:
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
