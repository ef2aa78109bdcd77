"""The spans of one run tied into trees, backward operators to their forward twins (rule 6)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link import steps
from xsp_ingest.link.correlate import (
    captures,
    correlate,
    impossible_work,
    in_generated_code,
    resolve_rows,
    with_callers,
    with_holders,
)
from xsp_ingest.link.nest import Moments, Nesting, moments_apart
from xsp_ingest.link.nesting import (
    Threads,
    closed_elsewhere,
    named_ranges,
    nest_with_ranges,
    with_limited_depth,
    with_open_ranges,
    with_replicas,
)
from xsp_ingest.link.spans import SpanKinds, call_numbers, details_of, matches, pair_keys, span_kinds
from xsp_model import Finding, Kind, LedgerKind, Level
from xsp_model.columns import arrays
from xsp_model.columns.arrays import gather_rows, lookup, no_refs, pieces, release, true_indices
from xsp_model.columns.tree import total_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from xsp_ingest.staging.raw import RawTrace
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = ["Forest", "at_spans", "grow", "is_backward", "numbering_domains", "twins", "with_engine"]

# Rule 6: ties a backward operator to its forward twin.

# Which thread a backward operator's forward ran on: each thread numbers its operators for itself.
_FORWARD = ["process_id", "forward_thread_id"]
_THREAD = ["process_id", "thread_id"]


def numbering_domains(
    spans: pl.DataFrame, operators: pl.DataFrame, backward: Bools, forward: Bools, flows: pl.DataFrame
) -> pl.Series:
    """For each operator a number, alike for a backward operator and those among which its forward twin is.

    The autograd engine counts forward threads from 1, not by the system's ids. Where a process has more than one of
    them, `flows` (backward_at, forward_at) say which is which; where the file has none, the order in which they began.
    A forward thread whose operators were not recorded has no twins.
    """
    process = spans["process_id"].gather(operators["at"])
    ours = pl.DataFrame({"process_id": process, "forward_thread_id": operators["forward_thread_id"]})
    ours = ours.filter(pl.Series(backward)).drop_nulls().unique().sort(_FORWARD)
    several = ours.filter(pl.len().over("process_id") > 1)
    if several.is_empty():
        return process
    where = spans.select(*_THREAD, "start_ns")[operators["at"]]
    mapped = _domains_by_flow(spans, operators, flows)
    threads = where.filter(pl.Series(forward)).select(_THREAD).unique()
    began = spans.select(*_THREAD, "start_ns").join(threads, on=_THREAD, how="semi")
    began = began.group_by(_THREAD).agg(pl.col("start_ns").min())
    mapped = pl.concat([mapped, _by_order(several, began.sort("start_ns", "thread_id"), mapped)])
    domains = mapped.join(several, on=_FORWARD, how="semi").unique(_THREAD, keep="first", maintain_order=True)
    first = int(process.max() or 0) + 1  # type: ignore[arg-type]
    domains = domains.with_columns(pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias("domain"))
    rows = where.with_columns(operators["forward_thread_id"]).select(*_THREAD, "forward_thread_id")
    by_forward = rows.join(domains, on=_FORWARD, how="left", maintain_order="left")["domain"]
    by_thread = rows.join(domains, on=_THREAD, how="left", maintain_order="left")["domain"]
    domain = pl.select(pl.when(pl.Series(backward)).then(by_forward).otherwise(by_thread)).to_series()
    return domain.zip_with(domain.is_not_null(), process)


def _domains_by_flow(spans: pl.DataFrame, operators: pl.DataFrame, flows: pl.DataFrame) -> pl.DataFrame:
    """process_id, forward_thread_id, thread_id: where most flows from backward operators of it lead."""
    backward = operators.select(pl.col("at").cast(pl.Int64).alias("backward_at"), "forward_thread_id")
    ends = flows.select(pl.col("backward_at", "forward_at").cast(pl.Int64)).join(backward, on="backward_at")
    led = spans.select(_THREAD)[ends["forward_at"]].with_columns(ends["forward_thread_id"])
    counts = led.drop_nulls().group_by(*_FORWARD, "thread_id").len()
    ranked = counts.sort(*_FORWARD, "len", "thread_id", descending=[False, False, True, False])
    return ranked.unique(_FORWARD, keep="first", maintain_order=True).select(*_FORWARD, "thread_id")


def _by_order(forward: pl.DataFrame, began: pl.DataFrame, mapped: pl.DataFrame) -> pl.DataFrame:
    """The same by order, in processes without flows where as many threads have operators; of one thread, the first."""
    nth = pl.int_range(pl.len()).over("process_id").alias("nth")
    count = pl.len().over("process_id").alias("count")
    numbered = forward.join(mapped, on="process_id", how="anti").with_columns(nth, count)
    threads = began.join(mapped, on="process_id", how="anti").with_columns(nth, count)
    pairs = numbered.join(threads, on=["process_id", "nth"], suffix="_threads")
    alike = (pl.col("count") == pl.col("count_threads")) | (pl.col("count_threads") == 1)
    return pairs.filter(alike).select(*_FORWARD, "thread_id").sort(*_FORWARD)


_START_KEY = ("process_id", "thread_id", "start_ns")
_ENGINE = "^autograd::engine::evaluate_function"


def is_backward(spans: pl.DataFrame, kinds: SpanKinds, operators: pl.DataFrame) -> Bools:
    """Which spans are operators that the autograd engine ran."""
    out: Bools = matches(spans["name"], _ENGINE) & kinds.is_level(Level.OPERATOR)
    out[operators["at"].to_numpy()[operators["forward_thread_id"].is_not_null().to_numpy()]] = True
    return out


def twins(
    spans: pl.DataFrame, kinds: SpanKinds, operators: pl.DataFrame, flows: pl.DataFrame, backward: Bools
) -> Positions:
    """For each span the position of its forward twin, or -1: as the file says, by flow, else by sequence number."""
    out = no_refs(spans.height)
    recorded = resolve_rows(spans, operators, "forward_row").select(backward_at="at", forward_at="position")
    by_flow = _by_flow(spans, kinds, flows)
    for pairs in (_by_sequence(spans, operators, backward, by_flow), by_flow, recorded):
        out[pairs["backward_at"].to_numpy()] = pairs["forward_at"].to_numpy()
    return out


def with_engine(spans: pl.DataFrame, kinds: SpanKinds, parent: Positions, twin: Positions) -> Positions:
    """The twins, changed: the engine's own operator around a node has the node's; emit_nvtx writes no number on it.

    A range between the two does not matter.
    """
    has_twin = twin >= 0
    engine = matches(spans["name"], _ENGINE) & kinds.is_level(Level.OPERATOR) & ~has_twin
    is_range = named_ranges(kinds)
    for piece in reversed(list(pieces(len(twin)))):  # of several in one operator the first stays
        inside = piece.start + np.flatnonzero(has_twin[piece] & (parent[piece] >= 0))
        above = _over(is_range, parent, parent[inside])
        by_engine = np.flatnonzero((above >= 0) & engine[above])[::-1]
        twin[above[by_engine]] = twin[inside[by_engine]]
    return twin


def _over(is_range: Bools, parent: Positions, at: Positions) -> Positions:
    """For each span itself, or the first above it that is no range; -1: there is none."""
    while (ranges := np.flatnonzero((at >= 0) & is_range[at])).size:
        at[ranges] = parent[at[ranges]]
    return at


def _by_sequence(spans: pl.DataFrame, operators: pl.DataFrame, backward: Bools, flows: pl.DataFrame) -> pl.DataFrame:
    """The operator that made the autograd node is the last of its thread to start with the node's number.

    Operators that make no node carry the number that the next one will take, so earlier bearers are not it.
    """
    is_ours, is_theirs = _equally_numbered_operators(operators, backward)
    domains = numbering_domains(spans, operators, is_ours, is_theirs, flows)
    have, at = _keys_and_positions(domains, operators, true_indices(is_theirs)[::-1])  # the last one first
    want, of = _keys_and_positions(domains, operators, true_indices(is_ours))
    twin = lookup(*pair_keys(have, want))
    release()
    ours: Positions = of[twin >= 0]
    theirs: Positions = at[twin[twin >= 0]]
    start = spans["start_ns"].to_numpy()
    earlier = start[theirs] < start[ours]
    return pl.DataFrame({"backward_at": ours[earlier], "forward_at": theirs[earlier]})


def _equally_numbered_operators(operators: pl.DataFrame, backward: Bools) -> tuple[Bools, Bools]:
    """Which operators are numbered backward ones, and which others have a number that one of those has."""
    numbers, at = operators["sequence_number"], operators["at"].to_numpy()
    ours, others = (np.zeros(len(at), dtype=np.bool_) for _ in range(2))
    for piece in pieces(len(at)):
        ours[piece] = backward[at[piece]]
    ours &= numbers.is_not_null().to_numpy()
    backward_numbers = numbers.gather(true_indices(ours)).unique().sort().to_numpy()
    for piece in pieces(len(at) if len(backward_numbers) else 0):
        some = numbers[piece]
        values = some.fill_null(0).to_numpy()
        is_shared = (
            backward_numbers[np.minimum(np.searchsorted(backward_numbers, values), len(backward_numbers) - 1)] == values
        )
        others[piece] = is_shared & some.is_not_null().to_numpy() & ~ours[piece]
    return ours, others


def _keys_and_positions(domains: pl.Series, operators: pl.DataFrame, rows: Positions) -> tuple[pl.DataFrame, Positions]:
    """Numbering domain and sequence number of the operators in these rows, and their positions."""
    at: Positions = operators["at"].to_numpy()[rows]
    keys = operators.select(domains.alias("domain"), "sequence_number")
    return gather_rows(keys, rows), at


def _by_flow(spans: pl.DataFrame, kinds: SpanKinds, flows: pl.DataFrame) -> pl.DataFrame:
    """A flow names both ends by thread and start; of operators that start together the innermost is meant."""
    ends = {side: _End.of(flows, side) for side in ("forward", "backward")}
    if flows.height:
        for piece in moments_apart(spans["start_ns"].to_numpy()):
            at = piece.start + np.flatnonzero(kinds.is_level(Level.OPERATOR, piece))
            if len(at):
                operators = spans.select(*_START_KEY, "duration_ns")[piece].select(pl.all().gather(at - piece.start))
                for end in ends.values():
                    end.find(operators, at)
    both = (ends["forward"].at >= 0) & (ends["backward"].at >= 0)
    return pl.DataFrame({"backward_at": ends["backward"].at[both], "forward_at": ends["forward"].at[both]})


@dataclass(frozen=True, slots=True)
class _End:
    """One end of all flows, in order of its moment, with the operators found there (-1: none so far) by flow."""

    flows: pl.DataFrame  # process_id, thread_id, start_ns, and `flow`, which flow it is
    at: Positions

    @classmethod
    def of(cls, flows: pl.DataFrame, side: str) -> _End:
        ends = flows.select(pl.col(f"{side}_{name}").alias(name) for name in _START_KEY).with_row_index("flow")
        return cls(ends.drop_nulls("start_ns").sort("start_ns"), no_refs(flows.height))

    def find(self, operators: pl.DataFrame, at: Ints) -> None:
        """Looks for the flows' ends among operators at these positions, all that start from the first's start on."""
        moments, start = self.flows["start_ns"].to_numpy(), operators["start_ns"].to_numpy()
        few = self.flows[int(np.searchsorted(moments, start[0])) : int(np.searchsorted(moments, start[-1], "right"))]
        if not few.height:
            return
        begun = few["start_ns"].to_numpy()
        at_flow_end = begun[np.minimum(np.searchsorted(begun, start), len(begun) - 1)] == start
        starts = operators.with_columns(pl.Series("at", at)).filter(pl.Series(at_flow_end)).sort("duration_ns", "at")
        innermost = starts.unique(_START_KEY, keep="first", maintain_order=True)
        met = few.join(innermost, on=_START_KEY, how="inner")
        self.at[met["flow"].to_numpy()] = met["at"].to_numpy()


_ALL = slice(None)


@dataclass(frozen=True, slots=True)
class Forest:
    """Spans of one run in their total order; every array has one entry a span, positions in `spans`, -1 for none.

    `ambiguous`: another parent was possible.
    `backward`: an operator that the autograd engine ran; `twin`: the forward twin of such.
    `captured_in`: where a replayed kernel's graph node was captured.
    `orphans`: for device work without a launch the reason's index in `Attribution`.
    `allocations`: changes of memory in use, each with the span that held it (`owner`, -1: none).
    """

    spans: pl.DataFrame  # raw spans plus `step`
    kinds: SpanKinds
    operators: pl.DataFrame  # raw operators in order of their spans, `row` replaced by the position `at`
    parent: Positions
    ambiguous: Bools
    backward: Bools
    twin: Positions
    captured_in: Positions
    replayed: Bools  # device work that a graph launch issued
    orphans: NDArray[np.int8]
    allocations: pl.DataFrame  # owner, bytes, device_id

    def is_level(self, level: Level, some: slice = _ALL) -> Bools:
        """Which spans are of the level; of some of them only."""
        return self.kinds.is_level(level, some)

    def is_kind(self, kind: Kind) -> Bools:
        """Which spans are of the kind."""
        return self.kinds.is_kind(kind)


def grow(raw: RawTrace, impossible: Sequence[Finding] | None = None) -> tuple[Forest, list[Finding]]:
    """Ties a run's spans together by rules 2, 3, 5 and 6.

    Device work whose time cannot be right counts for 0 ns; `impossible`: what was said of such, where that was done.
    """
    spans = raw.tables["spans"]
    rows_nest = raw.facts.rows_nest
    order = total_order(spans) if rows_nest else total_order(spans, partial(details_of, raw))
    spans = arrays.gather_rows(spans, order)
    kinds = span_kinds(spans)
    operators = at_spans(spans, raw.tables["operators"])
    moments = _moments(raw)
    number = order if rows_nest else call_numbers(spans, operators, raw.tables["ranges"])
    nesting = _nest_host(spans, kinds, moments, raw.tables["ranges"], number)
    arrays.release()
    launches = correlate(spans, kinds)
    parent = with_replicas(spans, kinds, with_callers(spans, kinds, operators, nesting.parent))
    parent, crossed = with_open_ranges(spans, kinds, raw.tables["ranges"], parent)
    parent[launches.launch >= 0] = launches.launch[launches.launch >= 0]
    parent = with_holders(spans, kinds, parent)
    numbered, parent = steps.number(spans, kinds, parent, layers_begin_early=raw.facts.layers_begin_early)
    parent, deeper = with_limited_depth(parent)
    arrays.release()
    kernels = at_spans(spans, raw.tables["kernels"])
    captured_in, replayed = captures(spans, kinds, kernels, parent, moments, nesting.owner)
    if impossible is None:
        wrong, impossible = impossible_work(spans, kinds, launches.launch, replayed)
        if len(wrong):
            return grow(_without_durations(raw, spans["row"].gather(wrong)), impossible)
    arrays.release()
    backward = arrays.to_scratch(is_backward(spans, kinds, operators))
    forest = Forest(
        numbered,
        kinds,
        operators,
        parent,
        arrays.to_scratch(nesting.ambiguous),
        backward,
        with_engine(spans, kinds, parent, twins(spans, kinds, operators, raw.tables["flows"], backward)),
        captured_in,
        arrays.to_scratch(replayed),
        arrays.to_scratch(launches.orphans),
        moments.select("bytes", "device_id", pl.Series("owner", nesting.owner)).filter(pl.col("bytes").is_not_null()),
    )
    arrays.release()
    return forest, [*_doubts(nesting.overhangs, nesting.ambiguous, deeper), *crossed, *impossible]


def _without_durations(raw: RawTrace, rows: pl.Series) -> RawTrace:
    """The same with 0 ns as the duration of these rows of spans."""
    duration = pl.when(pl.col("row").is_in(rows.implode())).then(0).otherwise(pl.col("duration_ns"))
    return replace(raw, tables={**raw.tables, "spans": raw.tables["spans"].with_columns(duration.alias("duration_ns"))})


def at_spans(spans: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """The facts in order of their spans, with `at`, the span's position; facts of no span are left out."""
    at = lookup(spans["row"].to_numpy(), facts["row"].to_numpy())
    if (at[1:] > at[:-1]).all() and (at[:1] >= 0).all():
        return facts.with_columns(pl.Series("at", at))
    order = np.argsort(at, kind="stable")
    order = order[at[order] >= 0]
    return arrays.gather_rows(facts, order).with_columns(pl.Series("at", at[order]))


def _moments(raw: RawTrace) -> pl.DataFrame:
    """Allocations and graph-node creations, as points on their threads."""
    allocations = raw.tables["allocations"].select(
        "process_id", "thread_id", pl.col("time_ns").alias("start_ns"), "bytes", "device_id"
    )
    nodes = raw.tables["graph_nodes"].select(
        "process_id", "thread_id", "start_ns", "graph_node_id", "original_graph_node_id"
    )
    return (
        pl.concat([allocations, nodes], how="diagonal")
        if nodes.height
        else allocations.with_columns(
            pl.lit(None, pl.Int64).alias(name) for name in ("graph_node_id", "original_graph_node_id")
        )
    )


def _nest_host(
    spans: pl.DataFrame, kinds: SpanKinds, moments: pl.DataFrame, ranges: pl.DataFrame, number: Ints | None
) -> Nesting:
    """`number`: of spans alike in time and kind the one of the smaller is outside."""
    threads = Threads.of(spans.select("process_id", "thread_id"))
    thread = threads.numbers(spans)
    thread[kinds.is_level(Level.KERNEL) | kinds.is_kind(Kind.SYNC)] = -1  # device work and waits are on no thread
    thread[in_generated_code(spans, kinds)] = -1  # nor are layers that no thread called
    end = _ends(spans)
    elsewhere = closed_elsewhere(spans, ranges)
    end[elsewhere] = spans["start_ns"].gather(elsewhere).to_numpy()  # on the thread that opened them they hold nothing
    points = Moments(threads.numbers(moments), moments["start_ns"].to_numpy())
    return nest_with_ranges(
        thread,
        spans["start_ns"].to_numpy(),
        end,
        kinds.level,
        named_ranges(kinds),
        threads=threads.count,
        moments=points,
        ties=(kinds.kind,) if number is None else (kinds.kind, number),
    )


def _ends(spans: pl.DataFrame) -> Ints:
    """When each span ended; what was never closed is open to the end."""
    out: Ints = arrays.empty(spans.height, np.int64)
    never = []
    for piece in arrays.pieces(spans.height):
        start, length = spans["start_ns"][piece], spans["duration_ns"][piece]
        out[piece] = (start + length.fill_null(0)).to_numpy()
        if length.null_count():
            never.append(piece.start + np.flatnonzero(length.is_null().to_numpy()))
    if never:
        out[np.concatenate(never)] = out.max()
    return out


def _doubts(overhangs: Bools, ambiguous: Bools, deeper: int) -> list[Finding]:
    return [
        Finding(LedgerKind.OVERHANG, count=int(overhangs.sum())),
        Finding(LedgerKind.AMBIGUOUS_PARENT, count=int(ambiguous.sum())),
        Finding(LedgerKind.NESTED_TOO_DEEP, count=deeper),
    ]
