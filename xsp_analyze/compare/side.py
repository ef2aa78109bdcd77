"""Both sides of a comparison: captures, what they ran on, and what they have in common, layer by layer."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.classification import KernelClass, class_of_operator
from xsp_analyze.compare import levels
from xsp_analyze.compare.levels import KERNEL
from xsp_analyze.formulas import quotient
from xsp_analyze.frames.kernels.kernel_means import kernel_executions
from xsp_analyze.frames.layers.layer_time import layer_bases, layer_calls, layer_latencies
from xsp_analyze.frames.model_time import latency_of_model, tests_in
from xsp_analyze.merge.comparable import name_and_version
from xsp_analyze.merge.matching import align, kernel_work, template
from xsp_analyze.needs import holds
from xsp_model import Attribution, XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from xsp_analyze.compare.levels import Measured
    from xsp_analyze.compare.rows import Row
    from xsp_analyze.merge.matching import Alignment
    from xsp_analyze.trace.step_view import StepView
    from xsp_model import Trace

__all__ = [
    "Difference",
    "DifferenceKind",
    "Pairs",
    "Side",
    "SideFacts",
    "check_common",
    "differences",
    "facts",
    "family",
    "pair_layers",
    "same_content",
]

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
class SideFacts:
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


def facts(views: Sequence[StepView]) -> SideFacts:
    """The facts of a side's captures; where captures contradict one another the words of both."""
    frames = views[0]
    runs = pl.concat([v.of_trace.own_runs.frame("runs") for v in views])
    frameworks = [name_and_version(str(f)) for f in runs["framework"].drop_nulls().unique().sort()]
    used = set(frames.of_trace.all_activities["device_id"].drop_nulls().to_list())
    batches = runs["batch_size"].drop_nulls().unique().to_list()
    sources = [s for s in runs["layer_source"].drop_nulls().unique().sort() if s != "none"]
    has_layers = not frames.of_trace.once(layer_calls).is_empty()
    return SideFacts(
        model=_join_with_and(runs["model"].drop_nulls().unique().sort().to_list()) or _outermost(frames),
        batch_size=int(batches[0]) if len(batches) == 1 else None,
        framework=_join_with_and(list(dict.fromkeys(name for name, _ in frameworks))),
        framework_version=_join_with_and([version for _, version in frameworks if version]),
        device=_device(frames, used),
        device_count=len(used) or None,
        precision=_precision(frames),
        ranks=_largest(runs["world_size"]),
        steps=min(v.steps["step"].n_unique() for v in views),
        captures=len(views),
        levels=", ".join(frames.trace.levels),
        layer_source=_join_with_and(sources),
        layer_basis=_join_with_and(frames.of_trace.layer_runs.of(frames.of_trace.once(layer_bases))["basis"].unique()
                           .sort().to_list()) if has_layers else None,
        format=_join_with_and(runs["format"].drop_nulls().unique().sort().to_list()),
    )  # fmt: skip


def differences(before: SideFacts, after: SideFacts, *, per_input: bool = False) -> list[Difference]:
    """What is known of both sides and not the same, what matters most first."""
    differing = []
    for name, label, usual in _COMPARED:
        one, two = getattr(before, name), getattr(after, name)
        if one is None or two is None or _casefold(one) == _casefold(two):
            continue
        kind = DifferenceKind.SYSTEM if name == "batch_size" and per_input else usual
        differing.append(Difference(label, str(one), str(two), kind))
    return differing


def _casefold(value: object) -> object:
    return value.casefold() if isinstance(value, str) else value


def _join_with_and(values: Sequence[object]) -> str | None:
    return " and ".join(map(str, values)) or None


def _largest(column: pl.Series) -> int | None:
    values = column.drop_nulls().to_list()
    return max(values) if values else None


def _device(frames: StepView, used: set[int]) -> str | None:
    """The run's word for it, else the profiler's names of those that did work; the CPU where there is no device work.

    How many of a kind there are is a fact of its own.
    """
    described = frames.trace.frame("runs")["device_name"].drop_nulls().unique().sort().to_list()
    if described:
        return _join_with_and(described)
    devices = frames.trace.frame("devices")
    named = devices.filter(pl.col("device_id").is_in(list(used)))["name"].drop_nulls().unique().sort().to_list()
    if not named and used:  # the profiler may number devices of a node otherwise than those of the process
        named = devices["name"].drop_nulls().unique().to_list()
        named = named if len(named) == 1 else []
    return _join_with_and(named)


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


# Which layer of one side is which of the other: the same model, whatever ran it and however it numbered its layers.

_NUMBER = re.compile(r"(?:_|#)\d+$")  # Linear_3, aten::mm#3: the profiler's count, which moves with what comes before
_FAMILIES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"depthwise"), "depthwise convolution"),
    (re.compile(r"layer_?norm"), "layer norm"),
    (re.compile(r"batch_?norm|batchnormalization"), "batch norm"),
    (re.compile(r"relu|gelu|sigmoid|tanh|silu|swish|activation"), "activation"),
)
"""Where layers are told apart that are of one class of kernels."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Rows of two sides that are one layer, in order (null: only the other side has it), and by what they matched.

    `rate` is the share of the longer side that has a partner; null where a side has no layers at all.
    """

    rows: Sequence[tuple[int | None, int | None]]
    rate: float | None
    by: str


def pair_layers(before: pl.DataFrame, after: pl.DataFrame, *, same_framework: bool = True) -> Pairs:
    """Pairs of rows of two tables of layers in order (layer_name, layer_type, shapes).

    Of the ways to tell layers apart the strictest of those that pair the most is taken.
    """
    if before.is_empty() or after.is_empty():
        rows = [*((i, None) for i in range(before.height)), *((None, j) for j in range(after.height))]
        return Pairs(rows, None, "nothing")
    alignments = [(label, align(key(before), key(after))) for label, key in _ways(same_framework)]
    by, best = max(alignments, key=lambda way: way[1].rate)  # the first of equals
    return Pairs(_in_order(best), best.rate, by)


def _ways(same_framework: bool) -> list[tuple[str, Callable[[pl.DataFrame], Sequence[Hashable]]]]:  # noqa: FBT001
    ways: list[tuple[str, Callable[[pl.DataFrame], Sequence[Hashable]]]] = [
        ("name, type and shapes", lambda t: t.select("layer_name", "layer_type", "shapes").rows()),
        ("type and shapes, in order", lambda t: list(zip(_bare(t), t["layer_type"], t["shapes"], strict=True))),
        ("name and type", lambda t: t.select("layer_name", "layer_type").rows()),
        ("type, in order", lambda t: list(zip(_bare(t), t["layer_type"], strict=True))),
    ]
    if not same_framework:
        ways.append(("family of layers, in order", lambda t: [family(kind) for kind in t["layer_type"]]))
    return ways


def family(kind: str) -> str:
    """What frameworks that name layers differently have in common: `Conv2D` and `aten::convolution` are one."""
    plain = kind.casefold().rpartition("::")[2]
    kernel_class = class_of_operator(kind)
    by_class = plain if kernel_class == KernelClass.OTHER else str(kernel_class)
    return next((name for pattern, name in _FAMILIES if pattern.search(plain)), by_class)


def _bare(layers: pl.DataFrame) -> list[str]:
    return [_NUMBER.sub("", name) for name in layers["layer_name"]]


def _in_order(alignment: Alignment) -> list[tuple[int | None, int | None]]:
    """Pairs in order; what only one side has stands where it ran."""
    rows: list[tuple[int | None, int | None]] = []
    i = j = 0
    for a, b in [*alignment.pairs, (alignment.first_count, alignment.second_count)]:
        rows += [(k, None) for k in range(i, a)] + [(None, k) for k in range(j, b)]
        if (a, b) != (alignment.first_count, alignment.second_count):
            rows.append((a, b))
        i, j = a + 1, b + 1
    return rows


# One side of a comparison: its captures, each with what it measured at each level.


@dataclass(frozen=True)
class Side:
    """`name` is how messages call it; `views` are its captures of the same work; all times are divided by `per`."""

    name: str
    views: Sequence[StepView]
    per: float = 1.0

    @cached_property
    def facts(self) -> SideFacts:
        """What was run, on what, and how it was measured."""
        return facts(self.views)

    @cached_property
    def has_kernels(self) -> bool:
        """Whether every capture holds device work."""
        return all(holds(frames.of_trace, "kernel") for frames in self.views)

    @cached_property
    def model(self) -> list[Measured]:
        """Model latency in each capture."""
        return [self._per_unit(levels.model(frames)) for frames in self.views]

    @cached_property
    def layers(self) -> list[Measured]:
        """Layers of each capture."""
        return [self._per_unit(levels.layers(frames)) for frames in self.views]

    def layer_types(self, *, by_family: bool) -> list[Measured]:
        """Types of layers of each capture, or families of types."""
        return [levels.layer_types(layers, family if by_family else str) for layers in self.layers]

    @cached_property
    def kernels(self) -> list[Measured]:
        """Kernels of each capture."""
        return [self._per_unit(levels.kernels(frames)) for frames in self.views]

    @cached_property
    def kernel_classes(self) -> list[Measured]:
        """Classes of kernels of each capture."""
        return [self._per_unit(levels.kernel_classes(frames)) for frames in self.views]

    def operators(self, *, on_device: bool) -> list[Measured]:
        """Operators of each capture, by device time or by their own time on the host."""
        of = levels.operators if on_device else levels.operators_on_host
        return [self._per_unit(of(frames)) for frames in self.views]

    def cells(self) -> pl.DataFrame:
        """Device time of the first capture by operator, class and kernel, see `levels.cells`."""
        return levels.cells(self.views[0]).with_columns(quotient(pl.col("ns"), self.per))

    def device_time(self) -> list[Measured]:
        """Sum of all device work in each capture: one row."""
        parts = []
        for measured in self.kernels:
            total = measured.mean_ns.sum(keepdims=True), measured.count.sum(keepdims=True)
            parts.append(
                levels.Measured(pl.DataFrame({"key": ["device_time"]}), *total, measured.steps.sum(axis=0)[None, :])
            )
        return parts

    def one_step(self) -> pl.DataFrame:
        """The kernels of one step in order of launch, with the columns of `merge.matching.kernel_work`."""
        frames = self.views[0]
        return template(frames.of_trace.kernel_runs.of(kernel_work(frames.trace)))

    def work(self) -> pl.DataFrame:
        """Device time of a mean step in the first capture.

        Its columns: layer_index, layer_type, attribution, phase, kernel_class, name, ns.

        Of several processes side by side, what each of them takes on average, so that it compares with latency.
        """
        frames = self.views[0]
        latency = frames.once(latency_of_model)
        model_ns = float(latency["model_ns"][0] or 0) if latency.height else 0.0
        share = float(latency["latency_ns"][0]) / model_ns if model_ns else 1.0
        inside = pl.col("attribution").cast(pl.String) == str(Attribution.LAYER)
        return frames.once(kernel_executions).select(
            pl.when(inside).then("layer_index").alias("layer_index"),
            *(pl.col(c).cast(pl.String) for c in ("layer_type", "attribution", "phase", "kernel_class")),
            pl.col("kernel_name").cast(pl.String).alias("name"),
            quotient(pl.col("duration_ns").cast(pl.Float64) * share, self.per).alias("ns"),
        )

    def check_steps(self, other: Side) -> None:
        """XspError unless the two are taken in the same way: both by steps or both whole."""
        if self.views[0].is_mean != other.views[0].is_mean:
            by_steps, total = (self, other) if self.views[0].is_mean else (other, self)
            raise XspError(
                f"{by_steps.name} has steps and {total.name} has none, so a step would be compared with a whole trace",
                advice="Name the ranges that are steps with --model-range, or compare whole traces with --steps all",
            )

    def _per_unit(self, measured: Measured) -> Measured:
        if self.per == 1.0:
            return measured
        return levels.Measured(
            measured.labels, measured.mean_ns / self.per, np.asarray(measured.count), measured.steps / self.per
        )


# What two sides have in common: everything, so that there is nothing to compare, or nothing, likewise.

_CONTENT = ("step_times", "accuracies", "tensors", "output_distances", "spans")


def same_content(one: Side, two: Side) -> bool:
    """Whether the two say the same of the same work, whatever their files are called and how they are packed.

    That is the same spans, and the same step times, results and load tests.
    """
    if one.facts != two.facts:
        return False
    captures = [[view.trace for view in side.views] for side in (one, two)]
    return len(captures[0]) == len(captures[1]) and all(map(_equal, *captures))


def _equal(first: Trace, second: Trace) -> bool:
    if first is second:
        return True
    return all(_equal_tables(first, second, name) for name in _CONTENT) and tests_in(first) == tests_in(second)


def _equal_tables(first: Trace, second: Trace, name: str) -> bool:
    one, two = first.frame(name), second.frame(name)
    return one.height == two.height and one.equals(two)


def check_common(one: Side, two: Side, pairs: Pairs, operators: Sequence[Row]) -> None:
    """XspError where no layer, operator or kernel that one side names has a counterpart on the other.

    A side without any names (a run that was only timed) is not asked for some.
    """
    kernels = [_kernels(side) for side in (one, two)]
    own = (
        [row for row in operators if row.before_ns is not None],
        [row for row in operators if row.after_ns is not None],
    )
    layers = [[pair for pair in pairs.rows if pair[side] is not None] for side in (0, 1)]
    if not all(any((kernels[side], own[side], layers[side])) for side in (0, 1)):
        return
    shared = (
        kernels[0] & kernels[1],
        any(row.change == "same" for row in operators),
        any(None not in pair for pair in pairs.rows),
    )
    if not any(shared):
        raise XspError(
            f"{one.name} and {two.name} have nothing in common, no layer, operator nor kernel",
            advice="Compare captures of the same model; xsp cohort puts different ones beside each other",
        )


def _kernels(side: Side) -> set[str]:
    """Kernels by name; a copy says nothing of what ran."""
    if not side.has_kernels:
        return set()
    return {str(key) for measured in side.kernels for key in measured.keys if str(key).startswith(KERNEL)}
