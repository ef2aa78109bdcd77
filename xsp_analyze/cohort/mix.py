"""Where a model's time goes by type of operator: the vector that models are compared by.

Source: Adolf et al., "Fathom: reference workloads for modern deep learning methods", IISWC 2016: a workload's profile
is the share of its time in each type of operation, and two workloads are as alike as the cosine of their profiles.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.classification import KernelClass, class_of_operator, operator_type
from xsp_analyze.frames.layer_time import layer_calls, layer_latencies
from xsp_model import Level
from xsp_model.tree import outermost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.trace.step_view import StepView

__all__ = ["CLASSES", "Mix", "operator_mix"]

CLASSES: tuple[str, ...] = tuple(str(c) for c in KernelClass)
"""What time is divided into, as Fathom divides that of TensorFlow; see docs/kernel-classes.md."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Shares of time by operator type; they add up to 1, or there are none.

    `basis`: device (time of the work that operators launched) or host (of outermost operators); of operators or,
    where none were recorded, of layers. `covered_share` is the part of that time which lies in any operator.
    `class_shares` are by the class of each kernel, of all device time (`class_basis`), whoever launched it; without a
    device, of the same time as `shares`, by the classes of operators or layers.
    """

    basis: str | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    covered_share: float | None = None
    class_basis: str | None = None
    class_shares: Mapping[str, float] = field(default_factory=dict)


def operator_mix(frames: StepView) -> Mix:
    """The mix of a mean step (of all of a trace without steps), in the runs that kernels, else layers, are from."""
    mix = _of_operators(frames)
    work = frames.of_trace.all_activities
    if work.is_empty():
        shares: dict[str, float] = {}
        for name, share in mix.shares.items():
            kernel_class = str(class_of_operator(name))
            shares[kernel_class] = shares.get(kernel_class, 0.0) + share
        return replace(mix, class_basis=mix.basis, class_shares=shares)
    sums = _per_step(frames, work.with_columns(pl.col("kernel_class").alias("name")))
    shares = _shares_of(sums)
    return replace(mix, class_basis="device time" if shares else None, class_shares=shares)


def _of_operators(frames: StepView) -> Mix:
    runs = (
        frames.of_trace.kernel_runs
        if not frames.of_trace.all_activities.is_empty()
        else frames.of_trace.layer_runs or frames.of_trace.kernel_runs
    )
    columns = ("span_id", "parent_id", "run_id", "step", "level", "name", "duration_ns", "attribution")
    frame = frames.trace.scan("spans").select(columns).collect()
    is_operator = (frame["level"] == str(Level.OPERATOR)).to_numpy()
    if not (is_operator & frame["run_id"].is_in(runs.ids).to_numpy()).any():
        return _of_layers(frames)
    top = outermost(frame["parent_id"].fill_null(-1).to_numpy(), is_operator)
    owned = frame.with_columns(pl.Series("top", top))
    work = runs.of(owned.filter(pl.col("attribution").is_not_null()))
    if work.is_empty():
        own = runs.of(owned.filter(pl.Series(is_operator & (top == np.arange(len(top))))))
        return _shares(_per_step(frames, _typed(own)), "host time of operators", None)
    names = frame.select(pl.col("span_id").alias("top"), pl.col("name").alias("operator"))
    inside = work.filter(pl.col("top") >= 0).drop("name").join(names, on="top").rename({"operator": "name"})
    total, part = (int(frames.chosen(rows)["duration_ns"].sum()) for rows in (work, inside))
    return _shares(_per_step(frames, _typed(inside)), "device time of operators", part / total if total else None)


def _per_step(frames: StepView, rows: pl.DataFrame) -> pl.DataFrame:
    """What a mean step holds of each name (name, duration_ns); of a trace without steps all of it.

    Sums are averaged over steps, trimmed, so that one slow step does not decide what a model is like.
    """
    named = rows.with_columns(pl.col("name").cast(pl.String))
    sums = named.group_by("run_id", "step", "name").agg(pl.col("duration_ns").sum()).sort("run_id", "step", "name")
    return frames.combine(sums, ["name"], ["duration_ns"])


def _typed(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with the type of each operator as its name."""
    names = rows["name"].cast(pl.String).unique().sort()
    types = pl.DataFrame(
        {"name": names, "type": [operator_type(name) for name in names]},
        schema=dict.fromkeys(("name", "type"), pl.String),
    )
    named = rows.with_columns(pl.col("name").cast(pl.String)).join(types, on="name")
    return named.drop("name").rename({"type": "name"})


def _of_layers(frames: StepView) -> Mix:
    if frames.of_trace.once(layer_calls).is_empty():
        return Mix()
    layers = frames.once(layer_latencies).select(pl.col("layer_type").cast(pl.String).alias("name"), "latency_ns")
    sums = layers.group_by("name", maintain_order=True).agg(pl.col("latency_ns").sum().alias("duration_ns"))
    return _shares(sums, "time of layers", None)


def _shares(rows: pl.DataFrame, basis: str, covered: float | None) -> Mix:
    """The mix by type; rows: name, duration_ns."""
    shares = _shares_of(rows)
    return Mix(basis, shares, covered) if shares else Mix()


def _shares_of(rows: pl.DataFrame) -> dict[str, float]:
    """Shares by name, largest first; rows: name, duration_ns."""
    times = {name: float(duration or 0) for name, duration in rows.select("name", "duration_ns").iter_rows()}
    total = sum(times[name] for name in sorted(times))
    ordered = sorted(times.items(), key=lambda pair: (-pair[1], pair[0]))
    return {name: time / total for name, time in ordered if time} if total else {}
