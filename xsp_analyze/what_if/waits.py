"""What device work waits for before it begins, and what calls of the host wait for before they return."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.classification import KernelClass
from xsp_analyze.frames.collectives import PAIRWISE, has_ranks, operations
from xsp_analyze.frames.group_ids import first_rows, group_ids, numbers_in_order
from xsp_analyze.frames.host_calls import STREAM, SYNC_CALLS, is_named, names_like, waiting_calls
from xsp_analyze.frames.rank_waits import CALL, with_waits
from xsp_model import Level
from xsp_model.columns.arrays import distinct_numbers, lookup
from xsp_model.columns.intervals import Lanes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_analyze.what_if.threads import HostThreads
    from xsp_model.columns.arrays import Bools, Ints

__all__ = [
    "Awaited",
    "Behind",
    "DeviceWork",
    "Edge",
    "Meetings",
    "awaited_work",
    "meetings",
    "node_calls",
    "typical_ns",
    "typical_return_ns",
]


class Edge(IntEnum):
    """Why a node waits for another."""

    HOST = 0  # along a thread
    WORK = 1  # from begin to end of device work
    LAUNCH = 2  # from the launching call to the begin of its work
    STREAM = 3  # from the end of the work before on the stream
    EVENT = 4  # from work of another stream that an event was recorded behind
    SHARED = 5  # from work of another stream that held the multiprocessors
    SYNC = 6  # from work to the return of a call that waits for it
    COPY = 7  # from a copy to the return of the call that blocks until it has been made
    FREE = 8  # from work that ended in a call that frees or reserves memory
    QUEUE = 9  # from work that ended in a launch that found the queue full
    HAND_OVER = 10  # from one thread's last work to the wake of another that waited for it
    BACKWARD = 11  # a hand-over to or from the thread that runs the backward pass, which names what it runs
    RANKS = 12  # from the begin of a collective on one rank to where it goes on, as all have come, on another


_FREES = r"(?i)^(?:cuda|cu|hip)(?:Free|MemFree|Malloc|MemAlloc|HostAlloc|HostMalloc|MemCreate)"
_ON_EVENTS = r"(?i)^(?:cuda|cu|hip)EventSynchronize"
_ON_STREAMS = r"(?i)^(?:cuda|cu|hip)StreamSynchronize"
_RECORDS = r"(?i)^(?:cuda|cu|hip)EventRecord"
_STREAM_WAITS = r"(?i)^(?:cuda|cu|hip)StreamWaitEvent"
_LATE_NS = 10_000  # work that begins later than launch and stream explain waited for something else
_NEAR_NS = 30_000  # after which it begins no later than so
_TAIL_SHARE = 0.1  # of a kernel: in its last part others may begin
_FULL_QUEUE = 900  # launches that were outstanding: queues hold 1,024
_LONG_CALL_NS = 20_000  # in shorter calls work ends by chance
_LOADING_NS = 1_000_000  # a longer launch loads what it launches
_CLOCKS_NS = 2_000  # clocks of host and device differ by that much
_MEETING_NS = 1_000_000  # ends of one collective on two ranks, less what their clocks differ by, are nearer
_TYPICAL_NS = 5_000  # a launch, where none was on an idle device
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Behind:
    """Device work (`after`) that waits for other work, from its end (else its begin) on, and how long by the law."""

    before: Ints
    after: Ints
    weight: Ints
    kind: Edge
    from_end: bool = True


class DeviceWork:
    """Device activities in order of start, with when each was launched, and what is before it on its stream."""

    def __init__(self, frame: pl.DataFrame, calls: pl.DataFrame) -> None:
        self.frame, self.calls = frame, calls
        self.start = frame["start_ns"].to_numpy()
        self.end = self.start + frame["duration_ns"].to_numpy()
        self.stream = numbers_in_order(*group_ids(frame.select(STREAM)))[0]
        self.device = numbers_in_order(*group_ids(frame.select(STREAM[:-1])))[0]
        self.order = np.lexsort((self.end, self.start, self.stream))
        launched = lookup(calls["call"].to_numpy(), frame["parent_id"].fill_null(-1).to_numpy())
        self.call = np.where(frame["call_start_ns"].is_not_null().to_numpy(), launched, -1)

    @cached_property
    def with_call(self) -> Ints:
        """The work whose call is known."""
        return np.flatnonzero(self.call >= 0)

    @cached_property
    def before(self) -> Ints:
        """The work before each on its stream, -1: none."""
        before = np.full(len(self.start), -1)
        same = self.stream[self.order[1:]] == self.stream[self.order[:-1]]
        before[self.order[1:][same]] = self.order[:-1][same]
        return before

    @cached_property
    def communicates(self) -> Bools:
        """Which work communicates with other devices."""
        is_it = self.frame["kernel_class"].cast(pl.String) == str(KernelClass.COMMUNICATION)
        return is_it.fill_null(value=False).to_numpy()

    @cached_property
    def queue_gap_ns(self) -> int:
        """How long a stream takes from one activity to the next that waits in its queue."""
        gap = self.start - self.end[self.before]
        launched = self.frame["call_end_ns"].fill_null(_NEVER).to_numpy()
        queued = (self.before >= 0) & (launched < self.end[self.before] - _CLOCKS_NS) & (gap >= 0) & (gap < _LATE_NS)
        return int(gap[queued].mean()) if queued.any() else 0

    @cached_property
    def latency_ns(self) -> Ints:
        """How long after its launch began each begins on an idle device; of a call that loads what it took."""
        begin, end = (self.calls[c].to_numpy() for c in ("start_ns", "end_ns"))
        rows = self.with_call
        took = self.start[rows] - begin[self.call[rows]]
        idle = self._is_idle_at(rows, begin[self.call[rows]])
        idle &= first_rows(self.call[rows], self.calls.height)[self.call[rows]] == np.arange(len(rows))
        kind = group_ids([self.frame["kind"]])[0][rows]
        alone = idle & (took >= 0) & (took < _LOADING_NS)
        of_all = int(np.median(took[alone])) if alone.any() else _TYPICAL_NS
        latency = np.full(len(rows), of_all)
        for each in distinct_numbers(kind).tolist():
            mine = (kind == each) & (took >= 0)
            if (mine & alone).any():
                latency[kind == each] = int(np.median(took[mine & alone]))
            elif mine.any():  # none was on an idle device: the shortest may have waited, too
                latency[kind == each] = min(int(took[mine].min()), of_all)
        every = np.zeros(len(self.start), dtype=np.int64)
        lasted = (end - begin)[self.call[rows]]
        every[rows] = np.where(self.has_loaded[rows], np.clip(took, 0, lasted + latency), latency)
        return every

    @cached_property
    def has_loaded(self) -> Bools:
        """Of each whether its launch loaded it: it took long, and waited for nothing."""
        waits = (self.calls["waits"] == "copy").fill_null(value=False).to_numpy() | self.is_behind_full_queue
        lasted = (self.calls["end_ns"] - self.calls["start_ns"]).to_numpy()
        has_loaded = np.zeros(len(self.start), dtype=np.bool_)
        has_loaded[self.with_call] = ((lasted > _LOADING_NS) & ~waits)[self.call[self.with_call]]
        return has_loaded

    @cached_property
    def is_behind_full_queue(self) -> Bools:
        """Of each call whether so much is launched and has not ended that a launch must wait for its place."""
        rows = self.with_call
        begin = self.calls["start_ns"].to_numpy()
        ends, device = np.full(len(begin), -1), np.full(len(begin), -1)
        np.maximum.at(ends, self.call[rows], self.end[rows])
        device[self.call[rows]] = self.device[rows]
        has_work = np.flatnonzero(device >= 0)
        line = Lanes.of(begin, ends[has_work])
        at = line.at(device[has_work], begin[has_work])
        ended = np.sort(line.at(device[has_work], ends[has_work]))
        outstanding = np.zeros(len(begin), dtype=np.int64)
        outstanding[has_work] = np.searchsorted(np.sort(at), at) - np.searchsorted(ended, at, side="right")
        return np.asarray(self.calls["launches"].to_numpy() & (outstanding >= _FULL_QUEUE))

    def _is_idle_at(self, rows: Ints, time: Ints) -> Bools:
        """Whether all work of the device of each of these rows that was launched before the time had ended."""
        launch = self.frame["call_start_ns"].fill_null(self.frame["start_ns"]).to_numpy()
        line = Lanes.of(launch, self.end, time)
        order = np.lexsort((launch, self.device))
        done = np.maximum.accumulate(line.at(self.device[order], self.end[order]))
        now = line.at(self.device[rows], time)
        before = np.searchsorted(line.at(self.device[order], launch[order]), now) - 1
        return np.asarray((before < 0) | (done[np.maximum(before, 0)] <= now))

    @property
    def on_stream(self) -> Sequence[Behind]:
        """Work behind other work of its stream; where streams overlap by themselves, from begin to begin."""
        rows = np.flatnonzero(self.before >= 0)
        overlaps = self.end[self.before[rows]] > self.start[rows]
        behind, beside = rows[~overlaps], rows[overlaps]
        apart = self.start[beside] - self.start[self.before[beside]]
        gap = np.full(len(behind), self.queue_gap_ns)
        return (
            Behind(self.before[behind], behind, gap, Edge.STREAM),
            Behind(self.before[beside], beside, apart, Edge.STREAM, from_end=False),
        )

    @cached_property
    def is_late(self) -> Bools:
        """What began later than its launch and its stream explain."""
        ready = np.full(len(self.start), -1)
        rows = self.with_call
        ready[rows] = self.calls["start_ns"].to_numpy()[self.call[rows]] + self.latency_ns[rows]
        rows = np.flatnonzero(self.before >= 0)
        ready[rows] = np.maximum(ready[rows], self.end[self.before[rows]] + self.queue_gap_ns)
        return np.asarray((ready >= 0) & (self.start - ready > _LATE_NS))

    def behind_others(self, events: Behind) -> Behind:
        """Late work that began as work of another stream ended, or in its last part; but what an event explains.

        One that was behind work which had ended long before explains nothing: which event it was is a guess.
        """
        late = self.is_late.copy()
        late[events.after[self.start[events.after] - self.end[events.before] <= _NEAR_NS]] = False
        rows, by_end = np.flatnonzero(late), np.lexsort((self.end, self.device))
        line = Lanes.of(self.end, self.start)
        ends = line.at(self.device[by_end], self.end[by_end])
        after = np.searchsorted(ends, line.at(self.device[rows], self.start[rows]), side="right")
        ended = self._of_other_stream(by_end[np.maximum(after - 1, 0)], rows, after > 0)
        near = (ended >= 0) & (self.start[rows] - self.end[ended] <= _NEAR_NS)
        ending = self._of_other_stream(by_end[np.minimum(after, len(by_end) - 1)], rows, after < len(by_end))
        tail = (self.end[ending] - self.start[ending]) * _TAIL_SHARE
        in_tail = (
            (ending >= 0) & (self.start[ending] < self.start[rows]) & (self.end[ending] - self.start[rows] <= tail)
        )
        before = np.where(near, ended, np.where(in_tail, ending, -1))
        is_behind = before >= 0
        early = np.minimum(self.start[rows[is_behind]] - self.end[before[is_behind]], 0)
        return Behind(before[is_behind], rows[is_behind], early, Edge.SHARED)

    def _of_other_stream(self, candidate: Ints, rows: Ints, exists: Bools) -> Ints:
        """The candidates that are of another stream of the same device than the rows, else -1."""
        if not len(rows):
            return rows
        same = self.device[candidate] == self.device[rows]
        other = exists & (self.stream[candidate] != self.stream[rows]) & same
        return np.where(other, candidate, -1)

    def behind_events(self, view: TraceView, threads: HostThreads) -> Behind:
        """Work that a stream begins behind an event of another: the first launched after the call that says so.

        Which event no trace says: it is taken for the last that the thread recorded (where the trace has no records,
        just before), behind its last work of another stream.
        """
        waits, records = (_moments_of(view, threads, pattern) for pattern in (_STREAM_WAITS, _RECORDS))
        records = records if len(records[0]) else waits
        rows = self.with_call
        thread, moment = (self.calls[c].to_numpy()[self.call[rows]] for c in ("thread", "start_ns"))
        order = np.lexsort((moment, thread))
        rows, thread = rows[order], thread[order]
        line = Lanes.of(moment, waits[1], records[1])
        launch, wait, record = (line.at(*each) for each in ((thread, moment[order]), waits, records))
        following = np.searchsorted(launch, wait)
        last_record = np.searchsorted(record, wait, side="right") - 1
        sound = (following < len(launch)) & (last_record >= 0)
        following, last_record, wait = following[sound], last_record[sound], wait[sound]
        previous = np.searchsorted(launch, record[last_record]) - 1
        stream = self.stream[rows]
        changed = np.concatenate(([0], np.flatnonzero(stream[1:] != stream[:-1]) + 1))
        begun = changed[np.searchsorted(changed, previous, side="right") - 1] if len(stream) else previous
        other = np.where((previous >= 0) & (stream[previous] == stream[following]), begun - 1, previous)
        lane = line.lane(wait)
        sound = (other >= 0) & (thread[following] == lane) & (line.lane(record[last_record]) == lane)
        sound &= thread[np.maximum(other, 0)] == lane
        before, after = rows[other[sound]], rows[following[sound]]
        follows = (self.end[before] <= self.start[after] + _CLOCKS_NS) & (self.stream[before] != self.stream[after])
        return Behind(before[follows], after[follows], np.zeros(int(follows.sum()), dtype=np.int64), Edge.EVENT)


def _moments_of(view: TraceView, threads: HostThreads, pattern: str) -> tuple[Ints, Ints]:
    """Threads and begins of the calls of such names, by thread and time."""
    names = names_like(view.span_names, lambda name: name.str.contains(pattern))
    rows = np.flatnonzero(threads.spans["name"].is_in(names.implode()).to_numpy())
    thread, start = threads.thread[rows], threads.spans["start_ns"].to_numpy()[rows]
    order = np.lexsort((start, thread))
    return thread[order], start[order]


@dataclass(frozen=True, slots=True)
class Meetings:
    """Collectives that ranks ran together, a row a rank: its work, the call, when all had come to it on its own clock.

    `ahead_ns` is by how much that clock is ahead of that of the call's first row: all ranks leave together.
    """

    work: Ints
    call: Ints
    all_there_ns: Ints
    ahead_ns: Ints


def meetings(view: TraceView, work: DeviceWork) -> Meetings:
    """Collectives with every rank of their group, and clocks that differ as in others of the same ranks."""
    if not has_ranks(view):
        return Meetings(*(np.empty(0, dtype=np.int64) for _ in range(4)))
    calls = with_waits(view.once(operations)).filter("matched", ~pl.col("operation").is_in(PAIRWISE))
    calls = calls.with_columns(work=pl.Series(lookup(work.frame["span_id"].to_numpy(), calls["call_id"].to_numpy())))
    calls = calls.filter((pl.col("work") >= 0).all().over(CALL)).sort(*CALL, "rank", nulls_last=True)
    end = pl.Series(work.end[calls["work"].to_numpy()])
    calls = calls.with_columns(end=end).with_columns(
        first=pl.col("rank").first().over(CALL), ahead=pl.col("end") - pl.col("end").first().over(CALL)
    )
    off = (pl.col("ahead") - pl.col("ahead").median().over("rank", "first")).abs()
    calls = calls.filter((off <= _MEETING_NS).all().over(CALL))
    call = numbers_in_order(*group_ids(calls.select(CALL)))[0]
    columns = (calls[c].to_numpy() for c in ("work", "end", "transfer_ns", "ahead"))
    row, until, transfer, ahead = columns
    return Meetings(row, call, until - transfer, ahead)


# Calls of the host.


def node_calls(view: TraceView, threads: HostThreads) -> pl.DataFrame:
    """Calls that launch or may wait, the outermost, by thread and start.

    call (its span), thread, run_id, process_id, name, start_ns, end_ns (before the next begins), launches, and `waits`:
    for `device`, `stream`, `event`, its own `copy`, for `room` (in memory or queue); null: for nothing.
    """
    spans = threads.spans.with_columns(thread=pl.Series(threads.thread))
    work = view.all_activities.filter(pl.col("call_start_ns").is_not_null())
    runs = [view.once(waiting_calls, run)["span_id"] for run in view.kernel_runs]
    waiting = pl.concat(runs) if runs else pl.Series(dtype=pl.Int64)

    def is_like(pattern: str) -> pl.Expr:
        return is_named(view, lambda name: name.str.contains(pattern))

    launches, waits = (pl.col("span_id").is_in(each.unique().implode()) for each in (work["parent_id"], waiting))
    long = pl.col("end_ns") - pl.col("start_ns") > _LONG_CALL_NS
    what = (
        pl.when(is_like(_ON_EVENTS)).then(pl.lit("event")).when(is_like(_ON_STREAMS)).then(pl.lit("stream"))
        .when(is_like(SYNC_CALLS)).then(pl.lit("device")).when(is_like(_FREES) & long).then(pl.lit("room"))
        .when(waits & launches).then(pl.lit("copy")).when(launches & long).then(pl.lit("room"))
    )  # fmt: skip
    calls = (
        spans.filter(pl.col("level") == str(Level.RUNTIME))
        .with_columns(launches=launches, waits=what)
        .filter(pl.col("launches") | pl.col("waits").is_not_null())
        .sort("thread", "start_ns", -pl.col("end_ns"), "span_id")
    )
    outermost = calls.filter(
        (pl.col("end_ns") > pl.col("end_ns").cum_max().shift().over("thread")).fill_null(value=True)
    )
    following = pl.col("start_ns").shift(-1).over("thread")
    return outermost.select(
        pl.col("span_id").alias("call"), "thread", "run_id", "process_id", "name", "start_ns",
        pl.min_horizontal("end_ns", following).alias("end_ns"), "launches", "waits",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Awaited:
    """Calls (rows of `node_calls`) with work that each may wait for, and how."""

    call: Ints
    work: Ints
    kind: Ints

    def of(self, rows: Bools) -> Awaited:
        """Some of them."""
        return Awaited(self.call[rows], self.work[rows], self.kind[rows])


def awaited_work(work: DeviceWork) -> Awaited:
    """Of calls that wait the work they may return behind; a call that waits for a device has one of each stream."""
    calls = work.calls.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    rows = [work.frame.select("run_id", "process_id"), calls.select("run_id", "process_id")]
    process = numbers_in_order(*group_ids(pl.concat(rows)))[0]
    of_work, of_call = process[: len(work.start)], process[len(work.start) :]
    launch = work.frame["call_start_ns"].fill_null(work.frame["start_ns"]).to_numpy()
    parts = [_syncs(work, calls, launch, of_work, of_call), _work_ending_within(work, calls, of_work, of_call)]
    parts.append(_own_copies(work, calls))
    awaited = Awaited(*(np.concatenate([getattr(part, name) for part in parts]) for name in Awaited.__slots__))
    late = work.end[awaited.work] - calls["end_ns"].to_numpy()[awaited.call]
    return awaited.of(late <= np.where(awaited.kind == Edge.COPY, _CLOCKS_NS, _LATE_NS))


def _syncs(work: DeviceWork, calls: pl.DataFrame, launch: Ints, of_work: Ints, of_call: Ints) -> Awaited:
    """The last work launched before each on its stream: that of the thread's last launch; of a device on each."""
    begin, waits = calls["start_ns"].to_numpy(), calls["waits"]
    thread = calls["thread"].to_numpy()
    line = Lanes.of(launch, begin)
    order = np.lexsort((launch, work.stream))
    queue = line.at(work.stream[order], launch[order])
    own = np.full(len(begin), -1)
    own[work.call[work.with_call]] = work.stream[work.with_call]
    last = np.maximum.accumulate(np.where(own >= 0, np.arange(len(own)), -1)) if len(own) else own
    is_own = (last >= 0) & (thread[last] == thread) if len(own) else own >= 0
    on_stream = np.flatnonzero((waits == "stream").fill_null(value=False).to_numpy() & is_own)
    on_device = np.flatnonzero((waits == "device").fill_null(value=False).to_numpy())
    streams = distinct_numbers(work.stream)
    process_of = np.full(len(streams), -1)
    process_of[work.stream] = of_work
    call = [on_stream, *(on_device[of_call[on_device] == process_of[each]] for each in streams.tolist())]
    stream = np.concatenate(
        [own[last[on_stream]], *(np.full(len(c), s) for s, c in zip(streams.tolist(), call[1:], strict=True))]
    )
    rows = np.concatenate(call)
    at = np.searchsorted(queue, line.at(stream, begin[rows])) - 1
    has_work = at >= 0
    has_work[has_work] = work.stream[order[at[has_work]]] == stream[has_work]
    rows, at = rows[has_work], at[has_work]
    talk = np.maximum.accumulate(np.where(work.communicates[order], np.arange(len(order)), -1))[at]
    too = np.flatnonzero((talk >= 0) & (talk != at))  # which binds where nothing else waits for it
    too = too[work.stream[order[talk[too]]] == work.stream[order[at[too]]]]
    rows, at = np.concatenate((rows, rows[too])), np.concatenate((at, talk[too]))
    return Awaited(rows, order[at], np.full(len(rows), int(Edge.SYNC)))


def _work_ending_within(work: DeviceWork, calls: pl.DataFrame, of_work: Ints, of_call: Ints) -> Awaited:
    """The last work that ended in each call that waits for an event, or for room: in memory, or in a full queue."""
    begin, end = (calls[c].to_numpy() for c in ("start_ns", "end_ns"))
    waits, launches = calls["waits"].fill_null(""), calls["launches"].to_numpy()
    rows = np.flatnonzero(waits.is_in(["event", "room"]).to_numpy())
    line = Lanes.of(work.end, end[rows] + _CLOCKS_NS)
    order = np.lexsort((work.end, of_work))
    ends = line.at(of_work[order], work.end[order])
    at = np.searchsorted(ends, line.at(of_call[rows], end[rows] + _CLOCKS_NS), side="right") - 1
    has_work = at >= 0
    candidate = order[np.maximum(at, 0)] if len(order) else at
    has_work[has_work] = (of_work[candidate[has_work]] == of_call[rows[has_work]]) & (
        work.end[candidate[has_work]] > begin[rows[has_work]]
    )
    rows, candidate = rows[has_work], candidate[has_work]
    is_launch = launches[rows] & (waits.gather(rows) == "room").to_numpy()
    full = ~is_launch | work.is_behind_full_queue[rows]
    kind = np.where(is_launch, Edge.QUEUE, np.where((waits.gather(rows) == "event").to_numpy(), Edge.SYNC, Edge.FREE))
    return Awaited(rows[full], candidate[full], kind[full])


def _own_copies(work: DeviceWork, calls: pl.DataFrame) -> Awaited:
    """The copy of each call that blocks until it has been made."""
    blocks = (calls["waits"] == "copy").fill_null(value=False).to_numpy()
    rows = work.with_call[blocks[work.call[work.with_call]]]
    return Awaited(work.call[rows], rows, np.full(len(rows), int(Edge.COPY)))


def typical_ns(calls: pl.DataFrame, has_waited: Bools) -> Ints:
    """What each call takes when it waits for nothing: the median of those of its name, else little."""
    rows = calls.select("name", (pl.col("end_ns") - pl.col("start_ns")).alias("took")).with_columns(
        waited=pl.Series(has_waited)
    )
    median = pl.col("took").filter(~pl.col("waited")).median().over("name")
    return rows.select(median.fill_null(_TYPICAL_NS).cast(pl.Int64)).to_series().to_numpy()


def typical_return_ns(calls: pl.DataFrame, awaited: Awaited, work: DeviceWork) -> Ints:
    """How long after the work each call returns: a wait as others of its name (the median), others as they did.

    Of a call that waits for several streams that is after the last of them.
    """
    rest = calls["end_ns"].to_numpy()[awaited.call] - work.end[awaited.work]
    within = work.end[awaited.work] > calls["start_ns"].to_numpy()[awaited.call]
    rows = pl.DataFrame(
        {"name": calls["name"].gather(awaited.call), "call": awaited.call, "rest": rest, "within": within}
    ).with_columns(is_last=pl.col("within") & (pl.col("rest") == pl.col("rest").min().over("call")))
    median = pl.col("rest").filter("is_last").median().over("name")
    typical = rows.select(median.fill_null(0).cast(pl.Int64)).to_series().to_numpy()
    return np.where(awaited.kind == Edge.SYNC, typical, rest)
