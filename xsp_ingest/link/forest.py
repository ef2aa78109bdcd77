"""The spans of one run tied into trees: what layers, phases and attribution are worked out on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link import graphs, steps
from xsp_ingest.link.backward import is_backward, twins, with_engine
from xsp_ingest.link.correlate import correlate
from xsp_ingest.link.nest import Nesting, nest
from xsp_ingest.link.stated import with_callers
from xsp_model import Finding, Kind, Level
from xsp_model.arrays import places
from xsp_model.vocabulary import LEVELS

if TYPE_CHECKING:
    from xsp_ingest.raw import RawTrace
    from xsp_model.arrays import Bools, Ints

__all__ = ["Forest", "at_spans", "grow"]


@dataclass(frozen=True, slots=True)
class Forest:
    """Spans of one run; every array has one entry a span, positions in `spans`, -1 for none.

    `ambiguous`: another parent was possible.
    `backward`: an operator that the autograd engine ran; `twin`: the forward twin of such.
    `captured_in`: where a replayed kernel's graph node was captured.
    `allocations`: changes of memory in use, each with the span that held it (`owner`, -1: none).
    """

    spans: pl.DataFrame  # raw spans plus `step`
    operators: pl.DataFrame  # raw operators, `row` replaced by the position `at`
    parent: Ints
    ambiguous: Bools
    backward: Bools
    twin: Ints
    captured_in: Ints
    replayed: Bools  # device work that a graph launch issued
    orphans: pl.Series
    allocations: pl.DataFrame  # owner, bytes, device_id

    def is_level(self, level: Level) -> Bools:
        """Which spans are of the level."""
        return (self.spans["level"] == str(level)).to_numpy()

    def is_kind(self, kind: Kind) -> Bools:
        """Which spans are of the kind."""
        return (self.spans["kind"] == str(kind)).to_numpy()


def grow(raw: RawTrace) -> tuple[Forest, list[Finding]]:
    """Ties a run's spans together by rules 2, 3, 5 and 6."""
    spans = raw.tables["spans"]
    operators = at_spans(spans, raw.tables["operators"])
    moments = _moments(raw)
    nesting = _nest_host(spans, moments, _elsewhere(spans, raw.tables["ranges"]))
    height = spans.height
    launches = correlate(spans)
    parent = with_callers(spans, operators, nesting.parent[:height])
    parent = np.where(launches.launch >= 0, launches.launch, parent)
    numbered, parent = steps.number(spans, parent)
    owner = nesting.parent[height:]
    captured_in, replayed = graphs.captures(spans, at_spans(spans, raw.tables["kernels"]), parent, moments, owner)
    backward = is_backward(spans, operators)
    forest = Forest(
        numbered,
        operators,
        parent,
        nesting.ambiguous[:height],
        backward,
        with_engine(spans, parent, twins(spans, operators, raw.tables["flows"], backward)),
        captured_in,
        replayed,
        launches.orphans,
        moments.with_columns(pl.Series("owner", owner)).filter(pl.col("bytes").is_not_null()),
    )
    return forest, _doubts(nesting.overhangs[:height], nesting.ambiguous[:height])


def at_spans(spans: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """The facts with `at`, the position of the span they are of; facts of no span are left out."""
    at = places(spans["row"].to_numpy(), facts["row"].to_numpy())
    return facts.with_columns(pl.Series("at", at)).filter(pl.col("at") >= 0)


def _moments(raw: RawTrace) -> pl.DataFrame:
    """Allocations and graph-node creations, as points on their threads."""
    allocations = raw.tables["allocations"].select(
        "process_id", "thread_id", pl.col("time_ns").alias("start_ns"), "bytes", "device_id"
    )
    nodes = raw.tables["graph_nodes"].select(
        "process_id", "thread_id", "start_ns", "graph_node_id", "original_graph_node_id"
    )
    return pl.concat([allocations, nodes], how="diagonal")


def _elsewhere(spans: pl.DataFrame, ranges: pl.DataFrame) -> pl.Series:
    """Ranges that another thread closed: they hold nothing on the thread that opened them."""
    away = at_spans(spans, ranges).filter(pl.col("end_thread_id").is_not_null())["at"]
    return pl.int_range(spans.height, eager=True).is_in(away.implode())


def _nest_host(spans: pl.DataFrame, moments: pl.DataFrame, elsewhere: pl.Series) -> Nesting:
    ranks = {str(level): rank for rank, level in enumerate(LEVELS)}
    last = (spans["start_ns"] + spans["duration_ns"].fill_null(0)).to_numpy().max(initial=0)
    end = (
        pl.when(elsewhere)
        .then(pl.col("start_ns"))
        .when(pl.col("duration_ns").is_null())
        .then(pl.lit(last))  # never closed: open to the end
        .otherwise(pl.col("start_ns") + pl.col("duration_ns"))
    )
    rank = pl.col("level").cast(pl.String).replace_strict(ranks, return_dtype=pl.Int64)
    on_host = (pl.col("level") != Level.KERNEL) & (pl.col("kind") != Kind.SYNC)
    host = spans.select(
        "process_id", "thread_id", "start_ns", end.alias("end_ns"), rank.alias("rank"), on_host.alias("on_host")
    )
    points = moments.select(
        "process_id",
        "thread_id",
        "start_ns",
        pl.col("start_ns").alias("end_ns"),
        pl.lit(len(LEVELS), pl.Int64).alias("rank"),
        pl.lit(value=True).alias("on_host"),
    )
    every = pl.concat([host, points])
    threads = pl.struct("process_id", "thread_id").rank("dense").cast(pl.Int64)
    alone = -1 - pl.int_range(pl.len())  # device work and waits are on no thread: a group of their own each
    group = every.select(pl.when(pl.col("on_host")).then(threads).otherwise(alone))
    return nest(group.to_series().to_numpy(), *(every[name].to_numpy() for name in ("start_ns", "end_ns", "rank")))


def _doubts(overhangs: Bools, ambiguous: Bools) -> list[Finding]:
    return [
        Finding(
            "overhang",
            "host spans end more than 1 us after the span they started in; each was nested by its start",
            int(overhangs.sum()),
        ),
        Finding(
            "ambiguous_parent",
            "host spans started inside two spans that overlap without nesting; the later one was taken as parent",
            int(ambiguous.sum()),
            advice="A run with the device synchronised after each layer tells which parent is right",
        ),
    ]
