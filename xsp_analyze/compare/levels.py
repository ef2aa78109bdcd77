"""What a capture measured at each level: a mean per step for each row, and every step's value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.classification.labels import normal_name
from xsp_analyze.frames.kernels.kernel_means import chosen_activities, kernel_executions, step_work
from xsp_analyze.frames.layers.layer_time import layer_latencies, layer_steps
from xsp_analyze.frames.model_time import latency_by_run, latency_of_model
from xsp_analyze.frames.steps import StepMode
from xsp_model import Attribution, Kind, Level
from xsp_model.columns.tree import innermost

if TYPE_CHECKING:
    from collections.abc import Callable

    from xsp_analyze.trace.runs import Runs
    from xsp_analyze.trace.step_view import StepView
    from xsp_model.columns.arrays import Floats

__all__ = [
    "GRAPH_REPLAY",
    "KERNEL",
    "NO_LAYER",
    "NO_OPERATOR",
    "UNKNOWN_TYPE",
    "Measured",
    "cells",
    "kernel_classes",
    "kernels",
    "layer_types",
    "layers",
    "measure",
    "measure_sums",
    "model",
    "operator_calls",
    "operators",
    "operators_by_layer",
    "operators_on_host",
]

UNKNOWN_TYPE = "of no known type"


@dataclass(frozen=True, slots=True)
class Measured:
    """Rows of one level in a capture: `labels` has a column `key` and what is known of each row beside it.

    `mean_ns` is what the analyses print for the row, `count` how often it ran per step, `steps` the values of every
    step (rows x steps; no columns where the capture is taken whole).
    """

    labels: pl.DataFrame
    mean_ns: Floats
    count: Floats
    steps: Floats

    @property
    def keys(self) -> list[object]:
        """The rows' keys, in order."""
        return self.labels["key"].to_list()


def model(frames: StepView) -> Measured:
    """One row, `latency`: of the model, as A01 has it. Runs side by side take as long as their mean."""
    durations = [d for d in frames.once(latency_by_run)["durations"].to_list() if d] if frames.is_mean else []
    min_steps = min(map(len, durations), default=0)
    steps = np.mean([d[:min_steps] for d in durations], axis=0, keepdims=True) if durations else np.empty((1, 0))
    mean = frames.once(latency_of_model)["latency_ns"].to_list()
    means = np.array([np.nan if not mean or mean[0] is None else float(mean[0])])
    return Measured(pl.DataFrame({"key": ["latency"]}), means, np.ones(1), steps)


def layers(frames: StepView) -> Measured:
    """One row a layer with own work, key its index: latency as A02 has it."""
    rows = frames.once(layer_latencies).filter(pl.col("layer_index").is_not_null())
    labels = rows.select(
        pl.col("layer_index").alias("key"),
        *(pl.col(c).cast(pl.String) for c in ("layer_name", "layer_type", "path", "shapes", "dtypes")),
    )
    steps = frames.of_trace.once(layer_steps).filter(pl.col("layer_index").is_not_null())
    per_step = steps.select("run_id", "step", pl.col("layer_index").alias("key"), pl.col("latency_ns").alias("ns"))
    return measure(frames, labels, rows["latency_ns"], rows["call_count"], per_step, frames.of_trace.layer_runs)


def layer_types(layers: Measured, named: Callable[[str], str] = str) -> Measured:
    """One row a type of layer, by the name made of it: the sums of its layers' rows."""
    types = [UNKNOWN_TYPE if kind is None else named(kind) for kind in layers.labels["layer_type"]]
    kinds = pl.Series(types, dtype=pl.String)
    names = kinds.unique(maintain_order=True)
    of_type = (names.to_numpy()[:, None] == kinds.to_numpy()[None, :]).astype(np.float64)
    is_known = np.isfinite(layers.mean_ns)
    sums = of_type @ np.where(is_known, layers.mean_ns, 0.0)
    mean = np.where((of_type * is_known).any(axis=1), sums, np.nan)
    return Measured(pl.DataFrame({"key": names}), mean, of_type @ np.nan_to_num(layers.count), of_type @ layers.steps)


def operators_on_host(frames: StepView) -> Measured:
    """One row an operator's name: its own time on the host, outside of the operators inside it, so that rows add up."""
    own = operator_calls(frames).filter(pl.col("is_operator"))
    named = frames.of_chosen_steps(own).select(
        "run_id", "step", pl.col("name").cast(pl.String).alias("key"), pl.col("self_ns").alias("ns")
    )
    return measure_sums(frames, named)


def measure_sums(frames: StepView, per_step: pl.DataFrame) -> Measured:
    """Rows of a key from times (run_id, step, key, ns): their sums in each step, and the means of these."""
    rows = per_step.group_by("run_id", "step", "key", maintain_order=True).agg(
        pl.col("ns").sum(), pl.len().cast(pl.Int64).alias("count")
    )
    sums = frames.combine(rows, ["key"], ["ns", "count"])
    return measure(frames, sums.select("key"), sums["ns"], sums["count"], per_step, frames.of_trace.kernel_runs)


def operators_by_layer(frames: StepView) -> pl.DataFrame:
    """Own host time of operators in a mean step: layer_index, name, ns; of calls within layers only."""
    calls = operator_calls(frames).filter(pl.col("is_operator"), pl.col("layer_id").is_not_null())
    layers = frames.trace.scan("layers").select(pl.col("span_id").alias("layer_id"), "layer_index").collect()
    named = frames.of_chosen_steps(calls).join(layers, on="layer_id").filter(pl.col("layer_index").is_not_null())
    rows = named.group_by("run_id", "step", "layer_index", pl.col("name").cast(pl.String), maintain_order=True).agg(
        pl.col("self_ns").sum().alias("ns")
    )
    return frames.combine(rows, ["layer_index", "name"], ["ns"]).sort("layer_index", "name")


def operator_calls(frames: StepView) -> pl.DataFrame:
    """Every span of the kernels runs with the innermost operator around it, and of operators their own host time."""
    columns = ("span_id", "run_id", "step", "level", "kind", "name", "duration_ns", "layer_id")
    spans = frames.trace.scan("spans").select("parent_id", *columns).collect()
    is_operator = (spans["kind"] == str(Kind.OPERATOR)) & (spans["level"] == str(Level.OPERATOR))
    parent = spans["parent_id"].fill_null(-1).to_numpy()
    mask = is_operator.to_numpy()
    around = innermost(parent, mask)
    duration = spans["duration_ns"].fill_null(0).to_numpy().astype(np.int64)
    outer = np.where(parent >= 0, around[parent], -1)
    inner = mask & (outer >= 0)
    own = duration.copy()
    np.subtract.at(own, outer[inner], duration[inner])
    named = pl.Series("operator", np.where(around >= 0, around, 0))
    inside = pl.Series(around >= 0)
    out = spans.with_columns(
        pl.when(inside).then(spans["name"].cast(pl.String).gather(named)).alias("operator"),
        pl.Series("self_ns", np.maximum(own, 0)),
        is_operator.alias("is_operator"),
    )
    return frames.of_trace.kernel_runs.of(out)


def measure(
    frames: StepView,
    labels: pl.DataFrame,
    mean: pl.Series,
    count: pl.Series,
    per_step: pl.DataFrame,
    runs: Runs,
) -> Measured:
    means = mean.cast(pl.Float64).fill_null(np.nan).to_numpy()
    counts = count.cast(pl.Float64).fill_null(np.nan).to_numpy()
    return Measured(labels, means, counts, _step_values(frames, labels["key"], per_step, runs))


def _step_values(frames: StepView, keys: pl.Series, per_step: pl.DataFrame, runs: Runs) -> Floats:
    """Rows x steps: the time of each key in each step, summed over runs side by side; 0 where it is not in a step."""
    if frames.choice.mode is not StepMode.MEAN:
        return np.empty((len(keys), 0))
    steps = runs.of(frames.steps).sort("run_id", "step")
    numbered = steps.with_columns((pl.col("step").rank("dense") - 1).over("run_id").cast(pl.Int64).alias("nth"))
    height = int(numbered.group_by("run_id").len()["len"].min() or 0)  # type: ignore[arg-type]
    positions_of = numbered.filter(pl.col("nth") < height).select("run_id", "step", "nth")
    rows = pl.DataFrame({"key": keys}).with_row_index("row")
    values = (
        per_step.join(positions_of, on=["run_id", "step"], how="inner")
        .join(rows, on="key", how="inner", nulls_equal=True)
        .group_by("row", "nth")
        .agg(pl.col("ns").sum())
    )
    out = np.zeros((len(keys), height))
    out[values["row"].to_numpy(), values["nth"].to_numpy()] = values["ns"].to_numpy()
    return out


# Device time of a capture by kernel, by class of kernels and by operator, and by all three at once.

GRAPH_REPLAY = "graph replay"
"""Stands for the operator of what a CUDA graph replays: who launches the graph did not choose its kernels."""
NO_OPERATOR = "outside of operators"
NO_LAYER = "outside of layers"
KERNEL = "kernel "
"""How keys of `kernels` begin, other than those of copies and memsets."""


def kernels(frames: StepView) -> Measured:
    """One row a kernel's name (in one spelling) and kind: device time as A10 has it."""
    rows = frames.once(kernel_executions).with_columns(_keys(frames.once(kernel_executions)))
    sums = rows.group_by("key", maintain_order=True).agg(
        pl.col("kernel_name").first().cast(pl.String).alias("name"),
        pl.col("kind").first().cast(pl.String),
        pl.col("count").sum(),
        pl.col("duration_ns").sum(),
    )
    work = frames.once(chosen_activities).rename({"name": "kernel_name"})
    per_step = work.with_columns(_keys(work)).select("run_id", "step", "key", pl.col("duration_ns").alias("ns"))
    return measure(frames, sums.select("key", "name", "kind"), sums["duration_ns"], sums["count"], per_step,
                     frames.of_trace.kernel_runs)  # fmt: skip


def kernel_classes(frames: StepView) -> Measured:
    """One row a class of kernels: device time."""
    work = frames.once(_with_labels)
    return measure_sums(frames, _times_by(work, "kernel_class"))


def operators(frames: StepView) -> Measured:
    """One row an operator's name: device time that it launched itself, and one for what graphs replay."""
    work = frames.once(_with_labels)
    return measure_sums(frames, _times_by(work.filter(pl.col("operator") != NO_OPERATOR), "operator"))


def cells(frames: StepView) -> pl.DataFrame:
    """Time and count in a mean step: layer_type, operator, kernel_class, kernel (a key of `kernels`), ns, count."""
    work = frames.once(_with_labels)
    return work.group_by("layer_type", "operator", "kernel_class", "kernel", maintain_order=True).agg(
        pl.col("work_ns").cast(pl.Float64).sum().alias("ns"), pl.col("work_count").cast(pl.Float64).sum().alias("count")
    )


def _times_by(work: pl.DataFrame, key: str) -> pl.DataFrame:
    return work.select("run_id", "step", pl.col(key).alias("key"), pl.col("duration_ns").alias("ns"))


def _with_labels(frames: StepView) -> pl.DataFrame:
    """The activities of the steps with what each is called at every level."""
    work = frames.once(step_work)
    launchers = operator_calls(frames).select("span_id", "operator")
    named = work.select("span_id").join(launchers, on="span_id", how="left", maintain_order="left")["operator"]
    replayed = pl.col("attribution").cast(pl.String) == str(Attribution.GRAPH_REPLAY)
    operator = pl.when(replayed).then(pl.lit(GRAPH_REPLAY)).otherwise(named.fill_null(NO_OPERATOR)).alias("operator")
    kernel = _keys(work.rename({"name": "kernel_name"})).alias("kernel")
    columns = ("run_id", "step", "duration_ns", "work_ns", "work_count")
    return work.select(
        *columns, _layer_type(replayed).alias("layer_type"), operator, pl.col("kernel_class").cast(pl.String), kernel
    )


def _layer_type(replayed: pl.Expr) -> pl.Expr:
    of_layer = pl.col("attribution").cast(pl.String) == str(Attribution.LAYER)
    kind = pl.col("layer_type").cast(pl.String).fill_null(UNKNOWN_TYPE)
    return pl.when(of_layer).then(kind).when(replayed).then(pl.lit(GRAPH_REPLAY)).otherwise(pl.lit(NO_LAYER))


def _keys(rows: pl.DataFrame) -> pl.Series:
    """One spelling a kernel, with its kind: a copy of a name is no kernel of that name."""
    distinct = rows.select(pl.col("kernel_name", "kind").cast(pl.String)).unique(maintain_order=True)
    keys = [f"{kind} {normal_name(name)}" for name, kind in distinct.iter_rows()]
    named = distinct.with_columns(pl.Series("key", keys, dtype=pl.String))
    both = rows.select(pl.col("kernel_name", "kind").cast(pl.String))
    return both.join(named, on=["kernel_name", "kind"], how="left", maintain_order="left")["key"]
