"""The host's planes: what each event is (a call, an operator, a range, memory), on which thread, and the steps."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.values import natural
from xsp_ingest.formats.xplane.plane import AMOUNTS, NUMBERS, TEXTS
from xsp_ingest.formats.xplane.wide import wide
from xsp_ingest.link.range_rules import one_of
from xsp_ingest.staging.intervals import MAX_DURATION_NS
from xsp_ingest.staging.raw import frame_of
from xsp_model import Finding, Kind, LedgerKind, Level, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from xsp_ingest.formats.xplane.plane import Plane

__all__ = [
    "PLANE",
    "Role",
    "allocations",
    "device_planes",
    "host_events",
    "omitted_events",
    "on_their_threads",
    "plausible",
    "step_rows",
]

PLANE = "/host:CPU"
"""What the names of the planes of host threads begin with."""
_GPU = "/device:GPU:"
_MEMORY_EVENTS = ("MemoryAllocation", "MemoryDeallocation")
_OPERATOR = r"^([A-Za-z0-9._][\w.\\/>-]*):([A-Za-z_]\w*)$"
_DATASET = r"^Iterator::"
_MODULE = r"^(.+):XLA GPU module$"


class Role(StrEnum):
    """What an event of a host plane is."""

    MEMORY = "memory"
    CALL = "call"  # of the device's driver, as CUPTI or rocTracer saw it
    STEP = "step"
    OPERATOR = "operator"  # of TensorFlow
    THUNK = "thunk"  # one instruction of a compiled program
    MODULE = "module"  # one run of a compiled program
    END = "end"  # the end of a thunk, as an event of its own
    MOMENT = "moment"  # has no duration
    RANGE = "range"


_LEFT_OUT = {
    Role.END: "ends of thunks were not kept; the thunks were",
    Role.MOMENT: "events without a duration were not kept",
}


def device_planes(planes: Iterable[Plane]) -> list[tuple[int, Plane]]:
    """The planes of GPUs with the devices' numbers."""
    return [
        (number, plane)
        for plane in planes
        if plane.name.startswith(_GPU) and (number := natural(plane.name.removeprefix(_GPU))) is not None
    ]


def host_events(plane: Plane, process_id: int, known_ops: pl.Series) -> pl.DataFrame:
    """One row an event with `role`, `thread_id`, `operator` and `operator_type`, and every statistic.

    `known_ops` are names of instructions that device work refers to: an event of such a name ran one of them.
    """
    metadata = _meanings(plane.metadata, known_ops)
    lines = plane.lines.select("line", pl.col("line_id").alias("thread_id"))
    stats = [plane.stat(name) for name in (*NUMBERS, *AMOUNTS, *TEXTS)]
    role = (
        pl.when((pl.col("meaning") == Role.MEMORY) & pl.col("allocation_bytes").is_not_null())
        .then(pl.lit(str(Role.MEMORY)))
        .when(pl.col("meaning") == Role.END)
        .then(pl.col("meaning"))
        .when(pl.col("correlation_id").is_not_null())
        .then(pl.lit(str(Role.CALL)))
        .when(pl.col("step_num").is_not_null())
        .then(pl.lit(str(Role.STEP)))
        .when(pl.col("hlo_op").is_not_null())
        .then(pl.lit(str(Role.THUNK)))
        .when(pl.col("meaning").is_not_null() & (pl.col("meaning") != Role.MEMORY))
        .then(pl.col("meaning"))
        .when(pl.col("duration_ns") <= 0)
        .then(pl.lit(str(Role.MOMENT)))
        .otherwise(pl.lit(str(Role.RANGE)))
    )
    return (
        plane.events.select("line", "metadata_id", "start_ns", "duration_ns", *stats)
        .join(metadata, on="metadata_id", how="left", maintain_order="left")
        .join(lines, on="line", how="left", maintain_order="left")
        .with_columns(role.alias("role"), pl.lit(process_id, pl.Int64).alias("process_id"))
        .with_columns(pl.col("event_name", "operator").fill_null(""))  # of a name that the file does not hold
        .drop("meaning")
    )


def _meanings(metadata: pl.DataFrame, known_ops: pl.Series) -> pl.DataFrame:
    """What all events of a name are, as far as the name says."""
    name = pl.col("event_name")
    is_operator = name.str.contains(_OPERATOR) & ~name.str.contains("::", literal=True)
    meaning = (
        pl.when(name.is_in(_MEMORY_EVENTS))
        .then(pl.lit(str(Role.MEMORY)))
        .when(name.str.starts_with("end: "))
        .then(pl.lit(str(Role.END)))
        .when(name.str.contains(_MODULE))
        .then(pl.lit(str(Role.MODULE)))
        .when(is_operator | name.str.contains(_DATASET))
        .then(pl.lit(str(Role.OPERATOR)))
        .when(name.is_in(known_ops.implode()))
        .then(pl.lit(str(Role.THUNK)))
    )
    return metadata.select(
        "metadata_id",
        "event_name",
        meaning.alias("meaning"),
        pl.when(is_operator)
        .then(name.str.extract(_OPERATOR, 1))
        .otherwise(pl.coalesce(name.str.extract(_MODULE, 1), name))
        .alias("operator"),
        pl.when(is_operator).then(name.str.extract(_OPERATOR, 2)).otherwise(pl.lit("Dataset")).alias("operator_type"),
    )


def omitted_events(events: pl.DataFrame) -> list[Finding]:
    """Counts the events that are known and deliberately not kept."""
    counts = dict(events.group_by("role").len().iter_rows())
    return [Finding(LedgerKind.EVENTS_LEFT_OUT, why, counts.get(str(role), 0)) for role, why in _LEFT_OUT.items()]


def plausible(events: pl.DataFrame) -> tuple[pl.DataFrame, list[Finding]]:
    """The events with no negative duration and none of more than a day, and how many had to be mended."""
    negative, absurd = pl.col("duration_ns") < 0, pl.col("duration_ns") > MAX_DURATION_NS
    counts = events.select(negative.sum().alias("negative"), absurd.sum().alias("absurd")).row(0)
    mended = events.with_columns(
        pl.when(negative | absurd).then(0).otherwise(pl.col("duration_ns")).alias("duration_ns")
    )
    advice = "Their time is missing from every sum"
    details = (
        (LedgerKind.NEGATIVE_DURATION, "events with a negative duration were taken as 0 ns long", counts[0]),
        (LedgerKind.ABSURD_DURATION, "events longer than a day were taken as 0 ns long", counts[1]),
    )
    return mended, [Finding(kind, detail, count, Severity.ERROR, advice=advice) for kind, detail, count in details]


# Allocations that the host's lines record, for the staging table of memory in use.

_DEVICE = r"(?i)^GPU_(\d{1,6})_"


def allocations(host: pl.DataFrame) -> pl.DataFrame:
    """One row an allocation or a release; allocators as `GPU_0_bfc` are a device's, all others the host's."""
    events = host.filter(pl.col("role") == Role.MEMORY)
    freed = pl.col("event_name") == "MemoryDeallocation"
    allocator = pl.col("allocator_name").cast(pl.String)
    return frame_of(
        "allocations",
        events.sort("start_ns").select(
            "process_id",
            "thread_id",
            pl.col("start_ns").alias("time_ns"),
            allocator.str.extract(_DEVICE).cast(pl.Int64, strict=False).alias("device_id"),
            pl.when(freed).then(-pl.col("allocation_bytes")).otherwise(pl.col("allocation_bytes")).alias("bytes"),
            pl.col("bytes_allocated").alias("allocated_bytes"),
            pl.when(pl.col("bytes_reserved") > 0).then(pl.col("bytes_reserved")).alias("reserved_bytes"),
            pl.when(pl.col("addr") != 0).then(pl.col("addr")).alias("address"),
        ),
    )


# Puts calls of the driver on the thread they were made on, where the profiler numbered threads in two ways.
#
# ROCm's tracer gives calls lines of their own, `Host Threads/583`, beside the lines of the host's own ranges. The calls
# of one thread lie inside the thunks they are named after, so the line whose thunks hold them is that thread's.

_ENOUGH = 0.9  # share of a line's calls that must lie in thunks of their name


def on_their_threads(events: pl.DataFrame) -> pl.DataFrame:
    """The events, those on lines of nothing but calls with the `thread_id` of the line whose thunks hold them."""
    only_calls = events.group_by("line").agg((pl.col("role") == Role.CALL).all().alias("only"))
    apart = only_calls.filter("only")["line"].implode()
    calls = events.filter(pl.col("line").is_in(apart), pl.col("hlo_op").is_not_null())
    thunks = events.filter(pl.col("role") == Role.THUNK)
    if calls.is_empty() or thunks.is_empty():
        return events
    held = pl.concat([_count_held(calls, thunks.filter(pl.col("line") == line), line) for line in _lines(thunks)])
    total = calls.group_by("line").len("total")
    best = (
        held.join(total, on="line")
        .filter(pl.col("held") >= _ENOUGH * pl.col("total"))
        .sort("line", "held", "host_line", descending=[False, True, False])
        .unique("line", keep="first", maintain_order=True)
    )
    threads = events.select(pl.col("line").alias("host_line"), pl.col("thread_id").alias("host_thread")).unique(
        "host_line"
    )
    moved = best.join(threads, on="host_line").select("line", "host_thread")
    return (
        events.join(moved, on="line", how="left", maintain_order="left")
        .with_columns(pl.coalesce("host_thread", "thread_id").alias("thread_id"))
        .drop("host_thread")
    )


def _lines(thunks: pl.DataFrame) -> list[int]:
    return thunks["line"].unique().sort().to_list()


def _count_held(calls: pl.DataFrame, thunks: pl.DataFrame, line: int) -> pl.DataFrame:
    """How many calls of each line lie inside this line's thunks of their name."""
    windows = thunks.select(
        pl.col("operator").cast(pl.String).alias("op"),
        "start_ns",
        (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"),
    ).sort("start_ns")
    at = calls.select("line", pl.col("hlo_op").cast(pl.String).alias("op"), "start_ns").sort("start_ns")
    inside = at.join_asof(windows, on="start_ns", by="op", check_sortedness=False).filter(
        pl.col("start_ns") < pl.col("end_ns")
    )
    return (
        inside.group_by("line")
        .len("held")
        .select("line", pl.col("held").cast(pl.Int64), pl.lit(line, pl.Int64).alias("host_line"))
    )


# The steps of a profile: as the program marked them, as the profiler derived them, else its main calls.

_THREAD = ("process_id", "thread_id")
_SESSION = r"^(?:SessionRun|TfrtSession::Run|DirectSession::Run)$"


def step_rows(
    host: pl.DataFrame,
    device_planes: Sequence[Plane],
    work: pl.DataFrame,
    program: str | None,
    model_ranges: Sequence[str],
) -> tuple[pl.DataFrame, list[Finding]]:
    """Wide rows of the steps, and what was taken for a step where the program marked none.

    `program` is the compiled program that most of the time was spent in, as `jit_train_step`; `work` all device work.
    """
    if model_ranges:
        chosen = host.filter(pl.col("role") == Role.RANGE, pl.col("event_name").str.contains(one_of(model_ranges)))
        return _rows(chosen.with_columns(name=pl.col("event_name"))), []
    marked = host.filter(pl.col("role") == Role.STEP)
    if marked.height:
        return _rows(marked.with_columns(name=pl.format("{}#{}", "event_name", "step_num"))), []
    derived = _steps_of_lines(host, device_planes)
    if derived.height:
        return _rows(derived), [_inferred_steps("the profiler's own groups of events", derived.height)]
    jitted = rf"^PjitFunction\({re.escape((program or '').removeprefix('jit_'))}\)$"
    for pattern, what in (
        (_SESSION, "each run of a session"),
        (jitted, "each call of the jitted function that took longest, of one program and so of the same shapes,"),
    ):
        called = _calls(host, pattern)
        if pattern is jitted:
            called = _of_one_program(called, host, work, program)
        if called.height:
            return _rows(called.with_columns(name=pl.col("event_name"))), [_inferred_steps(what, called.height)]
    return _rows(host.clear().with_columns(name=pl.col("event_name"))), []


def _of_one_program(calls: pl.DataFrame, host: pl.DataFrame, work: pl.DataFrame, program: str | None) -> pl.DataFrame:
    """The calls that ran the same compiled program: each shape of arguments has one, and calls of others are no steps.

    Of several programs of the name the one that devices worked for longest; no calls where it was called once. Calls of
    which no device work tells the program are all kept.
    """
    launches = host.filter(pl.col("role") == Role.CALL).select(
        "process_id", "correlation_id", pl.col("start_ns").alias("at")
    )
    launched = (
        work.filter(
            pl.col("hlo_module").cast(pl.String).eq_missing(pl.lit(program, pl.String)),
            pl.col("program_id").is_not_null(),
        )
        .select("process_id", "correlation_id", "program_id", "start_ns", "duration_ns")
        .join(launches.unique(["process_id", "correlation_id"]), on=["process_id", "correlation_id"], how="left")
        .with_columns(pl.coalesce("at", "start_ns").alias("at"))
        .sort("at")
    )
    if launched["program_id"].n_unique() <= 1 or calls.is_empty():
        return calls
    ordered = calls.sort("start_ns").with_row_index("call")
    of_call = launched.join_asof(ordered.select("call", at="start_ns"), on="at").drop_nulls("call")
    taken = of_call.group_by("call", "program_id").agg(pl.col("duration_ns").sum()).sort("duration_ns", "program_id")
    of_program = taken.group_by("call", maintain_order=True).last()
    totals = of_program.group_by("program_id").agg(pl.col("duration_ns").sum()).sort("duration_ns", "program_id")
    kept = of_program.filter(pl.col("program_id") == totals["program_id"][-1])["call"]
    if len(kept) < 2:  # noqa: PLR2004 (it does not repeat)
        return calls.clear()
    return ordered.filter(pl.col("call").is_in(kept.implode())).drop("call")


def _rows(steps: pl.DataFrame) -> pl.DataFrame:
    named = pl.col("name").cast(pl.String).fill_null("[unnamed step]")
    return wide(steps.select(*_THREAD, "start_ns", "duration_ns", named), Level.MODEL, Kind.STEP)


def _inferred_steps(what: str, count: int) -> Finding:
    return Finding(LedgerKind.STEPS_INFERRED, f"the program marked no steps; {what} was taken for one", count)


def _steps_of_lines(host: pl.DataFrame, planes: Sequence[Plane]) -> pl.DataFrame:
    """Steps of the lines `Steps`, each from its first event on any plane to its last, or until the next one begins."""
    groups = [
        plane.events.join(plane.lines.filter(pl.col("line_name") == "Steps"), on="line")
        .join(plane.metadata, on="metadata_id", how="left")
        .select(plane.stat("group_id"), "event_name", "start_ns", "duration_ns")
        for plane in planes
    ]
    steps = pl.concat(groups) if groups else pl.DataFrame()
    if steps.is_empty():
        return host.clear().with_columns(name=pl.col("event_name"))
    names = steps.group_by("group_id").agg(pl.format("Step {}", pl.col("event_name").first()).alias("name"))
    on_host = host.select("group_id", "start_ns", "duration_ns").drop_nulls("group_id")
    every = pl.concat([steps.drop("event_name"), on_host]).join(names, on="group_id", nulls_equal=True)
    end = (pl.col("start_ns") + pl.col("duration_ns")).max().alias("end_ns")
    spans = every.group_by("name").agg(pl.col("start_ns").min(), end).sort("start_ns", "name")
    until = pl.min_horizontal("end_ns", pl.col("start_ns").shift(-1).fill_null(pl.col("end_ns")))
    return spans.with_columns(
        (until - pl.col("start_ns")).alias("duration_ns"),
        pl.lit(host["process_id"].first() if host.height else 0, pl.Int64).alias("process_id"),
        pl.lit(None, pl.Int64).alias("thread_id"),
    )


def _calls(host: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """The outermost events of such a name."""
    calls = host.filter(pl.col("role") == Role.RANGE, pl.col("event_name").str.contains(pattern))
    before = (pl.col("start_ns") + pl.col("duration_ns")).cum_max().shift().over(*_THREAD)
    ordered = calls.sort(*_THREAD, "start_ns", -pl.col("duration_ns"))
    return ordered.filter((pl.col("start_ns") >= before).fill_null(value=True))
