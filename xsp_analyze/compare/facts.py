"""What each side ran and on what, and in what the two differ: the check that comes before any ratio."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.layer_time import layer_bases, layer_calls, layer_latencies
from xsp_analyze.merge.comparable import name_and_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.trace.step_view import StepView

__all__ = ["Difference", "DifferenceKind", "Facts", "differences", "facts"]

_PRECISIONS = {
    "double": "fp64", "float64": "fp64", "f64": "fp64",
    "float": "fp32", "float32": "fp32", "f32": "fp32",
    "half": "fp16", "float16": "fp16", "f16": "fp16",
    "bfloat16": "bf16", "bf16": "bf16",
    "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "f8e4m3fn": "fp8", "f8e5m2": "fp8",
    "qint8": "int8", "signed char": "int8", "s8": "int8",
}  # fmt: skip


class DifferenceKind(StrEnum):
    """What a difference means for the comparison."""

    WORK = "work"  # the two did not do the same
    SYSTEM = "system"  # the same work by other means: what one often wants to compare
    METHOD = "method"  # the same, measured differently


@dataclass(frozen=True, slots=True)
class Facts:
    """What a side ran, on what, and how it was measured; null: the files do not say."""

    model: str | None
    batch_size: int | None
    framework: str | None
    framework_version: str | None
    device: str | None
    device_count: int | None
    precision: str | None
    ranks: int | None
    steps: int
    captures: int
    levels: str
    layer_source: str | None
    layer_basis: str | None
    format: str | None


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact in which the sides differ, in words for people."""

    what: str
    before: str
    after: str
    kind: DifferenceKind


_COMPARED: tuple[tuple[str, str, DifferenceKind], ...] = (
    ("model", "model", DifferenceKind.WORK),
    ("batch_size", "batch size", DifferenceKind.WORK),
    ("device", "device", DifferenceKind.SYSTEM),
    ("device_count", "devices used", DifferenceKind.SYSTEM),
    ("ranks", "ranks in the job", DifferenceKind.SYSTEM),
    ("precision", "precision", DifferenceKind.SYSTEM),
    ("framework", "framework", DifferenceKind.SYSTEM),
    ("framework_version", "framework version", DifferenceKind.SYSTEM),
    ("levels", "levels recorded", DifferenceKind.METHOD),
    ("format", "profiler's format", DifferenceKind.METHOD),
    ("layer_source", "layers taken from", DifferenceKind.METHOD),
    ("layer_basis", "layer latency measured on the", DifferenceKind.METHOD),
    ("steps", "steps", DifferenceKind.METHOD),
    ("captures", "captures", DifferenceKind.METHOD),
)


def facts(views: Sequence[StepView]) -> Facts:
    """The facts of a side's captures; where captures contradict one another the words of both."""
    frames = views[0]
    runs = pl.concat([v.of_trace.own_runs.frame("runs") for v in views])
    frameworks = [name_and_version(str(f)) for f in runs["framework"].drop_nulls().unique().sort()]
    used = set(frames.of_trace.all_activities["device_id"].drop_nulls().to_list())
    batches = runs["batch_size"].drop_nulls().unique().to_list()
    sources = [s for s in runs["layer_source"].drop_nulls().unique().sort() if s != "none"]
    has_layers = not frames.of_trace.once(layer_calls).is_empty()
    return Facts(
        model=_joined(runs["model"].drop_nulls().unique().sort().to_list()) or _outermost(frames),
        batch_size=int(batches[0]) if len(batches) == 1 else None,
        framework=_joined(list(dict.fromkeys(name for name, _ in frameworks))),
        framework_version=_joined([version for _, version in frameworks if version]),
        device=_device(frames, used),
        device_count=len(used) or None,
        precision=_precision(frames),
        ranks=_largest(runs["world_size"]),
        steps=min(v.steps["step"].n_unique() for v in views),
        captures=len(views),
        levels=", ".join(frames.trace.levels),
        layer_source=_joined(sources),
        layer_basis=_joined(frames.of_trace.layer_runs.of(frames.of_trace.once(layer_bases))["basis"].unique()
                           .sort().to_list()) if has_layers else None,
        format=_joined(runs["format"].drop_nulls().unique().sort().to_list()),
    )  # fmt: skip


def differences(before: Facts, after: Facts, *, per_input: bool = False) -> list[Difference]:
    """What is known of both sides and not the same, what matters most first."""
    differing = []
    for name, label, usual in _COMPARED:
        one, two = getattr(before, name), getattr(after, name)
        if one is None or two is None or _folded(one) == _folded(two):
            continue
        kind = DifferenceKind.SYSTEM if name == "batch_size" and per_input else usual
        differing.append(Difference(label, str(one), str(two), kind))
    return differing


def _folded(value: object) -> object:
    return value.casefold() if isinstance(value, str) else value


def _joined(values: Sequence[object]) -> str | None:
    return " and ".join(map(str, values)) or None


def _largest(column: pl.Series) -> int | None:
    values = column.drop_nulls().to_list()
    return max(values) if values else None


def _device(frames: StepView, used: set[int]) -> str | None:
    """As the run describes it, else as the profiler names those that did work; the CPU where there is no device work.

    How many of a kind there are is a fact of its own.
    """
    described = frames.trace.frame("runs")["device_name"].drop_nulls().unique().sort().to_list()
    if described:
        return _joined(described)
    devices = frames.trace.frame("devices")
    named = devices.filter(pl.col("device_id").is_in(list(used)))["name"].drop_nulls().unique().sort().to_list()
    if not named and used:  # the profiler may number devices of a node otherwise than those of the process
        named = devices["name"].drop_nulls().unique().to_list()
        named = named if len(named) == 1 else []
    return _joined(named)


def _outermost(frames: StepView) -> str | None:
    """The type of the one module that holds all others: what a trace without a model's name calls it."""
    roots = frames.trace.scan("layers").filter(pl.col("source") == "module").select(pl.col("path").cast(pl.String))
    names = {str(path).partition(".")[0] for path in roots.collect()["path"].drop_nulls().unique()}
    return names.pop().rpartition("_")[0] or None if len(names) == 1 else None


def _precision(frames: StepView) -> str | None:
    """The floating type that most of the layers' time goes to; null where types were not recorded."""
    time: Counter[str] = Counter()
    for dtypes, ns in frames.once(layer_latencies).select(pl.col("dtypes").cast(pl.String), "latency_ns").iter_rows():
        for dtype in (dtypes or "").strip("[]").split(","):
            precision = _PRECISIONS.get(dtype.strip(' "').casefold().removeprefix("c10::"))
            if precision:
                time[precision] += ns or 0
                break
    return max(sorted(time), key=lambda p: time[p]) if time else _precision_of_weights(frames)


def _precision_of_weights(frames: StepView) -> str | None:
    """Of runs that recorded no layers: the type of the weights, where a checksum of them was kept."""
    dtypes = frames.trace.frame("tensors").filter(pl.col("kind") == "weights")["dtype"].drop_nulls().unique()
    return _PRECISIONS.get(str(dtypes[0])) if len(dtypes) == 1 else None
