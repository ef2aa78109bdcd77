"""Profiles of the ranks of one job, each merged from runs at several levels, side by side in one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_model import TraceBuilder
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_model import Trace

__all__ = ["join_ranks", "with_offsets"]

_OF_SPANS = ("span_id", "parent_id", "layer_id", "forward_id", "captured_in_id", "owner_id")


def with_offsets(rows: pl.DataFrame, run: int, span: int) -> pl.DataFrame:
    """The rows with run and span numbers moved up."""
    return rows.with_columns(
        *(pl.col(c) + span for c in _OF_SPANS if c in rows.columns),
        *(pl.col(c) + run for c in ("run_id",) if c in rows.columns),
    )


# Profiles of the ranks of one job, each merged from runs at several levels, side by side in one.

_TIMES = {"spans": "start_ns", "counters": "time_ns", "allocations": "time_ns"}


def join_ranks(profiles: Sequence[Trace]) -> Trace:
    """One profile with the runs of all; those of one role stand on one axis, by the Unix times that they state.

    Numbers are then taken as of ranks that were read together: each over its own steps, latency as their mean.
    """
    builder = TraceBuilder()
    run = span = 0
    origins = _origins(profiles)
    for profile in profiles:
        late_ns = _late_ns(profile, origins)
        for name in TABLES:
            builder.add(name, with_offsets(_on_one_axis(name, profile.frame(name), late_ns), run, span))
        run += profile.table("runs").num_rows
        span += profile.row_count
    return builder.build()


def _origins(profiles: Sequence[Trace]) -> Mapping[str, int]:
    """The earliest Unix time of a time 0, by role; a role is left out where a run does not know its own."""
    runs = pl.concat([profile.frame("runs").select("role", "epoch_ns") for profile in profiles])
    origins = runs.group_by("role").agg(
        pl.col("epoch_ns").min(), pl.col("epoch_ns").is_not_null().all().alias("is_known")
    )
    return dict(origins.filter(pl.col("is_known"), pl.col("role").is_not_null()).select("role", "epoch_ns").iter_rows())


def _late_ns(profile: Trace, origins: Mapping[str, int]) -> Mapping[int, int]:
    """How much later than the others' each run's time 0 is."""
    rows = profile.frame("runs").select("run_id", "role", "epoch_ns").iter_rows()
    return {run: epoch_ns - origins[role] for run, role, epoch_ns in rows if role in origins}


def _on_one_axis(name: str, rows: pl.DataFrame, late_ns: Mapping[int, int]) -> pl.DataFrame:
    late = pl.col("run_id").replace_strict(dict(late_ns), default=0, return_dtype=pl.Int64)
    if name == "runs":
        return rows.with_columns(pl.col("epoch_ns") - late, pl.col("clock_origin_ns") - late)
    time = _TIMES.get(name)
    return rows.with_columns(pl.col(time) + late) if time is not None and any(late_ns.values()) else rows
