"""Rule 6: ties a backward operator to its forward twin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.correlate import resolve_rows
from xsp_ingest.link.nest import moments_apart
from xsp_ingest.link.nesting import named_ranges
from xsp_ingest.link.spans import matches, pair_keys
from xsp_model import Level
from xsp_model.columns.arrays import gather_rows, lookup, no_refs, pieces, release, true_indices

if TYPE_CHECKING:
    from xsp_ingest.link.spans import SpanKinds
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = ["is_backward", "numbering_domains", "twins", "with_engine"]


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
    is_ours, is_theirs = _numbered_alike(operators, backward)
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


def _numbered_alike(operators: pl.DataFrame, backward: Bools) -> tuple[Bools, Bools]:
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
