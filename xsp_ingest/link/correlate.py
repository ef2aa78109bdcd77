"""Rules 2 and 5: what device work hangs under (its launch, a graph's replay), and which of its times cannot be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.spans import category_indices, innermost, matches, pair_keys
from xsp_model import Attribution, Finding, Kind, LedgerKind, Level
from xsp_model.columns.arrays import gather_rows, lookup, no_refs, pieces, true_indices

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from xsp_ingest.link.spans import SpanKinds
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = [
    "GRAPH_LAUNCH",
    "Launches",
    "captures",
    "correlate",
    "impossible_work",
    "in_generated_code",
    "replayed_work",
    "resolve_rows",
    "with_callers",
    "with_holders",
]


# Rule 2: a device activity's parent is the runtime call with its process and correlation id, else what issued it.


_MIGRATION = r"^\[(?:CUDA memcpy )?Unified"  # as Nsight Systems and nvprof name copies of unified memory
_REASONS = tuple(str(reason) for reason in Attribution)


@dataclass(frozen=True, slots=True)
class Launches:
    """For each span the position of its launch or -1, and for device work without one the reason (-1: none needed).

    A reason is an index in `Attribution`.
    """

    launch: Positions
    orphans: NDArray[np.int8]


def correlate(spans: pl.DataFrame, kinds: SpanKinds) -> Launches:
    """Finds launches over raw spans in order; where runtime and driver both recorded one, the outermost call is it.

    Work whose launch was not recorded has instead the span that the file itself says issued it.
    """
    calls = true_indices(
        kinds.is_level(Level.RUNTIME) & kinds.is_kind(Kind.CALL) & spans["correlation_id"].is_not_null().to_numpy()
    )
    work = true_indices(kinds.is_level(Level.KERNEL))
    launch = _launches(spans, calls, work)
    issuer = _issuers(spans, work)
    if issuer is not None:
        launch = np.where(launch >= 0, launch, issuer)
    out = no_refs(spans.height)
    out[work] = launch
    orphans = np.full(spans.height, -1, dtype=np.int8)
    lost = work[launch < 0]
    if len(lost):
        orphans[lost] = _reasons(_facts(spans, lost), _facts(spans, calls))
        migrated = lost[(matches(spans["name"], _MIGRATION) & kinds.is_kind(Kind.MEMCPY))[lost]]
        orphans[migrated] = _REASONS.index(Attribution.UNIFIED_MEMORY)
    return Launches(out, orphans)


def _facts(spans: pl.DataFrame, at: Positions) -> pl.DataFrame:
    return gather_rows(spans.select("process_id", "correlation_id", "start_ns"), at)


def _launches(spans: pl.DataFrame, calls: Positions, work: Positions) -> Ints:
    """For each piece of work the first call with its process and id: the outermost, as spans are in order."""
    ids = spans.select("process_id", "correlation_id")
    launches = lookup(*pair_keys(gather_rows(ids, calls), gather_rows(ids, work)))
    for piece in pieces(len(launches)):
        some = launches[piece]
        some[some >= 0] = calls[some[some >= 0]]
    return launches


def _issuers(spans: pl.DataFrame, work: Positions) -> Ints | None:
    """For each piece of work the position of the span that the file says issued it, or -1; None: it says so of none."""
    issuer_rows = spans["issued_by_row"]
    if issuer_rows.null_count() == len(issuer_rows):
        return None
    rows = issuer_rows.gather(work)
    issuers = lookup(spans["row"].to_numpy(), rows.fill_null(0).to_numpy())
    return np.where(rows.is_not_null().to_numpy(), issuers, -1)


def _reasons(lost: pl.DataFrame, calls: pl.DataFrame) -> NDArray[np.int8]:
    """Launched before the window: the id is older than the process's first call, or the work began before it."""
    first = calls.group_by("process_id").agg(
        pl.col("correlation_id").min().alias("first_id"), pl.col("start_ns").min().alias("first_ns")
    )
    compared = lost.join(first, on="process_id", how="left", maintain_order="left")
    early = (pl.col("correlation_id") < pl.col("first_id")) | (pl.col("start_ns") < pl.col("first_ns"))
    reason = (
        pl.when(pl.col("correlation_id").is_null())
        .then(pl.lit(str(Attribution.ORPHAN_NO_CORRELATION)))
        .when(early)
        .then(pl.lit(str(Attribution.ORPHAN_BEFORE_WINDOW)))
        .otherwise(pl.lit(str(Attribution.ORPHAN_NO_LAUNCH)))
    )
    return category_indices(compared.select(reason.cast(pl.Categorical)).to_series(), _REASONS)


# Relations between spans that a file itself records: they go before what times suggest.


def resolve_rows(spans: pl.DataFrame, facts: pl.DataFrame, column: str) -> pl.DataFrame:
    """The facts in which `column` names a span by its row, with that span's `position`."""
    referring = facts.filter(pl.col(column).is_not_null())
    position = lookup(spans["row"].to_numpy(), referring[column].to_numpy())
    return referring.with_columns(pl.Series("position", position)).filter(pl.col("position") >= 0)


def in_generated_code(spans: pl.DataFrame, kinds: SpanKinds) -> Positions:
    """Layers that no thread called: the file says what they lie in."""
    rows = spans["issued_by_row"]
    if rows.null_count() == len(rows):
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(kinds.is_level(Level.LAYER) & rows.is_not_null().to_numpy())


def with_holders(spans: pl.DataFrame, kinds: SpanKinds, parent: Positions) -> Positions:
    """Parents in which layers that no thread called lie in what the file says they do."""
    at = in_generated_code(spans, kinds)
    if not len(at):
        return parent
    holder = lookup(spans["row"].to_numpy(), spans["issued_by_row"].gather(at).to_numpy())
    start = spans["start_ns"].to_numpy()
    earlier = (start[holder] < start[at]) | ((start[holder] == start[at]) & (holder < at))
    sound = (holder >= 0) & earlier  # so that no circle arises
    out = parent.copy()
    out[at[sound]] = holder[sound]
    return out


def with_callers(spans: pl.DataFrame, kinds: SpanKinds, operators: pl.DataFrame, parent: Positions) -> Positions:
    """Parents in which each operator's nearest operator above is the one that the file says called it.

    What lies between the two (a module's call) stays. A caller that began after its callee is none: no circle arises.
    """
    if operators["called_by_row"].null_count() == operators.height:
        return parent
    caller_rows = operators["called_by_row"].fill_null(-1).to_numpy()
    caller = lookup(spans["row"].to_numpy(), caller_rows)
    at = operators["at"].to_numpy()
    nearest = np.append(innermost(parent, kinds.is_level(Level.OPERATOR)), -1)
    above = nearest[parent[at]]
    start = spans["start_ns"].to_numpy()
    length = spans["duration_ns"].fill_null(0).to_numpy()
    before = (start[caller] < start[at]) | ((start[caller] == start[at]) & (length[caller] > length[at]))
    change = (caller_rows >= 0) & (caller >= 0) & (caller != above) & before
    out = parent.copy()
    out[at[change]] = caller[change]
    return out


# Rule 5: device work that a graph launch replayed, and where its nodes were captured.

GRAPH_LAUNCH = r"(?i)^(cuda|cu|hip)GraphLaunch"


def captures(
    spans: pl.DataFrame,
    kinds: SpanKinds,
    kernels: pl.DataFrame,
    parent: Positions,
    moments: pl.DataFrame,
    owner: Positions,
) -> tuple[Positions, Bools]:
    """For each span the span its graph node was captured in (-1: unknown or no replay), and whether it was replayed.

    What the file says of a kernel goes first.
    A replayed node is looked up by its own id, else by that of the node it was instantiated from.
    """
    captured_in = no_refs(spans.height)
    nodes = kernels.filter(pl.col("graph_node_id").is_not_null()).select("at", "graph_node_id")
    made = _capture_owners(moments, owner)
    if made.height:
        captured = nodes.join(made, on="graph_node_id", how="inner", maintain_order="left")
        captured_in[captured["at"].to_numpy()] = captured["owner"].to_numpy()
    recorded = resolve_rows(spans, kernels, "captured_in_row")
    captured_in[recorded["at"].to_numpy()] = recorded["position"].to_numpy()
    return captured_in, replayed_work(spans, kinds, kernels, parent)


def replayed_work(spans: pl.DataFrame, kinds: SpanKinds, kernels: pl.DataFrame, parent: Positions) -> Bools:
    """Which spans are device work that a graph launch issued: by launch, by kind, or by the graph node they carry."""
    launches = np.append(matches(spans["name"], GRAPH_LAUNCH), [False])  # parent -1 reads the last
    replayed: Bools = (launches[parent] & kinds.is_level(Level.KERNEL)) | kinds.is_kind(Kind.GRAPH)
    replayed[kernels.filter(pl.col("graph_node_id").is_not_null())["at"].to_numpy()] = True
    return replayed


def _capture_owners(moments: pl.DataFrame, owner: Positions) -> pl.DataFrame:
    """graph_node_id and owner: the span a node, or the node it was cloned from, was created in."""
    created = moments.with_columns(pl.Series("owner", owner)).filter(pl.col("graph_node_id").is_not_null())
    first = created.sort("start_ns").unique("graph_node_id", keep="first", maintain_order=True)
    origin = first.select(pl.col("graph_node_id").alias("original_graph_node_id"), pl.col("owner").alias("at_capture"))
    return (
        first.join(origin, on="original_graph_node_id", how="left", maintain_order="left")
        .select("graph_node_id", pl.coalesce("at_capture", "owner").alias("owner"))
        .filter(pl.col("owner") >= 0)
    )


# Times of device work that cannot be. Where few are, these are wrong; where many are, it is the stream or the clock.

_OVERLAP_NS, _EARLY_NS = 50_000, 100_000  # real traces: 1 us early at most
_OVERLAP_SHARE = 0.01  # of device time; real traces: 0.006 at most
_WINDOWS = 100  # times all that the host did: a launch without a wait may well leave work that outlasts it
_FEW_SHARE = 0.1
_STREAM = ("process_id", "device_id", "context_id", "stream_id")


def impossible_work(
    spans: pl.DataFrame, kinds: SpanKinds, launch: Positions, replayed: Bools
) -> tuple[Positions, list[Finding]]:
    """Positions of work whose duration cannot be right, and what is to be said of such times.

    Replays are not looked at: branches of a graph run side by side under one stream's number; nor are migrations of
    unified memory, which are in none.
    """
    migrated = matches(spans["name"], _MIGRATION) & kinds.is_kind(Kind.MEMCPY)
    in_stream = kinds.is_level(Level.KERNEL) & ~replayed & ~migrated
    at = true_indices(in_stream & spans["stream_id"].is_not_null().to_numpy())
    rows = gather_rows(spans.select(*_STREAM, "start_ns", "duration_ns"), at)
    streams = rows.select(_STREAM).unique(maintain_order=True).with_row_index("stream")
    stream = rows.select(_STREAM).join(streams, on=_STREAM, how="left", nulls_equal=True, maintain_order="left")
    order = np.argsort(stream["stream"].to_numpy(), kind="stable")
    at, stream_of = at[order], stream["stream"].to_numpy()[order]
    start, length = (rows[name].fill_null(0).to_numpy()[order] for name in ("start_ns", "duration_ns"))
    early = np.zeros(len(at), np.bool_)
    called = (launch[at] >= 0) & kinds.is_level(Level.RUNTIME)[launch[at]]
    early[called] = spans["start_ns"].gather(launch[at[called]]).to_numpy() - start[called] > _EARLY_NS
    endless = length > _WINDOWS * _host_extent(spans, kinds)
    overlap = np.where(endless, 0, _overlaps(stream_of, start, length))
    crossed = overlap > _OVERLAP_NS
    wrong = endless | _where_few(crossed, stream_of) | _where_few(early, np.zeros(len(at), np.int64))
    apart = ~wrong
    left = _overlaps(stream_of[apart], start[apart], length[apart])
    is_much = left.sum() > _OVERLAP_SHARE * length[apart].sum() or bool((left > _OVERLAP_NS).any())
    beside = "activities of one stream overlap, which runs one after the other: sums of their times are too long"
    findings = [
        Finding(LedgerKind.IMPOSSIBLE_TIME, count=int(wrong.sum()), duration_ns=int(length[wrong].sum())),
        Finding(LedgerKind.STREAM_OVERLAP, beside, int((left > 0).sum()) * is_much, duration_ns=int(left.sum())),
        Finding(LedgerKind.START_BEFORE_LAUNCH, count=int((early & apart).sum())),
    ]
    return at[wrong], findings


def _host_extent(spans: pl.DataFrame, kinds: SpanKinds) -> int:
    """From the first start to the last end of what the host did; unlimited where too little is recorded of it."""
    host = true_indices(~kinds.is_level(Level.KERNEL) & ~kinds.is_kind(Kind.SYNC))
    times = gather_rows(spans.select("start_ns", "duration_ns"), host)
    first, last = times.select(
        pl.col("start_ns").min().alias("first"), (pl.col("start_ns") + pl.col("duration_ns")).max().alias("last")
    ).row(0)
    return last - first if last is not None and last - first > _EARLY_NS else (1 << 62) // _WINDOWS


def _overlaps(stream: Ints, start: Ints, length: Ints) -> Ints:
    """For each activity, in order of streams and starts, how long it lasts beyond the start of the next one."""
    out: Ints = np.zeros(len(start), np.int64)
    beyond = np.minimum(start[:-1] + length[:-1], start[1:] + length[1:]) - start[1:]
    out[:-1] = np.where(stream[1:] == stream[:-1], np.maximum(beyond, 0), 0)
    return out


def _where_few(odd: Bools, group: Ints) -> Bools:
    """The groups in which few are, or one."""
    count = np.bincount(group, minlength=1)
    odd_count = np.bincount(group, weights=odd, minlength=1)
    return odd & ((odd_count <= 1) | (odd_count <= _FEW_SHARE * count))[group]
