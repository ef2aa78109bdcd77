"""The spans of one run tied into trees: what layers, phases and attribution are worked out on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link import steps
from xsp_ingest.link.backward import is_backward, twins, with_engine
from xsp_ingest.link.correlate import (
    captures,
    correlate,
    impossible_work,
    in_generated_code,
    with_callers,
    with_holders,
)
from xsp_ingest.link.nest import Moments, Nesting
from xsp_ingest.link.nesting import Threads, named_ranges, nest_with_ranges, with_limited_depth, with_replicas
from xsp_ingest.link.spans import SpanKinds, call_numbers, details_of, span_kinds
from xsp_model import Finding, Kind, LedgerKind, Level
from xsp_model.columns import arrays
from xsp_model.columns.arrays import lookup
from xsp_model.columns.tree import total_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from xsp_ingest.staging.raw import RawTrace
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = ["Forest", "at_spans", "grow"]

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
    parent[launches.launch >= 0] = launches.launch[launches.launch >= 0]
    parent = with_holders(spans, kinds, parent)
    numbered, parent = steps.number(spans, kinds, parent)
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
    return forest, [*_doubts(nesting.overhangs, nesting.ambiguous, deeper), *impossible]


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


def _elsewhere(spans: pl.DataFrame, ranges: pl.DataFrame) -> Ints:
    """Ranges that another thread closed: they hold nothing on the thread that opened them."""
    return lookup(spans["row"].to_numpy(), ranges.filter(pl.col("end_thread_id").is_not_null())["row"].to_numpy())


def _nest_host(
    spans: pl.DataFrame, kinds: SpanKinds, moments: pl.DataFrame, ranges: pl.DataFrame, number: Ints | None
) -> Nesting:
    """`number`: of spans alike in time and kind the one of the smaller is outside."""
    threads = Threads.of(spans.select("process_id", "thread_id"))
    thread = threads.numbers(spans)
    thread[kinds.is_level(Level.KERNEL) | kinds.is_kind(Kind.SYNC)] = -1  # device work and waits are on no thread
    thread[in_generated_code(spans, kinds)] = -1  # nor are layers that no thread called
    end = _ends(spans)
    elsewhere = _elsewhere(spans, ranges)
    end[elsewhere[elsewhere >= 0]] = spans["start_ns"].gather(elsewhere[elsewhere >= 0]).to_numpy()
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
