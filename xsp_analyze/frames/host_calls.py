"""Calls of the host beside the device: what launched which work, and what explains that nothing is launched."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.group_ids import group_ids, positions_in, run_starts, running_max, sort_by
from xsp_model import Kind, Level
from xsp_model.columns.intervals import Lanes

if TYPE_CHECKING:
    from collections.abc import Callable

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace
    from xsp_model.columns.arrays import Bools, Ints

__all__ = [
    "BLOCK_CAUSES",
    "COMPILATIONS",
    "INPUT_CALLS",
    "NO_THREAD",
    "OVERHEADS",
    "STREAM",
    "SYNC_CALLS",
    "Blocks",
    "HostCalls",
    "first_uses",
    "host_blocks",
    "host_spans",
    "innermost_around",
    "is_named",
    "is_wait",
    "kernel_searches",
    "memory_growth",
    "names_like",
    "open_operators",
    "outermost_blocks",
    "queues",
    "tried_kernels",
    "waiting_calls",
]

# Device work beside the call that launched it and the work before it on its stream.

STREAM = ("run_id", "process_id", "device_id", "stream_id")
"""What makes a queue: work of one stream runs in the order in which it was put there."""
SYNC_CALLS = r"(?i)^(?:cuda|cu|hip)(?:Device|Stream|Event|Ctx)Synchronize"
"""Calls in which the host waits for a device: of the CUDA runtime, the CUDA driver and HIP."""
_COPIES = r"(?i)^(?:cuda|cu|hip)Memcpy"
_FREES = r"(?i)^(?:cuda|cu|hip)(?:Free|MemFree)(?:Array|Host)?(?:_v\d+)?$"
_ASYNCHRONOUS = r"(?i)Async"


def is_wait(name: pl.Expr) -> pl.Expr:
    """Whether the host may wait for the device in calls of that name: synchronisations, copies that block, frees."""
    blocks = name.str.contains(_COPIES) & ~name.str.contains(_ASYNCHRONOUS)
    return name.str.contains(SYNC_CALLS) | blocks | name.str.contains(_FREES)


def waiting_calls(view: TraceView, run: int) -> pl.DataFrame:
    """The run's calls that wait for a device if it has work, of before the trace too: process_id, span_id and times."""
    waits = (
        view.runs([run])
        .scan("spans")
        .filter(
            (is_named(view, is_wait) & (pl.col("level") == str(Level.RUNTIME))) | _is_pageable(view.trace),
            pl.col("duration_ns").is_not_null(),
        )
    )
    end = (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    return waits.select("process_id", "span_id", "start_ns", end).collect()


def waited_ns(view: TraceView, run: int, calls: pl.DataFrame) -> pl.Series:
    """How long each of the calls (process_id, start_ns, end_ns) had work to wait for, that it or one before launched.

    Where the trace tells of no launches, all of it. Work whose launch is unknown counts from its start on.
    """
    pending_until = (pl.col("start_ns") + pl.col("duration_ns")).alias("pending_until_ns")
    work = view.all_activities.filter(pl.col("run_id") == run)
    if work["call_start_ns"].null_count() == work.height:
        return (calls["end_ns"] - calls["start_ns"]).alias("waited_ns")
    process = pl.col("process_id").fill_null(NO_THREAD)  # nulls do not meet in a join
    work = (
        work.select(process, pl.col("call_start_ns").fill_null(pl.col("start_ns")).alias("launch_ns"), pending_until)
        .sort("launch_ns")
        .with_columns(pl.col("pending_until_ns").cum_max().over("process_id"))
    )
    begun = calls.select(process, "start_ns", "end_ns").with_row_index("row").sort("start_ns")
    joined = begun.join_asof(
        work, left_on="start_ns", right_on="launch_ns", by="process_id", strategy="backward", check_sortedness=False
    ).sort("row")
    until = pl.min_horizontal(pl.col("pending_until_ns").fill_null(pl.col("start_ns")), "end_ns")
    return joined.select((until - pl.col("start_ns")).clip(lower_bound=0).alias("waited_ns")).to_series()


def is_named(view: TraceView, predicate: Callable[[pl.Expr], pl.Expr]) -> pl.Expr:
    """Whether this holds of a span's name; to look at each name once is not to look at each of millions of calls."""
    return pl.col("name").is_in(names_like(view.span_names, predicate).implode())


def names_like(names: pl.Series, predicate: Callable[[pl.Expr], pl.Expr]) -> pl.Series:
    """The names of which this holds."""
    return names.to_frame("name").filter(predicate(pl.col("name").cast(pl.String))).to_series()


def queues(activities: pl.DataFrame) -> pl.DataFrame:
    """What the activities (see `device_activities`), which stand in order of start, found on their stream.

    `previous_end_ns`: when all earlier work of the stream had ended (null for the first); `waiting`: how many
    activities of the stream were launched before, and had not ended, when the launch of this one began.
    """
    stream, size = group_ids(activities.select(STREAM))
    order = sort_by(stream, size)
    starts = run_starts(stream[order])
    end = (activities["start_ns"] + activities["duration_ns"]).to_numpy()[order]
    previous, waiting = np.zeros(len(order), dtype=np.int64), np.zeros(len(order), dtype=np.int64)
    previous[order[1:]] = running_max(end, starts)[:-1]
    launch = activities["call_start_ns"].fill_null(0).to_numpy()[order]
    has_call = activities["call_start_ns"].is_not_null().to_numpy()[order]
    for first, last in pairwise((*starts.tolist(), len(order))):
        rows = slice(first, last) if has_call[first:last].all() else first + np.flatnonzero(has_call[first:last])
        waiting[order[rows]] = _pending(launch[rows], end[rows])
    first_of_stream = np.zeros(len(order), dtype=np.bool_)
    first_of_stream[order[starts]] = True
    return pl.DataFrame({"previous_end_ns": previous, "waiting": waiting}).select(
        pl.when(~pl.Series(first_of_stream)).then("previous_end_ns").alias("previous_end_ns"),
        pl.when(activities["call_start_ns"].is_not_null()).then("waiting").alias("waiting"),
    )


def _pending(launch: Ints, end: Ints) -> Ints:
    """At each launch, how many were launched strictly before it, less how many had ended by then."""
    ended = np.searchsorted(np.sort(end), launch, side="right")
    return np.asarray(np.searchsorted(np.sort(launch), launch, side="left") - ended, dtype=np.int64).clip(min=0)


# Calls of the host that explain why it launches nothing: it waits for a device, starts something up, fetches input.

BLOCK_CAUSES = ("sync", "initialisation", "input", "host", "profiler")
"""What a call can explain idle time by: it waits for a device, starts something up, fetches input, reserves or frees
memory, or is the profiler's own."""
_SYNC, _INITIALISATION, _INPUT, _HOST, _PROFILER = range(len(BLOCK_CAUSES))
INPUT_CALLS = r"(?i)DataLoader.*(?:__next__|_next)|IteratorGetNext|^Iterator::|DataLoaderIter"
"""Spans in which the next batch is awaited: PyTorch's data loader, TensorFlow's input pipeline."""
_LOADS = "Lazy Function Loading|Runtime Triggered Module Loading|Driver Compiler"
_PROFILES = "Activity Buffer Request|Buffer Flush|Command Buffer Full|Instrumentation|Resource|UVM Activity Init"
OVERHEADS = rf"^(?:{_LOADS}|{_PROFILES})$"
"""What CUPTI records as overhead, events of that category in Kineto's traces: code that is loaded, and its own work."""
COMPILATIONS = (
    r"(?i)^(?:cuda|cu|hip)(?:Module|Library)Load|^(?:cuda|cu|hip)Link(?:Create|Add|Complete)|nvrtc\w*Compile"
    r"|hiprtc\w*Compile|nvJitLink|^_compile\.compile_inner|entire_frame_compile|compile_fx|fw_compiler_base"
    r"|inductor_compile|async_compile|Graph(?:Node)?\.record|triton.*compile|CachingAutotuner"
    rf"|^(?:{_LOADS})$"
    r"|XlaCompile|CompileXla|PjRt\w*Compile|backend_?compile|LlvmCompile|jit_compile"
)
"""Spans in which code is made or loaded for the device: the driver's linking and loading, NVRTC, HIPRTC, TorchDynamo,
Inductor, capture of graphs by Inductor, loading as CUPTI tells it, Triton, XLA. Names as these tools' own traces
have them."""
_STARTS_UP = (
    r"(?i)^(?:cuda|cu|hip)(?:Init$|CtxCreate|CtxDestroy|DevicePrimaryCtxRe(?:tain|lease)|(?:Module|Library)Unload|DeviceReset)"
    rf"|{COMPILATIONS.removeprefix('(?i)')}"
)
"""Contexts made and ended and code unloaded (CUDA runtime and driver, HIP), and COMPILATIONS."""
_RESERVES = r"(?i)^(?:cuda|cu|hip)(?:Malloc|MemAlloc|MemCreate|HostAlloc|HostMalloc|HostRegister)"
_ALLOCATES = rf"{_RESERVES}|^(?:cuda|cu|hip)(?:StreamCreate|EventCreate)"
"""Calls that reserve memory, streams or events: other work of the host, worth its name, but for growth of memory."""
_QUERIES = (
    r"(?i)^(?:cuda|cu|hip)(?:FuncGetAttribute|FuncSetAttribute|FuncSetCacheConfig|OccupancyMax|OccupancyAvailable"
    r"|GetFuncBySymbol|ModuleGet|LibraryGet|KernelGet)"
)
"""Calls that ask about a kernel: of microseconds, but for the first, which loads the code."""
_FIRST_USE_NS = 200_000
_SLOW = 10  # times as long as the call usually takes
_EVENT_WAIT = r"(?i)^(?:cuda|cu|hip)EventSynchronize"
_TRIED_CLASSES = ("convolution", "matrix product")
_MIN_TRIALS = 4  # different kernels, and waits for an event, in one operator: it computes with one to three
NO_THREAD = -1
"""Stands for the thread where a trace does not tell it."""
_HOST_LEVELS = (Level.APPLICATION, Level.MODEL, Level.LAYER, Level.OPERATOR, Level.LIBRARY, Level.RUNTIME)
_COLUMNS = ("process_id", "thread_id", "start_ns", "end_ns", "cause", "call", "waited_ns")


@dataclass(frozen=True, slots=True)
class Blocks:
    """Disjoint stretches of time in order, each with its cause (an index of BLOCK_CAUSES) and the span of its call."""

    start: Ints
    end: Ints
    cause: Ints
    call: Ints

    @classmethod
    def of(cls, rows: pl.DataFrame) -> Blocks:
        """Blocks of the rows (see `host_blocks`); where two of different threads overlap, the one that began first."""
        ordered = rows.sort("start_ns", -pl.col("end_ns"))
        start, end, cause, call = (ordered[c].to_numpy() for c in ("start_ns", "end_ns", "cause", "call"))
        if not len(start):
            return cls(start, end, cause, call)
        reach = np.concatenate((start[:1], np.maximum.accumulate(end)[:-1]))
        start = np.maximum(start, reach)
        keep = start < end
        return cls(start[keep], end[keep], cause[keep], call[keep])

    def at(self, time: Ints) -> Ints:
        """For each time the stretch that it is in, -1 where it is in none."""
        if not len(self.start):
            return np.full(len(time), -1)
        index = np.searchsorted(self.start, time, side="right") - 1
        inside = (index >= 0) & (time < self.end[np.maximum(index, 0)])
        return np.where(inside, index, -1)


@dataclass(frozen=True, slots=True)
class HostCalls:
    """Calls that explain idle time, for threads to look theirs up: `own` by thread, `holding` of whatever thread.

    `holding` are those that hold up the whole process, wherever they are made. At each moment the first that covers it
    explains it, of a thread's own and of others alike; `_first` and `_second` are when each of them is the first, and
    the first but for one: a thread is in no more than one, so that of all others the first is among these two.
    """

    own: Blocks
    own_thread: Ints
    own_edges: Ints
    _threads: Ints
    _own_starts: Ints  # positions
    _own_lanes: Lanes
    _edges: Ints  # positions
    _edge_lanes: Lanes
    holding: Blocks
    _holding_thread: Ints
    _first: Blocks
    _second: Blocks
    edges_of_others: Ints
    loading: Blocks
    waits: tuple[Ints, Ints, Ints]  # in order of end, but for frees: end, time waited, call

    @classmethod
    def of(cls, rows: pl.DataFrame) -> HostCalls:
        """The blocks of the rows, see `host_blocks`."""
        thread, own, is_holding = _own_blocks(rows)
        threads = np.unique(thread)
        lane = np.searchsorted(threads, thread)
        starts = Lanes.of(own.start)
        edges = Lanes.of(own.start, own.end)
        positions = np.unique(np.concatenate((edges.at(lane, own.start), edges.at(lane, own.end))))
        holds = np.flatnonzero(is_holding)
        order = holds[np.lexsort((-own.end[holds], own.start[holds]))]
        holding = Blocks(own.start[order], own.end[order], own.cause[order], own.call[order])
        first, second = _two_layers(holding)
        of_others = np.unique(np.concatenate([time for layer in (first, second) for time in (layer.start, layer.end)]))
        loading = Blocks.of(rows.filter(pl.col("cause").is_in([_INITIALISATION, _PROFILER])))
        waits = (
            rows.filter(pl.col("waited_ns") > 0, pl.col("cause") == _SYNC)
            .sort("end_ns", "start_ns")
            .select("end_ns", "waited_ns", "call")
        )
        return cls(
            own, thread, edges.time(positions), threads, starts.at(lane, own.start), starts, positions, edges,
            holding, thread[order], first, second, of_others, loading,
            (waits["end_ns"].to_numpy(), waits["waited_ns"].to_numpy(), waits["call"].to_numpy()),
        )  # fmt: skip

    def _lane(self, thread: Ints) -> Ints:
        """The place of each thread among those with calls; -1: it has none."""
        at = np.minimum(np.searchsorted(self._threads, thread), max(len(self._threads) - 1, 0))
        return np.where(self._threads[at] == thread, at, -1) if len(self._threads) else np.full(len(thread), -1)

    def own_at(self, thread: Ints, time: Ints) -> Ints:
        """For each thread and time the call of it (of `own`) that it is in, -1 where it is in none."""
        lane = self._lane(thread)
        if not len(self.own.start):
            return lane
        count = len(self._own_lanes.times)
        last = np.searchsorted(self._own_lanes.times, time, side="right") - 1
        at = np.searchsorted(self._own_starts, lane * count + last, side="right") - 1
        inside = (lane >= 0) & (at >= 0) & (self.own_thread[at] == thread) & (time < self.own.end[at])
        return np.where(inside, at, -1)

    def own_edges_within(self, thread: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Of `own_edges` the first that lies within each stretch of a thread, and the first behind them."""
        lane, count = self._lane(thread), len(self._edge_lanes.times)
        times = self._edge_lanes.times
        first = np.searchsorted(self._edges, lane * count + np.searchsorted(times, start, side="right"))
        until = np.searchsorted(self._edges, lane * count + np.searchsorted(times, end))
        return np.where(lane < 0, 0, first), np.where(lane < 0, 0, until)

    def others_at(self, thread: Ints, time: Ints) -> Ints:
        """For each thread and time the call of another thread (of `holding`) that explains it, -1 where none does."""
        first, second = self._first.at(time), self._second.at(time)
        call = np.where(first >= 0, self._first.call[first], -1) if len(self._first.call) else first
        other = np.where(second >= 0, self._second.call[second], -1) if len(self._second.call) else second
        is_own = (call >= 0) & (self._holding_thread[call] == thread) if len(self._holding_thread) else call >= 0
        return np.where(is_own, other, call)


def _own_blocks(rows: pl.DataFrame) -> tuple[Ints, Blocks, Bools]:
    """The calls by thread and start, where two of one number of thread overlap the one that began first; and whose.

    And whether each holds up the whole process: what waits, frees that did among it, what starts up, the profiler.
    """
    ordered = rows.sort("thread_id", "start_ns", -pl.col("end_ns"))
    holds = pl.col("cause").is_in([_SYNC, _INITIALISATION, _PROFILER]) | (pl.col("waited_ns") > 0)
    columns = ("thread_id", "start_ns", "end_ns", "cause", "call")
    thread, start, end, cause, call = (ordered[c].to_numpy() for c in columns)
    holding = ordered.select(holds).to_series().to_numpy()
    if not len(start):
        return thread, Blocks(start, end, cause, call), holding
    starts = run_starts(thread)
    reach = np.roll(running_max(end, starts), 1)
    reach[starts] = start[starts]
    start = np.maximum(start, reach)
    keep = start < end
    return thread[keep], Blocks(start[keep], end[keep], cause[keep], call[keep]), holding[keep]


def _two_layers(blocks: Blocks) -> tuple[Blocks, Blocks]:
    """When each of the blocks, which stand by start, is the first, and the second, that covers a moment.

    In place of the call is which of the blocks it is.
    """
    number = np.arange(len(blocks.start))
    layers = []
    start, end = blocks.start, blocks.end
    for _ in range(2):
        reach = np.concatenate((start[:1], np.maximum.accumulate(end)[:-1]))
        own = np.maximum(start, reach)
        keep = own < end
        layers.append(Blocks(own[keep], end[keep], blocks.cause[number[keep]], number[keep]))
        end = np.minimum(end, reach)
        behind = start < end
        start, end, number = start[behind], end[behind], number[behind]
    return layers[0], layers[1]


def host_blocks(view: TraceView, run: int) -> pl.DataFrame:
    """The run's calls of the host that explain why a device is idle, the outermost of each thread.

    process_id, thread_id, start_ns, end_ns, cause (an index of BLOCK_CAUSES), call (its span) and waited_ns, 0 but of
    waits (see `waited_ns`). What a process called of the runtime before it launched its first work set it up, and what
    it does once later on did too: it searched for the fastest kernel (`kernel_searches`), its memory grew
    (`memory_growth`), or it asked about a kernel that had to be loaded (`first_uses`). A free that had to wait still
    frees when the work has ended, as one that waited for nothing does: no device is waited for.
    """
    trace = view.trace
    work = view.all_activities.lazy().filter(pl.col("run_id") == run)
    first_launches = work.group_by("process_id").agg(pl.col("call_start_ns").min().alias("first_launch_ns")).collect()
    is_runtime = pl.col("level") == str(Level.RUNTIME)
    before_any_launch = is_runtime & (pl.col("start_ns") < pl.col("first_launch_ns"))
    once = pl.concat([view.once(each, run) for each in (kernel_searches, memory_growth, first_uses)])
    cause = (
        pl.when(
            before_any_launch & ~is_named(view, lambda name: name.str.contains(SYNC_CALLS))
            | pl.col("span_id").is_in(once.implode())
        )
        .then(_INITIALISATION)
        .when((is_named(view, is_wait) & is_runtime) | _is_pageable(trace))
        .then(_SYNC)
        .when(is_named(view, lambda name: name.str.contains(_STARTS_UP)))
        .then(_INITIALISATION)
        .when(is_named(view, lambda name: name.str.contains(INPUT_CALLS)))
        .then(_INPUT)
        .when(is_named(view, lambda name: name.str.contains(_ALLOCATES)) & is_runtime)
        .then(_HOST)
        .when(is_named(view, lambda name: name.str.contains(OVERHEADS)) & (pl.col("level") == str(Level.LIBRARY)))
        .then(_PROFILER)
    )
    rows = (
        view.runs([run])
        .scan("spans")
        .filter(
            pl.col("level").is_in([str(level) for level in _HOST_LEVELS]),
            pl.col("kind") != str(Kind.SYNC),
            pl.col("duration_ns") > 0,
        )
        .join(first_launches.lazy(), on="process_id", how="left", nulls_equal=True)
        .with_columns(
            cause.cast(pl.Int64).alias("cause"),
            is_named(view, lambda name: name.str.contains(_FREES)).alias("frees"),
            before_any_launch.fill_null(value=False).alias("early"),
        )
        .filter(pl.col("cause").is_not_null())
        .with_columns(
            pl.col("thread_id").fill_null(NO_THREAD),
            (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"),
            pl.col("span_id").alias("call"),
        )
        .select(*_COLUMNS[:-1], "frees", "early")
        .collect()
    )
    may_wait, waited = pl.col("cause") == _SYNC, pl.col("waited_ns") > 0
    without_wait = pl.when(pl.col("frees") | pl.col("early")).then(_INITIALISATION).otherwise(_HOST)
    rows = rows.with_columns(waited_ns(view, run, rows)).with_columns(
        pl.when(may_wait & ~waited)
        .then(without_wait)
        .when(may_wait & pl.col("frees"))
        .then(_HOST)
        .otherwise("cause")
        .alias("cause"),
        pl.when(may_wait).then("waited_ns").otherwise(0).alias("waited_ns"),
    )
    return outermost_blocks(rows.select(_COLUMNS))


def kernel_searches(view: TraceView, run: int) -> pl.Series:
    """The run's spans in which a library tried several kernels for one product or convolution, each timed by events.

    It does that at the first call with such a shape (cuDNN's and MIOpen's benchmark mode), and never again.
    """
    waits = view.runs([run]).scan("spans").filter(is_named(view, lambda name: name.str.contains(_EVENT_WAIT)))
    waiting = waits.group_by("parent_id").len().filter(pl.col("len") >= _MIN_TRIALS).collect()["parent_id"].drop_nulls()
    if waiting.is_empty():
        return waiting.rename("span_id")
    tried = pl.col("kernel_class").cast(pl.String).is_in(_TRIED_CLASSES)
    work = view.all_activities.filter(pl.col("run_id") == run, tried).select("name", "parent_id")
    own = view.own_runs.scan("spans").filter(pl.col("parent_id").is_in(waiting.implode()))
    launches = own.select(pl.col("span_id").alias("parent_id"), pl.col("parent_id").alias("span_id"))
    kernels = launches.join(work.lazy(), on="parent_id").group_by("span_id").agg(pl.col("name").n_unique())
    return kernels.filter(pl.col("name") >= _MIN_TRIALS).sort("span_id").collect()["span_id"]


def tried_kernels(view: TraceView, run: int) -> pl.DataFrame:
    """The run's device work that such searches tried, by span_id: all but what they launched after the last wait."""
    searches = view.once(kernel_searches, run)
    inside = view.own_runs.scan("spans").filter(pl.col("parent_id").is_in(searches.implode()))
    is_wait = is_named(view, lambda name: name.str.contains(_EVENT_WAIT))
    last = pl.col("start_ns").filter(is_wait).max().over("parent_id")
    tried = inside.filter(pl.col("start_ns") < last).select(pl.col("span_id").alias("parent_id")).collect()
    return view.all_activities.join(tried, on="parent_id", how="semi", maintain_order="left")


def memory_growth(view: TraceView, run: int) -> pl.Series:
    """The run's calls that reserve memory with which a process holds more pieces of it than ever before.

    Those of a loop that frees what it reserves are not, but in its first round.
    """
    is_call = pl.col("level") == str(Level.RUNTIME), pl.col("kind") != str(Kind.SYNC)
    reserves = is_named(view, lambda name: name.str.contains(_RESERVES) & ~name.str.contains(_ASYNCHRONOUS))
    frees = is_named(view, lambda name: name.str.contains(_FREES))
    calls = view.runs([run]).scan("spans").filter(*is_call, reserves | frees)
    change = pl.when(reserves).then(1).otherwise(-1).alias("change")
    rows = calls.select("span_id", "process_id", "start_ns", change).sort("start_ns", "span_id").collect()
    held = rows.with_columns(pl.col("change").cum_sum().over("process_id").alias("held"))
    before = pl.col("held").cum_max().shift(fill_value=0).over("process_id").clip(lower_bound=0)
    return held.filter(pl.col("change") > 0, pl.col("held") > before)["span_id"]


def first_uses(view: TraceView, run: int) -> pl.Series:
    """The run's long calls that ask about a kernel: a process's first of a name, and those far longer than usual."""
    asks = is_named(view, lambda name: name.str.contains(_QUERIES)) & (pl.col("level") == str(Level.RUNTIME))
    calls = view.runs([run]).scan("spans").filter(asks).collect().sort("start_ns", "span_id")
    of_name, length = ("process_id", "name"), pl.col("duration_ns")
    is_first = pl.int_range(pl.len()).over(of_name) == 0
    is_slow = length > _SLOW * length.median().over(of_name)
    return calls.filter(length > _FIRST_USE_NS, is_first | is_slow)["span_id"]


def host_spans(view: TraceView, run: int, min_duration_ns: int) -> pl.DataFrame:
    """The run's ranges, modules, operators and calls that last so long: process_id, thread_id, start_ns, end_ns, call.

    Also parent_id (of the span around) and is_step: all that a thread does is in a step, which says nothing.
    """
    return (
        view.runs([run])
        .scan("spans")
        .filter(
            pl.col("duration_ns") >= min_duration_ns,
            pl.col("level").is_in([str(level) for level in _HOST_LEVELS]),
            pl.col("kind") != str(Kind.SYNC),
        )
        .select(
            "process_id",
            pl.col("thread_id").fill_null(NO_THREAD),
            "start_ns",
            (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"),
            pl.col("span_id").alias("call"),
            "parent_id",
            (pl.col("kind") == str(Kind.STEP)).alias("is_step"),
        )
        .collect()
    )


def open_operators(view: TraceView, run: int, processes: pl.Expr) -> Blocks:
    """When operators of the host were open: of several the one that began last, as input where it fetches that."""
    rows = (
        view.runs([run])
        .scan("spans")
        .filter(
            pl.col("level") == str(Level.OPERATOR),
            pl.col("kind") == str(Kind.OPERATOR),
            pl.col("thread_id").is_not_null(),
            pl.col("duration_ns") > 0,
            processes,
        )
        .select(
            "start_ns",
            (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"),
            pl.when(is_named(view, lambda name: name.str.contains(INPUT_CALLS))).then(_INPUT).otherwise(_HOST),
            "span_id",
        )
        .sort("start_ns", "span_id")
        .collect()
    )
    start, end, cause, call = (column.to_numpy() for column in rows.get_columns())
    edges = np.unique(np.concatenate((start, end)))
    owner = np.full(len(edges), -1)
    begun: list[int] = []
    first = 0
    for at, edge in enumerate(edges.tolist()):
        until = int(np.searchsorted(start, edge, side="right"))
        begun += range(first, until)
        first = until
        while begun and end[begun[-1]] <= edge:
            begun.pop()
        owner[at] = begun[-1] if begun else -1
    covered = np.flatnonzero(owner >= 0)
    return Blocks(edges[covered], edges[covered + 1], cause[owner[covered]], call[owner[covered]])


def innermost_around(spans: pl.DataFrame, thread: Ints, start: Ints, end: Ints) -> Ints:
    """For each stretch of a thread the innermost of the spans (see `host_spans`) that holds half of it; -1: none does.

    Such a span holds the middle, and so is the last that began before it, or one around that.
    """
    result = np.full(len(thread), -1)
    for number in np.unique(thread).tolist():
        rows = spans.filter(pl.col("thread_id") == number).sort("start_ns", -pl.col("end_ns"), "call")
        if rows.is_empty():
            continue
        begin, until, call, is_step = (rows[c].to_numpy() for c in ("start_ns", "end_ns", "call", "is_step"))
        around = positions_in(rows.select("call"), rows.select(call="parent_id"), ("call",))
        mine = np.flatnonzero(thread == number)
        first, last = start[mine], end[mine]
        at = np.searchsorted(begin, first + (last - first) // 2, side="right") - 1
        while True:
            held = np.minimum(until[at], last) - np.maximum(begin[at], first)
            outward = (at >= 0) & (is_step[at] | (2 * held < last - first))
            if not outward.any():
                break
            at = np.where(outward, around[at], at)
        result[mine] = np.where(at >= 0, call[at], -1)
    return result


def outermost_blocks(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows that lie in no other of their thread."""
    thread = ("process_id", "thread_id")
    ordered = rows.sort(*thread, "start_ns", -pl.col("end_ns"))
    before = pl.col("end_ns").cum_max().shift().over(thread)
    return ordered.filter((pl.col("start_ns") >= before).fill_null(value=True))


def _is_pageable(trace: Trace) -> pl.Expr:
    """Whether a span launched a copy from or to pageable memory: the host is held until it is staged."""
    ends = pl.any_horizontal(pl.col("source_kind", "destination_kind").cast(pl.String) == "Pageable")
    copies = trace.scan("copies").filter(ends).select("span_id").collect()["span_id"]
    calls = trace.scan("spans").select("parent_id").collect().to_series().gather(copies).drop_nulls().unique()
    return pl.col("span_id").is_in(calls.implode())
