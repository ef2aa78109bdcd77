"""What was sampled: energy (B14), shares of the machine's resources (B37), and counters of devices (B44)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.columns import STEP
from xsp_analyze.core import TIME_NS, Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import quotient
from xsp_analyze.frames import device_time
from xsp_analyze.frames.layers.layer_time import LAYER_KEY
from xsp_analyze.frames.samples import QUANTITIES, device_series, power_series, system_series
from xsp_analyze.frames.steps import StepMode
from xsp_model.columns.intervals import merge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_analyze.frames.samples import Energy
    from xsp_analyze.trace.step_view import StepView

__all__ = ["energy", "sampled_counters", "system_shares"]

# B14: joules per step and per layer, from samples of the devices' power.

_SUMS = ("energy_j", "covered_ns", "time_ns")
_LAYER_KEYS = ("scope", *LAYER_KEY)
_INTERVALS = ("run_id", "step", "device_id", "start_ns", "end_ns")
_NS_PER_S = 1e9


@analysis(
    "B14",
    "energy",
    needs=("power",),
    key=("scope", *LAYER_KEY),
    about_layers=True,
    read=(
        "A layer's energy is the power of the device while the layer's kernels ran; compare it with its share of time "
        "to see which layers draw more than the mean."
    ),
    columns=(
        STEP,
        Column(
            "scope", pl.String(), "model: the steps (or the trace) as a whole; layer: kernels of it.", role=Role.KEY
        ),
        Column("layer_index", pl.Int64(), "The layer; null for the model, and for work of no layer.", role=Role.KEY),
        Column("layer_name", pl.String(), "Name of the layer.", role=Role.LABEL),
        Column("layer_type", pl.String(), "What kind of layer it is.", role=Role.LABEL),
        Column("energy_j", pl.Float64(), "Energy that the devices used in that time, as far as sampled.", "J"),
        Column(
            "time_ns",
            TIME_NS,
            "The time: of steps, or in which the layer's kernels ran, summed over devices.",
            "ns",
        ),
        Column("mean_power_w", pl.Float64(), "Energy over the time that samples cover.", "W"),
        Column("covered_share", pl.Float64(), "Part of the time between the first and the last sample of power."),
    ),
    figure=FigureSpec("bars", x="layer_index", y=("energy_j",), title="Energy by layer"),
)
def energy(frames: StepView) -> pl.LazyFrame:
    """One row for the model, then one a layer in order, and last the work of no layer.

    Kernels of one layer that run side by side count their time once; where kernels of two layers do, the device's
    power counts for both, so that layers may sum to more than the model.
    """
    series = power_series(frames.of_trace.own_runs.frame("counters"))
    rows = pl.concat([_of_model(frames, series), _of_layers(frames, series)], how="diagonal")
    covered = pl.col("covered_ns")
    return (
        frames.combine(rows, _LAYER_KEYS, _SUMS)
        .lazy()
        .with_columns(
            pl.when(covered > 0).then(quotient(pl.col("energy_j") * _NS_PER_S, covered)).alias("mean_power_w"),
            pl.when(pl.col("time_ns") > 0).then(quotient(covered, pl.col("time_ns"))).alias("covered_share"),
        )
        .sort(*frames.by, pl.col("scope") != "model", *LAYER_KEY, nulls_last=True)
        .with_columns(pl.col(pl.Categorical).cast(pl.String))
    )


def _of_model(frames: StepView, series: Mapping[tuple[int, int | None], Energy]) -> pl.DataFrame:
    """One row a run and step: the energy of all its sampled devices in the time of the step, or of the whole trace."""
    used = _energy_of_intervals(_whole_times(frames, series), series)
    return used.group_by("run_id", "step", maintain_order=True).agg(
        pl.lit("model").alias("scope"), *(pl.col(c).sum() for c in _SUMS)
    )


def _whole_times(frames: StepView, series: Mapping[tuple[int, int | None], Energy]) -> pl.DataFrame:
    """The steps, or the runs as a whole, by device sampled."""
    if frames.choice.mode is StepMode.ALL:
        end = (pl.col("start_ns") + pl.col("duration_ns")).max()
        spans = frames.of_trace.own_runs.scan("spans")
        extents = spans.group_by("run_id").agg(pl.col("start_ns").min(), end.alias("end_ns")).collect()
        times = extents.with_columns(pl.lit(None, pl.Int64).alias("step"))
    else:
        times = frames.steps.with_columns(pl.col("begin_ns").alias("start_ns"))
    devices = pl.DataFrame(list(series), schema={"run_id": pl.Int64, "device_id": pl.Int64}, orient="row")
    return times.join(devices, on="run_id").select(_INTERVALS)


def _of_layers(frames: StepView, series: Mapping[tuple[int, int | None], Energy]) -> pl.DataFrame:
    """One row a run, step and layer: the energy of the devices while its kernels ran."""
    used = _energy_of_intervals(_while_kernels_ran(frames, LAYER_KEY), series)
    return used.group_by("run_id", "step", *LAYER_KEY, maintain_order=True).agg(
        pl.lit("layer").alias("scope"), *(pl.col(c).sum() for c in _SUMS)
    )


def _while_kernels_ran(frames: StepView, of: Sequence[str]) -> pl.DataFrame:
    """The intervals in which kernels ran, by run, step, device and these columns; what runs side by side is one."""
    keys = ["run_id", "step", "device_id", *of]
    end = (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    groups = (
        frames.of_trace.all_activities.with_columns(end).group_by(keys, maintain_order=True).agg("start_ns", "end_ns")
    )
    merged = [merge(row["start_ns"].to_numpy(), row["end_ns"].to_numpy()) for row in _lists(groups)]
    unions = groups.select(keys).with_columns(
        pl.Series("start_ns", [m[0] for m in merged], pl.List(pl.Int64)),
        pl.Series("end_ns", [m[1] for m in merged], pl.List(pl.Int64)),
    )
    return unions.explode("start_ns", "end_ns")


def _lists(groups: pl.DataFrame) -> list[dict[str, pl.Series]]:
    return [{c: groups[c][i] for c in ("start_ns", "end_ns")} for i in range(groups.height)]


def _energy_of_intervals(intervals: pl.DataFrame, series: Mapping[tuple[int, int | None], Energy]) -> pl.DataFrame:
    """The intervals of sampled devices with energy_j, covered_ns and time_ns."""
    parts = []
    for (run, device), samples in series.items():
        rows = intervals.filter(pl.col("run_id") == run, pl.col("device_id").eq_missing(pl.lit(device, pl.Int64)))
        start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
        parts.append(
            rows.with_columns(
                pl.Series("energy_j", samples.between(start, end), pl.Float64),
                pl.Series("covered_ns", samples.time_covered(start, end), pl.Int64),
                (pl.col("end_ns") - pl.col("start_ns")).alias("time_ns"),
            )
        )
    return pl.concat(parts)


# B44: what was sampled on devices, over steps, phases and layers.

_SAMPLED_KEYS = ("counter", "unit", "scope", "device_id", "phase", *LAYER_KEY)


@analysis(
    "B44",
    "sampled counters",
    needs=("device samples",),
    key=_SAMPLED_KEYS,
    read="Compare a layer with the model: where its mean is higher, its kernels use that part of the device more.",
    columns=(
        STEP,
        Column("counter", pl.String(), "What was sampled, as the tool calls it.", role=Role.KEY),
        Column("unit", pl.String(), "Its unit; share: of the most possible, 0 to 1.", role=Role.KEY),
        Column(
            "scope", pl.String(), "model: steps (or the trace) as a whole; phase, layer: its kernels.", role=Role.KEY
        ),
        Column("device_id", pl.Int64(), "The device that was sampled.", role=Role.KEY),
        Column("phase", pl.String(), "forward, recompute, backward, optimizer or other.", role=Role.KEY),
        Column("layer_index", pl.Int64(), "The layer; null for the others, and for work of no layer.", role=Role.KEY),
        Column("layer_name", pl.String(), "Name of the layer.", role=Role.LABEL),
        Column("layer_type", pl.String(), "What kind of layer it is.", role=Role.LABEL),
        Column("mean_value", pl.Float64(), "Mean by time; a sample's value holds until the next, but in a pause."),
        Column("time_ns", TIME_NS, "The time: of steps, or in which the kernels ran.", "ns"),
        Column("covered_share", pl.Float64(), "Part of that time that samples cover, pauses left out."),
    ),
)
def sampled_counters(frames: StepView) -> pl.LazyFrame:
    """One row a counter, device and scope: the model, its phases, then its layers in order, last work of no layer."""
    series = list(device_series(frames.of_trace.own_runs.frame("counters")))
    phases, layers = (_while_kernels_ran(frames, of) for of in (["phase"], LAYER_KEY))
    parts = []
    for counter, unit, sums in series:
        for scope, times in (("model", _whole_times(frames, sums)), ("phase", phases), ("layer", layers)):
            used = _energy_of_intervals(times, sums)
            named = {"counter": counter, "unit": unit, "scope": scope}
            parts.append(used.with_columns(pl.lit(text).alias(name) for name, text in named.items()))
    rows = pl.concat(parts, how="diagonal").with_columns(pl.col(pl.Categorical).cast(pl.String))
    covered = pl.col("covered_ns")
    order = pl.col("scope").replace_strict({"model": 0, "phase": 1, "layer": 2})
    return (
        frames.combine(rows, _SAMPLED_KEYS, _SUMS)
        .lazy()
        .with_columns(
            pl.when(covered > 0).then(quotient(pl.col("energy_j") * _NS_PER_S, covered)).alias("mean_value"),
            pl.when(pl.col("time_ns") > 0).then(quotient(covered, pl.col("time_ns"))).alias("covered_share"),
        )
        .sort(*frames.by, "counter", "unit", order, "device_id", "phase", *LAYER_KEY, nulls_last=True)
    )


# B37: shares of processors, memory, network and disks over the steps, from samples of the machine.
#
# Source: Zhu et al., "Benchmarking and Analyzing Deep Neural Network Training", IISWC 2018: CPU utilisation is the
# time of all cores in which they were active over the time elapsed times their number; GPU utilisation stands beside.

_COLUMNS = (
    Column("run_id", pl.Int64(), "The run beside which was sampled.", role=Role.KEY),
    Column("resource", pl.String(), "What the row is of.", role=Role.KEY),
    Column("utilisation_share", pl.Float64(), "Mean part of it in use; null: how much it can do is not known."),
    Column("min_share", pl.Float64(), "In the sample in which least was."),
    Column("max_share", pl.Float64(), "In the sample in which most was."),
    Column("mean_byte_per_s", pl.Float64(), "Bytes moved a second.", "byte/s"),
    Column("max_byte_per_s", pl.Float64(), "In the sample in which most was.", "byte/s"),
    Column("mean_bytes", pl.Float64(), "Memory in use.", "byte"),
    Column("max_bytes", pl.Float64(), "In the sample in which most was.", "byte"),
    Column("covered_share", pl.Float64(), "Part of the time, first step's start to last one's end, that was sampled."),
    Column("basis", pl.String(), "samples of the machine, or kernels recorded.", role=Role.LABEL),
)
_MEASURES = {
    "share": ("utilisation_share", "min_share", "max_share"),
    "byte/s": ("mean_byte_per_s", None, "max_byte_per_s"),
    "byte": ("mean_bytes", None, "max_bytes"),
}


@analysis(
    "B37",
    "system shares",
    needs=("system",),
    columns=_COLUMNS,
    read="Where the processors or a disk are busy and the GPU is not, the input pipeline is what steps wait for.",
    by_step=False,
)
def system_shares(frames: StepView) -> pl.LazyFrame:
    """One row a run and resource: processors, memory, network, disks, and last the GPU by the kernels recorded.

    Of the time from the first step's start to the last one's end; without steps, of the whole run.
    """
    rows = list(_shares_of_samples(frames))
    sampled = {row["run_id"] for row in rows}
    works = not frames.of_trace.all_activities.is_empty() and list(sampled) == frames.of_trace.kernel_runs.ids
    share = device_time.utilisation(frames).share if works else None
    if share is not None:
        kernels = {"resource": "gpu", "utilisation_share": share, "basis": "kernels recorded"}
        rows.append({"run_id": rows[0]["run_id"], **kernels})
    schema = {c.name: c.type_of(averaged=False) for c in _COLUMNS}
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema, orient="row").lazy()


def _shares_of_samples(frames: StepView) -> Iterator[dict[str, Any]]:
    of_runs = _windows(frames)
    series = system_series(frames.of_trace.own_runs.frame("counters"))
    for run in sorted({run for run, _ in series}):
        for counter, quantity in QUANTITIES.items():
            if (run, counter) not in series or run not in of_runs:
                continue
            start, end = of_runs[run]
            over = series[run, counter].over(start, end)
            if over is None:
                continue
            mean, low, high, covered = over
            names = _MEASURES[quantity.unit]
            measured = {name: value for name, value in zip(names, (mean, low, high), strict=True) if name}
            yield {
                "run_id": run,
                "resource": quantity.name,
                **measured,
                "covered_share": covered / (end - start) if end > start else None,
                "basis": "samples of the machine",
            }


def _windows(frames: StepView) -> dict[int, tuple[int, int]]:
    """From the first step's start to the last one's end, by run; of runs without steps their extent in time."""
    end = (pl.col("start_ns") + pl.col("duration_ns").fill_null(0)).max().alias("end_ns")
    extents = frames.of_trace.own_runs.scan("spans").group_by("run_id").agg(pl.col("start_ns").min(), end).collect()
    sampled = (
        frames.of_trace.own_runs.frame("counters")
        .group_by("run_id")
        .agg(pl.col("time_ns").min().alias("start_ns"), pl.col("time_ns").max().alias("end_ns"))
    )
    windows = {run: (start, stop) for run, start, stop in sampled.iter_rows()}
    windows |= {run: (start, stop) for run, start, stop in extents.iter_rows()}
    steps = frames.every_step.drop_nulls(["begin_ns", "end_ns"])
    marked = steps.group_by("run_id").agg(pl.col("begin_ns").min(), pl.col("end_ns").max())
    windows |= {run: (start, stop) for run, start, stop in marked.iter_rows()}
    return windows
