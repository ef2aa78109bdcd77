"""What one trace says of its model and system, in plain values for JSON: rows of a cohort are made of these."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl

from xsp_analyze.catalog import table
from xsp_analyze.classification import KernelClass, class_of_operator, operator_type
from xsp_analyze.cohort.quality import Measure, accuracies_of, outputs_of
from xsp_analyze.faults import attempt
from xsp_analyze.formulas import total_of
from xsp_analyze.frames import device_time
from xsp_analyze.frames.kernels.kernel_means import kernel_executions
from xsp_analyze.frames.kernels.measured_work import MODELLED
from xsp_analyze.frames.kernels.roofline import agreed_peaks
from xsp_analyze.frames.layers.layer_time import layer_calls, layer_latencies
from xsp_analyze.frames.model_time import LoadTest, latency_by_run, load_test
from xsp_analyze.frames.outputs import RecordedTensor
from xsp_analyze.trace.step_view import StepView
from xsp_model import Attribution, Level
from xsp_model.columns.tree import outermost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_model import Trace

__all__ = [
    "CLASSES",
    "Mix",
    "Speed",
    "TraceFacts",
    "Utilisation",
    "facts_of",
    "facts_seen",
    "from_json",
    "in_one_text",
    "operator_mix",
    "utilisation",
]

T = TypeVar("T")
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
    columns = ("span_id", "run_id", "step", "level", "name", "duration_ns", "attribution")
    frame = frames.trace.scan("spans").select("parent_id", *columns).collect()
    is_operator = (frame["level"] == str(Level.OPERATOR)).to_numpy()
    if not (is_operator & frame["run_id"].is_in(runs.ids).to_numpy()).any():
        return _of_layers(frames)
    top = outermost(frame["parent_id"].fill_null(-1).to_numpy(), is_operator)
    owned = frame.with_columns(pl.Series("top", top))
    work = runs.of(owned.filter(pl.col("attribution").is_not_null()))
    if work.is_empty():
        own = runs.of(owned.filter(pl.Series(is_operator & (top == np.arange(len(top))))))
        return _shares(_per_step(frames, _with_types(own)), "host time of operators", None)
    names = frame.select(pl.col("span_id").alias("top"), pl.col("name").alias("operator"))
    inside = work.filter(pl.col("top") >= 0).drop("name").join(names, on="top").rename({"operator": "name"})
    total, part = (int(frames.of_chosen_steps(rows)["duration_ns"].sum()) for rows in (work, inside))
    return _shares(_per_step(frames, _with_types(inside)), "device time of operators", part / total if total else None)


def _per_step(frames: StepView, rows: pl.DataFrame) -> pl.DataFrame:
    """What a mean step holds of each name (name, duration_ns); of a trace without steps all of it.

    Sums are averaged over steps, trimmed, so that one slow step does not decide what a model is like.
    """
    named = rows.with_columns(pl.col("name").cast(pl.String))
    sums = named.group_by("run_id", "step", "name").agg(pl.col("duration_ns").sum()).sort("run_id", "step", "name")
    return frames.combine(sums, ["name"], ["duration_ns"])


def _with_types(rows: pl.DataFrame) -> pl.DataFrame:
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


# GPU and FP32 utilisation as Zhu et al. define them.
#
# Source: Zhu et al., "Benchmarking and Analyzing Deep Neural Network Training", IISWC 2018, section on metrics:
# GPU utilisation is the time in which the GPU is active over the time elapsed; FP32 utilisation is the flops counted
# while it was active over the most it could have done in that time, peak rate times active time.

_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Shares in 0..1; null: unknown. `fp32_coverage` is the part of device time whose flops were counted."""

    gpu: float | None = None
    fp32: float | None = None
    fp32_coverage: float | None = None


def utilisation(frames: StepView) -> Utilisation:
    """Over the steps of the trace where it has any, else over all of it."""
    if frames.of_trace.all_activities.is_empty():
        return Utilisation()
    fp32, coverage = _fp32(frames)
    return Utilisation(device_time.utilisation(frames).share, fp32, coverage)


def _fp32(frames: StepView) -> tuple[float | None, float | None]:
    work = frames.once(kernel_executions)
    if "flop_count" not in work.columns:
        return None, None
    counted = work.filter(pl.col("flop_count").is_not_null())
    active, total = total_of(counted["duration_ns"]), total_of(work["duration_ns"])
    if not active:
        return None, None
    peak = agreed_peaks(frames).filter(pl.col("quantity") == "fp32")["peak"]
    coverage = active / total
    if peak.is_empty():
        return None, coverage
    return total_of(counted["flop_count"]) / (float(peak[0]) * active / _NS_PER_S), coverage


"""Layer types that are convolutions, in every framework's words: Conv2d, Convolution, depthwise_conv2d, ..."""
_PEAK_COUNTERS = ("allocated_bytes", "memory_in_use_bytes", "bytes_in_use")


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast one batch size ran. Times in ns; the interval is null below three steps."""

    batch_size: int | None
    latency_ns: float
    low_ns: float | None
    high_ns: float | None
    throughput_per_s: float | None
    steps: int


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """One trace's word on its model and system; null: it does not say. Times in ns, shares in 0..1.

    All but `speeds` is of `profiled_batch_size`.
    """

    model: str
    system: str | None
    framework: str | None
    formats: Sequence[str]
    levels: Sequence[str]
    runs: int
    spans: int
    speeds: Sequence[Speed]
    profiled_batch_size: int | None = None
    kernel_duration_ns: float | None = None
    gpu_share: float | None = None
    device_count: int | None = None
    layer_count: int | None = None
    dominant_type: str | None = None
    dominant_share: float | None = None
    convolution_share: float | None = None
    intensity: float | None = None
    flop_per_s: float | None = None
    bound: str | None = None
    memory_bound_layers: int | None = None
    layers_under_roof: int | None = None
    peak_memory_bytes: int | None = None
    peak_memory_place: str | None = None
    attributed_share: float | None = None
    warnings: int = 0
    utilisation: Utilisation = field(default_factory=Utilisation)
    mix: Mix = field(default_factory=Mix)
    load_test: LoadTest | None = None
    accuracies: Sequence[Measure] = ()
    tensors: Sequence[RecordedTensor] = ()

    def to_json(self) -> dict[str, Any]:
        """The same in JSON's own types; `from_json` undoes it."""
        return asdict(self)


def facts_of(trace: Trace, name: str) -> TraceFacts:
    """The facts of a trace; `name` stands for the model where no file names it."""
    return facts_seen(StepView.of(trace), name)


def facts_seen(frames: StepView, name: str) -> TraceFacts:
    """The facts of a trace that is seen over its default steps already; what fails is unknown, and noted."""
    trace = frames.trace
    runs = trace.frame("runs")

    nothing: dict[str, Any] = {}

    def attempt_of(what: str, make: Callable[[], T], otherwise: T) -> T:
        return attempt(what, make, lambda _: otherwise)

    return TraceFacts(
        model=in_one_text(runs["model"]) or name,
        system=_system(frames),
        framework=in_one_text(runs["framework"]),
        formats=sorted(set(runs["format"].drop_nulls())),
        levels=list(trace.levels),
        runs=runs.height,
        spans=trace.row_count,
        speeds=attempt_of("Latencies", lambda: _speeds(table(frames, "A01"), averaged=frames.is_mean), []),
        profiled_batch_size=_profiled_batch_size(frames),
        **attempt_of("Facts on kernels", lambda: _kernels(table(frames, "A15"), frames), nothing),
        **attempt_of("Facts on layers", lambda: _layers(table(frames, "A06"), frames), nothing),
        **attempt_of("Facts on roofs", lambda: _roof(table(frames, "A14")), nothing),
        **attempt_of("The most memory in use", lambda: _memory(frames), nothing),
        attributed_share=attempt_of("Time in layers", lambda: _layer_share(frames), None),
        warnings=trace.frame("ledger").filter(pl.col("severity") != "info").height,
        utilisation=attempt_of("Utilisation", lambda: utilisation(frames), Utilisation()),
        mix=attempt_of("The mix of operators", lambda: operator_mix(frames), Mix()),
        load_test=attempt_of("The load test", lambda: load_test(trace), None),
        accuracies=attempt_of("Accuracies", lambda: accuracies_of(frames), []),
        tensors=attempt_of("Outputs", lambda: outputs_of(frames), []),
    )


def from_json(document: Mapping[str, Any]) -> TraceFacts:
    """The facts that `to_json` wrote; keys of another version are ignored. KeyError or TypeError where it is none."""
    values = {f.name: document[f.name] for f in fields(TraceFacts) if f.name in document}
    values["speeds"] = [Speed(**speed) for speed in document["speeds"]]
    values["utilisation"] = Utilisation(**document["utilisation"])
    values["mix"] = Mix(**document["mix"])
    values["load_test"] = LoadTest(**document["load_test"]) if document.get("load_test") else None
    values["accuracies"] = [Measure(**measure) for measure in document.get("accuracies", ())]
    values["tensors"] = [RecordedTensor(**tensor) for tensor in document.get("tensors", ())]
    return TraceFacts(**values)


def in_one_text(values: pl.Series) -> str | None:
    """The runs' word, where they have one; several are joined."""
    return ", ".join(dict.fromkeys(values.drop_nulls())) or None


def _profiled_batch_size(frames: StepView) -> int | None:
    sizes = frames.of_trace.own_runs.frame("runs")["batch_size"].drop_nulls().unique().to_list()
    return sizes[0] if len(sizes) == 1 else None


def _system(frames: StepView) -> str | None:
    """The devices that the runs' descriptions name, else those that the files do: `2 x NVIDIA H100`."""
    trace = frames.trace
    if described := in_one_text(trace.frame("runs")["device_name"]):
        return described
    worked = pl.col("attribution").is_not_null()
    used = frames.of_trace.own_runs.scan("spans").filter(worked).select("run_id", "device_id").unique()
    names = (
        used.join(trace.scan("devices").select("run_id", "device_id", "name").unique(), on=["run_id", "device_id"])
        .collect()["name"]
        .drop_nulls()
        .value_counts(sort=True, name="devices")
        .sort("name")
    )
    labels = [name if count == 1 else f"{count} x {name}" for name, count in names.iter_rows()]
    return ", ".join(labels) or None


def _speeds(latencies: pl.DataFrame | None, *, averaged: bool) -> list[Speed]:
    if latencies is None:
        return []
    timed = pl.col("durations").list.len() if averaged else pl.lit(0)  # else they are the trace's extent
    columns = ("batch_size", "latency_ns", "low_ns", "high_ns", "throughput_per_s")
    rows = latencies.filter(pl.col("latency_ns").is_not_null()).select(*columns, timed.cast(pl.Int64).alias("steps"))
    return [Speed(**row) for row in rows.iter_rows(named=True)]


def _kernels(kernels: pl.DataFrame | None, frames: StepView) -> dict[str, Any]:
    if kernels is None:
        return {}
    own = frames.once(latency_by_run)["batch_size"].unique()
    if frames.of_trace.has_other_batches:
        kernels = kernels.filter(pl.col("batch_size").is_in(own.implode(), nulls_equal=True))
    first = kernels.row(0, named=True)
    work = _by_modelled_flop(kernels).row(0, named=True)
    names = {"arithmetic_intensity": "intensity", "flop_per_s": "flop_per_s", "bound": "bound"}
    return {
        "kernel_duration_ns": first["kernel_duration_ns"],
        "gpu_share": first["gpu_share"],
        "device_count": first["device_count"],
        **{ours: work[theirs] for theirs, ours in names.items()},
    }


def _layers(by_type: pl.DataFrame | None, frames: StepView) -> dict[str, Any]:
    if by_type is None or by_type.is_empty():
        return {}
    top = by_type.row(0, named=True)
    shares = dict(by_type.select("layer_type", "share").iter_rows())
    measured = [share for share in shares.values() if share is not None]
    convolution = sum(
        share or 0.0 for name, share in shares.items() if class_of_operator(name) == KernelClass.CONVOLUTION
    )
    return {
        "layer_count": frames.once(layer_latencies).height,
        "dominant_type": top["layer_type"] if measured else None,
        "dominant_share": top["share"],
        "convolution_share": convolution if measured else None,
    }


def _roof(roofline: pl.DataFrame | None) -> dict[str, Any]:
    if roofline is None:
        return {}
    rows = _by_modelled_flop(roofline.drop_nulls(["bound", "layer_index"]))
    layers = rows.unique("layer_index", keep="first", maintain_order=True)
    return {
        "memory_bound_layers": layers.filter(pl.col("bound") == "memory").height,
        "layers_under_roof": layers.height,
    }


def _by_modelled_flop(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of a roofline, of which modelled ones by flop: a layer's products before what it does beside them."""
    modelled_flop = pl.when(pl.col("work_basis") == MODELLED).then("flop_count").otherwise(0.0)
    return rows.sort(modelled_flop.fill_null(0.0), descending=True, maintain_order=True)


def _memory(frames: StepView) -> dict[str, Any]:
    """The most memory in use at once: of a device where one worked, else of the host."""
    on_device = not frames.of_trace.all_activities.is_empty()
    rows = (
        frames.of_trace.own_runs.scan("counters")
        .with_columns(pl.col("counter").cast(pl.String))
        .filter(pl.col("counter").is_in(_PEAK_COUNTERS), pl.col("device_id").is_not_null() == on_device)
        .filter(pl.col("value") < 1 << 63)  # beyond, it is no size of anything
        .select(pl.col("value").max())
        .collect()
    )
    value = rows.item()
    if value is None:
        return {}
    return {"peak_memory_bytes": int(value), "peak_memory_place": "device" if on_device else "host"}


def _layer_share(frames: StepView) -> float | None:
    """Share of device time that belongs to a layer."""
    work = frames.of_trace.all_activities
    total = int(work["duration_ns"].sum())
    in_layers = int(work.filter(pl.col("attribution") == str(Attribution.LAYER))["duration_ns"].sum())
    return in_layers / total if total else None
