"""Where a model's time goes by type of operator: the vector that models are compared by.

Source: Adolf et al., "Fathom: reference workloads for modern deep learning methods", IISWC 2016: a workload's profile
is the share of its time in each type of operation, and two workloads are as alike as the cosine of their profiles.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.roles import Roles
from xsp_model import Level
from xsp_model.tree import outermost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.frames.step_frames import StepFrames

__all__ = ["GROUPS", "Mix", "group_of", "operator_mix"]

_PATTERNS = {
    "communication": r"nccl|rccl|c10d|all_?reduce|all_?gather|all_?to_?all|broadcast_$|ppermute|psum",
    "convolution": r"conv",
    "loss": r"loss|cross_?entropy|nll|log_?softmax",
    "attention": r"attention|flash|sdpa|softmax",
    "matrix product": r"gemm|matmul|mat_mul|(^|_)(b|add|badd|addb)?mm(_|$|\d|backward)|linear|einsum|(^|_)dot|dense|"
    r"innerproduct|fully_?connected|mmbackward|lstm|gru|rnn|^fc\d*$",
    "normalisation": r"norm|lrn",
    "pooling": r"pool",
    "activation": r"relu|gelu|silu|swish|sigmoid|tanh|elu|mish|dropout|bernoulli",
    "embedding and gather": r"embedding|gather|scatter|index|take|one_?hot",
    "optimizer": r"optimizer|adam|sgd|foreach|accumulategrad|momentum",
    "reduction": r"sum|mean|reduce|argm(ax|in)|^max|^min|topk|sort|^all$|^any$",
    "data movement": r"copy|(^|_)to$|cat|concat|transpose|permute|reshape|view|split|slice|pad|contiguous|mem(cpy|set)|"
    r"flatten|stack|expand|squeeze|clone|upsample|interpolate|resize|roll|shuffle|item|fill|zero|ones|empty|arange|"
    r"broadcast",
    "elementwise": r"add|sub|mul|div|pow|sqrt|exp|log|neg|abs|clamp|where|select|(^|_)(eq|ne|lt|gt)|bias|cast|"
    r"m(ax|in)imum",
}
GROUPS: tuple[tuple[str, re.Pattern[str]], ...] = tuple((n, re.compile(p, re.IGNORECASE)) for n, p in _PATTERNS.items())
"""Groups of operators by a word in their names, the first that fits, as Fathom groups those of TensorFlow."""

_PREFIX = re.compile(r"^(autograd::engine::evaluate_function: |aten::|prim::|cudnn::|torch::|onnx::|tf\.|.*\bnn\.)+")
_SUFFIX = re.compile(r"(#\d+|_\d+|_)$")
_OTHER = "other"


@dataclass(frozen=True, slots=True)
class Mix:
    """Shares of time by operator type; they add up to 1, or there are none.

    `basis`: device (time of the work that operators launched) or host (of outermost operators); of operators or,
    where none were recorded, of layers. `covered_share` is the part of that time which lies in any operator.
    """

    basis: str | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    covered_share: float | None = None

    @property
    def groups(self) -> dict[str, float]:
        """Shares of the groups, in the order of GROUPS."""
        shares = dict.fromkeys([name for name, _ in GROUPS] + [_OTHER], 0.0)
        for name, share in self.shares.items():
            shares[group_of(name)] += share
        return {name: share for name, share in shares.items() if share}


def group_of(operator: str) -> str:
    """The group of an operator's type; `other` where no word of its name is known."""
    return next((name for name, pattern in GROUPS if pattern.search(operator)), _OTHER)


def operator_mix(frames: StepFrames) -> Mix:
    """The mix of a mean step (of all of a trace without steps), in the runs that kernels, else layers, are from."""
    runs = (
        frames.of_trace.roles.kernels
        if not frames.of_trace.all_activities.is_empty()
        else frames.of_trace.roles.layers or frames.of_trace.roles.kernels
    )
    columns = ("span_id", "parent_id", "run_id", "step", "level", "name", "duration_ns", "attribution")
    frame = frames.trace.scan("spans").select(columns).collect()
    is_operator = (frame["level"] == str(Level.OPERATOR)).to_numpy()
    if not (is_operator & frame["run_id"].is_in(list(runs)).to_numpy()).any():
        return _of_layers(frames)
    top = outermost(frame["parent_id"].fill_null(-1).to_numpy(), is_operator)
    owned = frame.with_columns(pl.Series("top", top))
    work = Roles.of(owned.filter(pl.col("attribution").is_not_null()), runs)
    if work.is_empty():
        own = Roles.of(owned.filter(pl.Series(is_operator & (top == np.arange(len(top))))), runs)
        return _shares(_per_step(frames, own), "host time of operators", None)
    names = frame.select(pl.col("span_id").alias("top"), pl.col("name").alias("operator"))
    inside = work.filter(pl.col("top") >= 0).drop("name").join(names, on="top").rename({"operator": "name"})
    total, part = (int(frames.chosen(rows)["duration_ns"].sum()) for rows in (work, inside))
    return _shares(_per_step(frames, inside), "device time of operators", part / total if total else None)


def _per_step(frames: StepFrames, rows: pl.DataFrame) -> pl.DataFrame:
    """What a mean step holds of each type (name, duration_ns); of a trace without steps all of it.

    A type's sums are averaged over steps, trimmed, so that one slow step does not decide what a model is like.
    """
    names = rows["name"].cast(pl.String).unique().sort()
    types = pl.DataFrame(
        {"name": names, "type": [_type(name) for name in names]}, schema=dict.fromkeys(("name", "type"), pl.String)
    )
    named = (
        rows.with_columns(pl.col("name").cast(pl.String)).join(types, on="name").drop("name").rename({"type": "name"})
    )
    sums = named.group_by("run_id", "step", "name").agg(pl.col("duration_ns").sum()).sort("run_id", "step", "name")
    return frames.combine(sums, ["name"], ["duration_ns"])


def _of_layers(frames: StepFrames) -> Mix:
    if frames.of_trace.layer_calls.is_empty():
        return Mix()
    layers = frames.layers.select(pl.col("layer_type").cast(pl.String).alias("name"), "latency_ns")
    sums = layers.group_by("name", maintain_order=True).agg(pl.col("latency_ns").sum().alias("duration_ns"))
    return _shares(sums, "time of layers", None)


def _shares(rows: pl.DataFrame, basis: str, covered: float | None) -> Mix:
    """Shares by type, largest first; rows: name, duration_ns."""
    times = {name: float(duration or 0) for name, duration in rows.select("name", "duration_ns").iter_rows()}
    total = sum(times[name] for name in sorted(times))
    if not total:
        return Mix()
    ordered = sorted(times.items(), key=lambda pair: (-pair[1], pair[0]))
    return Mix(basis, {name: time / total for name, time in ordered if time}, covered)


def _type(name: str) -> str:
    """The operator's type, without the framework's prefix, a number of the call, or the mark of working in place."""
    bare = _PREFIX.sub("", name).split("/")[-1]
    return _SUFFIX.sub("", bare) or name
