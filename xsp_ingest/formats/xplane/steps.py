"""The steps of a profile: as the program marked them, as the profiler derived them, else its main calls."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.xplane.host import Role
from xsp_ingest.formats.xplane.wide import wide
from xsp_ingest.link.range_rules import one_of
from xsp_model import Finding, Kind, LedgerKind, Level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_ingest.formats.xplane.plane import Plane

__all__ = ["step_rows"]

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
