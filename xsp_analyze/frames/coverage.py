"""What the numbers of steps cover, where they are from, and flags on those that cannot be right."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import quotient, total_of
from xsp_analyze.frames.kernels.activities import (
    COUNTERS,
    are_known,
    attribution_bases,
    counter_columns,
    summed_columns,
)
from xsp_analyze.frames.kernels.kernel_means import (
    chosen_activities,
    counted_work,
    kernel_executions,
    layer_executions,
    named_work,
)
from xsp_analyze.frames.kernels.roofline import DEVICE, by_precision, device_peaks, under_roof
from xsp_analyze.frames.layers.layer_time import LAYER_KEY, layer_bases, layer_calls, layer_latencies
from xsp_analyze.frames.model_time import latency_by_run
from xsp_analyze.frames.operators.operator_calls import call_kinds
from xsp_analyze.frames.operators.operator_work import roofed_calls
from xsp_analyze.frames.samples import samples_of_devices
from xsp_analyze.frames.steps import StepBasis, StepFault, StepMode
from xsp_analyze.needs import holds
from xsp_analyze.work_models.call import Tensor, call_of
from xsp_model import Attribution, AttributionBasis, Finding, Kind, LedgerKind, Level, Phase, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace

__all__ = ["ATTRIBUTIONS", "attribution", "flags", "layer_work", "ledger", "ledger_entries", "provenance", "ways"]

# What a call of each layer must do at least, modelled from the shapes that its operators took.

_READING_ALL = (None, "matrix product", "convolution", "normalisation", "softmax", "elementwise")
_ENOUGH = 32  # times: an operation of the model, an exponential say, is several of the device


def layer_work(frames: TraceView) -> pl.DataFrame:
    """One row a layer whose operators recorded shapes: the columns of LAYER_KEY and a forward call's least work.

    `input_bytes` and `output_bytes`: of the operator in it with most, as what passes between operators may stay in
    caches; `flop`: products, where all its operators are modelled and the rest hardly counts. Each is a mean over
    its calls in all runs; null: not modelled.
    """
    kinds = frames.once(call_kinds)
    kind_of = pl.DataFrame({"span_id": kinds.ids, "kind": kinds.kind_of})
    works = kinds.kinds.select("flop", "vector_flop", _read_bytes(kinds.kinds), "written_bytes").with_row_index("kind")
    counts = pl.col("flop") >= _ENOUGH * pl.col("vector_flop")
    calls = (
        _outermost(frames.trace)
        .join(kind_of, on="span_id", how="left", maintain_order="left")
        .join(works.with_columns(pl.col("kind").cast(pl.Int64)), on="kind", how="left", maintain_order="left")
        .group_by("layer_id", maintain_order=True)
        .agg(
            pl.col("read_bytes").max().alias("input_bytes"),
            pl.col("written_bytes").max().alias("output_bytes"),
            pl.when(pl.col("flop").is_not_null().all()).then(pl.col("flop").sum()).alias("flop"),
            pl.col("vector_flop").sum(),
        )
        .with_columns(pl.when(counts, pl.col("flop") > 0).then("flop").alias("flop"))
    )
    layers = frames.trace.frame("layers").select(pl.col("span_id").alias("layer_id"), *LAYER_KEY)
    return (
        calls.join(layers.filter(pl.col("layer_index").is_not_null()), on="layer_id", how="inner")
        .group_by(LAYER_KEY, maintain_order=True)
        .agg(pl.col("input_bytes", "output_bytes", "flop").mean())
    )


def _read_bytes(kinds: pl.DataFrame) -> pl.Series:
    """What a call of each kind reads: as modelled; else all its tensors, but where models say that parts may do."""
    rows = zip(kinds["read_bytes"], kinds["operator_class"], kinds["input_shapes"], kinds["input_dtypes"], strict=True)
    return pl.Series(
        "read_bytes",
        [
            _tensor_bytes(shapes, dtypes) if modelled is None and kind in _READING_ALL else modelled
            for modelled, kind, shapes, dtypes in rows
        ],
        dtype=pl.Float64,
    )


def _tensor_bytes(shapes: str | None, dtypes: str | None) -> float | None:
    call = call_of("", shapes, dtypes)
    tensors = [each for each in (call.inputs if call else ()) if isinstance(each, Tensor)]
    return float(sum(each.bytes for each in tensors)) if tensors else None


def _outermost(trace: Trace) -> pl.DataFrame:
    """span_id and layer_id of forward operators of layers that ran inside no other one."""
    operators = trace.scan("spans").filter(pl.col("level") == str(Level.OPERATOR))
    inner = operators.select("span_id").with_columns(pl.lit(value=True).alias("inside"))
    return (
        operators.join(inner, left_on="parent_id", right_on="span_id", how="left")
        .filter(
            pl.col("inside").is_null(),
            pl.col("layer_id").is_not_null(),
            pl.col("phase").is_null() | (pl.col("phase") == str(Phase.FORWARD)),
        )
        .sort("start_ns", "span_id")
        .select("span_id", "layer_id")
        .collect()
    )


# Flags on numbers that cannot be right: measured work held against the device, the tensors and the model.

_ROUNDING = 1e-6
_CALL_ROUNDING_NS = 1_000  # profilers write whole microseconds
_LARGEST_CACHE_BYTES = 256 << 20  # what the last cache of today's devices holds at most
_FAR = 4  # fast convolutions need up to so many times fewer flops than the plain one
_MAX_NAMED = 3
_LOST = "Check that the counters are of these kernels, and of all of them"
_CACHED = "Measure with caches flushed between kernels (ncu --cache-control all) to be sure"
_FLOPS = "Measure the flop counts of every precision, tensor cores included"
_PEAKS = "Check the peak rates (xsp devices, --device FILE.toml), and that counters and durations are of the same work"


def flags(frames: StepView, *, on_layers: bool = True) -> Iterator[Finding]:
    """Findings of kinds `sanity_*`, over the steps chosen; one that counts nothing says nothing.

    `on_layers` false leaves out whether layers fit in their steps.
    """
    yield from _sums(frames)
    if on_layers:
        yield _of_steps(frames)
    if frames.of_trace.device_work.is_empty() or not are_known(frames.once(named_work)):
        return
    yield from _above_roof(frames)
    yield from _occupancy(frames.once(kernel_executions))
    if not frames.of_trace.once(layer_calls).is_empty():
        held = _beside_model(frames)
        yield from _short_of_tensors(
            held, ("dram_read_bytes", "input_bytes"), "read fewer bytes than their input tensors hold"
        )
        yield from _short_of_tensors(
            held, ("dram_write_bytes", "output_bytes"), "wrote fewer bytes than their output tensor holds"
        )
        yield from _far_from_model(held)


def _finding(
    kind: str,
    what: str,
    rows: pl.DataFrame,
    text: pl.Expr,
    advice: str,
    *,
    severity: Severity = Severity.WARNING,
) -> Finding:
    """The finding on these rows, the first of which are named by `text`."""
    named = rows.head(_MAX_NAMED).select(text.alias("words"))["words"].to_list()
    others = f" and {rows.height - len(named)} more" if rows.height > len(named) else ""
    duration = round(rows["duration_ns"].sum()) if "duration_ns" in rows.columns else None
    detail = f"{what}: {', '.join(named)}{others}"
    return Finding(LedgerKind(f"sanity_{kind}"), detail, rows.height, severity, duration, advice)


def _above_roof(frames: StepView) -> Iterator[Finding]:
    rows = by_precision(frames.once(kernel_executions).with_row_index("execution"))
    above = (
        under_roof(rows, device_peaks(frames), on=DEVICE)
        .filter(pl.col("roof_share") > 1 + _ROUNDING)
        .sort("execution", "place")
        .unique("execution", keep="first", maintain_order=True)
        .with_columns(pl.col("kernel_name").cast(pl.String))
    )
    share = (pl.col("roof_share") * 100).round(1)
    text = pl.format("{} in {} ({} % of the {} roof)", "kernel_name", _layer_or("no layer"), share, "precision")
    yield _finding("above_roof", "kernels did more than their device can", above, text, _PEAKS)


def _layer_or(otherwise: str) -> pl.Expr:
    return pl.col("layer_name").cast(pl.String).fill_null(otherwise)


def _occupancy(executions: pl.DataFrame) -> Iterator[Finding]:
    value = pl.col("achieved_occupancy")
    odd = executions.filter(value.is_not_null(), ~value.is_between(0, 1 + _ROUNDING))
    text = pl.format("{} in {} ({})", pl.col("kernel_name").cast(pl.String), _layer_or("no layer"), value)
    yield _finding("occupancy", "kernels whose achieved occupancy lies outside of 0 to 1", odd, text, _LOST)


def _beside_model(frames: StepView) -> pl.DataFrame:
    """One row a layer (and step) all of whose forward kernels were measured: per call, its counters and its work."""
    keys = [*frames.by, *LAYER_KEY]
    calls = frames.once(layer_latencies).select(*keys, "call_count").filter(pl.col("call_count") > 0)
    per_call = (
        quotient(pl.col(c), pl.col("call_count")) for c in ("dram_read_bytes", "dram_write_bytes", "measured_flop")
    )
    return (
        _forward(frames, keys)
        .join(calls, on=keys, how="inner", nulls_equal=True, maintain_order="left")
        .join(layer_work(frames.of_trace), on=LAYER_KEY, how="inner", maintain_order="left")
        .with_columns(*per_call)
        .sort(keys, nulls_last=True)
    )


def _forward(frames: StepView, keys: Sequence[str]) -> pl.DataFrame:
    """Sums over each layer's forward work; bytes of copies count too. Null where a kernel was not measured."""
    copies = frames.trace.frame("copies").select("span_id", pl.col("bytes").alias("copied_bytes"))
    phase = pl.col("phase").cast(pl.String)
    work = (
        frames.once(kernel_executions)
        .filter(pl.col("attribution") == str(Attribution.LAYER), phase.is_null() | (phase == str(Phase.FORWARD)))
        .join(copies, on="span_id", how="left", maintain_order="left")
    )
    flops = [c for c in summed_columns(work) if c.startswith("flop_count")]
    is_kernel = pl.col("kind") == str(Kind.KERNEL)
    copied = pl.col("copied_bytes").fill_null(0) * pl.col("count")
    every_flop = pl.when(pl.any_horizontal(pl.col(flops).is_not_null())).then(pl.sum_horizontal(flops))
    return (
        work.with_columns(
            pl.when(is_kernel).then(pl.col("dram_read_bytes")).otherwise(copied).alias("dram_read_bytes"),
            pl.when(is_kernel).then(pl.col("dram_write_bytes")).otherwise(copied).alias("dram_write_bytes"),
            pl.when(is_kernel).then(every_flop).otherwise(0.0).alias("measured_flop"),
        )
        .group_by(keys, maintain_order=True)
        .agg(
            pl.when(pl.col(c).is_not_null().all() & is_kernel.any()).then(pl.col(c).sum()).alias(c)
            for c in ("dram_read_bytes", "dram_write_bytes", "measured_flop")
        )
    )


def _short_of_tensors(held: pl.DataFrame, columns: tuple[str, str], what: str) -> Iterator[Finding]:
    moved, size = (pl.col(c) for c in columns)
    short = held.filter(moved < size * (1 - _ROUNDING))
    lost = short.filter(size - moved > _LARGEST_CACHE_BYTES)
    cached = short.filter(size - moved <= _LARGEST_CACHE_BYTES)
    integers = (pl.col(c).round().cast(pl.Int64) for c in columns)
    text = pl.format("{} ({} of {} bytes)", pl.col("layer_name").cast(pl.String), *integers)
    yield _finding(columns[0], f"layers whose kernels {what}", lost, text, _LOST)
    maybe = f"layers whose kernels {what}, by so little that a cache may have held the rest"
    yield _finding(columns[0], maybe, cached, text, _CACHED, severity=Severity.INFO)


def _far_from_model(held: pl.DataFrame) -> Iterator[Finding]:
    measured, modelled = pl.col("measured_flop"), pl.col("flop")
    far = held.filter((measured > _FAR * modelled) | (measured * _FAR < modelled))
    integers = (c.round().cast(pl.Int64) for c in (measured, modelled))
    text = pl.format("{} ({} measured, {} modelled)", pl.col("layer_name").cast(pl.String), *integers)
    what = "layers whose measured flops are over four times more or fewer than their shapes ask for"
    yield _finding("flop_count", what, far, text, _FLOPS)


def _sums(frames: StepView) -> Iterator[Finding]:
    """Device time must be the same before and after kernels are matched over steps; whole steps match none."""
    if not frames.is_mean:
        return
    device, tables = (
        total_of(frames.once(chosen_activities)["mean_ns"]),
        total_of(frames.once(kernel_executions)["duration_ns"]),
    )
    if abs(device - tables) > _ROUNDING * device:
        detail = f"device time is {device:.0f} ns in the trace's steps, but {tables:.0f} ns in the tables over kernels"
        yield Finding(LedgerKind.SANITY_SUMS, detail)


def _of_steps(frames: StepView) -> Finding:
    """Layers must fit in their step."""
    text = pl.format("step {} of run {} ({} of {} ns)", "step", "run_id", "layers_ns", "host_ns")
    what = "steps whose layers, outside of each other on one thread, take longer than the step"
    advice = "The calls of these layers overlap; take layer latency from a run in which they do not"
    return _finding("sums", what, _overfull(frames), text, advice)


def _overfull(frames: StepView) -> pl.DataFrame:
    """Steps (of serialised runs) with the host time of their layers on one thread, where that exceeds the step's."""
    hosted = frames.of_trace.once(layer_bases).filter(pl.col("basis") == "host")["run_id"]
    calls = frames.of_trace.once(layer_calls).filter(pl.col("run_id").is_in(hosted.implode()))
    of_calls = pl.col("span_id").is_in(calls["span_id"].implode())  # so that the many others are not read
    threads = frames.of_trace.own_runs.scan("spans").filter(of_calls).select("span_id", "process_id", "thread_id")
    sums = (
        calls.lazy()
        .join(threads, on="span_id", how="left")
        .group_by("run_id", "step", "process_id", "thread_id")
        .agg(pl.col("host_ns").sum().alias("layers_ns"), pl.len().alias("calls"))
        .collect()
    )
    rounding = pl.col("calls") * _CALL_ROUNDING_NS
    return (
        frames.steps.join(sums, on=["run_id", "step"], how="inner", maintain_order="left")
        .filter(pl.col("layers_ns") > pl.col("host_ns") + rounding)
        .sort("run_id", "step", "process_id", "thread_id")
    )


# What the numbers of steps cover: the ledger's rows on device time, and the provenance.

ATTRIBUTIONS: Mapping[Attribution, LedgerKind] = {a: LedgerKind(a) for a in Attribution}
"""The ledger's kind for each place that device time can go to."""
_ROUNDING_NS, _ROUNDING_SHARE = 1_000, 0.001
_FAULTS: Mapping[StepFault, LedgerKind] = {
    StepFault.EMPTY: LedgerKind.STEP_WITHOUT_DEVICE_WORK,
    StepFault.CUT: LedgerKind.STEP_INCOMPLETE,
    StepFault.WAITS: LedgerKind.STEP_BEGINS_IN_WAIT,
}
_OVER_RUNS = "times are summed over runs; model latency is their mean"
_SCHEMA = {
    "run_id": pl.Int64(),
    "kind": pl.String(),
    "severity": pl.String(),
    "count": pl.Int64(),
    "duration_ns": pl.Int64(),
    "detail": pl.String(),
    "advice": pl.String(),
}
_ALL_STEPS = {"extent": "first start to last end of the trace", "sum": "the sum of the steps timed without a profiler"}
_Row = dict[str, object]


_OF_COUNTERS = (
    "Record the ranges of layers with the counters (ncu --nvtx), or join the run to a timeline with xsp merge"
)


def attribution(frames: StepView, by: Sequence[str] = ()) -> pl.DataFrame:
    """Where device time went: kind, count, duration_ns (of each step, if `by` says so), in the order of `Attribution`.

    Only what occurs; with severity, detail and advice.
    """
    time = pl.col("duration_ns").sum()
    sums = (
        frames.once(named_work)
        .group_by(*by, pl.col("attribution").alias("kind"), maintain_order=True)
        .agg(pl.col("count").sum(), time if frames.of_trace.is_timed else pl.lit(None, pl.Int64).alias("duration_ns"))
    )
    per_step = ", per step" if frames.is_mean else ""
    bases = {LedgerKind.LAYER: ways(frames)}
    instead = {LedgerKind.ORPHAN_NO_CORRELATION: _OF_COUNTERS} if frames.of_trace.is_one_by_one else {}
    texts = pl.DataFrame(
        [
            (str(k), str(k.severity), k.sentence + per_step + bases.get(k, ""), instead.get(k, k.advice))
            for k in ATTRIBUTIONS.values()
        ],
        schema=["kind", "severity", "detail", "advice"],
        orient="row",
    )
    return (
        texts.with_row_index("place")
        .join(sums.with_columns(pl.col("kind").cast(pl.String)), on="kind")
        .sort(*by, "place")
        .drop("place")
    )


def ways(frames: StepView) -> str:
    """How the layers of work are known that did not simply run in them, with the time of each way; else empty."""
    if not frames.trace.height("attributions"):
        return ""
    work = frames.once(named_work).select(
        "duration_ns", attribution_bases(frames.trace, frames.once(named_work)["span_id"])
    )
    total = work["duration_ns"].sum()
    time = work.drop_nulls().group_by("attribution_basis").agg(pl.col("duration_ns").sum())
    shares = [
        f"{100 * duration / total:.1f} % of all device time by {_BASES[AttributionBasis(basis)]}"
        for basis, duration in time.sort(-pl.col("duration_ns"), "attribution_basis").iter_rows()
        if total
    ]
    return f" ({', '.join(shares)})" if shares else ""


_BASES: Mapping[AttributionBasis, str] = {
    AttributionBasis.GRAPH_NODE: "the graph nodes that the file names",
    AttributionBasis.GRAPH_CAPTURE: "the capture of the replayed graphs",
    AttributionBasis.ALIGNED: "the same kernels of a run without graphs",
    AttributionBasis.ANNOTATION: "what the framework wrote beside them",
    AttributionBasis.COMPILED_CODE: "what the compiler says of its kernels",
}


def ledger(frames: StepView, *, on_layers: bool = True, on_work: bool = True) -> pl.DataFrame:
    """The rows on coverage, then the trace's own; those of the trace that coverage says more exactly give way.

    `on_layers` false leaves out what concerns tables over layers alone, which takes longest to find out, and `on_work`
    false what concerns modelled work alone.
    In a mean step, counts and durations of coverage are per step, so those columns are Float64.
    """
    return frames.once(_ledger, on_layers=on_layers, on_work=on_work)


def ledger_entries(frames: StepView) -> pl.DataFrame:
    """The ledger's rows but those on attribution, what several runs have in common as one: counts and times summed.

    `run_id` is a list of the runs, in order, and `times` how many rows of the ledger an entry is of.
    """
    return (
        ledger(frames)
        .filter(~pl.col("kind").is_in([str(a) for a in Attribution]))
        .group_by("kind", "severity", "detail", "advice", maintain_order=True)
        .agg(
            pl.col("count").sum(),
            pl.col("duration_ns").sum().replace(0, None),
            pl.col("run_id").drop_nulls().unique().sort(),
            pl.len().alias("times"),
        )
    )


def _ledger(frames: StepView, *, on_layers: bool, on_work: bool) -> pl.DataFrame:
    flagged = (asdict(f) for f in flags(frames, on_layers=on_layers) if f.count)
    refused = _refused_models(frames) if on_work else ()
    rows = [*_omissions(frames), *_doubts(frames, on_layers=on_layers), *refused, *flagged]
    number = pl.Float64() if frames.is_mean else pl.Int64()
    schema = {**_SCHEMA, "count": number, "duration_ns": number}
    ours = pl.DataFrame(rows, schema=schema, orient="row")
    own = frames.of_trace.own_runs.frame("ledger").filter(~pl.col("kind").is_in([str(a) for a in Attribution]))
    return pl.concat([attribution(frames), ours, own], how="diagonal_relaxed").select(*schema)


def _row(kind: LedgerKind, count: object, duration_ns: object, severity: Severity | None = None) -> _Row:
    return {
        "run_id": None,
        "kind": str(kind),
        "severity": str(severity or kind.severity),
        "count": count,
        "duration_ns": duration_ns,
        "detail": kind.sentence,
        "advice": kind.advice,
    }


def _omissions(frames: StepView) -> Iterator[_Row]:
    """What the choice of steps leaves out: device work outside of them, kernels that are not in all of them."""
    inside = frames.of_chosen_steps(frames.of_trace.device_work)
    outside = frames.of_trace.device_work.height - inside.height
    if frames.is_whole_for_want_of_steps:
        yield _row(LedgerKind.STEPS_HOLD_LITTLE, frames.of_trace.marked_steps.height, None)
    if outside:
        duration = int(frames.of_trace.device_work["duration_ns"].sum()) - int(inside["duration_ns"].sum())
        few = frames.choice.mode is StepMode.ONE or frames.serving_phase is not None
        severity = Severity.INFO if few else None
        yield _row(LedgerKind.OUTSIDE_STEPS, outside, duration, severity)
    if frames.is_mean:
        for fault, rows in frames.faulty_steps.sort("fault").group_by("fault", maintain_order=True):
            yield _row(_FAULTS[StepFault(str(fault[0]))], rows.height, None)
        ramp_up = frames.worked_steps.join(frames.steps, on=["run_id", "step"], how="anti")
        if not ramp_up.is_empty():
            yield _row(LedgerKind.RAMP_UP_STEPS, ramp_up.height, int(ramp_up["duration_ns"].sum()))
    if frames.is_mean:
        partial = frames.once(chosen_activities).filter(pl.col("present") < pl.col("step_count"))
        if not partial.is_empty():
            yield _row(LedgerKind.NOT_IN_EVERY_STEP, partial["execution"].n_unique(), partial["mean_ns"].sum())


def _doubts(frames: StepView, *, on_layers: bool) -> Iterator[_Row]:
    """What is missing from, or odd in, the tables over layers and counters."""
    if frames.of_trace.device_work.is_empty():
        return
    rows = frames.once(named_work)
    counted = are_known(frames.of_trace.once(counted_work))
    if not counted and samples_of_devices(frames.of_trace.own_runs.frame("counters")).is_empty():
        yield _row(LedgerKind.NO_COUNTERS, rows["count"].sum(), None)
    if counted:
        yield from _without_counters(rows.filter(pl.col("kind") == str(Kind.KERNEL)))
    if on_layers and not frames.of_trace.once(layer_calls).is_empty():
        yield from _negative(frames)


def _refused_models(frames: StepView) -> Iterator[_Row]:
    """Of the whole trace the calls whose modelled work is impossible, with the names of those of most device time."""
    if not holds(frames.of_trace, "operators") or not holds(frames.of_trace, "kernel"):
        return
    refused = frames.of_trace.once(roofed_calls).cases.filter("is_refused")
    if not refused.is_empty():
        by_name = refused.group_by("name").agg(pl.col("spent_ns").sum()).sort(-pl.col("spent_ns"), "name")
        row = _row(LedgerKind.WORK_MODEL_REFUSED, refused["times"].sum(), int(refused["spent_ns"].sum()))
        named = ", ".join(by_name["name"].head(_MAX_NAMED)) + (", ..." if by_name.height > _MAX_NAMED else "")
        yield {**row, "detail": f"{row['detail']}: {named}"}


def _without_counters(kernels: pl.DataFrame) -> Iterator[_Row]:
    """Kernels that lack all counters; and of the others those that lack one that others have, with its name."""
    measured = pl.any_horizontal(pl.col(counter_columns(kernels)).is_not_null())
    bare, rest = kernels.filter(~measured), kernels.filter(measured)
    if not bare.is_empty():
        yield _row(LedgerKind.COUNTERS_PARTIAL, bare["count"].sum(), bare["duration_ns"].sum())
    for counter in COUNTERS:
        lacking = rest.filter(pl.col(counter).is_null())
        if not lacking.is_empty() and lacking.height < rest.height:
            row = _row(LedgerKind.COUNTERS_PARTIAL, lacking["count"].sum(), lacking["duration_ns"].sum())
            yield {**row, "detail": f"kernels without {counter}, which others have; sums and means leave them out"}


def _negative(frames: StepView) -> Iterator[_Row]:
    keys = [*frames.by, *LAYER_KEY]
    inside = frames.once(layer_executions).filter(pl.col("attribution") == str(Attribution.LAYER))
    kernels = inside.group_by(keys, maintain_order=True).agg(pl.col("duration_ns").sum().alias("kernel_ns"))
    excess, latency = pl.col("kernel_ns") - pl.col("latency_ns"), pl.col("latency_ns")
    # kernels of one stream overlap by a few ns as profilers round their times: no sign that layers ran side by side
    is_rounding = (excess < _ROUNDING_NS) & (excess < _ROUNDING_SHARE * latency)
    rest = frames.once(layer_latencies).join(kernels, on=keys, nulls_equal=True).filter((excess > 0) & ~is_rounding)
    if not rest.is_empty():
        longer = (rest["kernel_ns"] - rest["latency_ns"]).sum()
        yield _row(LedgerKind.NEGATIVE_NON_KERNEL, rest.height, longer)


def provenance(frames: StepView, *, on_layers: bool = True) -> Mapping[str, object]:
    """JSON-able facts on where the numbers come from; what is on layers alone is null without `on_layers`."""
    return frames.once(_provenance, on_layers=on_layers)


def _provenance(frames: StepView, *, on_layers: bool) -> Mapping[str, object]:
    runs = frames.trace.frame("runs")
    sources = [
        {"file": r["source_path"], "sha256": r["source_sha256"], "format": r["format"], "profiler": r["profiler"]}
        for r in runs.iter_rows(named=True)
    ]
    basis, is_observed = _layer_basis(frames) if on_layers else (None, None)
    return {
        "sources": sources,
        "run_count": len(frames.of_trace.timed_runs),
        "taken_from": dict(frames.of_trace.source_files) or None,
        "levels": list(frames.trace.levels),
        "layer_source": _layer_source(frames),
        "steps": str(frames.choice),
        "serving_phase": frames.serving_phase and str(frames.serving_phase),
        "step_count": frames.steps["step"].n_unique(),
        "ramp_up_steps": frames.ramp_up_count,
        "model_latency_basis": _model_basis(frames),
        "layer_latency_basis": basis,
        "layer_latency_basis_observed": is_observed,
        "layer_coverage": _layer_coverage(frames) if on_layers else None,
        "over_runs": _OVER_RUNS if len(frames.of_trace.kernel_runs) > 1 else None,
    }


def _layer_basis(frames: StepView) -> tuple[str | None, bool | None]:
    """What layer latency is measured by, and whether that was observed rather than supposed."""
    if frames.of_trace.once(layer_calls).is_empty():
        return None, None
    bases = frames.of_trace.once(layer_bases)
    return " and ".join(bases["basis"].unique().sort()) or None, bool(bases["observed"].any())


def _layer_coverage(frames: StepView) -> float | None:
    """The share of device time that belongs to a layer; null without layers, or without any device time."""
    if frames.of_trace.once(layer_calls).is_empty():
        return None
    time = pl.col("duration_ns")
    in_layers = time.filter(pl.col("attribution").cast(pl.String) == str(Attribution.LAYER)).sum()
    total, covered = frames.once(named_work).select(time.sum(), in_layers.alias("covered")).row(0)
    return float(covered / total) if total else None


def _layer_source(frames: StepView) -> str | None:
    """What the layers are from, in the runs that layer latency is taken from."""
    runs = frames.of_trace.layer_runs.table
    return " and ".join(sorted(set(runs["layer_source"].drop_nulls()))) or None


def _model_basis(frames: StepView) -> str:
    """How latency was taken, in a sentence."""
    bases = list(dict.fromkeys(frames.once(latency_by_run)["basis"].list.explode().drop_nulls()))
    if bases == [StepBasis.LOAD_TEST]:
        return StepBasis.LOAD_TEST.sentence
    if frames.of_trace.marked_steps.is_empty():
        return "first start to last end of the trace"
    if frames.choice.mode is StepMode.ALL:
        return " and ".join(_ALL_STEPS.get(basis) or StepBasis(basis).sentence for basis in bases)
    sentences = "; ".join(f"{basis}: {StepBasis(basis).sentence}" for basis in bases)
    return f"{'trimmed mean of step latencies' if frames.is_mean else 'step latencies'} ({sentences})"
