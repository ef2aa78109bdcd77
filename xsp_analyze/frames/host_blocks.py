"""Calls of the host that explain why it launches nothing: it waits for a device, starts something up, fetches input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.launches import SYNC_CALLS, is_wait, names_like
from xsp_model import Kind, Level

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace
    from xsp_model.arrays import Ints

__all__ = ["BLOCK_CAUSES", "COMPILATIONS", "INPUT_CALLS", "NO_THREAD", "Blocks", "host_blocks", "outermost_blocks"]

BLOCK_CAUSES = ("sync", "initialisation", "input", "host")
"""What a call can explain idle time by: it waits for a device, starts something up, fetches input, or reserves."""

INPUT_CALLS = r"(?i)DataLoader.*(?:__next__|_next)|IteratorGetNext|^Iterator::|DataLoaderIter"
"""Spans in which the next batch is awaited: PyTorch's data loader, TensorFlow's input pipeline."""

COMPILATIONS = (
    r"(?i)^(?:cuda|cu|hip)(?:Module|Library)Load|^(?:cuda|cu|hip)Link(?:Create|Add|Complete)|nvrtc\w*Compile"
    r"|hiprtc\w*Compile|nvJitLink|^_compile\.compile_inner|entire_frame_compile|compile_fx|fw_compiler_base"
    r"|inductor_compile|async_compile|Graph(?:Node)?\.record|triton.*compile|CachingAutotuner"
    r"|XlaCompile|CompileXla|PjRt\w*Compile|backend_?compile|LlvmCompile|jit_compile"
)
"""Spans in which code is made or loaded for the device: the driver's linking and loading, NVRTC, HIPRTC, TorchDynamo,
Inductor, capture of graphs by Inductor, Triton, XLA. Names as these tools' own traces have them."""

_STARTS_UP = (
    r"(?i)^(?:cuda|cu|hip)(?:Init$|CtxCreate|DevicePrimaryCtxRetain|(?:Module|Library)Unload|DeviceReset)"
    rf"|{COMPILATIONS.removeprefix('(?i)')}"
)
"""Contexts made and code unloaded (CUDA runtime and driver, HIP), and COMPILATIONS."""

_ALLOCATES = r"(?i)^(?:cuda|cu|hip)(?:Malloc|MemAlloc|MemCreate|HostAlloc|HostRegister|StreamCreate|EventCreate)"
"""Calls that reserve memory, streams or events: other work of the host, worth its name."""

NO_THREAD = -1
"""Stands for the thread where a trace does not tell it."""

_HOST_LEVELS = (Level.APPLICATION, Level.MODEL, Level.LAYER, Level.OPERATOR, Level.LIBRARY, Level.RUNTIME)
_COLUMNS = ("process_id", "thread_id", "start_ns", "end_ns", "cause", "call")


@dataclass(frozen=True, slots=True)
class Blocks:
    """Disjoint stretches of time in order, each with its cause (an index of BLOCK_CAUSES) and the span of its call."""

    start: Ints
    end: Ints
    cause: Ints
    call: Ints

    @classmethod
    def of(cls, rows: pl.DataFrame) -> Blocks:
        """Those of the rows (see `host_blocks`); where two of different threads overlap, the one that began first."""
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


def host_blocks(view: TraceView, run: int) -> pl.DataFrame:
    """The run's calls of the host that explain why a device is idle, the outermost of each thread.

    process_id, thread_id, start_ns, end_ns, cause (an index of BLOCK_CAUSES) and call (its span). What a process called
    of the runtime before it launched its first work, but to wait, set it up.
    """
    trace, names = view.trace, view.span_names  # to look at each name once is not to look at each of millions of calls
    work = view.all_activities.lazy().filter(pl.col("run_id") == run)
    first_launches = work.group_by("process_id").agg(pl.col("call_start_ns").min().alias("first_launch_ns")).collect()
    kinds = {
        "sync": names_like(names, is_wait),
        "initialisation": names_like(names, lambda name: name.str.contains(_STARTS_UP)),
        "input": names_like(names, lambda name: name.str.contains(INPUT_CALLS)),
        "host": names_like(names, lambda name: name.str.contains(_ALLOCATES)),
    }
    is_runtime = pl.col("level") == str(Level.RUNTIME)
    waits = names_like(names, lambda name: name.str.contains(SYNC_CALLS))
    before_any_launch = is_runtime & (pl.col("start_ns") < pl.col("first_launch_ns"))
    cause = (
        pl.when(before_any_launch & ~pl.col("name").is_in(waits.implode()))
        .then(1)
        .when((pl.col("name").is_in(kinds["sync"].implode()) & is_runtime) | _is_pageable(trace))
        .then(0)
        .when(pl.col("name").is_in(kinds["initialisation"].implode()))
        .then(1)
        .when(pl.col("name").is_in(kinds["input"].implode()))
        .then(2)
        .when(pl.col("name").is_in(kinds["host"].implode()) & is_runtime)
        .then(3)
    )
    rows = (
        trace.scan("spans")
        .filter(
            pl.col("run_id") == run,
            pl.col("level").is_in([str(level) for level in _HOST_LEVELS]),
            pl.col("kind") != str(Kind.SYNC),
            pl.col("duration_ns") > 0,
        )
        .join(first_launches.lazy(), on="process_id", how="left", nulls_equal=True)
        .with_columns(cause.cast(pl.Int64).alias("cause"))
        .filter(pl.col("cause").is_not_null())
        .with_columns(
            pl.col("thread_id").fill_null(NO_THREAD),
            (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"),
            pl.col("span_id").alias("call"),
        )
        .select(_COLUMNS)
        .collect()
    )
    return outermost_blocks(rows)


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
